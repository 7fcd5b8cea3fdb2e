"""Whose every CPU is, for the picture of the machine: reserved, shared, a container's own, or of a pod's shared pool."""

from __future__ import annotations

from collections.abc import Mapping

from agent.formats.topology_svg import HUES, OWNER_LOOKS, CPUOwner
from agent.model.cpuset import CPUSet
from agent.model.isolation import Isolation
from agent.model.pod import ContainerKind
from agent.model.state import State
from agent.policy.managers import Managers
from agent.policy.placement import placements

RESERVED = CPUOwner("reserved for the system", "reserved")
SHARED = CPUOwner("shared by all containers without CPUs of their own", "shared")


def pod_colours(state: State) -> Mapping[str, str]:
    """UID -> class owner-N of every pod that holds CPUs, of which 32 look different. A pod keeps its hue as well as others allow:
    it goes by its UID. Where all hues are taken the next edge begins, with all of them free again."""
    colours: dict[str, str] = {}
    free: list[int] = []
    for uid in state.pods:
        if state.grants.cpu.held_by(uid):
            turn = len(colours) // HUES * HUES
            free = free or list(range(HUES))
            first = sum(map(ord, uid))
            hue = min(free, key=lambda each: (each - first) % HUES)
            free.remove(hue)
            colours[uid] = f"owner-{(turn + hue) % OWNER_LOOKS}"
    return colours


def cpu_owners(state: State, managers: Managers) -> Mapping[int, CPUOwner]:
    """CPU -> who has it; a CPU of a running init container that an app container takes over is the app container's."""
    reserved = managers.cpu.reserved if managers.cpu is not None else state.policy.reserved_cpus
    owners = dict.fromkeys(state.grants.cpu.default, SHARED) | dict.fromkeys(reserved, RESERVED)
    colours = pod_colours(state)
    for uid, colour in colours.items():
        pod = state.pods[uid].pod
        name = pod.namespaced_name
        own: dict[int, CPUOwner] = {}
        if bubble := state.grants.cpu.pod_entries.get(uid, CPUSet()):
            own = dict.fromkeys(bubble, CPUOwner(f"{name}: shared by containers of this pod only", colour, pooled=True))
        init = {container.name for container in pod.containers if container.kind is ContainerKind.INIT}
        placed = [each for each in placements(state.grants, pod, managers.gates) if each.assigned is not None]
        for each in sorted(placed, key=lambda each: each.container not in init):  # init first, so that apps win
            if each.isolation is Isolation.CONTAINER:
                own |= dict.fromkeys(each.cpus, CPUOwner(f"{name}: exclusive, container {each.container}", colour))
        owners |= own
    return {cpu: owners[cpu] for cpu in sorted(owners)}
