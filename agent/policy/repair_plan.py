"""The words of a repair: rules, steps, the plan made of them. What asks for which step: agent.policy.repair and docs/state.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from agent.model.cpuset import CPUSet, union
from agent.model.state import Grants, Mark, PodRecord, PolicyInForce
from agent.policy.cpu_options import STRICT_RESERVATION
from agent.policy.go_text import parse_bool


class Rule(StrEnum):
    """Which rule asks for a step."""

    OWNER_KEEPS = "owner-keeps"  # a CPU in the shared pool and with a pod
    ORPHANS_RETURN = "orphans-return"  # a CPU nowhere
    CPUS_ADDED = "cpus-added"
    CPUS_GONE = "cpus-gone"  # out of the shared pool
    CPUS_LOST = "cpus-lost"  # out of a pod's set
    TWO_OWNERS = "two-owners"
    RESERVATION_CHANGED = "reservation-changed"
    RESERVED_HELD = "reserved-held"  # a CPU that is reserved now is with a pod
    SHARED_POOL_EMPTY = "shared-pool-empty"
    OPTIONS_CHANGED = "options-changed"
    POLICY_CHANGED = "policy-changed"
    UNKNOWN_POD = "unknown-pod"
    MEMORY_RECOUNTED = "memory-recounted"  # tables that are not the sum of what pods hold
    MEMORY_DRIFT = "memory-drift"  # a node's total differs by less than the tolerance
    MEMORY_CHANGED = "memory-changed"  # by more, or its reservation or hugepages differ; all pods still fit
    MEMORY_SHORT = "memory-short"  # pods hold more than there is
    NUMA_NODE_ADDED = "numa-node-added"
    NUMA_NODE_GONE = "numa-node-gone"
    ADOPTED = "adopted"
    NOT_PROVEN = "not-proven"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do. text: a sentence naming pods, CPUs, nodes and bytes. pods: UIDs of those concerned."""

    rule: Rule
    safe: bool
    text: str
    pods: tuple[str, ...] = ()
    cpus: CPUSet = field(default_factory=CPUSet)


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """safe: the grants once the safe steps are made; what running pods hold is as it was. whole: the grants once all are.

    marks: UID -> why the pod is degraded until the waiting steps are made. marks_after: the same once they are.
    """

    steps: tuple[Step, ...]
    safe: Grants
    whole: Grants
    marks: Mapping[str, Mark] = field(default_factory=dict)
    marks_after: Mapping[str, Mark] = field(default_factory=dict)

    def policy_until_applied(self, change: Change) -> PolicyInForce:
        """The rules that the state remembers while steps wait. For whatever waits these are still the rules from before the
        change, so that it waits after the next start too.

        CPUs that must be confirmed are not yet known; a policy that pods still hold something under is still in force.
        """
        was, now = change.was, change.now
        unconfirmed = union(step.cpus for step in self.waiting if step.rule is Rule.CPUS_ADDED)
        now = replace(now, online=now.online - unconfirmed)
        if was is None or not any(step.rule is Rule.POLICY_CHANGED for step in self.waiting):
            return now
        if now.cpu_policy == "none" and (self.safe.cpu.entries or self.safe.cpu.pod_entries):
            now = replace(now, cpu_policy=was.cpu_policy, cpu_options=was.cpu_options, reserved_cpus=was.reserved_cpus)
        if now.memory_policy == "None" and (self.safe.memory.entries or self.safe.memory.pod_entries):
            now = replace(now, memory_policy=was.memory_policy, reserved_memory=was.reserved_memory)
        return now

    @property
    def waiting(self) -> tuple[Step, ...]:
        """The steps that an operator must confirm: the agent is not ready while there are any."""
        return tuple(step for step in self.steps if not step.safe)


@dataclass(frozen=True, slots=True)
class Holders:
    """The pods that hold something, in the order of their admission, and how people know them."""

    order: tuple[str, ...]
    records: Mapping[str, PodRecord]

    @classmethod
    def of(cls, grants: Grants, records: Mapping[str, PodRecord]) -> Holders:
        """Pods with a record first, in the order of the records; then those that only the grants know."""
        uids = dict.fromkeys(grants.holders)
        known = [uid for uid in records if uid in uids]
        return cls((*known, *(uid for uid in uids if uid not in records)), records)

    def name(self, uid: str) -> str:
        """ "namespace/name", or the UID of a pod without a record."""
        record = self.records.get(uid)
        return record.pod.namespaced_name if record is not None else f"uid {uid}"

    @property
    def unknown(self) -> tuple[str, ...]:
        """The pods without a record."""
        return tuple(uid for uid in self.order if uid not in self.records)


@dataclass(frozen=True, slots=True)
class Change:
    """From which configuration to which. was: None for a file that does not say (a kubelet's).

    tolerance_bytes: by how much a NUMA node's memory may differ from boot to boot (kernel image, early allocations).
    confirm_added: new CPUs wait for an operator instead of joining the shared pool by themselves.
    """

    was: PolicyInForce | None
    now: PolicyInForce
    tolerance_bytes: int = 64 << 20
    confirm_added: bool = False

    @property
    def was_strict(self) -> bool:
        """Whether strict-cpu-reservation was on when the state was written."""
        try:
            return self.was is not None and parse_bool(self.was.cpu_options.get(STRICT_RESERVATION, "false"))
        except ValueError:
            return False  # no kubelet and no pinfold ever ran with such a value
