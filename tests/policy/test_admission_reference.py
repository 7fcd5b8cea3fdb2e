"""Admission equals the straightforward model in every step of random histories."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent.model.pod import Pod
from agent.model.state import Grants
from agent.policy.admission import admit
from agent.policy.managers import Managers
from agent.policy.removal import container_started, remove
from agent.policy.restore import fresh
from tests.policy.reference_admission import ReferenceNode
from tests.policy.test_admission_properties import histories


def as_tables(grants: Grants) -> dict[str, Any]:
    cpu, memory = grants.cpu, grants.memory
    return {
        "shared": set(cpu.default),
        "cpus": {(uid, name): set(cpus) for uid, held in cpu.entries.items() for name, cpus in held.items()},
        "bubbles": {uid: set(cpus) for uid, cpus in cpu.pod_entries.items()},
        "memory": {
            (uid, name): {block.type: (block.size, block.nodes) for block in blocks}
            for uid, held in memory.entries.items()
            for name, blocks in held.items()
        },
        "pod_memory": {
            uid: {block.type: (block.size, block.nodes) for block in blocks}
            for uid, blocks in memory.pod_entries.items()
        },
        "machine": dict(memory.machine),
    }


@given(histories().filter(lambda history: history[0].cpu is not None and not history[0].cpu.uneven_cores), st.data())
def test_every_step_equals_the_straightforward_model(
    history: tuple[Managers, list[tuple[str, Any]]], data: st.DataObject
) -> None:
    managers, ops = history
    model = ReferenceNode(managers)
    grants = fresh(managers)
    running: dict[str, Pod] = {}
    for op, what in ops:
        if op == "admit":
            verdict = admit(managers, grants, what)
            assert (verdict.reason, verdict.admitted) == (reason := model.admit(what), not reason), verdict.message
            grants = verdict.grants
            if verdict.admitted:
                running[what.uid] = what
        elif (pod := running.get(f"p{what}")) is not None:
            if op == "remove":
                grants = remove(managers, grants, pod.uid)
                model.remove(running.pop(pod.uid))
            elif op == "start":
                name = data.draw(st.sampled_from([container.name for container in pod.containers]))
                grants = container_started(grants, pod, name)
                model.start(pod, name)
        assert as_tables(grants) == vars(model.tables)
