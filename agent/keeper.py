"""Holds the state in force: a decision counts once it is durable, and one that cannot be saved never happened."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from agent.model.state import PolicyInForce, State
from agent.node.state_store import StateStore, StateWriteError
from agent.policy.managers import ManagerConfig, Managers
from agent.policy.node_fit import NodeCapacity
from agent.policy.plan import Decision, Observation, Refused, decide, settle, start_container
from agent.policy.resize_lifecycle import Actuation
from agent.policy.restore import refit


class Keeper:
    """The state, the rules it is decided by, and the store that makes it durable. One thread at a time.

    problem: why the last decision could not be saved, None while all is well. wrote: told the seconds of every write.
    """

    def __init__(
        self,
        store: StateStore,
        managers: Managers,
        node: NodeCapacity,
        state: State,
        wrote: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._store = store
        self._wrote = wrote
        self.managers = managers
        self.node = node
        self.state = state
        self.refused: Mapping[str, Refused] = {}
        self.problem: StateWriteError | None = None
        self._retry = True
        self._looked: State | None = None

    def look(self, seen: Observation) -> tuple[Decision, ...]:
        """Decide about what is seen. Raises StateWriteError; then nothing has changed."""
        retry = self._retry or self.state is not self._looked  # an init container may have given its memory back
        plan = decide(self.managers, self.node, self.state, seen, self.refused, retry=retry)
        self._adopt(plan.state)
        self.refused = plan.refused
        self._retry, self._looked = False, self.state
        return plan.decisions

    def settle(self, done: Actuation) -> tuple[Decision, ...]:
        """Enter what became of the pods' sizes in the kernel. Raises StateWriteError; then nothing has changed."""
        plan = settle(self.state, done)
        self._adopt(plan.state)
        return plan.decisions

    def started(self, uid: str, container: str) -> None:
        """A container of this pod starts. Raises StateWriteError; then it must not."""
        self._adopt(start_container(self.state, uid, container))

    def under(self, managers: Managers, node: NodeCapacity, policy: PolicyInForce, boot_id: str) -> None:
        """Go on under other rules, after a start, a reload or a change of the machine: what is held stays held.

        Pods that were refused are tried again. Raises StateWriteError; then the rules are the old ones.
        """
        state = replace(self.state, grants=refit(managers, self.state.grants), policy=policy, boot_id=boot_id)
        if state != self.state:
            self._adopt(replace(state, generation=self.state.generation + 1))
        self.managers, self.node, self._retry = managers, node, True

    def _adopt(self, state: State) -> None:
        if state is self.state and self.problem is None:
            return
        started = time.perf_counter()
        try:
            self._store.save(state)
        except StateWriteError as error:
            self.problem = error
            raise
        self._wrote(time.perf_counter() - started)
        self.problem = None
        self.state = state


def policy_in_force(managers: Managers, config: ManagerConfig) -> PolicyInForce:
    """What the state remembers of the rules it was made under."""
    return PolicyInForce(
        cpu_policy=config.cpu_policy,
        cpu_options=dict(config.cpu_options),
        online=managers.machine.topology.all,
        reserved_cpus=managers.cpu.reserved if managers.cpu is not None else config.reserved_cpus,
        memory_policy=config.memory_policy,
        reserved_memory=config.reserved_memory if managers.memory is not None else {},
        topology_policy=str(managers.topology.name),
        topology_scope=str(managers.topology.scope),
        topology_options=dict(config.topology_options),
    )
