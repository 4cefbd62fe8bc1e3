"""Programs with one fault each and their twins without it, for benchmarks/findings.py.

A program is a list of steps of benchmarks/workloads/faults.c. A seed draws how many ranks it has, whether it reads or
writes, the sizes of its requests, and how they are arranged: contiguous, with gaps, nested, in turns with those of
other ranks, through file views or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from zlib import crc32

from pdla.units import KiB, MiB

SERVERS, STRIP = 4, 64 * KiB
"""Of the storage that pdla plans for by default."""
AMOUNT = 8 * MiB
"""Bytes of a rank that makes large requests: about 0.2 s."""
REQUESTS = 1200
"""Small requests of all ranks together: tools that want a thousand of them see enough."""
AGGREGATORS = {"cb_config_list": f"*:{SERVERS}", "cb_nodes": SERVERS}
ONE_NODE = {"hints": "all ranks are on one node, for which ROMIO chooses one aggregator, and there are four servers"}

Also = Mapping[str, str]
"""Further kinds of findings that a program has, and why."""


@dataclass(frozen=True)
class Step:
    """A step of faults.c and its words."""

    name: str
    says: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """As on the command line."""
        return [self.name, *(f"{name}={value}" for name, value in self.says.items())]

    def end(self, ranks: int) -> int:
        """The first byte after those that it accesses, at most."""
        start, own, inner, stride, outer, size, count = (
            int(self.says.get(name, default))
            for name, default in (*((one, 0) for one in ("start", "own")), ("inner", 1), ("stride", 0),
                                  ("outer", self.says.get("size", 0)), ("size", 0), ("count", 0))
        )  # fmt: skip
        return start + ranks * own + inner * stride + -(-count // inner) * outer + size


Steps = list[Step]


@dataclass(frozen=True)
class Program:
    """One program: ``also`` has the kinds of findings that it has besides its fault."""

    kind: str
    bad: bool
    seed: int
    ranks: int
    steps: Steps
    also: Also

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.kind}-{self.seed}-{'bad' if self.bad else 'good'}"

    @property
    def key(self) -> str:
        """Of its files: another one if the program changes."""
        return f"{self.name}-{crc32(' '.join([str(self.ranks), *self.words]).encode()):08x}"

    @property
    def words(self) -> list[str]:
        """The command line after the file."""
        return [word for step in self.steps for word in step.words]

    @property
    def kinds(self) -> set[str]:
        """All findings that are right."""
        return {self.kind, *self.also} if self.bad else set(self.also)

    @property
    def read_first(self) -> int:
        """Bytes of a file that must be there."""
        data = [step for step in self.steps if step.name in ("read", "write")]
        return max(step.end(self.ranks) for step in data) if data[0].name == "read" else 0


@dataclass(frozen=True)
class Draw:
    """What all kinds draw."""

    random: Random
    ranks: int
    op: str

    def one_of(self, *choices: int) -> int:
        """One of some numbers."""
        return self.random.choice(choices)

    def arranged(self, *choices: str) -> str:
        """One of some arrangements."""
        return self.random.choice(choices)

    def own(self, size: int, count: int, **says: int) -> Step:
        """Contiguous requests, in a part of the file of each rank's own."""
        return Step(self.op, {"size": size, "count": count, "own": size * count, **says})

    def large(self, amount: int = AMOUNT, **says: int) -> Step:
        """Likewise, of 1 MiB."""
        return self.own(MiB, amount // MiB, **says)

    def in_turns(self, size: int, count: int, gap: int = 0, **says: int) -> Step:
        """The requests of the ranks alternate; after those of all ranks, ``gap`` more are left out."""
        return Step(self.op, {"size": size, "count": count, "own": size, "outer": (self.ranks + gap) * size, **says})

    def strided(self, size: int, count: int, stride: int, **says: int) -> Step:
        """Requests with gaps, in a part of the file of each rank's own."""
        return Step(self.op, {"size": size, "count": count, "own": count * stride, "outer": stride, **says})

    def nested(self, size: int, count: int, **says: int) -> Step:
        """Groups of eight requests with gaps of a request, and larger gaps between groups."""
        count -= count % 8
        numbers = {"inner": 8, "stride": 2 * size, "outer": 32 * size, "own": count // 8 * 32 * size}
        return Step(self.op, {"size": size, "count": count, **numbers, **says})

    @property
    def requests(self) -> int:
        """Small requests of a rank, a multiple of 64."""
        return max(256, -(-REQUESTS // self.ranks // 64) * 64)


def opened(*steps: Step, **hints: int | str) -> Steps:
    """Steps on one file."""
    return [Step("open", hints), *steps, Step("close")]


@dataclass(frozen=True)
class Pair:
    """A program with a fault, and the same without it; and what each has besides."""

    bad: Steps
    good: Steps
    also: Also = field(default_factory=dict)
    good_also: Also = field(default_factory=dict)


def small_strided(draw: Draw) -> Pair:
    """Each rank's pieces are small and have gaps."""
    size, count = draw.one_of(512, 1 * KiB, 4 * KiB, 16 * KiB, 32 * KiB), draw.requests
    view = draw.one_of(0, 1)
    # ROMIO writes several pieces of a view through its sieving buffer, which is a fault of its own.
    pieces = draw.one_of(1, 16) if view and draw.op == "read" else 1
    steps = {
        "own": draw.strided(size, count, draw.one_of(2, 4) * size, view=view, pieces=pieces),
        "turns": draw.in_turns(size, count, draw.ranks, view=view, pieces=pieces),
        "nested": draw.nested(size, count, view=view, pieces=pieces),
    }
    also = {"hints": "data sieving reads the gaps, too"} if pieces > 1 else {}
    return Pair(opened(steps[draw.arranged(*steps)]), opened(draw.large()), also)


def small(draw: Draw) -> Pair:
    """Small requests without gaps, at random, or of metadata among large ones."""
    how, count = draw.arranged("sequential", "random", "metadata", "metadata of one rank"), draw.requests
    good = opened(draw.large())
    if how == "sequential":
        return Pair(opened(draw.own(draw.one_of(200, 512, 1000, 4096), count)), good)
    if how == "random":
        return Pair(opened(draw.own(draw.one_of(512, 4096), count, random=1)), good)
    size, ranks = draw.one_of(96, 272, 544), draw.ranks if how == "metadata" else 1
    behind = draw.ranks * 4 * MiB
    each = count // 4
    steps = [
        step
        for number in range(4)
        for step in (
            draw.own(MiB, 1, start=number * draw.ranks * MiB),
            draw.own(size, each, start=behind + number * ranks * each * size, random=1, ranks=ranks),
        )
    ]
    also = {"imbalance": "one rank alone writes the metadata"} if ranks == 1 < draw.ranks else {}
    return Pair(opened(*steps), good, also)


def misaligned(draw: Draw) -> Pair:
    """Large requests that begin after a header."""
    size, start, view = draw.one_of(2, 4, 8, 16) * STRIP, draw.one_of(512, 4096, 10_000, 32 * KiB), draw.one_of(0, 1)
    count = AMOUNT // size
    steps = [opened(draw.own(size, count, start=begin, outer=size, view=view)) for begin in (start, 0)]
    return Pair(*steps, {"fragments": "each request has part of a strip at both ends"})


def imbalance(draw: Draw) -> Pair:
    """One rank does more than the others, or only some do anything."""
    half = AMOUNT // 2
    behind = draw.ranks * half
    steps = {
        "more bytes": [draw.large(half), draw.large(3 * half, start=behind, ranks=1)],
        "more calls": [draw.large(half), draw.own(256 * KiB, 3 * half // (256 * KiB), start=behind, ranks=1)],
        "one": [draw.large(2 * AMOUNT, ranks=1)],
        "half": [draw.large(AMOUNT, ranks=draw.ranks // 2)],
    }
    return Pair(opened(*steps[draw.arranged(*steps)]), opened(draw.large()))


def straggler(draw: Draw) -> Pair:
    """The storage of one rank is slow, always or once."""
    slow = Step("slow", {"rank": draw.one_of(*range(draw.ranks)), "times": draw.one_of(4, 6)})
    if draw.arranged("always", "once") == "always":
        return Pair(opened(slow, draw.large(AMOUNT // 2)), opened(draw.large(AMOUNT // 2)))
    stalled = Step("slow", {**slow.says, "times": 30})
    rest = AMOUNT // MiB - 1
    first, others = (
        Step(draw.op, {"size": MiB, "own": AMOUNT, "count": n, "start": s}) for n, s in ((1, 0), (rest, MiB))
    )
    return Pair(opened(stalled, first, replace(slow, says={**slow.says, "times": 1}), others), opened(first, others))


def collective_useless(draw: Draw) -> Pair:
    """Two-phase I/O copies blocks that are contiguous and in the order of the ranks."""
    count = max(2, min(8, 32 // draw.ranks))
    blocks = draw.own(MiB, count) if draw.one_of(0, 1) else draw.in_turns(2 * MiB, count // 2)
    forced = {f"romio_cb_{draw.op}": "enable", **(AGGREGATORS if draw.one_of(0, 1) else {})}
    also = {"hints": "a hint makes ROMIO exchange blocks that it would leave as they are"}
    return Pair(opened(collective(blocks), **forced), opened(blocks), also)


def independent(draw: Draw) -> Pair:
    """Small requests of all ranks are contiguous together, and are not made together."""
    size, view = draw.one_of(240, 1000, 4 * KiB, 16 * KiB), draw.one_of(0, 1)
    bad = draw.in_turns(size, draw.requests, view=view)
    also = {"small-strided": "each rank's requests are small and have gaps"}
    return Pair(opened(bad), together(draw, size), also, ONE_NODE)


def hints(draw: Draw) -> Pair:
    """One aggregator where there are four servers, or small buffers."""
    good = together(draw, draw.one_of(1, 4, 16) * KiB, **AGGREGATORS)
    bad = {"cb_nodes": 1} if draw.one_of(0, 1) else {"cb_buffer_size": draw.one_of(64, 128) * KiB}
    return Pair([replace(good[0], says={**AGGREGATORS, **bad}), *good[1:]], good)


def read_modify_write(draw: Draw) -> Pair:
    """ROMIO writes pieces with gaps by reading what is between them, and writing it again."""
    size, count = draw.one_of(512, 2 * KiB, 8 * KiB), draw.requests
    draw = replace(draw, op="write")
    how = {"view": 1, "pieces": 64}
    steps = {
        "own": draw.strided(size, count, draw.one_of(2, 4) * size, **how),
        "turns": draw.in_turns(size, count, **how),
        "turns with gaps": draw.in_turns(size, count, draw.ranks, **how),
        "nested": draw.nested(size, count, **how),
    }
    arranged, instead = draw.arranged(*steps), draw.arranged("large", "together", "as they are")
    strided_too = {"small-strided": "each rank's requests are small and have gaps"}
    turns = {"independent": "the requests of all ranks are contiguous together"} if arranged == "turns" else {}
    bad = opened(steps[arranged])
    if instead == "large":
        return Pair(bad, opened(draw.large()), {**strided_too, **turns})
    if instead == "together":
        return Pair(bad, together(draw, size), {**strided_too, **turns}, ONE_NODE)
    good = opened(steps[arranged], romio_ds_write="disable")
    return Pair(bad, good, {**strided_too, **turns}, {**strided_too, **turns})


def re_read(draw: Draw) -> Pair:
    """A rank reads bytes again and again, or all ranks read the same many bytes."""
    draw = replace(draw, op="read")
    header = draw.own(4 * KiB, 1)
    header = replace(header, says={**header.says, "own": 0})
    own, amount = draw.large(), AMOUNT // 2
    steps = {
        "passes": [draw.large(amount)] * draw.one_of(2, 3, 4),
        "a block for each step": [draw.large(4 * MiB), *([draw.own(MiB, 1, start=draw.ranks * 4 * MiB)] * 6)],
        "all the same": [replace(own, says={**own.says, "own": 0})],
    }
    return Pair(opened(header, *steps[draw.arranged(*steps)]), opened(header, own))


def write_then_read(draw: Draw) -> Pair:
    """What was written is read again."""
    amount, next_rank = AMOUNT // 2, draw.one_of(0, 1)
    write, read = (replace(draw, op=op).large(amount, next=next) for op, next in (("write", 0), ("read", next_rank)))
    between = [Step("close"), Step("open")] if draw.one_of(0, 1) else [Step("sync")]
    return Pair(opened(write, *between, read), opened(write))


def never_read(draw: Draw) -> Pair:
    """What was written is overwritten, or its file deleted, before anyone reads it."""
    draw = replace(draw, op="write")
    write = draw.large(AMOUNT // 2)
    fill = draw.own(256 * KiB, AMOUNT // 2 // (256 * KiB))
    bad = {
        "filled before": opened(fill, Step("sync"), write),
        "three times": opened(write, Step("sync"), write, Step("sync"), write),
        "deleted": [*opened(write), Step("delete")],
    }
    return Pair(bad[draw.arranged(*bad)], opened(write))


def shared_pointer(draw: Draw) -> Pair:
    """Small requests by the shared file pointer."""
    pointer = draw.arranged("shared", "ordered")
    bad = draw.in_turns(draw.one_of(100, 512, 2000, 4 * KiB), 256, **{pointer: 1})
    also = {"small": "the requests are small", "small-strided": "those of a rank have those of others between them"}
    return Pair(opened(bad), opened(draw.large()), also)


def open_storm(draw: Draw) -> Pair:
    """A file is opened for each step, or each rank has one for each step."""
    steps, size = 20, draw.one_of(1, 2, 4) * STRIP
    own = draw.own(size, steps)
    each = [replace(own, says={**own.says, "count": 1, "start": number * size}) for number in range(steps)]
    if draw.op == "write" and draw.one_of(0, 1):
        alone = [replace(one, says={**one.says, "start": 0, "own": 0}) for one in each]
        return Pair([step for n, one in enumerate(alone) for step in opened(one, number=n + 1, alone=1)], opened(own))
    return Pair([step for one in each for step in opened(one)], opened(own))


def interleaved(draw: Draw) -> Pair:
    """Requests of medium size of all ranks alternate."""
    size, view = draw.one_of(2, 4, 8) * STRIP, draw.one_of(0, 1)
    count = AMOUNT // size
    return Pair(opened(draw.in_turns(size, count, view=view)), opened(draw.own(size, count, view=view)))


def hideable(draw: Draw) -> Pair:
    """Checkpoints, and computation that is long enough to write them in the background."""
    draw = replace(draw, op="write")
    how, instead = draw.arranged("own", "together"), draw.arranged("no pause", "small")
    size, count = (MiB, AMOUNT // MiB) if how == "own" else (16 * KiB, 2 * MiB // (16 * KiB))
    write = draw.own(size, count) if how == "own" else collective(draw.in_turns(size, count, view=1, pieces=count))
    pause, before = Step("pause", {"milliseconds": 300}), draw.one_of(0, 1)
    given = {} if how == "own" else AGGREGATORS

    def checkpoints(step: Step, *paused: Step) -> Steps:
        return [
            one
            for number in range(3)
            for one in (
                Step("open", {"number": number + 1, **given}),
                step,
                *(paused if before else ()),
                Step("close"),
                *(() if before else paused),
            )
        ]

    good = checkpoints(write) if instead == "no pause" else checkpoints(draw.own(STRIP, 1), pause)
    return Pair(checkpoints(write, pause), good)


def fragments(draw: Draw) -> Pair:
    """Requests that are a little larger than strips."""
    strips, more, turns = draw.one_of(1, 2, 4), draw.one_of(1, 2, 4) * KiB, draw.one_of(0, 1)
    count = AMOUNT // (strips * STRIP)
    step = draw.in_turns if turns else draw.own
    bad, good = (opened(step(size, count)) for size in (strips * STRIP + more, strips * STRIP))
    also = {"interleaved": "the ranks' requests of medium size alternate"} if turns else {}
    return Pair(bad, good, {"misaligned": "most requests begin within a strip", **also}, also)


def collective(step: Step) -> Step:
    """The same, collectively."""
    return replace(step, says={**step.says, "all": 1})


def together(draw: Draw, size: int, **given: int | str) -> Steps:
    """Small requests that alternate, many in each collective call."""
    count = max(draw.requests, 2 * MiB // size // 4 * 4)
    return opened(collective(draw.in_turns(size, count, view=1, pieces=count // 4)), **given)


KINDS: Mapping[str, Callable[[Draw], Pair]] = {
    "small-strided": small_strided,
    "small": small,
    "misaligned": misaligned,
    "imbalance": imbalance,
    "straggler": straggler,
    "collective-useless": collective_useless,
    "independent": independent,
    "hints": hints,
    "read-modify-write": read_modify_write,
    "re-read": re_read,
    "write-then-read": write_then_read,
    "never-read": never_read,
    "shared-pointer": shared_pointer,
    "open-storm": open_storm,
    "interleaved": interleaved,
    "hideable": hideable,
    "fragments": fragments,
}


def programs(seed: int) -> Iterator[Program]:
    """The programs of a seed: of each kind one with the fault, and its twin."""
    for kind, pair_of in KINDS.items():
        random = Random(f"{kind} {seed}")
        ranks = random.choice((2, 3, 4, 6, 8) if kind != "open-storm" else (2, 3, 4))
        pair = pair_of(Draw(random, ranks, ("read", "write")[seed % 2]))
        yield Program(kind, True, seed, ranks, pair.bad, pair.also)
        yield Program(kind, False, seed, ranks, pair.good, pair.good_also)
