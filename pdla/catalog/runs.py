"""Applications, their traced runs and the patterns in them: from signatures to rows, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, cast

from sqlalchemy import CursorResult, delete, func, insert, select, update
from sqlalchemy.orm import Session

from pdla.catalog.database import Section
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
    ApplicationRow,
    OccurrenceRow,
    PatternRow,
    PhaseRow,
    PlanRow,
    QueueRow,
    RunRow,
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
        with self._session(alone=True, once=True) as session:
            return _record(session, run, found, phases)

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
        with self._session() as session:
            query = select(RunRow).order_by(RunRow.started.nulls_first(), RunRow.id)
            runs = [_run(row) for row in session.scalars(query)]
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
        with self._session() as session:
            row = session.get(RunRow, run_id)
            if row is None:
                raise PdlaError(f"there is no run {run_id} (pdla patterns show ID lists those that have a pattern)")
            query = select(PatternRow, OccurrenceRow).join(OccurrenceRow, OccurrenceRow.pattern_id == PatternRow.id)
            query = query.where(OccurrenceRow.run_id == run_id).order_by(OccurrenceRow.number)
            return _run(row), [_occurrence(found, one) for found, one in session.execute(query)]

    @again
    def phases(self, run_id: int) -> list[Phase]:
        """The phases of a run, file by file."""
        with self._session() as session:
            rows = session.scalars(select(PhaseRow).filter_by(run_id=run_id).order_by(PhaseRow.number))
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
        with self._session() as session:
            of_application = [
                one.id
                for one in session.scalars(select(ApplicationRow))
                if ranks in (None, one.ranks) and fnmatchcase(one.command, application)
            ]
            counted = (
                select(OccurrenceRow.pattern_id, func.count(OccurrenceRow.run_id.distinct()).label("runs"))
                .join(RunRow, RunRow.id == OccurrenceRow.run_id)
                .where(RunRow.application_id.in_(of_application))
                .group_by(OccurrenceRow.pattern_id)
                .subquery()
            )
            query = select(PatternRow, counted.c.runs).join(counted, counted.c.pattern_id == PatternRow.id)
            if state is not None:
                query = query.join(QueueRow).where(QueueRow.state == state)
            glob = printable(file)
            rows = session.execute(query.order_by(PatternRow.id))
            return [_pattern(row, runs) for row, runs in rows if fnmatchcase(row.file, glob)]

    @again
    def outside(self, runs: Collection[int]) -> set[str]:
        """The digests of the patterns in other runs than those with these numbers."""
        query = select(PatternRow.digest, OccurrenceRow.run_id).join(OccurrenceRow).distinct()
        with self._session() as session:
            return {digest for digest, run in session.execute(query) if run not in runs}

    @again
    def files(self) -> set[str]:
        """The files that have patterns."""
        with self._session() as session:
            return set(session.scalars(select(PatternRow.file).distinct()))

    @again
    def get(self, pattern_id: int) -> tuple[Pattern, list[tuple[Run, Occurrence]]]:
        """A pattern, the runs that have it, and how it was in each.

        Raises:
            PdlaError: there is no such pattern.
        """
        with self._session() as session:
            row = session.get(PatternRow, pattern_id)
            if row is None:
                raise PdlaError(f"there is no pattern {pattern_id} (pdla patterns list lists them)")
            query = select(OccurrenceRow, RunRow).join(RunRow, RunRow.id == OccurrenceRow.run_id)
            query = query.where(OccurrenceRow.pattern_id == pattern_id).order_by(RunRow.id, OccurrenceRow.number)
            seen = [(_run(of), _occurrence(row, one)) for one, of in session.execute(query)]
            return _pattern(row, len({of.id for of, _ in seen})), seen


class Queue(Section):
    """The fate of patterns: they wait for a plan, and then for the daemon to build the replica from the plan."""

    @again
    def set_state(self, signatures: Collection[Signature], state: QueueState, why: str = "") -> None:
        """Set the state, and the reason, of those of these patterns that are in the queue."""
        with self._session(once=True) as session:
            _set_queue_state(session, signatures, state, why)

    @again
    def postpone(self, pattern_id: int, why: str) -> None:
        """Record why a pattern still waits."""
        with self._session(once=True) as session:
            session.execute(update(QueueRow).where(QueueRow.pattern_id == pattern_id).values(why=why))

    @again
    def add_plan(self, document: Mapping[str, Any], chosen: Sequence[Signature]) -> int:
        """Store a plan, for the daemon to build the replicas of these patterns; return how many of them are known.

        The catalog knows the patterns of analyzed runs. Plans that no pattern waits for any more
        are removed.
        """
        with self._session(alone=True, once=True) as session:
            row = PlanRow(created=datetime.now(UTC), document=dict(document))
            session.add(row)
            session.flush()
            known = _set_queue_state(session, chosen, "planned", plan=row.id)
            waited_for = select(QueueRow.plan_id).where(QueueRow.plan_id.is_not(None))
            session.execute(delete(PlanRow).where(PlanRow.id.not_in(waited_for)))
            return known

    @again
    def plan(self, number: int) -> Mapping[str, Any]:
        """A plan that was queued.

        Raises:
            PdlaError: there is no such plan.
        """
        with self._session() as session:
            row = session.get(PlanRow, number)
            if row is None:
                raise PdlaError(f"there is no plan {number} in the queue (pdla plan --queue puts one there)")
            return row.document


def _record(session: Session, run: Run, found: Sequence[Occurrence], phases: Iterable[Phase]) -> Recorded:
    """Record a run with its patterns; a run with the same fingerprint of its trace is replaced."""
    row = session.scalars(select(RunRow).filter_by(trace=run.trace)).one_or_none()
    known = row is not None
    row = row or RunRow(trace=run.trace)
    row.application, row.analyzed = _application(session, run), datetime.now(UTC)
    row.path, row.source, row.started, row.mpi = run.path, run.source, run.started, run.mpi
    row.hosts, row.environment, row.files = list(run.hosts), dict(run.environment), list(run.files)
    row.requests, row.bytes = run.requests, run.bytes
    session.add(row)
    session.flush()
    for table in (OccurrenceRow, PhaseRow):
        session.execute(delete(table).where(table.run_id == row.id))

    digests = [pattern_digest(one.signature) for one in found]
    new = _add_patterns(session, dict(zip(digests, (one.signature for one in found), strict=True)))
    numbers = _numbers(session, digests)
    occurrences = [
        {
            "run_id": row.id,
            "number": number,
            "pattern_id": numbers[digest],
            "calls": one.signature.calls,
            "t_start": one.signature.t_start,
            "t_end": one.signature.t_end,
            "aspects": dict(one.aspects),
        }
        for number, (digest, one) in enumerate(zip(digests, found, strict=True))
    ]
    lines = [{"run_id": row.id, "number": number, **asdict(phase)} for number, phase in enumerate(phases)]
    for table, values in ((OccurrenceRow, occurrences), (PhaseRow, lines)):
        if values:
            session.execute(insert(table), values)
    if known:
        session.execute(delete(PatternRow).where(PatternRow.id.not_in(select(OccurrenceRow.pattern_id))))
    return Recorded(row.id, row.application_id, len(numbers), new)


def _application(session: Session, run: Run) -> ApplicationRow:
    digest = hashlib.sha256(f"{run.ranks}\0{run.command}".encode("utf-8", "surrogateescape")).hexdigest()
    found = session.scalars(select(ApplicationRow).filter_by(digest=digest)).one_or_none()
    return found or ApplicationRow(digest=digest, command=run.command, ranks=run.ranks)


def _add_patterns(session: Session, signatures: Mapping[str, Signature]) -> int:
    """Add the patterns that are new, by digest, to the table and to the queue; return their number."""
    known = _numbers(session, signatures)
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
    session.execute(insert(PatternRow), rows)
    now = datetime.now(UTC)
    queued = [{"pattern_id": number, "state": "queued", "since": now} for number in _numbers(session, new).values()]
    session.execute(insert(QueueRow), queued)
    return len(new)


def _numbers(session: Session, digests: Iterable[str]) -> dict[str, int]:
    """The numbers of the known patterns, by digest."""
    found: dict[str, int] = {}
    for some in _portions(list(dict.fromkeys(digests))):
        rows = session.execute(select(PatternRow.digest, PatternRow.id).where(PatternRow.digest.in_(some)))
        found.update(cast("Iterable[tuple[str, int]]", rows.all()))
    return found


def _portions(values: Sequence[str]) -> Iterator[Sequence[str]]:
    return (values[start : start + _AT_ONCE] for start in range(0, len(values), _AT_ONCE))


def _set_queue_state(
    session: Session, signatures: Iterable[Signature], state: QueueState, why: str = "", plan: int | None = None
) -> int:
    """Set the state of those of these patterns that are known; return their number."""
    known = 0
    changed = {"state": state, "since": datetime.now(UTC), "why": why, "plan_id": plan}
    for some in _portions([pattern_digest(one) for one in signatures]):
        chosen = select(PatternRow.id).where(PatternRow.digest.in_(some))
        query = update(QueueRow).where(QueueRow.pattern_id.in_(chosen)).values(changed)
        known += cast("CursorResult[Any]", session.execute(query)).rowcount
    return known


def _pattern(row: PatternRow, runs: int) -> Pattern:
    queue = row.queue
    state = cast(QueueState, queue.state)
    return Pattern(row.id, signature_from_json(row.signature), runs, state, utc(queue.since), queue.plan_id, queue.why)


def _occurrence(row: PatternRow, one: OccurrenceRow) -> Occurrence:
    signature = signature_from_json(row.signature)
    as_seen: dict[str, Any] = {"calls": one.calls, "t_start": one.t_start, "t_end": one.t_end}
    return Occurrence(replace(signature, **as_seen), one.aspects)


def _run(row: RunRow) -> Run:
    return Run(
        command=row.application.command,
        ranks=row.application.ranks,
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
