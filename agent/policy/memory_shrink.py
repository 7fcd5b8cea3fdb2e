"""Memory limits that must not be lowered yet: below what is in use the kernel would reclaim, and then kill (KEP-1287).

As in the kubelet none of the sizes of such a pod are changed until its use has fallen; CPU sets and memory nodes are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from agent.policy.cgroup_names import CgroupKey, ContainerCgroup, PodCgroup, QOSCgroup
from agent.policy.cgroup_settings import NO_LIMIT, Settings
from agent.policy.pins import Pin, PinPlan


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A limit that would lie below current use, both in bytes."""

    key: PodCgroup | ContainerCgroup
    limit_bytes: int
    usage_bytes: int

    def __str__(self) -> str:
        of = f'container "{self.key.container}"' if isinstance(self.key, ContainerCgroup) else "pod"
        return (
            f"cannot decrease memory limits: attempting to set {of} memory limit ({self.limit_bytes}) "
            f"below current usage ({self.usage_bytes})"
        )


def limits_to_check(plan: PinPlan, resizing: Collection[str]) -> dict[PodCgroup | ContainerCgroup, int]:
    """The memory limits that the plan writes for the pods that are being resized: of these the use must be known."""
    return {
        pin.key: pin.settings.memory_bytes
        for pin in plan.pins
        if not isinstance(pin.key, QOSCgroup)
        and pin.key.pod in resizing
        and pin.settings.memory_bytes not in (None, NO_LIMIT)
        and pin.settings.memory_bytes is not None
    }


def hold_back(
    plan: PinPlan, limits: Mapping[PodCgroup | ContainerCgroup, int], usage_bytes: Mapping[CgroupKey, int]
) -> tuple[PinPlan, tuple[HeldBack, ...]]:
    """The plan without the sizes of pods of which a limit lies below current use, and these limits."""
    held = tuple(
        HeldBack(key, limit, usage_bytes[key]) for key, limit in limits.items() if usage_bytes.get(key, 0) > limit
    )
    pods = {each.key.pod for each in held}
    if not pods:
        return plan, ()
    kept = (_without_sizes(pin) if _pod_of(pin) in pods else pin for pin in plan.pins)
    return replace(plan, pins=tuple(pin for pin in kept if pin.settings)), held


def _pod_of(pin: Pin) -> str | None:
    return None if isinstance(pin.key, QOSCgroup) else pin.key.pod


def _without_sizes(pin: Pin) -> Pin:
    return replace(pin, settings=Settings(cpus=pin.settings.cpus, mems=pin.settings.mems))
