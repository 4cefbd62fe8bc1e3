"""Read cluster.toml, the description of the storage system to plan for (docs/cluster.md)."""

from __future__ import annotations

import itertools
import math
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from pdla import config, units
from pdla.errors import ConfigError
from pdla.file_kinds import CLUSTER, mistaken
from pdla.layouts.budget import Budget, parse_hours
from pdla.layouts.plugins import backend_class, backend_names
from pdla.model import Cluster, Device, Pool

T = TypeVar("T")

KINDS = ("hdd", "ssd", "node")
QUEUES = ("fifo", "elevator", "cfq")
RESERVED = ("original", "collective")  # names of spaces in a plan that are not pools
MOST_SERVERS = 1 << 16
NOMINAL = "built-in default"  # the source of a cluster that nobody described
DEFAULT_FILE = Path(__file__).with_name("default_cluster.toml")
EXAMPLES = Path(__file__).with_name("clusters")


def load_cluster(
    path: Path | str | None, changes: Mapping[str, str] | None = None, *, originals: bool = False
) -> Cluster:
    """The cluster that the file ``path`` describes, or the example of that name; None: the built-in default.

    ``changes`` are other values of keys (``home.strip``, ``pools.ssd.capacity``), written as in the
    file. ``servers`` of a pool whose servers are directories is their number: the first ones of the
    list, or more like them. Relative directories in ``where`` start from the file's own directory;
    those of the default and of the examples from ``pdla.config.pools_directory()``.

    ``originals``: the caller asks the file system of the originals how they are striped, so
    ``servers`` and ``strip`` of ``[home]`` may be missing.

    Raises:
        ConfigError: no such file, not TOML, or a wrong value; the message names the file and the
            key.
    """
    cluster = _load(path, changes)[0]
    missing = [name for name, value in (("servers", cluster.home_servers), ("strip", cluster.home_strip)) if not value]
    if missing and not originals:
        raise ConfigError(
            f"{cluster.source}: [home] needs {' and '.join(missing)}: only pdla plan, simulate and report ask "
            "the file system of the originals"
        )
    return cluster


def load_budget(path: Path | str | None) -> Budget:
    """What the table [autopilot] of this file allows the autopilot; without the table there are no limits.

    Raises:
        ConfigError: as ``load_cluster``.
    """
    return _load(path, None)[1]


def _load(path: Path | str | None, changes: Mapping[str, str] | None) -> tuple[Cluster, Budget]:
    if path is None:
        return _parse(DEFAULT_FILE.read_text(encoding="utf-8"), config.pools_directory(), NOMINAL, changes)
    name, path = str(path), Path(path)
    if name in cluster_names() and not path.is_file():
        text = (EXAMPLES / f"{name}.toml").read_text(encoding="utf-8")
        return _parse(text, config.pools_directory() / name, f"example {name}", changes)
    if why := mistaken(path, CLUSTER):
        raise ConfigError(f"{why}; pdla has these examples: {', '.join(cluster_names())}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    return _parse(text, path.absolute().parent, str(path), changes)


def cluster_names() -> list[str]:
    """The names of the examples that come with pdla: the testbeds of the papers."""
    return sorted(file.stem for file in EXAMPLES.glob("*.toml"))


class _Table:
    """A table of the file whose keys are taken one by one, so that any key left over is unknown.

    ``problems`` are those of all tables of the file: an error names all of them at once.
    """

    def __init__(self, name: str, values: Mapping[str, Any], problems: list[str]) -> None:
        self.name = name
        self.values = dict(values)
        self.problems = problems
        self.known: list[str] = []

    def refuse(self, why: str) -> None:
        """Note a mistake in this table."""
        self.problems.append(f"[{self.name}]: {why}" if self.name else why)

    def take(self, key: str, read: Callable[[Any], T], default: object = None) -> T:
        """The value of ``key`` as ``read`` makes it; ``read`` raises ValueError with what it expects.

        If that is noted as a problem, the value is None, and nothing is made from the table.
        """
        self.known.append(key)
        value = self.values.pop(key, default)
        if value is None:
            self.refuse(f"{key} is missing")
        else:
            try:
                return read(value)
            except ValueError as error:
                self.refuse(f"{key} must be {error} (got {value!r})")
        return cast(T, None)

    def table(self, key: str, default: object = None) -> _Table:
        """The table under ``key``. If it is missing, that is one problem, not one for each of its keys."""
        self.known.append(key)
        name, value = f"{self.name}.{key}".lstrip("."), self.values.pop(key, default)
        if isinstance(value, Mapping):
            return _Table(name, value, self.problems)
        self.refuse(f"table [{name}] is missing" if value is None else f"{key} must be a table (got {value!r})")
        return _Table(name, {}, [])

    def close(self) -> None:
        """Refuse all keys that were not taken."""
        for key in self.values:
            self.refuse(f"unknown key {key!r} (known: {', '.join(self.known)})")


def _parse(text: str, base: Path, source: str, changes: Mapping[str, str] | None) -> tuple[Cluster, Budget]:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: not TOML: {error}") from None
    for key, value in (changes or {}).items():
        _change(values, key, value, source)
    problems: list[str] = []
    top = _Table("", values, problems)
    home, clients, plan = top.table("home"), top.table("clients"), top.table("plan", {})
    autopilot = top.table("autopilot", {})
    pools = _pools(top.table("pools"), base)
    home_pool = home.take("pool", _text)
    if home_pool and pools and home_pool not in (names := [pool.name for pool in pools]):
        home.refuse(f"pool {home_pool!r} is not among [pools] ({', '.join(names)})")
    cluster = Cluster(
        pools=pools,
        home_pool=home_pool,
        home_servers=home.take("servers", _or_nothing(_home_servers), "") or 0,
        home_strip=home.take("strip", _or_nothing(_size), "") or 0,
        processes_per_node=clients.take("processes_per_node", _positive),
        connect_seconds=clients.take("connect_seconds", _number),
        network_seconds_per_byte=clients.take("network_seconds_per_byte", _number),
        threshold_seconds=plan.take("threshold_seconds", _number, 0.0),
        source=source,
        nodes=clients.take("nodes", _count, 0) or None,
        collective_buffer=clients.take("collective_buffer", _size, "16M"),
        aggregators=clients.take("aggregators", _count, 0) or None,
        sieve_read=clients.take("sieve_read", _capacity, "4M"),
        sieve_write=clients.take("sieve_write", _capacity, "512K"),
        client_cache=clients.take("client_cache", _flag, False),
        client_sync=clients.take("client_sync", _flag, False),
        jitter_seconds=clients.take("jitter_seconds", _number, 0.0),
        client_read_ahead=clients.take("client_read_ahead", _capacity, 0),
        cores=clients.take("cores", _count, 0) or None,
        call_seconds=clients.take("call_seconds", _number, 0.0),
        copy_seconds_per_byte=clients.take("copy_seconds_per_byte", _number, 0.0),
        exchange_seconds_per_byte=clients.take("exchange_seconds_per_byte", _number, 0.0),
    )
    budget = Budget(
        space=autopilot.take("space", _capacity, 0) or None,
        files=autopilot.take("files", _count, 0) or None,
        bandwidth=autopilot.take("bandwidth", _capacity, 0) or None,
        hours=autopilot.take("hours", _or_nothing(parse_hours), "") or None,
    )
    for table in (home, clients, plan, autopilot, top):
        table.close()
    if problems:
        raise ConfigError(f"{source}: {'; '.join(problems)} (docs/cluster.md describes all keys)")
    return cluster, budget


def _change(values: dict[str, Any], key: str, text: str, source: str) -> None:
    """Change the value of a key: TOML, or otherwise a text."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *tables, last = key.split(".")
    table: Any = values
    for name in tables:
        table = table.get(name) if isinstance(table, dict) else None
    if not tables or not isinstance(table, dict):
        raise ConfigError(f"{source}: there is no table for the key {key!r} (a key is like pools.ssd.capacity)")
    if tables[0] == "pools" and last == "servers" and isinstance(table.get("where"), list) and "servers" not in table:
        have, want = table["where"], _whole(value, key, source)
        table["where"] = [*have, *(f"{have[0]}+{number}" for number in range(len(have), want))][:want]
    else:
        table[last] = value


def _whole(value: object, key: str, source: str) -> int:
    try:
        return _positive(value)
    except ValueError as error:
        raise ConfigError(f"{source}: {key} must be {error} (got {value!r})") from None


def _pools(tables: _Table, base: Path) -> tuple[Pool, ...]:
    if not tables.values:
        tables.refuse("there is no pool; describe at least one as [pools.NAME]")
    owners: dict[str, str] = {}
    pools = []
    for name in list(tables.values):
        table = tables.table(name)
        pools.append(_pool(name, table, base))
        for directory in pools[-1].where:
            if directory in owners:
                table.refuse(
                    f"{directory} is already a server of pool {owners[directory]!r}; "
                    "every server needs a directory of its own"
                )
            owners[directory] = name
    return tuple(pools)


def _pool(name: str, table: _Table, base: Path) -> Pool:
    if name in RESERVED:
        table.refuse(f"plans use the name {name!r} for the original file; choose another name")
    if "+" in name:
        table.refuse("plans use + in the name of two pools together; choose a name without it")
    where = tuple(os.path.normpath(base / Path(part).expanduser()) for part in table.take("where", _texts) or ())
    backend = table.take("backend", _backend, "directories")
    names_servers, grain = "servers" in table.values, "4K"  # if the back end is unknown
    if backend:
        try:
            names_servers, grain = (storage := backend_class(backend)).names_servers, storage.grain
        except ConfigError as error:
            table.refuse(str(error))
    names = tuple(table.take("servers", _names) or ()) if names_servers else ()
    if names and len(where) > 1:
        table.refuse(f"where must be one directory, for all servers of {backend} (got {where})")
    startup = _curve("distance in bytes", "distances", _capacity)
    pool = Pool(
        name=name,
        kind=cast(Any, table.take("kind", _one_of(KINDS))),
        overlap=table.take("overlap", _flag, False),
        servers=len(names or where),
        startup=table.take("startup", startup),
        read_seconds_per_byte=table.take("read_seconds_per_byte", _number),
        write_seconds_per_byte=table.take("write_seconds_per_byte", _number),
        capacity=table.take("capacity", _capacity, 0) or None,
        grain=table.take("grain", _size, grain),
        backend=backend,
        where=where,
        names=names,
        device=Device(
            queue=cast(Any, table.take("queue", _one_of(QUEUES), "fifo")),
            queue_depth=table.take("queue_depth", _count, 0),
            background_share=table.take("background_share", _share, 2 / 7),
            channels=table.take("channels", _positive, 1),
            write_startup=table.take("write_startup", _or_nothing(startup), ()),
            rotation_seconds=table.take("rotation_seconds", _number, 0.0),
            slice_seconds=table.take("slice_seconds", _number, 0.1),
            idle_seconds=table.take("idle_seconds", _number, 0.008),
            duplex=table.take("duplex", _flag, False),
            memory=table.take("memory", _capacity, 0),
            memory_depth=table.take("memory_depth", _count, 0),
            read_ahead=table.take("read_ahead", _capacity, 0),
            clients_cost=table.take("clients_cost", _or_nothing(_curve("clients", "clients", _positive)), ()),
            inside=table.take("inside", _or_nothing(_text), ""),
        ),
    )
    table.close()
    return pool


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a text")
    return value


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise ValueError("a list of at least one directory")
    return value


def _names(value: object) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item for item in value):
        raise ValueError("a list of at least one server")
    if len(set(value)) < len(value):
        raise ValueError("a list of servers, each once")
    return value


def _one_of(words: tuple[str, ...]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in words:
            raise ValueError(" or ".join(f'"{word}"' for word in words))
        return str(value)

    return read


def _backend(value: object) -> str:
    return str(value) if value == "directories" else _one_of(backend_names())(value)


def _or_nothing(read: Callable[[object], T]) -> Callable[[object], T]:
    """Like ``read``, but an empty default is not checked."""
    return lambda value: cast(T, value) if value in ((), "") else read(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ValueError("a number of at least 0")
    return float(value)


def _share(value: object) -> float:
    number = _number(value)
    if number > 1:
        raise ValueError("a number from 0 to 1")
    return number


def _positive(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("a whole number of at least 1")
    return value


def _home_servers(value: object) -> int:
    if (count := _positive(value)) > MOST_SERVERS:
        raise ValueError(f"at most {MOST_SERVERS}")
    return count


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a whole number of at least 0")
    return value


def _capacity(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError('a number of bytes, or a text like "64K"')
    try:
        size = units.parse_bytes(value)
    except ValueError:
        size = -1
    if size < 0:
        raise ValueError('a number of bytes, or a text like "64K"')
    return size


def _size(value: object) -> int:
    size = _capacity(value)
    if size < 1:
        raise ValueError("at least 1 byte")
    return size


def _curve(name: str, names: str, read: Callable[[object], int]) -> Callable[[object], tuple[tuple[int, float], ...]]:
    """Reads a list of points; ``read`` reads the first number of each, which is called ``name``."""

    def points(value: object) -> tuple[tuple[int, float], ...]:
        want = ValueError(f"a list of [{name}, seconds], {names} ascending")
        if not isinstance(value, list) or not value:
            raise want
        if not all(isinstance(point, list) and len(point) == 2 for point in value):
            raise want
        try:
            found = tuple((read(place), _number(seconds)) for place, seconds in value)
        except ValueError:
            raise want from None
        if any(after[0] <= before[0] for before, after in itertools.pairwise(found)):
            raise want
        return found

    return points
