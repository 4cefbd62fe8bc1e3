"""Simulations in which a policy acts while the program runs."""

from __future__ import annotations

from pdla.model import Cluster
from pdla.policies.online import HOME, MEMORY, Online, Request
from pdla.simulator import core
from pdla.simulator.enactor import Enactor, Move, Step, Transfer
from pdla.simulator.machine import Machine
from pdla.simulator.run import Result, outcome_of, result_of
from pdla.simulator.schemes import Replicas, Scheme
from pdla.simulator.workload import Workload


def simulate_online(
    workload: Workload,
    cluster: Cluster,
    policy: Online,
    scheme: Scheme,
    *,
    open_loop: bool = False,
    seed: int = 0,
) -> Result:
    """Simulate ``workload`` with a policy that has served nothing before.

    Raises:
        ConfigError: the cluster lacks what the policy needs.
    """
    machine = Machine(cluster, aligned=policy.by_part)
    for size in workload.sizes:
        machine.add_file(size)
    asked = _Asked(Enactor(policy, cluster, dict(enumerate(workload.sizes))), machine)
    outcome = outcome_of(
        *(workload, machine, scheme, Replicas.of(None, workload, machine)),
        open_loop=open_loop,
        seed=seed,
        ask=asked.ask,
        period=policy.period,
    )
    space: dict[str, int] = {}
    for name, used in asked.enactor.peak.items():
        level = name.partition("/")[0]
        space[level] = space.get(level, 0) + used
    reasons: dict[str, int] = {}
    for refusal in asked.enactor.refused:
        why = f"{type(refusal.wish).__name__}: {refusal.wish.reason}"
        reasons[why] = reasons.get(why, 0) + 1
    return result_of(scheme.name, outcome, machine, space, refused=len(asked.enactor.refused), reasons=reasons)


_NOTHING = (0, 0, -1, 0, 0, 0, -1)  # a transfer of no bytes


class _Asked:
    """An enactor in the form that the core asks."""

    def __init__(self, enactor: Enactor, machine: Machine) -> None:
        self.enactor = enactor
        self._machine = machine
        self._objects: dict[str, int] = {}
        sizes: dict[str, int] = {}
        for space in enactor.spaces:
            if space.level == MEMORY:
                self._objects[MEMORY] = self._objects.get(MEMORY) or machine.add_memory()
            elif space.layout:
                self._objects[space.name] = machine.add(space.layout, space.capacity)
            else:
                sizes[space.level] = max(space.capacity, sizes.get(space.level, 0))
        for level, size in sizes.items():
            self._objects[level] = machine.add_servers(level, size)

    def ask(self, question: core.Question) -> tuple[list[tuple[int, ...]], list[int]]:
        """The answer to a question of the core."""
        if question.what == core.REQUEST:
            op = core.OPS[question.op]
            where = (question.rank, question.node, question.file, op, question.start, question.stop)
            return self._answer(self.enactor.serve(Request(question.time, *where, bool(question.collective))))
        if question.what == core.TICK:
            return self._answer(self.enactor.tick(question.time))
        if question.what == core.CLOSE:
            file = None if question.file < 0 else question.file
            return self._answer(self.enactor.close(question.time, file))
        return self._answer(Step(background=self.enactor.finished(question.token, question.time)))

    def _answer(self, step: Step) -> tuple[list[tuple[int, ...]], list[int]]:
        rows = self._rows(Move(0, step.foreground))
        for move in step.background:
            rows += self._rows(move)
        return rows, list(step.wait)

    def _rows(self, move: Move) -> list[tuple[int, ...]]:
        head = move.token, int(move.urgent), int(move.after)
        if move.token and not move.stages:
            # Its copies ended before it began: it ends at once.
            return [(*head, *_NOTHING)]
        return [(*head, number, *self._row(transfer)) for number, stage in enumerate(move.stages) for transfer in stage]

    def _row(self, one: Transfer) -> tuple[int, ...]:
        number = one.file if one.space == HOME else self._objects[one.space]
        server = -1 if one.server is None else one.server
        return number, server, int(one.op == "write"), one.start, one.stop, -1 if one.node is None else one.node
