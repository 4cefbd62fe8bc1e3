"""The structs and functions of the core that decides (pdla/caching/caching.h), as ctypes."""

from __future__ import annotations

import ctypes
from typing import Any

from pdla.layouts.devices import curve
from pdla.model import Op, Pool

HOME, NOWHERE = -1, -2
PLACE, WRITE_BACK, DROP = range(3)
DONE, NO_MEMORY, STOPPED = range(3)

_Fields = tuple[tuple[str, Any], ...]


def _numbers(names: str) -> _Fields:
    return tuple((name, ctypes.c_int64) for name in names.split())


class Space(ctypes.Structure):
    """struct caching_space."""

    _fields_ = (("name", ctypes.c_char_p), *_numbers("level server on_nodes capacity chunk reads writes"))


class Setup(ctypes.Structure):
    """struct caching_setup."""

    _fields_ = (
        *_numbers("home_servers home_strip by_part together spaces levels"),
        ("space", ctypes.POINTER(Space)),
        *_numbers("limit tokens_only"),
    )


class Request(ctypes.Structure):
    """struct caching_request."""

    _fields_ = (("time", ctypes.c_double), *_numbers("rank node file op start stop collective"))


class Wish(ctypes.Structure):
    """struct caching_wish."""

    _fields_ = (
        *_numbers("kind file part start stop space level fetch wait node"),
        ("reason", ctypes.c_char_p),
        ("value", ctypes.c_double),
        *_numbers("tag"),
    )


class Refusal(ctypes.Structure):
    """struct caching_refusal."""

    _fields_ = (("time", ctypes.c_double), ("wish", Wish), *_numbers("why needed left"))


class Extent(ctypes.Structure):
    """struct caching_extent."""

    _fields_ = _numbers("file part start stop space dirty")


class Cursor(ctypes.Structure):
    """struct caching_cursor."""

    _fields_ = _numbers("used serial unlisted at")


class Transfer(ctypes.Structure):
    """struct caching_transfer."""

    _fields_ = _numbers("stage level server file op start stop node first")


class Move(ctypes.Structure):
    """struct caching_move."""

    _fields_ = _numbers("token urgent after first transfers")


class Step(ctypes.Structure):
    """struct caching_step."""

    _fields_ = (
        ("foreground", ctypes.POINTER(Transfer)),
        *_numbers("transfers"),
        ("move", ctypes.POINTER(Move)),
        *_numbers("moves"),
        ("moved", ctypes.POINTER(Transfer)),
        ("wait", ctypes.POINTER(ctypes.c_int64)),
        *_numbers("waits"),
        ("refused", ctypes.POINTER(Refusal)),
        *_numbers("refusals"),
    )


RequestHook = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(Request))
TickHook = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
CloseHook = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class Policy(ctypes.Structure):
    """struct caching_policy."""

    _fields_ = (("state", ctypes.c_void_p), ("request", RequestHook), ("tick", TickHook), ("close", CloseHook))


class Curve(ctypes.Structure):
    """struct caching_curve."""

    _fields_ = (
        *_numbers("points"),
        ("distance", ctypes.POINTER(ctypes.c_int64)),
        ("seconds", ctypes.POINTER(ctypes.c_double)),
    )

    @classmethod
    def of(cls, pool: Pool, op: Op) -> Curve:
        """The start-up of a device of ``pool``."""
        distances, seconds = zip(*curve(pool, op), strict=True)
        count = len(distances)
        return cls(count, (ctypes.c_int64 * count)(*distances), (ctypes.c_double * count)(*seconds))


class Device(ctypes.Structure):
    """struct caching_device."""

    _fields_ = (("startup", Curve * 2), ("seconds_per_byte", ctypes.c_double * 2))

    @classmethod
    def of(cls, pool: Pool) -> Device:
        """A device of ``pool``."""
        rates = (ctypes.c_double * 2)(pool.read_seconds_per_byte, pool.write_seconds_per_byte)
        return cls((Curve * 2)(Curve.of(pool, "read"), Curve.of(pool, "write")), rates)


class S4D(ctypes.Structure):
    """struct caching_s4d."""

    _fields_ = (("disk", Device), ("ssd", Device), *_numbers("ssds"))


class IBridge(ctypes.Structure):
    """struct caching_ibridge."""

    _fields_ = (("disk", Device), ("ssd", Device), ("limit", ctypes.c_int64 * 2), *_numbers("capacity"))


class LiU(ctypes.Structure):
    """struct caching_liu."""

    _fields_ = (*_numbers("head body sections buffer"), ("locality", ctypes.c_double))


class E10(ctypes.Structure):
    """struct caching_e10."""

    _fields_ = _numbers("flush_on_close discard")


PARAMETERS: dict[str, type[ctypes.Structure]] = {"s4d": S4D, "ibridge": IBridge, "liu": LiU, "e10": E10}
"""The parameters of each policy of the core, by its name."""

_CORE, _INT, _RESULT, _to = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.POINTER
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "new": (_CORE, (_to(Setup),)),
    "free": (None, (_CORE,)),
    "use": (_RESULT, (_CORE, _to(Policy))),
    **{f"use_{name}": (_RESULT, (_CORE, _to(kind))) for name, kind in PARAMETERS.items()},
    "file": (_RESULT, (_CORE, _INT, _INT)),
    "serve": (_RESULT, (_CORE, _to(Request), _to(Step))),
    "tick": (_RESULT, (_CORE, ctypes.c_double, _to(Step))),
    "close": (_RESULT, (_CORE, ctypes.c_double, _INT, _to(Step))),
    "finished": (_RESULT, (_CORE, _INT, ctypes.c_double, _to(Step))),
    "wish": (_RESULT, (_CORE, _to(Wish))),
    "now": (ctypes.c_double, (_CORE,)),
    "size": (_INT, (_CORE, _INT, _INT)),
    "room": (_INT, (_CORE, _INT)),
    "peak": (_INT, (_CORE, _INT)),
    "extents": (_RESULT, (_CORE, _INT, _INT, _INT, _INT, _to(_to(Extent)), _to(_INT))),
    "coldest": (ctypes.c_bool, (_CORE, _INT, _to(Cursor), _to(Extent))),
    "dirty": (_RESULT, (_CORE, _to(_to(Extent)), _to(_INT))),
    "refused": (_INT, (_CORE, _INT, _to(Wish))),
    "why": (_INT, (_CORE, _to(Refusal), ctypes.c_char_p, _INT)),
    "reason": (_INT, (_to(Wish), ctypes.c_char_p, _INT)),
}
"""What each function of the core returns and takes."""


def declare(library: ctypes.CDLL) -> None:
    """Tell ctypes what the functions of the core return and take."""
    for name, (returned, taken) in _FUNCTIONS.items():
        function = library[f"caching_{name}"]
        function.restype, function.argtypes = returned, taken
        setattr(library, f"caching_{name}", function)
