"""C structs that Python reads and writes too: numpy's records and ctypes' structures have every member in its place."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pdla.collectors import rawlog, windows
from pdla.replicator import file_identity, intent, journals, mapfile
from pdla.simulator import caching, core
from tests.support.compilers import compiled
from tests.support.mpi import REPOSITORY

STRUCTS: Mapping[str, Mapping[str, Any]] = {
    "replicator/stub/mapfile.h": {
        "map_header": mapfile.HEADER,
        "map_file": mapfile.FILE,
        "map_target": mapfile.TARGET,
        "map_replica": mapfile.REPLICA,
        "map_component": mapfile.COMPONENT,
        "state_header": mapfile.STATE_HEADER,
        "state_file": mapfile.STATE_FILE,
    },
    "replicator/stub/journal.h": {
        "journal_header": journals.HEADER,
        "journal_state": journals.STATE,
        "journal_entry": journals.ENTRY,
        "file_attributes": journals.ATTRIBUTES,
        "own_file": journals.OWN_FILE,
    },
    "replicator/stub/file_identity.h": {"file_identity": file_identity.RECORD},
    "replicator/stub/intent.h": {"intent": intent.RECORD},
    "collectors/shim/rawlog.h": {
        "rawlog_header": rawlog.HEADER,
        "rawlog_clock": rawlog.CLOCK,
        "rawlog_pair": windows.PAIR,
        "rawlog_record": windows.RECORD,
        "rawlog_side": rawlog.SIDE_ENTRY,
        "rawlog_file": rawlog.SIDE_FILE,
        "rawlog_view": rawlog.SIDE_VIEW,
    },
    "pdla/simulator/core/simulator.h": {
        "sim_server": core.SERVER,
        "sim_object": core.OBJECT,
        "sim_map": core.MAP,
        "sim_loop": core.LOOP,
        "sim_nest": core.NEST,
        "sim_call": core.CALL,
        "sim_item": core.ITEM,
        "sim_pattern": core.PATTERN,
        "sim_part": core.PART,
        "sim_transfer": core.TRANSFER,
        "sim_event": core.EVENT,
        "sim_answer": core._Answer,
        "sim_close": core.CLOSE,
        "sim_input": core._Input,
        "sim_output": core._Output,
    },
    "pdla/caching/caching.h": {
        "caching_space": caching.Space,
        "caching_setup": caching.Setup,
        "caching_request": caching.Request,
        "caching_wish": caching.Wish,
        "caching_refusal": caching.Refusal,
        "caching_extent": caching.Extent,
        "caching_cursor": caching.Cursor,
        "caching_transfer": caching.Transfer,
        "caching_move": caching.Move,
        "caching_step": caching.Step,
        "caching_policy": caching.Policy,
        "caching_device": caching.Device,
        **{f"caching_{name}": kind for name, kind in caching.PARAMETERS.items()},
    },
}
INSIDE = {("map_file", name): f"identity.{name}" for name in ("device", "inode", "size", "mtime_ns", "ctime_ns")}
"""Members that C has in a struct of their own."""
ONE_A_FILE = ("rawlog_header",)
"""C's padding at the end is not read."""


def members(mirror: Any) -> Iterator[tuple[str, int, int]]:
    """(name, offset, size) of each member of a dtype or of a ctypes structure."""
    if isinstance(mirror, np.dtype):
        assert mirror.fields is not None
        yield from ((name, offset, kind.itemsize) for name, (kind, offset, *_) in mirror.fields.items())
    else:
        places = ((name, getattr(mirror, name)) for name, *_ in mirror._fields_)
        yield from ((name, place.offset, place.size) for name, place in places)


def size(mirror: Any) -> int:
    return mirror.itemsize if isinstance(mirror, np.dtype) else ctypes.sizeof(mirror)


def printed(header: str, directory: Path) -> list[str]:
    """The output of a C program: a line for each member, and one for each struct."""
    lines = []
    for struct, mirror in STRUCTS[header].items():
        for name, *_ in members(mirror):
            place = f"struct {struct}, {INSIDE.get((struct, name), name)}"
            extent = f"sizeof(((struct {struct} *)0)->{INSIDE.get((struct, name), name)})"
            lines.append(f'printf("{struct}.{name} %zu %zu\\n", offsetof({place}), {extent});')
        if struct not in ONE_A_FILE:
            lines.append(f'printf("{struct} %zu\\n", sizeof(struct {struct}));')
    body = "\n".join(lines)
    source, program = directory / "layout.c", directory / "layout"
    source.write_text(
        f'#include <stddef.h>\n#include <stdio.h>\n#include "{Path(header).name}"\nint main(void) {{\n{body}\n}}\n'
    )
    compiled(["gcc", "-std=gnu11", f"-I{(REPOSITORY / header).parent}", "-o", program, source])
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("header", STRUCTS)
def test_python_has_every_member_where_c_has_it(header: str, tmp_path: Path) -> None:
    wanted = []
    for struct, mirror in STRUCTS[header].items():
        wanted += [f"{struct}.{name} {offset} {extent}" for name, offset, extent in members(mirror)]
        if struct not in ONE_A_FILE:
            wanted.append(f"{struct} {size(mirror)}")
    assert printed(header, tmp_path) == wanted
