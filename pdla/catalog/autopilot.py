"""What the autopilot learned: applications, their runs, and every decision with its reason."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, cast, get_args

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from pdla.catalog.database import Section, add
from pdla.catalog.outages import again
from pdla.catalog.tables import (
    AUTOPILOT_APPLICATIONS,
    AUTOPILOT_DECISIONS,
    AUTOPILOT_RUNS,
    OCCURRENCES,
    PATTERNS,
    RUNS,
    utc,
)
from pdla.errors import PdlaError

Kind = Literal[
    "learned",
    "ignored",
    "drifted",
    "planned",
    "left",
    "built",
    "postponed",
    "retired",
    "chose",
    "paused",
    "resumed",
    "forgot",
]
NEVER = datetime.min.replace(tzinfo=UTC)
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class AutopilotApplication:
    """A program of a user: its number, its name, and how often it was learned from and when."""

    id: int
    name: str
    runs: int
    last: datetime | None


@dataclass(frozen=True)
class Drift:
    """What changed in the patterns since the last run: one ``came``, ``went`` or ``changed`` in ``what``."""

    kind: Literal["came", "went", "changed"]
    file: str
    op: str
    what: str


@dataclass(frozen=True)
class RunFacts:
    """What is known of a run.

    Attributes:
        run: its number among the traced runs of the catalog; 0: it was served, and not recorded.
        trace: the fingerprint of its trace; "": none.
        ranks, bytes: of the whole run. ``read`` and ``hit``: bytes read, and those of them from
            replicas.
        seconds: what the slowest rank spent in data calls, or if writes went to replicas, which moves time
            into the close, in all calls of MPI-IO; None: not recorded.
        before: the same, as expected of this run without replicas, from earlier runs; None: not
            known.
        predicted: the seconds that the plan expected the replicas it used to save.
        replicas: bytes read from each replica, or written to it, by its number.
        drift: what changed in the patterns since the previous run that was recorded.
        files: the paths.
        calls: by path and operation ("read", "write"), seconds of the slowest rank in data calls.
        policy: the policy of the run, or of its files, as in ``PDLA_POLICY``; "": none.
        io: what the slowest rank spent in all calls of MPI-IO; None: not recorded.
        redirected: bytes written to replicas.
        parts: the same as ``io``, of the files of each group for which a policy was chosen, by its pattern.
    """

    ranks: int
    bytes: int
    read: int
    hit: int
    seconds: float | None = None
    before: float | None = None
    predicted: float = 0.0
    run: int = 0
    trace: str = ""
    replicas: Mapping[str, int] = field(default_factory=dict)
    drift: tuple[Drift, ...] = ()
    files: tuple[str, ...] = ()
    calls: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    policy: str = ""
    io: float | None = None
    redirected: int = 0
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def served(self) -> bool:
        """Whether bytes came from replicas, or went to them."""
        return bool(self.hit or self.redirected)

    @property
    def measured(self) -> float | None:
        """Seconds saved, as measured; None: not known, or replicas served nothing."""
        if not self.served or self.before is None or self.seconds is None:
            return None
        return self.before - self.seconds

    @property
    def hit_ratio(self) -> float:
        """The share of the bytes read that came from replicas; if writes went to replicas, the share of all bytes."""
        return (self.hit + self.redirected) / self.asked if self.asked else 0.0

    @property
    def asked(self) -> int:
        """The bytes of which ``hit_ratio`` is a share."""
        return self.bytes if self.redirected else self.read


@dataclass(frozen=True)
class LearnedRun:
    """A run of an application, at the time when it ended."""

    id: int
    application: int
    name: str
    time: datetime
    facts: RunFacts


@dataclass(frozen=True)
class Decision:
    """What the autopilot did and why.

    Attributes:
        name: names the decision; one that is made again after a kill has the same.
        pattern: the digest of the pattern that it is about; None: none.
        replica: the number of the replica that it is about; None: none.
        facts: more about it, as plain values.
        undone: when the user undid it; None: never.
    """

    name: str
    kind: Kind
    why: str
    application: int | None = None
    pattern: str | None = None
    replica: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    id: int = 0
    time: datetime = NEVER
    undone: datetime | None = None


_APPLICATION, _RUN, _DECISION = AUTOPILOT_APPLICATIONS.c, AUTOPILOT_RUNS.c, AUTOPILOT_DECISIONS.c


class Autopilot(Section):
    """The applications of users, each with its runs, and the log of decisions. A user sees the own ones only."""

    @again
    def application(self, owner: str, name: str) -> int:
        """The number of the user's application of this name; it gets one if it is new."""
        key = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
        query = select(_APPLICATION.id).where(_APPLICATION.owner == owner, _APPLICATION.key == key)
        with self._transaction(alone=True, once=True) as connection:
            known = connection.scalar(query)
            return int(known or add(connection, AUTOPILOT_APPLICATIONS, owner=owner, key=key, name=name))

    @again
    def applications(self, owner: str) -> list[AutopilotApplication]:
        """The user's applications, by number."""
        row = _APPLICATION
        query = select(row.id, row.name, func.count(_RUN.id), func.max(_RUN.time))
        query = query.outerjoin_from(AUTOPILOT_APPLICATIONS, AUTOPILOT_RUNS)
        query = query.where(row.owner == owner).group_by(row.id, row.name).order_by(row.id)
        with self._transaction() as connection:
            return [
                AutopilotApplication(number, name, runs, last and utc(last))
                for number, name, runs, last in connection.execute(query)
            ]

    def find(self, owner: str, which: str) -> AutopilotApplication:
        """The user's application with this number or name.

        Raises:
            PdlaError: there is none.
        """
        for one in self.applications(owner):
            if which in (str(one.id), one.name):
                return one
        raise PdlaError(f"there is no application {which!r} (pdla applications lists them)")

    @again
    def learn(
        self, application: int, name: str, time: datetime, facts: RunFacts, owner: str, decisions: Sequence[Decision]
    ) -> None:
        """Record a run with what was decided after it; one that is there already stays."""
        with self._transaction(alone=True, once=True) as connection:
            if _is_learned(connection, name):
                return
            values = {"application_id": application, "name": name, "time": time, "facts": asdict(facts)}
            connection.execute(insert(AUTOPILOT_RUNS).values(values))
            _decide(connection, owner, decisions)

    @again
    def is_learned(self, name: str) -> bool:
        """Whether a run with this name is on record."""
        with self._transaction() as connection:
            return _is_learned(connection, name)

    @again
    def runs(self, application: int) -> list[LearnedRun]:
        """The runs of an application, in the order of their ends."""
        query = select(AUTOPILOT_RUNS).where(_RUN.application_id == application).order_by(_RUN.time, _RUN.id)
        with self._transaction() as connection:
            return [_run(row) for row in connection.execute(query)]

    @again
    def other_users(self, application: int) -> dict[int, int]:
        """By replica, the application that used it last, other than this one; also those of other users."""
        row = _RUN
        query = (
            select(row.application_id, row.facts).where(row.application_id != application).order_by(row.time, row.id)
        )
        with self._transaction() as connection:
            found = connection.execute(query)
            return {int(replica): number for number, facts in found for replica in facts["replicas"]}

    @again
    def decide(self, owner: str, decisions: Sequence[Decision]) -> None:
        """Record decisions; those that are there already stay."""
        with self._transaction(alone=True, once=True) as connection:
            _decide(connection, owner, decisions)

    @again
    def decisions(
        self, owner: str, *, application: int | None = None, kinds: Collection[Kind] = KINDS, last: int | None = None
    ) -> list[Decision]:
        """The user's decisions (the ``last`` ones), oldest first."""
        row = _DECISION
        query = select(AUTOPILOT_DECISIONS).where(row.owner == owner, row.kind.in_(kinds))
        query = query.order_by(row.id.desc()).limit(last)
        if application is not None:
            query = query.where(row.application_id == application)
        with self._transaction() as connection:
            return [_decision(one) for one in reversed(connection.execute(query).all())]

    @again
    def decision(self, owner: str, number: int) -> Decision:
        """One decision of the user's.

        Raises:
            PdlaError: there is no such decision.
        """
        query = select(AUTOPILOT_DECISIONS).where(_DECISION.id == number, _DECISION.owner == owner)
        with self._transaction() as connection:
            row = connection.execute(query).one_or_none()
            if row is None:
                raise PdlaError(f"there is no decision {number} (pdla log lists them)")
            return _decision(row)

    @again
    def undo(self, numbers: Sequence[int]) -> None:
        """Record that the user undid these decisions."""
        undone = update(AUTOPILOT_DECISIONS).where(_DECISION.id.in_(numbers)).values(undone=datetime.now(UTC))
        with self._transaction(once=True) as connection:
            connection.execute(undone)

    @again
    def forget(
        self, owner: str, application: int, runs: Sequence[int], heirs: Mapping[int, int], decision: Decision
    ) -> None:
        """Forget an application: its runs, the traced runs with these numbers and the patterns that only they have.

        ``decision`` takes the place of all that was decided for it. ``heirs``: by replica, the application
        for which it counts as built from now on.
        """
        of_application = _DECISION.application_id == application
        with self._transaction(alone=True, once=True) as connection:
            for replica, heir in heirs.items():
                built = update(AUTOPILOT_DECISIONS).where(of_application, _DECISION.replica_id == replica)
                connection.execute(built.where(_DECISION.kind == "built").values(application_id=heir))
            connection.execute(delete(AUTOPILOT_DECISIONS).where(of_application))
            connection.execute(delete(AUTOPILOT_RUNS).where(_RUN.application_id == application))
            connection.execute(delete(AUTOPILOT_APPLICATIONS).where(_APPLICATION.id == application))
            for number in runs:
                connection.execute(delete(RUNS).where(RUNS.c.id == number))
            connection.execute(delete(PATTERNS).where(PATTERNS.c.id.not_in(select(OCCURRENCES.c.pattern_id))))
            _decide(connection, owner, [decision])

    @again
    def forget_run(self, name: str) -> None:
        """Forget one run."""
        with self._transaction(once=True) as connection:
            connection.execute(delete(AUTOPILOT_RUNS).where(_RUN.name == name))


def _is_learned(connection: Connection, name: str) -> bool:
    return connection.scalar(select(_RUN.id).where(_RUN.name == name)) is not None


def _decide(connection: Connection, owner: str, decisions: Sequence[Decision]) -> None:
    names = [one.name for one in decisions]
    known = set(connection.scalars(select(_DECISION.name).where(_DECISION.name.in_(names)))) if names else set()
    rows = [
        {
            "owner": owner,
            "application_id": one.application,
            "name": one.name,
            "time": datetime.now(UTC),
            "kind": one.kind,
            "pattern": one.pattern,
            "replica_id": one.replica,
            "why": one.why,
            "facts": dict(one.facts),
        }
        for one in decisions
        if one.name not in known
    ]
    if rows:
        connection.execute(insert(AUTOPILOT_DECISIONS), rows)


def _run(row: Row[Any]) -> LearnedRun:
    values = dict(row.facts)
    values["drift"] = tuple(Drift(**one) for one in values["drift"])
    return LearnedRun(
        row.id, row.application_id, row.name, utc(row.time), RunFacts(**{**values, "files": tuple(values["files"])})
    )


def _decision(row: Row[Any]) -> Decision:
    return Decision(
        name=row.name,
        kind=cast(Kind, row.kind),
        why=row.why,
        application=row.application_id,
        pattern=row.pattern,
        replica=row.replica_id,
        facts=row.facts,
        id=row.id,
        time=utc(row.time),
        undone=row.undone and utc(row.undone),
    )
