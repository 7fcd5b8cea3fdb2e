"""Which form of the state files a kubelet of a given version reads best."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.formats.checkpoint import CheckpointError
from agent.formats.cpu_checkpoint import CPUVersion
from agent.formats.memory_checkpoint import MemoryVersion

_VERSION = re.compile(r"v?1\.(\d{1,3})(?:\.\d+)?(?:[-+].*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Forms:
    """memory: None for a kubelet without memory manager. allocated_pods: whether it keeps allocated resources in a file."""

    cpu: CPUVersion
    memory: MemoryVersion | None
    allocated_pods: bool

    @property
    def bubbles(self) -> bool:
        """Whether pods' bubbles can be written."""
        return self.cpu not in (CPUVersion.V1, CPUVersion.V2)


def forms_for(kubelet_version: str, *, pod_level_managers: bool) -> Forms:
    """The newest forms that this version reads. kubelet_version: "1.36", "v1.36.2".

    pod_level_managers: whether PodLevelResourceManagers is on there; 1.36 reads only the forms that go with its gate.
    Raises CheckpointError for a text that is no version, and for 1.17 and older: those know containers by their ids only.
    """
    match = _VERSION.fullmatch(kubelet_version.strip())
    if match is None:
        raise CheckpointError(f"{kubelet_version!r} is not a kubelet version", hint="write it as 1.36 or v1.36.2")
    minor = int(match[1])
    if minor < 18:
        raise CheckpointError(
            f"kubelet {kubelet_version} names containers by their ids in its file, which pinfold does not keep",
            hint="drain the node and start that kubelet with an empty state",
        )
    if minor >= 37:
        return Forms(CPUVersion.V4, MemoryVersion.V3, True)
    if minor == 36 and pod_level_managers:
        return Forms(CPUVersion.V3, MemoryVersion.V2, True)
    return Forms(CPUVersion.V2, MemoryVersion.V1 if minor >= 21 else None, minor >= 33)


NEWEST = Forms(CPUVersion.V4, MemoryVersion.V3, True)
