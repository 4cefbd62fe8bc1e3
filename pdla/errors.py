"""Errors that users can cause and understand. The command line prints each as one line and exits with 1."""


class PdlaError(Exception):
    """What was asked for cannot be done. The message says what was wanted, what was found, and what to do."""


class FormatError(PdlaError):
    """A file is damaged, truncated, of another kind, or from a newer version."""


class ConfigError(PdlaError):
    """A configuration file or an option has a wrong value."""


class HomeError(PdlaError):
    """The directory of pdla's own files cannot be used now. A program runs without pdla then."""


class BusyError(PdlaError):
    """Another process works on the same thing; the same request may succeed later."""


class UnfitError(PdlaError):
    """A plan does not fit the present files: another try is in vain, but another trace or plan may help.

    The original is gone, cannot be read by the user, is not a regular file, or ends before the
    pattern begins; or the plan has no replica for the pattern. Every other failure of a build may pass:
    unreachable, full or faulty storage, the catalog.
    """


class CatalogError(PdlaError):
    """The database of the catalog failed, or cannot be reached."""
