"""Holds the state in force: a decision counts once it is durable, and one that cannot be saved never happened."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agent.model.devices import NO_DEVICES
from agent.model.state import Mark, PolicyInForce, State
from agent.node.state_errors import NewerStateFileError, StateWriteError
from agent.node.state_store import StateStore
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity, PodAmounts
from agent.policy.observation import Decision, Observation, Refused
from agent.policy.plan import decide, settle, start_container
from agent.policy.recovery import Running, recover
from agent.policy.repair import plan_repair
from agent.policy.repair_apply import with_all_steps, with_safe_steps
from agent.policy.repair_plan import Change, RepairPlan, Step
from agent.policy.resize_lifecycle import Actuation


@dataclass(frozen=True, slots=True)
class Rules:
    """What a state must fit: the machine and the configuration.

    tolerance_bytes: by how much a NUMA node's memory may differ from boot to boot. confirm_added: new CPUs wait for an operator.
    """

    managers: Managers
    node: NodeCapacity
    policy: PolicyInForce
    boot_id: str = ""
    tolerance_bytes: int = 64 << 20
    confirm_added: bool = False

    def change_of(self, state: State) -> Change:
        """From the rules that a state was written under to these; one that begins was written under none."""
        return self.change_from(state.policy if state.generation else None)

    def change_from(self, was: PolicyInForce | None) -> Change:
        """From these rules to ours. was: None for a kubelet's files, which do not say under which rules they were written."""
        return Change(was, self.policy, self.tolerance_bytes, self.confirm_added)


class Keeper:
    """The state, the rules it is decided by, and the store that makes it durable. One thread at a time.

    problem: why the last decision could not be saved, None while all is well. repair: how the state fits the rules; what waits in
    it an operator must confirm. stored: whether the file says exactly `state`. frozen: the newer file over which nothing is
    decided and nothing saved; None for all others. wrote: told the seconds of every write. misaligned: UID -> why its devices are
    far from its CPUs. devices: what the last look knew of them.
    """

    def __init__(
        self,
        store: StateStore,
        rules: Rules,
        state: State,
        wrote: Callable[[float], None] = lambda seconds: None,
        *,
        stored: bool = False,
        frozen: NewerStateFileError | None = None,
    ) -> None:
        self._store = store
        self._wrote = wrote
        self.rules = rules
        self.state = state
        self.frozen = frozen
        self.refused: Mapping[str, Refused] = {}
        self.misaligned: Mapping[str, Mark] = {}
        self.devices = NO_DEVICES
        self.problem: StateWriteError | None = None
        self.repair = RepairPlan((), state.grants, state.grants)
        self._stored = stored
        self._made: tuple[Step, ...] = ()
        self._fits = False  # whether the state has been fitted to the rules; tried again where it could not be saved
        self._retry = True
        self._amounts = PodAmounts()
        self._looked: State | None = None

    @property
    def managers(self) -> Managers:
        return self.rules.managers

    @property
    def node(self) -> NodeCapacity:
        return self.rules.node

    @property
    def directory(self) -> Path:
        """Where the state is."""
        return self._store.path.parent

    def look(self, seen: Observation, running: Running | None = None) -> tuple[Decision, ...]:
        """Decide about what is seen. running: where containers run, for those that the state does not know; None: no need.

        Raises StateWriteError; then nothing has changed. Raises NewerStateFileError while frozen.
        """
        if self.frozen is not None:
            raise self.frozen
        state, repair = (self.state, self.repair) if self._fits else self._fitted(self.rules)
        made = () if self._fits else repair.steps
        retry = self._retry or self.state is not self._looked  # an init container may have given its memory back
        found: tuple[Decision, ...] = ()
        fitted = state.grants
        if running is not None:
            state, found = recover(self.managers, self.node, state, seen, running, self.refused)
        plan = decide(self.managers, self.node, state, seen, self.refused, retry=retry, amounts=self._amounts)
        after = plan.state
        if repair.waiting and after.grants != fitted:  # a pod that had to do with what waits may have ended
            repair = self._fit(self.rules, after)
            after = with_safe_steps(after, repair, self.rules.change_of(after))
            made += repair.steps
        if after is not self.state:
            after = replace(after, generation=self.state.generation + 1)
        self._adopt(after)
        self._made += tuple(step for step in made if step.safe)
        self.refused, self.repair, self._fits = plan.refused, repair, True
        self.misaligned, self.devices = plan.misaligned, seen.devices
        self._retry, self._looked = False, self.state
        return (*found, *plan.decisions)

    @property
    def restless(self) -> bool:
        """Whether the next look may find something to do although nothing outside has changed."""
        return self._retry or not self._fits or self.problem is not None or self.frozen is not None

    def try_again(self) -> None:
        """At the next look everything that waits is tried again: something has changed that the state does not show."""
        self._retry = True

    def settle(self, done: Actuation) -> tuple[Decision, ...]:
        """Enter what became of the pods' sizes in the kernel. Raises StateWriteError; then nothing has changed."""
        if self.frozen is not None:
            return ()
        plan = settle(self.state, done)
        self._adopt(plan.state)
        return plan.decisions

    def started(self, uid: str, container: str) -> None:
        """A container of this pod starts. Raises StateWriteError; then it must not. Raises NewerStateFileError while frozen."""
        if self.frozen is not None:
            raise self.frozen
        self._adopt(start_container(self.state, uid, container))

    def under(self, rules: Rules) -> None:
        """Go on under these rules, after a start, a reload or a change of the machine: what is held stays held.

        The safe steps of the repair are made at once (`take_made`), the others wait in `repair`. Pods that were refused are tried
        again. Raises StateWriteError; then the rules are the old ones.
        """
        state, repair = self._fitted(rules)
        if self.frozen is None:
            self._adopt(state)
        self.rules, self.repair, self._retry, self._fits = rules, repair, True, True
        self._made += tuple(step for step in repair.steps if step.safe)

    def take_made(self) -> tuple[Step, ...]:
        """The safe steps that were made since the last call, to be told."""
        made, self._made = self._made, ()
        return made

    def plan_repair(self) -> RepairPlan:
        """What does not fit now."""
        return self._fit(self.rules, self.state)

    def apply_repair(self) -> RepairPlan:
        """Make the steps that wait, as an operator wants it; the plan that was carried out.

        Raises StateWriteError; then nothing has changed. Raises NewerStateFileError while frozen.
        """
        if self.frozen is not None:
            raise self.frozen
        repair = self.plan_repair()
        self._adopt(with_all_steps(self.state, repair, self.rules.change_of(self.state)))
        self.repair, self._retry = self.plan_repair(), True
        return repair

    def _fitted(self, rules: Rules) -> tuple[State, RepairPlan]:
        """The state with the safe steps made, and the whole plan."""
        repair = self._fit(rules, self.state)
        after = with_safe_steps(replace(self.state, boot_id=rules.boot_id), repair, rules.change_of(self.state))
        if after == self.state:
            return self.state, repair
        return replace(after, generation=self.state.generation + 1), repair

    def _fit(self, rules: Rules, state: State) -> RepairPlan:
        return plan_repair(rules.managers, state.grants, state.pods, rules.change_of(state))

    def _adopt(self, state: State) -> None:
        if state is self.state and self._stored and self.problem is None:
            return
        started = time.perf_counter()
        try:
            self._store.save(state)
        except StateWriteError as error:
            self.problem = error
            raise
        self._wrote(time.perf_counter() - started)
        self.problem = None
        self._stored = True
        self.state = state
