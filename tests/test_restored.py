"""What runs is restored before anything free is counted: files of running pods, taken over, started and admitted again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agent.formats.checkpoint import CheckpointError
from agent.formats.cpu_checkpoint import CPUVersion, write_cpu_checkpoint
from agent.formats.kubelet_import import read_files, record_pods
from agent.keeper import Rules
from agent.model.pod import Pod
from agent.model.state import CPUState, Epoch, Grants, MemoryBlock, MemoryState, State
from agent.policy.memory_count import count
from agent.policy.memory_static import fresh_machine_state
from agent.policy.repair import plan_repair
from agent.policy.repair_plan import Change
from tests.keepers import T8, look, rules, started
from tests.policy.nodes import GIB, cpus, machine, managers, pod
from tests.test_fitting import put

CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"
T4, T6 = machine({0: "0-3"}), machine({0: "0-5"})
BUBBLE = pod("a", cpu="2", pod_level={"cpu": "2", "memory": "1Gi"})


def taken_over(directory: Path, under: Rules, grants: Grants, *pods: Pod) -> None:
    """The state as an import writes it."""
    found = read_files({"cpu_manager_state": write_cpu_checkpoint("static", grants.cpu, CPUVersion.V4)})
    found = replace(found, grants=grants)
    records, uids = record_pods(found, pods)
    plan = plan_repair(under.managers, grants, records, Change(None, under.policy))
    put(directory, State(Epoch(1, "0" * 16), 1, "", under.policy, plan.safe, records, uids))


@pytest.mark.parametrize(
    ("under", "state", "running", "default"),
    [
        pytest.param(
            rules(managers(T4, scope="pod", topology_policy="restricted")),
            cpus("0,3", {"a": "1-2"}, a={"app": "1-2"}),
            BUBBLE,
            "0,3",
            id="a bubble on a full machine (BL-01)",
        ),
        pytest.param(
            rules(managers(T6, scope="pod", topology_policy="restricted")),
            cpus("0,3-5", {"a": "1-2"}, a={"app": "1-2"}),
            BUBBLE,
            "0,3-5",
            id="a bubble with room elsewhere (BL-01)",
        ),
        pytest.param(
            rules(managers(T4, options={"full-pcpus-only": "true"})),
            cpus("0,3", a={"app": "1-2"}),
            pod("a"),
            "0,3",
            id="full cores only, none free (BL-04)",
        ),
        pytest.param(
            rules(managers(T8)),
            cpus("0-7", a={"app": "1-2"}),
            pod("a"),
            "0,3-7",
            id="cut off between two writes: in both (BL-06)",
        ),
        pytest.param(rules(managers(T8)), cpus("0,3-7"), None, "0-7", id="cut off between two writes: in none (BL-06)"),
        pytest.param(rules(managers(T8)), cpus("0-3"), None, "0-7", id="more CPUs, nothing held (BL-11)"),
        pytest.param(
            rules(managers(T8)), cpus("0-1", a={"app": "2-3"}), pod("a"), "0-1,4-7", id="more CPUs, a pod (BL-11)"
        ),
    ],
)
def test_a_running_pod_is_as_it_was_after_start_and_start(
    tmp_path: Path, under: Rules, state: CPUState, running: Pod | None, default: str
) -> None:
    pods = [running] if running is not None else []
    taken_over(tmp_path, under, Grants(state), *pods)
    for _ in range(2):
        with started(tmp_path, under) as keeper:
            decisions = look(keeper, *pods)
            cpu = keeper.state.grants.cpu
            assert (cpu.entries, cpu.pod_entries, str(cpu.default)) == (state.entries, state.pod_entries, default)
            assert not keeper.repair.waiting
            assert [each.pod.uid for each in decisions] == []


def test_the_memory_of_a_bubble_with_two_containers_is_reproduced(tmp_path: Path) -> None:
    """BL-03: a container's blocks are no measure for its pod's request."""
    nodes = machine({0: "0-3", 1: "4-7"})
    kept: Mapping[int, Mapping[str, int]] = {0: {"memory": GIB}, 1: {"memory": GIB}}
    on = managers(nodes, memory_policy="Static", reserved_memory=kept, scope="pod", topology_policy="restricted")
    assert on.memory is not None
    blocks = (MemoryBlock("memory", GIB, 1),)
    held = MemoryState({}, {"c": {"app": blocks, "b": blocks}}, {"c": (MemoryBlock("memory", 2 * GIB, 1),)})
    held = replace(held, machine=count(fresh_machine_state(on.memory), held).machine)
    running = pod("c", cpu="1", b="1", pod_level={"cpu": "2", "memory": "2Gi"})
    taken_over(tmp_path, rules(on), Grants(cpus("0-3,4-7"), held), running)
    for _ in range(2):
        with started(tmp_path, rules(on)) as keeper:
            assert look(keeper, running) == ()
            assert keeper.state.grants.memory == held
            assert not keeper.refused


@pytest.mark.parametrize("version", list(CPUVersion))
def test_every_version_means_the_same_and_a_wrong_checksum_is_told_apart(version: CPUVersion) -> None:
    """BL-09: the error names file, version and what to do next."""
    state = cpus("0,3-7", a={"app": "1-2"})
    folder = CHECKPOINTS / "cpu_manager" / str(version)
    data = (folder / "cpu_manager_state").read_bytes()
    containers = {"c1": ("a", "app")} if version is CPUVersion.V1 else None
    if version is not CPUVersion.V1:
        data = write_cpu_checkpoint("static", state, version)
        assert read_files({"cpu_manager_state": data}, containers).grants.cpu == state
    damaged = (folder / "cpu_manager_state.damaged").read_bytes()
    with pytest.raises(CheckpointError, match=rf"cpu_manager_state \(version {version[:2]}\): damaged") as caught:
        read_files({"cpu_manager_state": damaged}, containers)
    assert "pinfold checkpoint verify" in caught.value.hint
