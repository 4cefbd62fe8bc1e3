"""Which policy each file of a run has: what ``pdla run --policy`` says, and ``PDLA_POLICY`` tells the library."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from dataclasses import dataclass

from pdla.errors import ConfigError
from pdla.units import shown

NONE = "none"
"""The policy of a file that is left alone."""
_PATHNAME = 1
"""FNM_PATHNAME: neither * nor ? matches a slash."""
_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class FilePolicies:
    """The policy of a file is that of the first pattern that matches it; without such a pattern, ``default``.

    Attributes:
        rules: patterns of the shell, each with the name of a policy. One without a slash is for the
            names of files, one with a slash for their absolute paths with symbolic links resolved.
        default: the policy of the other files.
    """

    rules: tuple[tuple[str, str], ...] = ()
    default: str = NONE

    @classmethod
    def of_words(cls, words: Iterable[str]) -> FilePolicies:
        """From the values of ``--policy``, each ``NAME`` or ``PATTERN=NAME``. Any name is taken.

        Raises:
            ConfigError: a pattern is empty or has a line break, or two names are for all files.

        >>> FilePolicies.of_words(["s4d", "check.*=e10"]).of("/scratch/check.12")
        'e10'
        """
        rules, defaults = [], []
        for word in words:
            pattern, equals, name = word.rpartition("=")
            if not equals:
                defaults.append(name)
            elif not pattern or "\n" in pattern:
                raise ConfigError(f"{word!r} is not PATTERN=NAME, with a file name in which * and ? are as in a shell")
            else:
                rules.append((pattern, name))
        if len(defaults) > 1:
            raise ConfigError(f"{defaults[0]} and {defaults[1]} are both for all files: name files by PATTERN=NAME")
        return cls(tuple(rules), *defaults)

    @classmethod
    def from_text(cls, text: str) -> FilePolicies:
        """From ``str()`` of another one; "": every file is left alone."""
        parts = [line.partition(" ") for line in text.splitlines()]
        rules = tuple((pattern, name) for name, _, pattern in parts if pattern)
        return cls(rules, next((name for name, _, pattern in parts if not pattern), NONE))

    def __str__(self) -> str:
        """The value of ``PDLA_POLICY``: lines ``NAME PATTERN``, and ``NAME`` at the end (docs/cli.md)."""
        return "\n".join([*(f"{name} {pattern}" for pattern, name in self.rules), self.default])

    @property
    def words(self) -> list[str]:
        """The values of ``--policy`` that say the same."""
        default = [self.default] if self.default != NONE or not self.rules else []
        return [*(f"{pattern}={name}" for pattern, name in self.rules), *default]

    @property
    def names(self) -> list[str]:
        """The policies that files have."""
        return sorted({self.default, *(name for _, name in self.rules)} - {NONE})

    @property
    def sentence(self) -> str:
        """In words: "e10 for /scratch/check.*, s4d for other files"."""
        named = [f"{_name(name)} for {shown(pattern)}" for pattern, name in self.rules]
        return ", ".join([*named, f"{_name(self.default)} for {'other' if named else 'all'} files"])

    def of(self, path: str) -> str:
        """The policy of the file at this absolute path."""
        return next((name for pattern, name in self.rules if _matches(pattern, path)), self.default)


def _name(policy: str) -> str:
    return "no policy" if policy == NONE else policy


def _matches(pattern: str, path: str) -> bool:
    """As in replicator/stub/cache_hints.c."""
    text = path if "/" in pattern else path.rpartition("/")[2]
    return not _libc.fnmatch(os.fsencode(pattern), os.fsencode(text), _PATHNAME)
