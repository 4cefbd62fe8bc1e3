"""Applications, their traced runs and the patterns in them: from signatures to rows, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, cast

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from pdla.catalog.database import Section, add, put
from pdla.catalog.outages import again
from pdla.catalog.records import (
    Occurrence,
    Pattern,
    QueueState,
    Recorded,
    Run,
    pattern_digest,
    pattern_to_json,
    signature_from_json,
)
from pdla.catalog.tables import (
    APPLICATIONS,
    OCCURRENCES,
    PATTERNS,
    PHASES,
    PLANS,
    QUEUE,
    RUNS,
    printable,
    utc,
)
from pdla.errors import PdlaError
from pdla.model import Begin, Phase, Signature

_AT_ONCE = 5000  # values in one statement: databases have a limit


class Runs(Section):
    """Traced runs, with their patterns and their phases."""

    @again
    def record(self, run: Run, found: Sequence[Occurrence], phases: Sequence[Phase] = ()) -> Recorded:
        """Record a traced run, its patterns and its phases; new patterns enter the replication queue.

        A run with the same fingerprint of its trace is replaced.
        """
        with self._transaction(alone=True, once=True) as connection:
            return _record(connection, run, found, phases)

    @again
    def find(
        self,
        *,
        file: str = "*",
        application: str = "*",
        ranks: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> list[Run]:
        """The runs in the order of their start; those whose start is not known come first.

        One of their files and their command match the globs, they have so many ranks, and they
        started at or after ``since`` and before ``until``. A time without a time zone is a local one.
        """
        query = _RUN_ROWS.order_by(RUNS.c.started.nulls_first(), RUNS.c.id)
        with self._transaction() as connection:
            runs = [_run(row) for row in connection.execute(query)]
        return [
            one
            for one in runs
            if fnmatchcase(one.command, application)
            and ranks in (None, one.ranks)
            and (file == "*" or any(fnmatchcase(path, file) for path in one.files))
            and (since is None or (one.started is not None and one.started >= since.astimezone()))
            and (until is None or (one.started is not None and one.started < until.astimezone()))
        ]

    @again
    def get(self, run_id: int) -> tuple[Run, list[Occurrence]]:
        """A run, and its patterns as they were in it.

        Raises:
            PdlaError: there is no such run.
        """
        query = select(PATTERNS.c.signature, OCCURRENCES).join_from(PATTERNS, OCCURRENCES)
        query = query.where(OCCURRENCES.c.run_id == run_id).order_by(OCCURRENCES.c.number)
        with self._transaction() as connection:
            row = connection.execute(_RUN_ROWS.where(RUNS.c.id == run_id)).one_or_none()
            if row is None:
                raise PdlaError(f"there is no run {run_id} (pdla patterns show ID lists those that have a pattern)")
            return _run(row), [_occurrence(one.signature, one) for one in connection.execute(query)]

    @again
    def phases(self, run_id: int) -> list[Phase]:
        """The phases of a run, file by file."""
        with self._transaction() as connection:
            rows = connection.execute(select(PHASES).where(PHASES.c.run_id == run_id).order_by(PHASES.c.number))
            return [
                Phase(
                    row.file,
                    row.phase,
                    cast(Begin, row.begins),
                    row.t_start,
                    row.t_end,
                    row.ranks,
                    row.calls,
                    row.bytes_read,
                    row.bytes_written,
                )
                for row in rows
            ]


class Patterns(Section):
    """The patterns of all runs, each once."""

    @again
    def find(
        self, *, file: str = "*", application: str = "*", ranks: int | None = None, state: QueueState | None = None
    ) -> list[Pattern]:
        """The patterns by number, in this state of the queue.

        Their files and their applications' commands match the globs, and their runs have so many ranks.
        """
        with self._transaction() as connection:
            of_application = [
                one.id
                for one in connection.execute(select(APPLICATIONS))
                if ranks in (None, one.ranks) and fnmatchcase(one.command, application)
            ]
            counted = (
                select(OCCURRENCES.c.pattern_id, func.count(OCCURRENCES.c.run_id.distinct()).label("runs"))
                .join_from(OCCURRENCES, RUNS)
                .where(RUNS.c.application_id.in_(of_application))
                .group_by(OCCURRENCES.c.pattern_id)
                .subquery()
            )
            query = _PATTERN_ROWS.add_columns(counted.c.runs).join(counted, counted.c.pattern_id == PATTERNS.c.id)
            if state is not None:
                query = query.where(QUEUE.c.state == state)
            glob = printable(file)
            rows = connection.execute(query.order_by(PATTERNS.c.id))
            return [_pattern(row, row.runs) for row in rows if fnmatchcase(row.file, glob)]

    @again
    def outside(self, runs: Collection[int]) -> set[str]:
        """The digests of the patterns in other runs than those with these numbers."""
        query = select(PATTERNS.c.digest, OCCURRENCES.c.run_id).join_from(PATTERNS, OCCURRENCES).distinct()
        with self._transaction() as connection:
            return {digest for digest, run in connection.execute(query) if run not in runs}

    @again
    def files(self) -> set[str]:
        """The files that have patterns."""
        with self._transaction() as connection:
            return set(connection.scalars(select(PATTERNS.c.file).distinct()))

    @again
    def get(self, pattern_id: int) -> tuple[Pattern, list[tuple[Run, Occurrence]]]:
        """A pattern, the runs that have it, and how it was in each.

        Raises:
            PdlaError: there is no such pattern.
        """
        query = _RUN_ROWS.add_columns(OCCURRENCES).join(OCCURRENCES, OCCURRENCES.c.run_id == RUNS.c.id)
        query = query.where(OCCURRENCES.c.pattern_id == pattern_id).order_by(RUNS.c.id, OCCURRENCES.c.number)
        with self._transaction() as connection:
            row = connection.execute(_PATTERN_ROWS.where(PATTERNS.c.id == pattern_id)).one_or_none()
            if row is None:
                raise PdlaError(f"there is no pattern {pattern_id} (pdla patterns list lists them)")
            seen = [(_run(one), _occurrence(row.signature, one)) for one in connection.execute(query)]
            return _pattern(row, len({of.id for of, _ in seen})), seen


class Queue(Section):
    """The fate of patterns: they wait for a plan, and then for the daemon to build the replica from the plan."""

    @again
    def set_state(self, signatures: Collection[Signature], state: QueueState, why: str = "") -> None:
        """Set the state, and the reason, of those of these patterns that are in the queue."""
        with self._transaction(once=True) as connection:
            _set_queue_state(connection, signatures, state, why)

    @again
    def postpone(self, pattern_id: int, why: str) -> None:
        """Record why a pattern still waits."""
        with self._transaction(once=True) as connection:
            connection.execute(update(QUEUE).where(QUEUE.c.pattern_id == pattern_id).values(why=why))

    @again
    def add_plan(self, document: Mapping[str, Any], chosen: Sequence[Signature]) -> int:
        """Store a plan, for the daemon to build the replicas of these patterns; return how many of them are known.

        The catalog knows the patterns of analyzed runs. Plans that no pattern waits for any more
        are removed.
        """
        with self._transaction(alone=True, once=True) as connection:
            number = add(connection, PLANS, created=datetime.now(UTC), document=dict(document))
            known = _set_queue_state(connection, chosen, "planned", plan=number)
            waited_for = select(QUEUE.c.plan_id).where(QUEUE.c.plan_id.is_not(None))
            connection.execute(delete(PLANS).where(PLANS.c.id.not_in(waited_for)))
            return known

    @again
    def plan(self, number: int) -> Mapping[str, Any]:
        """A plan that was queued.

        Raises:
            PdlaError: there is no such plan.
        """
        with self._transaction() as connection:
            row = connection.execute(select(PLANS.c.document).where(PLANS.c.id == number)).one_or_none()
            if row is None:
                raise PdlaError(f"there is no plan {number} in the queue (pdla plan --queue puts one there)")
            return cast("Mapping[str, Any]", row.document)


_RUN_ROWS = select(RUNS, APPLICATIONS.c.command, APPLICATIONS.c.ranks).join_from(RUNS, APPLICATIONS)
"""The runs, each with the columns of its application that ``_run`` needs."""
_PATTERN_ROWS = select(PATTERNS, QUEUE).join_from(PATTERNS, QUEUE)
"""The patterns, each with its place in the queue."""


def _record(connection: Connection, run: Run, found: Sequence[Occurrence], phases: Iterable[Phase]) -> Recorded:
    """Record a run with its patterns; a run with the same fingerprint of its trace is replaced."""
    known = connection.scalar(select(RUNS.c.id).where(RUNS.c.trace == run.trace))
    application = _application(connection, run)
    run_id = put(
        connection,
        RUNS,
        known,
        application_id=application,
        trace=run.trace,
        path=run.path,
        source=run.source,
        started=run.started,
        analyzed=datetime.now(UTC),
        mpi=run.mpi,
        hosts=list(run.hosts),
        environment=dict(run.environment),
        files=list(run.files),
        requests=run.requests,
        bytes=run.bytes,
    )
    for table in (OCCURRENCES, PHASES):
        connection.execute(delete(table).where(table.c.run_id == run_id))

    digests = [pattern_digest(one.signature) for one in found]
    new = _add_patterns(connection, dict(zip(digests, (one.signature for one in found), strict=True)))
    numbers = _numbers(connection, digests)
    occurrences = [
        {
            "run_id": run_id,
            "number": number,
            "pattern_id": numbers[digest],
            "calls": one.signature.calls,
            "t_start": one.signature.t_start,
            "t_end": one.signature.t_end,
            "aspects": dict(one.aspects),
        }
        for number, (digest, one) in enumerate(zip(digests, found, strict=True))
    ]
    lines = [{"run_id": run_id, "number": number, **asdict(phase)} for number, phase in enumerate(phases)]
    for table, values in ((OCCURRENCES, occurrences), (PHASES, lines)):
        if values:
            connection.execute(insert(table), values)
    if known is not None:
        connection.execute(delete(PATTERNS).where(PATTERNS.c.id.not_in(select(OCCURRENCES.c.pattern_id))))
    return Recorded(run_id, application, len(numbers), new)


def _application(connection: Connection, run: Run) -> int:
    """The number of the application of a run; it gets one if it is new."""
    digest = hashlib.sha256(f"{run.ranks}\0{run.command}".encode("utf-8", "surrogateescape")).hexdigest()
    known = connection.scalar(select(APPLICATIONS.c.id).where(APPLICATIONS.c.digest == digest))
    return int(known or add(connection, APPLICATIONS, digest=digest, command=run.command, ranks=run.ranks))


def _add_patterns(connection: Connection, signatures: Mapping[str, Signature]) -> int:
    """Add the patterns that are new, by digest, to the table and to the queue; return their number."""
    known = _numbers(connection, signatures)
    new = {digest: one for digest, one in signatures.items() if digest not in known}
    if not new:
        return 0
    rows = [
        {
            "digest": digest,
            "file": one.file,
            "op": one.op,
            "scope": one.scope,
            "ranks": len(one.ranks),
            "requests": one.requests,
            "bytes": one.bytes,
            "signature": pattern_to_json(one),
        }
        for digest, one in new.items()
    ]
    connection.execute(insert(PATTERNS), rows)
    now = datetime.now(UTC)
    queued = [{"pattern_id": number, "state": "queued", "since": now} for number in _numbers(connection, new).values()]
    connection.execute(insert(QUEUE), queued)
    return len(new)


def _numbers(connection: Connection, digests: Iterable[str]) -> dict[str, int]:
    """The numbers of the known patterns, by digest."""
    found: dict[str, int] = {}
    for some in _portions(list(dict.fromkeys(digests))):
        rows = connection.execute(select(PATTERNS.c.digest, PATTERNS.c.id).where(PATTERNS.c.digest.in_(some)))
        found.update((digest, number) for digest, number in rows)
    return found


def _portions(values: Sequence[str]) -> Iterator[Sequence[str]]:
    return (values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE))


def _set_queue_state(
    connection: Connection, signatures: Iterable[Signature], state: QueueState, why: str = "", plan: int | None = None
) -> int:
    """Set the state of those of these patterns that are known; return their number."""
    known = 0
    changed = {"state": state, "since": datetime.now(UTC), "why": why, "plan_id": plan}
    for some in _portions([pattern_digest(one) for one in signatures]):
        chosen = select(PATTERNS.c.id).where(PATTERNS.c.digest.in_(some))
        known += connection.execute(update(QUEUE).where(QUEUE.c.pattern_id.in_(chosen)).values(changed)).rowcount
    return known


def _pattern(row: Row[Any], runs: int) -> Pattern:
    state = cast(QueueState, row.state)
    return Pattern(row.id, signature_from_json(row.signature), runs, state, utc(row.since), row.plan_id, row.why)


def _occurrence(pattern: Mapping[str, Any], one: Row[Any]) -> Occurrence:
    signature = signature_from_json(pattern)
    as_seen: dict[str, Any] = {"calls": one.calls, "t_start": one.t_start, "t_end": one.t_end}
    return Occurrence(replace(signature, **as_seen), one.aspects)


def _run(row: Row[Any]) -> Run:
    return Run(
        command=row.command,
        ranks=row.ranks,
        trace=row.trace,
        path=row.path,
        source=row.source,
        started=row.started and utc(row.started),
        mpi=row.mpi,
        hosts=tuple(row.hosts),
        environment=row.environment,
        files=tuple(row.files),
        requests=row.requests,
        bytes=row.bytes,
        id=row.id,
        application=row.application_id,
    )
