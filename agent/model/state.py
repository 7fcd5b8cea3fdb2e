"""What the node has given away: the value that every decision reads and returns, and that the state file holds.

`Grants` is what the resource managers hold (CPUs as in the kubelet's `cpu_manager_state`, memory as in its
`memory_manager_state`); `State` is all that a restart needs. `agent.formats` writes both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from agent.errors import BadInputError
from agent.model.cpuset import CPUSet, union
from agent.model.numa import NodeMask, union_of
from agent.model.pod import Pod


@dataclass(frozen=True, slots=True)
class CPUState:
    """default: the shared pool (`defaultCpuSet`); entries: pod UID -> container -> set; pod_entries: pod UID -> bubble.

    A container in a pod's shared pool has that pool in `entries`, as in the kubelet's file (KEP-5526).
    """

    default: CPUSet = field(default_factory=CPUSet)
    entries: Mapping[str, Mapping[str, CPUSet]] = field(default_factory=dict)
    pod_entries: Mapping[str, CPUSet] = field(default_factory=dict)

    @property
    def held(self) -> CPUSet:
        """Every CPU that any pod holds, in a slice or a bubble."""
        granted = (cpus for entries in self.entries.values() for cpus in entries.values())
        return union((*granted, *self.pod_entries.values()))

    def held_by(self, uid: str) -> CPUSet:
        """Every CPU that this pod holds, in slices and bubble."""
        return union((*self.entries.get(uid, {}).values(), self.pod_entries.get(uid, CPUSet())))


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """One resource type of one NUMA node, bytes: total - system_reserved - hugepages = allocatable = reserved + free."""

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int


@dataclass(frozen=True, slots=True)
class NUMANodeState:
    """One NUMA node of the memory manager's machine state.

    assignments: blocks placed here, zero-sized ones included. cells: the group this node belongs to, itself included;
    one bit where it stands alone. memory: resource type -> table.
    """

    assignments: int
    cells: NodeMask
    memory: Mapping[str, MemoryTable]


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """A promise of memory to a container or pod: `size` bytes of resource `type` from the NUMA nodes of `nodes` together."""

    type: str
    size: int
    nodes: NodeMask


Blocks = tuple[MemoryBlock, ...]


def nodes_of(blocks: Blocks) -> NodeMask:
    """The NUMA nodes of any of these blocks."""
    return union_of(block.nodes for block in blocks)


@dataclass(frozen=True, slots=True)
class MemoryState:
    """machine: NUMA id -> its tables (empty with memory policy None); entries: pod UID -> container -> blocks."""

    machine: Mapping[int, NUMANodeState] = field(default_factory=dict)
    entries: Mapping[str, Mapping[str, Blocks]] = field(default_factory=dict)
    pod_entries: Mapping[str, Blocks] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Grants:
    """Everything the resource managers hold: the whole input and output of a decision."""

    cpu: CPUState = field(default_factory=CPUState)
    memory: MemoryState = field(default_factory=MemoryState)

    @property
    def holders(self) -> tuple[str, ...]:
        """The UIDs of the pods that hold anything, each once."""
        held = (self.cpu.entries, self.cpu.pod_entries, self.memory.entries, self.memory.pod_entries)
        return tuple(dict.fromkeys(uid for entries in held for uid in entries))


class EpochError(BadInputError):
    """A text that is not an epoch."""

    hint = "an epoch is 12 hex digits, a dash and 16 hex digits, as the agent prints it"


_LAST_EPOCH = (1 << 48) - 1  # what twelve hex digits hold
_EPOCH = re.compile(r"([0-9a-f]{12})-([0-9a-f]{16})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Epoch:
    """An unbroken line of generations. A new one begins whenever the line may be broken: first start, any fallback.

    number: greater than that of every epoch before. nonce: random, so that two beginnings from one old file differ.
    Epochs are ordered, and so are their texts: a reader that keeps the greatest (epoch, generation) never runs backwards.
    """

    number: int
    nonce: str

    @classmethod
    def after(cls, previous: Epoch | None, *, now_millis: int, nonce: str) -> Self:
        """A new epoch. now_millis: Unix time in milliseconds, which orders it after one that nobody can read any more.

        nonce: 16 random hex digits.
        """
        return cls(min(max(now_millis, previous.number + 1 if previous else 0), _LAST_EPOCH), nonce)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` writes. Raises EpochError for anything else."""
        match = _EPOCH.fullmatch(text)
        if match is None:
            raise EpochError(f"invalid epoch {text!r}")
        return cls(int(match[1], 16), match[2])

    def __str__(self) -> str:
        return f"{self.number:012x}-{self.nonce}"


class PodPhase(StrEnum):
    """Where a pod stands between admission and the release of its grant. A pod that is gone has no record."""

    ADMITTED = "admitted"  # granted, no container seen yet
    RUNNING = "running"
    TERMINATING = "terminating"  # asked to stop; keeps everything
    TERMINAL = "terminal"  # every container has ended for good; still known to its source


class ResizeState(StrEnum):
    """How far an in-place resize has come (KEP-1287). DEFERRED and INFEASIBLE are the reasons of PodResizePending."""

    NONE = "none"
    PENDING = "pending"
    DEFERRED = "deferred"
    INFEASIBLE = "infeasible"
    IN_PROGRESS = "in-progress"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What a resize lacks. amount: thousandths of a CPU for cpu, else bytes. nodes: the NUMA nodes where it would have to be
    free; 0 where any would do.
    """

    resource: str
    amount: int
    nodes: NodeMask = 0


@dataclass(frozen=True, slots=True)
class Resize:
    """The resize terms of a pod beside its allocated ones: desired and actual.

    Up to two resizes are on their way: one that waits (state PENDING, DEFERRED or INFEASIBLE) and one that is allocated and
    not in force yet. state: of the former where there is one, else of the latter. reason, message, shortfall: why it waits;
    `reason` is a word for events and metrics (`OutOfcpu`). desired: the pod as its source wants it, None where that is what is
    allocated. since_seconds: Unix time at which the wait began; retries go by it. actual: the pod with the most that may be in
    force, None where that is what is allocated. error: why putting it in force does not succeed. generation: of the pod's
    spec, as an API server counts: 1 at admission, one more for every edit.
    """

    state: ResizeState = ResizeState.NONE
    reason: str = ""
    message: str = ""
    desired: Pod | None = None
    since_seconds: float = 0.0
    actual: Pod | None = None
    error: str = ""
    generation: int = 1
    shortfall: tuple[Shortfall, ...] = ()


@dataclass(frozen=True, slots=True)
class Affinity:
    """A merged hint as the topology manager stored it. nodes: None means any node, which is not the same as an empty mask."""

    nodes: NodeMask | None
    preferred: bool


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that is not as it should be, for people: `reason` in CamelCase, `message` a sentence."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class FirstGrant:
    """What a pod got at its first admission (the "original" sets of KEP-5554): a resize never takes these away.

    cpus, memory: by container. pod_cpus, pod_memory: the pod's bubble, None where it has none.
    """

    cpus: Mapping[str, CPUSet] = field(default_factory=dict)
    memory: Mapping[str, Blocks] = field(default_factory=dict)
    pod_cpus: CPUSet | None = None
    pod_memory: Blocks | None = None

    @classmethod
    def of(cls, grants: Grants, uid: str) -> Self:
        """What this pod holds now, as its first-admission set."""
        return cls(
            grants.cpu.entries.get(uid, {}),
            grants.memory.entries.get(uid, {}),
            grants.cpu.pod_entries.get(uid),
            grants.memory.pod_entries.get(uid),
        )


@dataclass(frozen=True, slots=True)
class PodRecord:
    """One pod that holds a place on this node.

    pod: as admitted, that is with its allocated resources. admitted_seconds: Unix time of the first admission.
    source: the name of the source that must say when the pod is gone. fingerprint: of its manifest apart from cpu and memory,
    "" for other sources. affinities: container name -> stored hint; the empty
    name is the pod's own (scope pod). unplaced: it runs in the shared pool although it asked for more (design section 6).
    degraded: it holds less than it was granted.
    """

    pod: Pod
    phase: PodPhase = PodPhase.ADMITTED
    admitted_seconds: float = 0.0
    source: str = ""
    fingerprint: str = ""
    first: FirstGrant = field(default_factory=FirstGrant)
    resize: Resize = field(default_factory=Resize)
    affinities: Mapping[str, Affinity] = field(default_factory=dict)
    unplaced: Mark | None = None
    degraded: Mark | None = None


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """The configuration under which the grants were made; a change of it is a change of the state's meaning.

    online: the CPUs that existed then, which tells an added CPU from a lost one. reserved_memory: NUMA id -> resource -> bytes.
    """

    cpu_policy: str = "none"
    cpu_options: Mapping[str, str] = field(default_factory=dict)
    online: CPUSet = field(default_factory=CPUSet)
    reserved_cpus: CPUSet = field(default_factory=CPUSet)
    memory_policy: str = "None"
    reserved_memory: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    topology_policy: str = "none"
    topology_scope: str = "container"
    topology_options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class State:
    """Everything that a restart needs: the content of `pinfold_state`.

    generation: one more for every saved decision; (epoch, generation) orders all states of a node. boot_id: the kernel's
    random id of the boot under which it was written. pods: by UID, in the order of their admission, which is the order of
    re-admission. manifest_uids: "namespace/name" -> the UID made up for that manifest.
    """

    epoch: Epoch
    generation: int = 0
    boot_id: str = ""
    policy: PolicyInForce = field(default_factory=PolicyInForce)
    grants: Grants = field(default_factory=Grants)
    pods: Mapping[str, PodRecord] = field(default_factory=dict)
    manifest_uids: Mapping[str, str] = field(default_factory=dict)

    @property
    def stamp(self) -> tuple[Epoch, int]:
        """What orders states: a reader never goes back to a smaller one."""
        return self.epoch, self.generation
