"""Which bytes of a file have a copy where: extents in the order of the file, and the addresses of a cache."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sortedcontainers import SortedDict  # type: ignore[import-untyped]


@dataclass(slots=True, eq=False)
class Copy:
    """Bytes [start, stop) of a file or part that are in ``space`` from ``address`` on.

    Attributes:
        node: the client node that moves them (for a part: the server).
        serial: a unique number.
        used: the number of the request that used it last; with ``serial`` it orders the least
            recently used ones.
        dirty: the original does not have these bytes.
        incoming: the move that fetches them; until it ends, the bytes are not here (0: they are).
        urgent: that move has the priority of requests.
        cleaning: the move that writes them back (0: none).
        doomed: to be dropped after the write-back.
        busy: the moves that read or write these addresses.
    """

    start: int
    stop: int
    space: str
    address: int
    node: int
    serial: int
    used: int
    dirty: bool = False
    incoming: int = 0
    urgent: bool = False
    cleaning: int = 0
    doomed: bool = False
    busy: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """Number of bytes."""
        return self.stop - self.start


class ExtentMap:
    """Copies that do not overlap, by where they start."""

    def __init__(self) -> None:
        self._by_start: SortedDict = SortedDict()

    def overlapping(self, start: int, stop: int) -> list[Copy]:
        """The copies that have bytes of [start, stop), in order."""
        found = []
        for at in self._by_start.islice(max(self._by_start.bisect_right(start) - 1, 0)):
            if at >= stop:
                break
            copy: Copy = self._by_start[at]
            if copy.stop > start:
                found.append(copy)
        return found

    def add(self, copy: Copy) -> None:
        """Add a copy, in a place without one."""
        self._by_start[copy.start] = copy

    def remove(self, copy: Copy) -> None:
        """Remove a copy."""
        del self._by_start[copy.start]

    def split(self, copy: Copy, at: int, serial: int) -> Copy:
        """Cut a copy in two; return the second half. The copy itself becomes the first half."""
        second = replace(copy, start=at, address=copy.address + at - copy.start, serial=serial)
        copy.stop = at
        self.add(second)
        return second


class Addresses:
    """The addresses [0, capacity) of a space, free or taken. Freed addresses are taken first, the lowest first.

    >>> room = Addresses(100)
    >>> room.take(30), room.take(50)
    ([(0, 30)], [(30, 50)])
    >>> room.free(10, 10)
    >>> room.take(30), room.left
    ([(10, 10), (80, 20)], 0)
    """

    def __init__(self, capacity: int) -> None:
        self.left = capacity
        self._holes: SortedDict = SortedDict({0: capacity} if capacity else {})

    def take(self, length: int) -> list[tuple[int, int]]:
        """Take ``length`` bytes, which must be free, as pieces (address, length)."""
        self.left -= length
        pieces = []
        while length:
            address, size = self._holes.popitem(0)
            if size > length:
                self._holes[address + length] = size - length
                size = length
            pieces.append((address, size))
            length -= size
        return pieces

    def free(self, address: int, length: int) -> None:
        """Free addresses that were taken."""
        self.left += length
        after = self._holes.bisect_left(address)
        if after < len(self._holes) and self._holes.peekitem(after)[0] == address + length:
            length += self._holes.popitem(after)[1]
        if after and sum(self._holes.peekitem(after - 1)) == address:
            self._holes[self._holes.peekitem(after - 1)[0]] += length
        else:
            self._holes[address] = length
