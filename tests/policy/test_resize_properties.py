"""Laws of pinned resize (KEP-5554) over random machines, configurations, pods and histories."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent.model.cpuset import union
from agent.model.pod import Container, ContainerKind, Pod, ResourceRequirements
from agent.model.quantity import Quantity
from agent.model.state import FirstGrant, Grants
from agent.policy.admission import admit
from agent.policy.eligibility import claims
from agent.policy.managers import Managers
from agent.policy.removal import remove
from agent.policy.resize_pinned import PinnedResizeRefusal, resize_pinned
from agent.policy.restore import fresh, refit
from agent.policy.topology_options import TopologyPolicyName
from tests.policy.test_admission_properties import nodes, own, pods

GIB = 2**30


@dataclass(frozen=True)
class Running:
    pod: Pod
    first: FirstGrant


@st.composite
def machines(draw: st.DrawFn) -> tuple[Managers, Grants, dict[str, Running]]:
    """A node with some pods admitted, and perhaps one ended again."""
    managers = draw(nodes())
    grants, running = fresh(managers), dict[str, Running]()
    for index in range(draw(st.integers(1, 5))):
        pod = draw(pods(f"p{index}"))
        verdict = admit(managers, grants, pod)
        if verdict.admitted:
            grants = verdict.grants
            running[pod.uid] = Running(pod, FirstGrant.of(grants, pod.uid))
    if len(running) > 1 and draw(st.booleans()):
        gone = draw(st.sampled_from(sorted(running)))
        grants = remove(managers, grants, gone)
        del running[gone]
    return managers, grants, running


def resized(container: Container, cpus: int, memory: int) -> Container:
    """The container with that many CPUs and GiB more (or fewer)."""

    def change(amounts: Any) -> dict[str, Quantity]:
        changed = dict(amounts)
        if "cpu" in changed:
            changed["cpu"] = Quantity.of(max(changed["cpu"].number + cpus, 1))
        if "memory" in changed:
            changed["memory"] = Quantity.of(max(changed["memory"].number + memory * GIB, GIB))
        return changed

    resources = ResourceRequirements(change(container.resources.requests), change(container.resources.limits))
    return replace(container, resources=resources)


@st.composite
def edits(draw: st.DrawFn, pod: Pod) -> Pod:
    """Another size of the pod's resizable containers, and of the pod itself where it has one."""
    delta = st.sampled_from([-2, -1, 0, 0, 1, 1, 2, 3])
    containers = tuple(
        each if each.kind is ContainerKind.INIT else resized(each, draw(delta), draw(st.sampled_from([-1, 0, 0, 1, 2])))
        for each in pod.containers
    )
    whole = pod.resources
    if whole is not None:
        whole = resized(Container("", resources=whole), draw(delta), draw(st.sampled_from([-1, 0, 0, 1, 2]))).resources
    return replace(pod, containers=containers, resources=whole)


def attempt(managers: Managers, grants: Grants, one: Running, desired: Pod) -> Grants | None:
    if claims(desired, managers.gates).qos is not claims(one.pod, managers.gates).qos:
        return None  # the API server's rule: not a resize
    try:
        return resize_pinned(managers, grants, one.first, one.pod, desired).grants
    except PinnedResizeRefusal:
        return None


@st.composite
def histories(draw: st.DrawFn) -> tuple[Managers, list[tuple[Grants, dict[str, Running], str]]]:
    """Every state of a node on which pods are resized one after the other, with the uid that was resized last."""
    managers, grants, running = draw(machines())
    states = [(grants, running, "")]
    for _ in range(draw(st.integers(1, 6))):
        if not running:
            break
        uid = draw(st.sampled_from(sorted(running)))
        desired = draw(edits(running[uid].pod))
        after = attempt(managers, grants, running[uid], desired)
        if after is not None:
            grants, running = after, {**running, uid: Running(desired, running[uid].first)}
            states.append((grants, running, uid))
    return managers, states


@given(histories())
def test_every_cpu_stays_in_one_set_and_no_neighbour_ever_loses_one(history: Any) -> None:
    managers, states = history
    for before, (grants, _, uid) in itertools.pairwise(states):
        seen = grants.cpu.default
        for other in {**grants.cpu.entries, **grants.cpu.pod_entries}:
            held = own(grants, other)
            assert not held & seen
            assert not held & managers.cpu.reserved
            seen |= held
            if other != uid:
                assert held == own(before[0], other)
        assert seen == managers.cpu.managed
        others = {name: entries for name, entries in grants.memory.entries.items() if name != uid}
        assert others == {name: entries for name, entries in before[0].memory.entries.items() if name != uid}


@given(histories())
def test_what_the_first_admission_gave_is_never_taken_away(history: Any) -> None:
    managers, states = history
    for grants, running, _ in states:
        for uid, one in running.items():
            asked = claims(one.pod, managers.gates)
            for name, cpus in one.first.cpus.items():
                if name in asked.cpus:
                    assert cpus <= grants.cpu.entries[uid][name]
            if one.first.pod_cpus is not None:
                assert one.first.pod_cpus <= grants.cpu.pod_entries[uid]
            for first, held in [
                *((blocks, grants.memory.entries[uid][name]) for name, blocks in one.first.memory.items()
                  if uid not in grants.memory.pod_entries),
                *([(one.first.pod_memory, grants.memory.pod_entries[uid])] if one.first.pod_memory is not None else []),
            ]:  # fmt: skip
                for block in first:
                    now = next(each for each in held if each.type == block.type)
                    assert now.size >= block.size
                    assert not block.nodes & ~now.nodes


@given(histories())
def test_a_resize_changes_only_in_one_direction_and_gives_what_is_asked(history: Any) -> None:
    managers, states = history
    for (before, _, _), (after, running, uid) in itertools.pairwise(states):
        asked = claims(running[uid].pod, managers.gates)
        for name, count in asked.cpus.items() if uid in before.cpu.entries else ():
            old, new = before.cpu.entries[uid][name], after.cpu.entries[uid][name]
            assert len(new) == count
            if uid not in after.cpu.pod_entries:
                assert old <= new or new <= old
        if uid in after.cpu.pod_entries:
            old, new = before.cpu.pod_entries[uid], after.cpu.pod_entries[uid]
            assert len(new) == asked.pod_cpus
            assert old <= new or new <= old


@given(histories())
def test_the_tables_of_memory_add_up_and_a_restart_changes_nothing(history: Any) -> None:
    managers, states = history
    for grants, _, _ in states:
        charged = sum(block.size for blocks in grants.memory.pod_entries.values() for block in blocks) + sum(
            block.size
            for uid, entries in grants.memory.entries.items()
            if uid not in grants.memory.pod_entries
            for blocks in entries.values()
            for block in blocks
        )
        tables = [table for state in grants.memory.machine.values() for table in state.memory.values()]
        assert all(table.reserved + table.free == table.allocatable and table.free >= 0 for table in tables)
        assert charged == sum(table.reserved for table in tables)
        assert refit(managers, grants) == grants


@given(histories())
def test_a_pod_that_goes_back_to_its_first_size_has_its_first_sets_again(history: Any) -> None:
    managers, states = history
    first_pods = {uid: one.pod for uid, one in states[0][1].items()}
    grants, running, _ = states[-1]
    for uid, one in running.items():
        back = resize_pinned(managers, grants, one.first, one.pod, first_pods[uid]).grants
        asked = claims(first_pods[uid], managers.gates)
        for name in asked.cpus:
            if first_pods[uid].containers and uid in back.cpu.entries:
                assert back.cpu.entries[uid][name] == one.first.cpus[name]
        if one.first.pod_cpus is not None:
            assert back.cpu.pod_entries[uid] == one.first.pod_cpus
        for name, blocks in one.first.memory.items():
            sizes = {block.type: block.size for block in back.memory.entries[uid][name]}
            assert sizes == {block.type: block.size for block in blocks}


@given(histories())
def test_ending_every_pod_leaves_nothing_behind(history: Any) -> None:
    managers, states = history
    grants, running, _ = states[-1]
    for uid in running:
        grants = remove(managers, grants, uid)
    assert grants == fresh(managers)


@given(histories())
def test_grown_sets_keep_the_alignment_that_options_and_policy_promise(history: Any) -> None:
    managers, states = history
    topology = managers.machine.topology
    # the kubelet counts the free thread of a half-reserved core as a physical CPU, so there an admission may split cores too
    whole_reserved = managers.cpu.reserved == managers.cpu.reserved_physical
    for grants, running, _ in states:
        for uid, one in running.items():
            asked = claims(one.pod, managers.gates)
            entries = grants.cpu.entries.get(uid, {})
            sets = [entries[name] for name in asked.cpus if name in entries and uid not in grants.cpu.pod_entries]
            sets += [grants.cpu.pod_entries[uid]] if uid in grants.cpu.pod_entries else []
            for held in sets:
                if managers.cpu.options.full_pcpus_only and whole_reserved:
                    assert all(not core & held.mask or not core & ~held.mask for core in topology.core_masks.values())
                if managers.topology.name is TopologyPolicyName.SINGLE_NUMA_NODE:
                    assert sum(bool(mask & held.mask) for mask in topology.numa_masks.values()) == 1


@given(histories())
def test_a_bubble_stays_its_slices_and_the_pods_shared_pool(history: Any) -> None:
    managers, states = history
    for grants, running, _ in states:
        for uid, bubble in grants.cpu.pod_entries.items():
            asked, entries = claims(running[uid].pod, managers.gates), grants.cpu.entries[uid]
            long_running = [each for each in running[uid].pod.containers if each.kind is not ContainerKind.INIT]
            slices = [entries[each.name] for each in long_running if each.name in asked.cpus]
            assert sum(map(len, slices)) == len(union(slices))
            for each in long_running:
                if each.name not in asked.cpus:
                    assert entries[each.name] == bubble - union(slices)
                    assert entries[each.name]
            assert all(cpus <= bubble for cpus in entries.values())


@given(histories(), st.data())
def test_deferred_means_that_it_would_fit_alone(history: Any, data: st.DataObject) -> None:
    managers, states = history
    grants, running, _ = states[-1]
    if not running:
        return
    uid = data.draw(st.sampled_from(sorted(running)))
    desired = data.draw(edits(running[uid].pod))
    if claims(desired, managers.gates).qos is not claims(running[uid].pod, managers.gates).qos:
        return
    one = running[uid]
    try:
        resize_pinned(managers, grants, one.first, one.pod, desired)
    except PinnedResizeRefusal as refusal:
        for other in running:
            if other != uid:
                grants = remove(managers, grants, other)
        if refusal.never:
            assert attempt(managers, grants, one, desired) is None
        else:
            assert attempt(managers, grants, one, desired) is not None
