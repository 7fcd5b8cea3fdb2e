"""States for tests: one small by hand, and a strategy for any."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeVar

from hypothesis import strategies as st

from agent.model.cpuset import CPUSet
from agent.model.pod import Container, ContainerKind, Pod, ResourceRequirements
from agent.model.quantity import Quantity
from agent.model.state import (
    Affinity,
    CPUState,
    Epoch,
    FirstGrant,
    Grants,
    Mark,
    MemoryBlock,
    MemoryState,
    MemoryTable,
    NUMANodeState,
    PodPhase,
    PodRecord,
    PolicyInForce,
    Resize,
    ResizeState,
    Shortfall,
    State,
)

V = TypeVar("V")

EPOCH = Epoch(1_700_000_000, "00112233445566aa")


def small_state(generation: int = 1, *, note: str = "", pods: int = 2) -> State:
    """A state whose generation and note tell it from others; `pods` makes it larger."""
    records = {
        f"uid-{number}": PodRecord(
            pod=_pod(f"uid-{number}", f"pod-{number}"), source="manifests", admitted_seconds=12.5
        )
        for number in range(pods)
    }
    entries = {f"uid-{number}": {"main": CPUSet.of([number + 1])} for number in range(pods)}
    return State(
        epoch=EPOCH,
        generation=generation,
        boot_id=note,
        policy=PolicyInForce(cpu_policy="static", online=CPUSet.of(range(16))),
        grants=Grants(cpu=CPUState(CPUSet.parse("0,9-15"), entries)),
        pods=records,
    )


def _pod(uid: str, name: str, cpus: Fraction = Fraction(2)) -> Pod:
    amounts = {"cpu": Quantity(cpus), "memory": Quantity(Fraction(1 << 30))}
    return Pod(uid, name, containers=(Container("main", ContainerKind.APP, ResourceRequirements(amounts, amounts)),))


names = st.text(min_size=1, max_size=8)
sizes = st.integers(0, 1 << 62)
masks = st.integers(0, (1 << 64) - 1)
cpusets = st.builds(CPUSet, st.integers(0, (1 << 600) - 1))
blocks = st.lists(st.builds(MemoryBlock, names, sizes, masks), max_size=3).map(tuple)
tables = st.builds(MemoryTable, sizes, sizes, sizes, sizes, sizes)
numa_states = st.builds(NUMANodeState, st.integers(0, 99), masks, st.dictionaries(names, tables, max_size=3))
seconds = st.floats(0, 1e11, allow_nan=False)
labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
pods = st.builds(_pod, labels, labels, st.integers(0, 10**6).map(lambda millis: Fraction(millis, 1000)))


def dicts(values: st.SearchStrategy[V]) -> st.SearchStrategy[dict[str, V]]:
    return st.dictionaries(names, values, max_size=3)


grants = st.builds(
    Grants,
    cpu=st.builds(CPUState, cpusets, dicts(dicts(cpusets)), dicts(cpusets)),
    memory=st.builds(
        MemoryState,
        st.dictionaries(st.integers(0, 63), numa_states, max_size=3),
        dicts(dicts(blocks)),
        dicts(blocks),
    ),
)
records = st.builds(
    PodRecord,
    pod=pods,
    phase=st.sampled_from(PodPhase),
    admitted_seconds=seconds,
    source=st.text(max_size=5),
    first=st.builds(FirstGrant, dicts(cpusets), dicts(blocks), st.none() | cpusets, st.none() | blocks),
    resize=st.builds(
        Resize,
        st.sampled_from(ResizeState),
        st.text(),
        st.text(),
        st.none() | pods,
        seconds,
        st.none() | pods,
        st.text(),
        st.integers(1, 99),
        st.lists(st.builds(Shortfall, names, sizes, masks), max_size=2).map(tuple),
    ),
    affinities=st.dictionaries(st.text(max_size=5), st.builds(Affinity, st.none() | masks, st.booleans()), max_size=3),
    unplaced=st.none() | st.builds(Mark, st.text(), st.text()),
    degraded=st.none() | st.builds(Mark, st.text(), st.text()),
)
epochs = st.builds(Epoch, st.integers(0, (1 << 48) - 1), st.integers(0, (1 << 64) - 1).map("{:016x}".format))
policies = st.builds(
    PolicyInForce,
    cpu_policy=names,
    cpu_options=dicts(st.text()),
    online=cpusets,
    reserved_cpus=cpusets,
    reserved_memory=st.dictionaries(st.integers(0, 63), dicts(sizes), max_size=2),
    topology_options=dicts(st.text()),
)
states = st.builds(
    State,
    epoch=epochs,
    generation=sizes,
    boot_id=st.text(),
    policy=policies,
    grants=grants,
    pods=st.dictionaries(names, records, max_size=4),
    manifest_uids=dicts(st.text()),
)
