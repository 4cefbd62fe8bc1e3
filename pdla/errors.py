"""Errors that users can cause and understand. The command line prints them as one line and exits non-zero."""


class PdlaError(Exception):
    """Something was asked for that cannot be done; the message says what was wanted, what was got, what to do."""


class FormatError(PdlaError):
    """A file is not what it should be: damaged, truncated, of another kind, or from a newer version."""


class ConfigError(PdlaError):
    """A configuration file or an option has a wrong value."""


class BusyError(PdlaError):
    """Another process is at it; what was asked for may work later."""


class UnfitError(PdlaError):
    """A plan does not fit what is there: trying again is in vain, another trace or plan may help.

    The original is gone, is not the user's to read, is no regular file or is shorter than the pattern; the plan has
    nothing for the pattern. Whatever else fails a build may heal: storage that is away, full or at fault, the catalog.
    """


class CatalogError(PdlaError):
    """The database of the catalog failed, or cannot be reached."""
