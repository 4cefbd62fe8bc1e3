"""Bytes, seconds and paths in readable form. Inside the package bytes are int, seconds float, rates bytes/s."""

from collections.abc import Iterable

KiB = 1 << 10
MiB = 1 << 20
GiB = 1 << 30

_BYTE_UNITS = (("TiB", 1 << 40), ("GiB", GiB), ("MiB", MiB), ("KiB", KiB))
_SECOND_UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


def format_bytes(count: float) -> str:
    """Bytes with a binary unit and three significant digits.

    >>> format_bytes(512), format_bytes(16384), format_bytes(268435456), format_bytes(1536)
    ('512 B', '16 KiB', '256 MiB', '1.5 KiB')
    """
    for name, unit in _BYTE_UNITS:
        if abs(count) >= unit:
            return f"{_digits(count / unit)} {name}"
    return f"{count:.0f} B"


def format_seconds(seconds: float) -> str:
    """Seconds with a decimal unit and three significant digits.

    >>> format_seconds(0.0), format_seconds(2.5e-7), format_seconds(0.0123), format_seconds(75.0), format_seconds(86400)
    ('0 s', '250 ns', '12.3 ms', '75 s', '86,400 s')
    """
    for name, unit in _SECOND_UNITS:
        if abs(seconds) >= unit:
            return f"{_digits(seconds / unit)} {name}"
    return "0 s" if seconds == 0 else f"{seconds / 1e-9:.3g} ns"


def _digits(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def format_count(count: int) -> str:
    """A whole number with thousands separators.

    >>> format_count(1234567)
    '1,234,567'
    """
    return f"{count:,}"


def counted(count: int, noun: str) -> str:
    """A number with a noun.

    >>> counted(1, "file"), counted(1234, "call")
    ('1 file', '1,234 calls')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def format_share(part: float, whole: float) -> str:
    """A share in percent. It is 100 only for all, and 0 only for nothing.

    >>> format_share(1, 3), format_share(9999, 10000), format_share(1, 10000), format_share(5, 5), format_share(0, 0)
    ('33 %', '99.99 %', '0.01 %', '100 %', '-')
    """
    if whole == 0:
        return "-"
    percent = 100 * part / whole
    if percent in (0, 100) or 0.5 <= percent < 99.5:
        return f"{percent:.0f} %"
    for digits in (1, 2, 3):
        text = f"{percent:.{digits}f}"
        if float(text) not in (0, 100):
            return f"{text} %"
    return "< 0.001 %" if percent < 1 else "> 99.999 %"


def ranks_text(ranks: Iterable[int]) -> str:
    """Ranks in compact form: runs, and steps of three or more.

    >>> ranks_text((0, 1, 2, 3)), ranks_text((0, 2, 4, 6)), ranks_text((5,)), ranks_text((0, 1, 4, 5, 9))
    ('0-3', '0-6:2', '5', '0-1, 4-5, 9')
    """
    todo = sorted(set(ranks))
    parts = []
    at = 0
    while at < len(todo):
        step = todo[at + 1] - todo[at] if at + 1 < len(todo) else 1
        end = at
        while end + 1 < len(todo) and todo[end + 1] - todo[end] == step:
            end += 1
        if end == at or (step > 1 and end - at < 2):
            parts.append(str(todo[at]))
            at += 1
            continue
        parts.append(f"{todo[at]}-{todo[end]}" + (f":{step}" if step > 1 else ""))
        at = end + 1
    return ", ".join(parts)


def parse_bytes(text: str | int) -> int:
    """The number of bytes that ``text`` names: a whole number, with or without K, M, G, T (binary; ``KiB`` works, too).

    >>> parse_bytes("64K"), parse_bytes("4 MiB"), parse_bytes(512)
    (65536, 4194304, 512)

    Raises:
        ValueError: ``text`` is not a size.
    """
    if isinstance(text, int):
        return text
    word = text.strip()
    digits = word.rstrip("KMGTiBkmgtb ")
    unit = word[len(digits) :].strip().upper().removesuffix("B").removesuffix("I")
    scale = {"": 1, "K": KiB, "M": MiB, "G": GiB, "T": 1 << 40}.get(unit)
    if scale is None or not digits.strip().isdigit():
        raise ValueError(f"not a size: {text!r} (write a number of bytes, or one with K, M, G or T: 64K, 4MiB)")
    return int(digits) * scale


def shown(text: str) -> str:
    """``text`` with unprintable characters as escapes: a path may hold line breaks, or codes that control a terminal.

    >>> print(shown("/data/a\\nb\\x1b[2J m\\udce4rz"))
    /data/a\\x0ab\\x1b[2J m\\xe4rz
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in one.encode("utf-8", "surrogateescape"))
