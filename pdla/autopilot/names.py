"""Whose application a run is, and which: its name says the program and its arguments, but no file, number or directory.

Two runs are of one application if their names are the same. The number of ranks and the input files are not in
the name: patterns of another number of ranks, or of another file, are patterns of the same application.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Collection, Iterable, Sequence

_NUMBER = re.compile(r"\d+(\.\d+)?([eE][-+]?\d+)?")
FILE, NUMBER = "FILE", "N"


def this_user() -> str:
    """The user whose applications these are: the login name, or the number of a user without one."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name[:64]
    except KeyError:
        return str(os.getuid())


def application_name(executable: str, words: Sequence[str], directory: str, files: Collection[str]) -> str:
    """The name of the application of a program.

    Args:
        executable: its path.
        words: its command line.
        directory: the one in which it ran.
        files: the paths that it accessed: an argument that names one of them, or the directory of one, is FILE.

    >>> application_name("/opt/bin/app", ["./app", "-n", "64", "--in=data/x.dat"], "/home/me", ["/home/me/data/x.dat"])
    'app -n N --in=FILE'
    """
    places = {os.path.realpath(path) for path in files}
    places |= {os.path.dirname(path) for path in places}  # noqa: PTH120
    program = without_numbers(os.path.basename(executable))  # noqa: PTH119
    return " ".join([program, *(_word(word, directory, places) for word in words[1:])])


def joined(names: Iterable[str]) -> str:
    """The name of the application of a run of several programs."""
    return "; ".join(sorted(set(names)))


def _word(word: str, directory: str, places: Collection[str]) -> str:
    key, sign, value = word.partition("=")
    if sign and os.sep not in key:
        return f"{key}={_word(value, directory, places)}"
    if os.path.realpath(os.path.join(directory, word)) in places:  # noqa: PTH118
        return FILE
    return without_numbers(os.path.basename(word.rstrip(os.sep)))  # noqa: PTH119


def without_numbers(word: str) -> str:
    """A word with N for each number.

    >>> without_numbers("out.0012-v2.nc")
    'out.N-vN.nc'
    """
    return _NUMBER.sub(NUMBER, word)


def pattern_of(path: str) -> str:
    """The pattern of the shell for the paths that differ from this one in numbers only. It may match more.

    >>> pattern_of("/scratch/run.12/out[3].nc")
    '/scratch/run.[0-9]*/out\\\\[[0-9]*].nc'
    """
    pattern, end = "", 0
    for number in _NUMBER.finditer(path):
        pattern += _escaped(path[end : number.start()]) + "[0-9]*"
        end = number.end()
    return pattern + _escaped(path[end:])


def _escaped(text: str) -> str:
    return re.sub(r"([\\*?\[])", r"\\\1", text).replace("\n", "?")
