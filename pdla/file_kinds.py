"""Find out what a file is by its content, so that a verb that gets the wrong kind of file can name what it got."""

from __future__ import annotations

import re
import tomllib
import zlib
from collections.abc import Iterator
from pathlib import Path

from pdla.errors import FormatError

TRACE, PLAN, CLUSTER, LOGS = "a trace", "a plan", "a cluster file", "a directory of raw logs"
MAP, CATALOG = "a map of replicas", "a catalog"
DARSHAN, PARQUET = "a Darshan log", "a Parquet file"
DFTRACER, RECORDER = "a DFTracer trace", "a trace of Recorder"
OTF2 = "an OTF2 archive"
CSV, IOSIG, PYTHON = "a CSV file of accesses", "an IOSIG trace", "a Python file"
TEXT, JSON, UNKNOWN = "a text file", "a JSON file", "a file of unknown content"

MAKES = {
    TRACE: "'pdla trace' makes one, 'pdla import' takes other logs",
    PLAN: "'pdla plan RUN.h5 -o PLAN.json' makes one",
    CLUSTER: "'pdla calibrate' writes one, docs/cluster.md describes it",
    LOGS: "'pdla trace' leaves one, .RUN.h5.*.raw, when it is killed",
    DARSHAN: "Darshan writes one for each run",
    DFTRACER: "DFTracer writes one for each process",
    OTF2: "Score-P writes one, with an anchor file traces.otf2",
    RECORDER: "it is a directory with a file recorder.mt",
}
"""How to get the kinds of files that verbs take."""

_MAGIC = (
    (b"PDLAMAP", MAP),
    (b"PDLASTA", "the state file of a map"),
    (b"PDLAJNL", "a journal of redirected writes"),
    (b"PDLALOG", "a raw log"),
    (b"PDLASID", "a raw log's list of names"),
    (b"PDLAPSX", "a raw log of POSIX calls"),
    (b"SQLite format 3\0", CATALOG),
    (b"PAR1", PARQUET),
    (b"\x7fELF", "a program"),
)
_HDF5 = b"\x89HDF\r\n\x1a\n"
_DARSHAN = 6567223  # darshan-log-format.h: DARSHAN_MAGIC_NR, after eight bytes of version
LOOKED_AT = 1 << 20
_TABLE = re.compile(r"^\s*\[+\s*(home|clients|plan|pools\b)", re.MULTILINE)


def kind_of(path: Path) -> str:
    """What is at ``path``, with its article; "" if nothing can be read, or if the content is not known.

    Raises:
        OSError: the file cannot be read.
    """
    if path.is_dir():
        return _directory(path)
    if path.exists() and not path.is_file():
        return "not a regular file"
    with path.open("rb") as file:
        start = file.read(LOOKED_AT)
    return _binary(path, start) or _text(start)


def _directory(path: Path) -> str:
    if (path / "recorder.mt").exists():
        return RECORDER
    if any(path.glob("*.otf2")):
        return OTF2
    return LOGS if any(path.glob("*.log")) or any(path.glob("*/*.log")) else "a directory"


def _binary(path: Path, start: bytes) -> str:
    if not start:
        return "an empty file"
    for magic, kind in _MAGIC:
        if start.startswith(magic):
            return kind
    if start[2:6] == b"OTF2":
        return OTF2
    if start.startswith(b"\x1f\x8b"):
        return DFTRACER if _text(_unpacked(start)) == DFTRACER else "a gzip file"
    if _DARSHAN in (int.from_bytes(start[8:16], "little"), int.from_bytes(start[8:16], "big")):
        return DARSHAN
    return _hdf5(path, start) if start.startswith(_HDF5) else ""


def _unpacked(start: bytes) -> bytes:
    """The first bytes in a gzip file that begins with ``start``; it may consist of several parts."""
    found = b""
    try:
        while start and len(found) < LOOKED_AT:
            unpacker = zlib.decompressobj(wbits=31)
            found += unpacker.decompress(start, LOOKED_AT)
            start = unpacker.unused_data
    except zlib.error:
        pass
    return found


def _hdf5(path: Path, start: bytes) -> str:
    import h5py  # type: ignore[import-untyped]

    if not texts_are_whole(start):
        return TRACE  # damaged
    try:
        with h5py.File(path, "r", locking="best-effort") as file:
            ours = file.attrs.get("format") == "pdla trace"
    except (OSError, RuntimeError, KeyError, ValueError):
        return TRACE  # damaged
    return TRACE if ours else "an HDF5 file of another program"


def texts_are_whole(start: bytes) -> bool:
    """Whether the texts at the beginning of an HDF5 file can be read.

    RATIONALE: after a text of length 0, HDF5 looks for the next one in the same place, for ever.
    """
    for heap in re.finditer(re.escape(b"GCOL\x01\0\0\0"), start):
        at, stop = heap.start() + 16, heap.start() + int.from_bytes(start[heap.end() : heap.end() + 8], "little")
        while at + 16 <= min(stop, len(start)):
            size = int.from_bytes(start[at + 8 : at + 16], "little")
            # The last entry, number 0, is the free space; its size includes its own 16 bytes.
            free = not any(start[at : at + 2])
            if size > stop or (free and size < 16):
                return False
            at += size if free else 16 + size + -size % 8
    return True


def _text(start: bytes) -> str:
    try:
        text = start.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < LOOKED_AT - 4:
            return UNKNOWN
        text = start[: error.start].decode("utf-8-sig")
    if "\0" in text:
        return UNKNOWN
    begin = text.lstrip()
    if begin.startswith(("{", "[")) and (found := _json(begin)):
        return found
    if begin[:15].lower().startswith(("<!doctype html", "<html")):
        return "an HTML report"
    if begin.partition("\n")[0].replace(" ", "").startswith("rank,file,op,"):
        return CSV
    return CLUSTER if _TABLE.search(text) or _is_toml(text) else TEXT


def _json(text: str) -> str:
    if re.search(r'"format"\s*:\s*"pdla-plan"', text):
        return PLAN
    if text.startswith("{") and '"map":' in text and '"writes":' in text:
        return "an exit report of a redirected run"
    if re.match(r'(\[\s*)?\{[^\n]*"cat"\s*:[^\n]*"ph"\s*:', text):
        return DFTRACER
    return JSON if re.match(r'[\[{]\s*["{}\]]', text) else ""


def _is_toml(text: str) -> bool:
    try:
        return bool(tomllib.loads(text))
    except tomllib.TOMLDecodeError:
        return False


def other_format(start: bytes, magic: bytes) -> str:
    """Why a file that begins with ``start`` cannot be read as the format ``magic``, which ends in the version's digit.

    "" if it can.

    >>> other_format(b"PDLAMAP4", b"PDLAMAP3")
    'it has version 4 of its format, but this pdla reads version 3: update pdla'
    """
    found, digit = start[: len(magic)], start[len(magic) - 1 : len(magic)]
    if found == magic:
        return ""
    if found[:-1] != magic[:-1] or not digit.isdigit():
        return f"it begins with {found!r}, not {magic!r}"
    what = "update pdla" if digit > magic[-1:] else "use the pdla that wrote it"
    return f"it has version {digit.decode()} of its format, but this pdla reads version {magic[-1:].decode()}: {what}"


def mistaken(path: Path, wanted: str) -> str:
    """Why ``path`` is not the ``wanted`` kind of file; "" if it seems to be one, perhaps a damaged one.

    Text of another program looks like any text. Then the file is refused only if it is certainly
    something else.
    """
    try:
        found = kind_of(path)
    except OSError as error:
        return f"cannot read {path}: {error.strerror} (it should be {wanted})"
    vague = wanted in (CSV, IOSIG, PYTHON) and found in (TEXT, CLUSTER, JSON, UNKNOWN)
    if found == wanted or vague or (wanted == LOGS and found == "a directory"):
        return ""
    return f"{path} is {found}, not {wanted}" + (f": {MAKES[wanted]}" if wanted in MAKES else "")


def check(path: Path, wanted: str) -> None:
    """Refuse a file that is not the ``wanted`` kind.

    Raises:
        FormatError: the file is missing, cannot be read, or is something else; the message says
            what.
    """
    if why := mistaken(path, wanted):
        raise FormatError(why)


def mistakes(*files: tuple[Path, str]) -> Iterator[str]:
    """Why each of these files is not of the kind that is wanted."""
    return filter(None, (mistaken(path, wanted) for path, wanted in files))
