"""Errors that users can cause and understand. The command line prints them as one line and exits non-zero."""


class PdlaError(Exception):
    """Something was asked for that cannot be done; the message says what was wanted, what was got, what to do."""


class FormatError(PdlaError):
    """A file is not what it should be: damaged, truncated, of another kind, or from a newer version."""


class ConfigError(PdlaError):
    """A configuration file or an option has a wrong value."""


class BusyError(PdlaError):
    """Another process is at it; what was asked for may work later."""


class CatalogError(PdlaError):
    """The database of the catalog failed, or cannot be reached."""
