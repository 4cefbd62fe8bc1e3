"""What costs time in a run, why, what to do about it, and what that would bring."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pdla.findings import library, opens, ranks, shapes, strips, twice
from pdla.findings.draft import Draft
from pdla.findings.finding import Finding
from pdla.findings.outlook import Outlook
from pdla.findings.seen import Seen
from pdla.model import Plan
from pdla.traces.trace import Trace

DETECTORS: tuple[Callable[[Seen, Outlook], Iterator[Draft]], ...] = (
    shapes.detect,
    strips.detect,
    ranks.detect,
    library.detect,
    twice.detect,
    opens.detect,
)


__all__ = ["DETECTORS", "Finding", "Seen", "find", "found_in"]


def find(trace: Trace, plan: Plan, trace_file: str = "RUN.h5") -> tuple[Finding, ...]:
    """The findings of a run, the one that is expected to save most first; without an expectation, all that it costs.

    ``plan`` is a plan for the run (``pdla.simulator.verification.verified_plan``); its cluster is
    the storage on which remedies are simulated. ``trace_file`` is what the commands call the trace.
    """
    return found_in(Seen(trace, plan, trace_file))


def found_in(seen: Seen) -> tuple[Finding, ...]:
    """As ``find``, in a run that is seen already."""
    outlook = Outlook(seen.trace, seen.plan, sum(len(group.length) for group in seen.groups))
    drafts: dict[tuple[str, str, str], Draft] = {}
    for detect in DETECTORS:
        for draft in detect(seen, outlook):
            # The same remedy for several files is one finding.
            key = draft.kind, draft.remedy, "" if draft.file else draft.title
            drafts[key] = drafts[key].joined(draft) if key in drafts else draft
    found = [draft.finding(seen) for draft in drafts.values() if draft.matters(seen)]
    return tuple(sorted(found, key=lambda one: (-one.saves(seen.seconds), one.kind, one.file)))
