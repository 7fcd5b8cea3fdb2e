"""GPUs that a pod asks for, counted as KAI-Scheduler counts them: whole devices, fractions, GPU memory, MIG slices.

Fractions and memory are annotations and win over resources, as upstream. GPUs behind resource claims (DRA) are not
counted: the claims are objects of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from agent.model.occupancy import GPUMemory
from agent.model.pod import Pod, ResourceList

FRACTION = "gpu-fraction"  # of one device, between 0 and 1
MEMORY_MIB = "gpu-memory"  # MiB of one device
DEVICES = "gpu-fraction-num-devices"  # how many devices the fraction or memory is taken of

_MIG = re.compile(r"nvidia\.com/mig-([0-9]{1,3})g\.[0-9]{1,5}gb(\+.*)?")
_WHOLE = re.compile(r"[^/]+/gpu")  # nvidia.com/gpu, amd.com/gpu
_NUMBER = re.compile(r"[0-9]{1,18}")
_DECIMAL = re.compile(r"[0-9]{0,18}\.?[0-9]{1,18}([eE][-+]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class GPURequest:
    """What a pod asks for. devices: how many devices, each by `portion` or by `memory_mib`. mig_slices: counted one by
    one.

    problems: annotations that cannot be read; they count as absent, as upstream.
    """

    devices: int = 0
    portion: float = 0.0
    memory_mib: int = 0
    mig_slices: int = 0
    problems: tuple[str, ...] = field(default=())

    def hundredths(self, device_memory_mib: int | None) -> int:
        """GPUs in hundredths, the grain in which upstream counts.

        device_memory_mib: memory of one GPU of the pod's node (label nvidia.com/gpu.memory). A memory request is
        rounded up to a hundredth of it per device, and is 0 while no node is known.
        """
        by_memory = self.memory
        if by_memory is not None:
            return 100 * self.mig_slices + by_memory.hundredths(device_memory_mib)
        return 100 * self.mig_slices + self.devices * round(self.portion * 100)

    @property
    def memory(self) -> GPUMemory | None:
        """What is asked for by memory."""
        return GPUMemory(self.devices, self.memory_mib) if self.memory_mib else None


def gpu_request(pod: Pod, requests: ResourceList) -> GPURequest:
    """What a pod asks for. requests: its resources over all containers, at the moment that counts (spec or effective)."""
    slices = sum(
        int(match[1]) * amount.value()
        for name, amount in requests.items()
        if (match := _MIG.fullmatch(name)) is not None
    )
    annotations, problems = pod.annotations, list[str]()
    devices = 1
    if DEVICES in annotations:
        devices = _positive(annotations[DEVICES])
        if not devices:
            problems.append(f"annotation {DEVICES}: {annotations[DEVICES][:40]!r} is not a positive integer")
    if (text := annotations.get(FRACTION)) and devices:
        portion = float(text) if _DECIMAL.fullmatch(text) else 0.0
        if 0 < portion < 1:
            return GPURequest(devices, portion, mig_slices=slices)
        problems.append(f"annotation {FRACTION}: {text[:40]!r} is not between 0 and 1")
    elif (text := annotations.get(MEMORY_MIB)) and devices:
        if memory := _positive(text):
            return GPURequest(devices, memory_mib=memory, mig_slices=slices)
        problems.append(f"annotation {MEMORY_MIB}: {text[:40]!r} is not a positive integer of MiB")
    whole = sum(amount.value() for name, amount in requests.items() if _WHOLE.fullmatch(name))
    return GPURequest(whole, 1.0 if whole else 0.0, mig_slices=slices, problems=tuple(problems))


def resource_gpus(resources: ResourceList) -> float:
    """GPUs in a resource list of a node or a queue's status: devices of any vendor, which may be fractions, and MIG
    slices.
    """
    gpus = 0.0
    for name, amount in resources.items():
        if (match := _MIG.fullmatch(name)) is not None:
            gpus += int(match[1]) * float(amount.number)
        elif _WHOLE.fullmatch(name):
            gpus += float(amount.number)
    return gpus


def _positive(text: str) -> int:
    """A positive integer, 0 for anything else."""
    return int(text) if _NUMBER.fullmatch(text) else 0
