"""What the node holds as messages of the node service (agent/proto/node_v1.proto)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.model.isolation import Isolation
from agent.model.numa import node_ids
from agent.model.state import Affinity, Blocks, Grants, Mark, PodRecord, State
from agent.policy.feature_gates import FeatureGates
from agent.policy.placement import placements
from agent.policy.qos import pod_qos
from agent.proto import node_v1_pb2 as v1

_ISOLATION = {
    Isolation.HOST: v1.Container.HOST,
    Isolation.POD: v1.Container.POD,
    Isolation.CONTAINER: v1.Container.CONTAINER,
}


def position_message(state: State) -> v1.Position:
    """The state's place in the line of states."""
    return v1.Position(epoch=str(state.epoch), generation=state.generation)


def node_message(status: Mapping[str, Any], name: str, boot_id: str, version: str) -> v1.NodeState:
    """Everything but the pods. status: `agent.formats.status`'."""
    policy = status["policy"]
    return v1.NodeState(
        name=name,
        boot_id=boot_id,
        agent_version=version,
        ready=status["ready"],
        paused=status["paused"],
        problems=status["problems"],
        policy=v1.Policy(
            cpu_manager_policy=policy["cpuManagerPolicy"],
            memory_manager_policy=policy["memoryManagerPolicy"],
            topology_manager_policy=policy["topologyManagerPolicy"],
            topology_manager_scope=policy["topologyManagerScope"],
        ),
        online_cpus=status["cpus"]["online"],
        reserved_cpus=status["cpus"]["reserved"],
        shared_cpus=status["cpus"]["shared"],
        numa=[_numa(node) for node in status["numa"]],
        refused=[
            v1.Refusal(**{key: each[key] for key in ("uid", "namespace", "name", "reason", "message", "hint", "asked")})
            for each in status["refused"]
        ],
        drift=status["drift"],
    )


def _numa(node: Mapping[str, Any]) -> v1.NUMANode:
    return v1.NUMANode(
        node=node["node"],
        cpus=node["cpus"],
        reserved_cpus=node["reserved"],
        shared_cpus=node["shared"],
        held_cpus=[v1.HeldCPUs(pod=each["pod"], cpus=each["cpus"]) for each in node["held"]],
        memory=[
            v1.NUMAMemory(
                type=table["type"],
                allocatable=table["allocatable"],
                free=table["free"],
                held=[v1.HeldMemory(pod=each["pod"], size=each["size"], numa=each["numa"]) for each in table["held"]],
            )
            for table in node["memory"]
        ],
    )


def pod_message(record: PodRecord, grants: Grants, gates: FeatureGates, misaligned: Mark | None = None) -> v1.Pod:
    """One pod with its containers; the same as long as its record, its entries in the grants, the gates and the mark are."""
    pod, affinities = record.pod, record.affinities
    containers = [
        v1.Container(
            name=placed.container,
            isolation=_ISOLATION[placed.isolation],
            cpus="" if placed.isolation is Isolation.HOST else str(placed.cpus),
            memory=_blocks(placed.memory),
            hint=_hint(affinities.get(placed.container)),
        )
        for placed in placements(grants, pod, gates)
    ]
    return v1.Pod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        qos=str(pod_qos(pod, pod_level_resources=gates.pod_level_resources)),
        phase=str(record.phase),
        cpus=str(grants.cpu.pod_entries.get(pod.uid, "")),
        memory=_blocks(grants.memory.pod_entries.get(pod.uid, ())),
        resize=str(record.resize.state),
        resize_message=record.resize.message,
        unplaced=record.unplaced.message if record.unplaced else "",
        degraded=record.degraded.message if record.degraded else "",
        misaligned=misaligned.message if misaligned else "",
        containers=containers,
        hint=_hint(affinities.get("")),
    )


def _blocks(blocks: Blocks) -> list[v1.MemoryBlock]:
    return [v1.MemoryBlock(type=block.type, size=block.size, numa=node_ids(block.nodes)) for block in blocks]


def _hint(affinity: Affinity | None) -> v1.Hint | None:
    return None if affinity is None else v1.Hint(numa=node_ids(affinity.nodes or 0), preferred=affinity.preferred)


def explanation_message(text: str, encoded: Mapping[str, Any], json_text: str) -> v1.Explanation:
    """encoded: `agent.formats.derivation`'s; json_text: the same as text."""
    near = encoded["nearest"]
    return v1.Explanation(
        pod=encoded["pod"],
        admitted=encoded["admitted"],
        reason=encoded["reason"],
        message=encoded["message"],
        hint=encoded["hint"],
        resources=[
            v1.ResourceReport(
                resource=report["resource"],
                asked=report["asked"],
                numa=[
                    v1.NUMAReport(node=each["numa"], capacity=each["capacity"], free=each["free"], held=each["held"])
                    for each in report["nodes"]
                ],
            )
            for report in encoded["resources"]
        ],
        nearest=None if near is None else v1.Nearest(**near),
        pods_in_the_way=encoded["podsInTheWay"],
        text=text,
        json=json_text,
    )
