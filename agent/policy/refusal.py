"""Why a pod is refused: the kubelet's reasons and messages (kubelet lifecycle and cm/admission)."""

from __future__ import annotations

from agent.errors import AgentError
from agent.model.cpuset import CPUSet


class Refusal(AgentError):  # noqa: N818 - the answer is no; nothing broke
    """A pod cannot be admitted. `reason` is what the pod's status shows; the message starts with the kubelet's words.

    rule: what decided, in words, for `explain`.
    """

    exit_status = 1
    reason = "UnexpectedAdmissionError"
    rule = ""

    def __init__(self, message: str, *, hint: str | None = None, rule: str = "") -> None:
        super().__init__(message, hint=hint)
        if rule:
            self.rule = rule


class SMTAlignmentError(Refusal):
    """full-pcpus-only cannot be kept."""

    reason = "SMTAlignmentError"
    rule = "full-pcpus-only gives whole cores only, none of which has a reserved thread"

    @classmethod
    def not_multiple(cls, cpus: int, group_size: int) -> SMTAlignmentError:
        return cls(
            f"SMT Alignment Error: requested {cpus} cpus not multiple cpus per core = {group_size}",
            hint=f"ask for a multiple of {group_size} CPUs: {cpus + group_size - cpus % group_size} would fit the rule",
        )

    @classmethod
    def not_enough(cls, free: int, cpus: int, group_size: int) -> SMTAlignmentError:
        return cls(
            "SMT Alignment Error: not enough free physical CPUs: "
            f"available physical CPUs = {free}, requested CPUs = {cpus}, CPUs per core = {group_size}",
            hint=f"ask for at most {free - free % group_size} CPUs, or wait until other pods end",
        )

    @classmethod
    def uneven(cls, loose: CPUSet, cpus: int) -> SMTAlignmentError:
        return cls(
            f"SMT Alignment Error: requested {cpus} cpus cannot be made of whole cores, CPUs {loose} would share a core",
            hint="this machine has cores of different sizes; see `pinfold topology` for their threads",
        )


class TopologyAffinityError(Refusal):
    """The topology policy refuses: no acceptable NUMA alignment."""

    reason = "TopologyAffinityError"


class EmptyPodSharedPoolError(Refusal):
    """A pod with pod-level resources leaves nothing for its containers without exclusive ones (KEP-5526)."""

    reason = "EmptyPodSharedPoolError"
    rule = (
        "what the exclusive containers leave of a pod's own resources must not be empty while other containers need it"
    )

    @classmethod
    def long_running(cls, resource: str) -> EmptyPodSharedPoolError:
        return cls(
            f"pod rejected, sum of exclusive container {resource} requests equals pod budget, "
            f"leaving no {resource}{'s' if resource == 'cpu' else ''} for shared containers",
            hint=f"raise the pod's {resource} in .spec.resources or lower an exclusive container's",
        )

    @classmethod
    def init(cls, resource: str) -> EmptyPodSharedPoolError:
        return cls(
            "pod rejected, pod has shared init containers but no "
            f"{resource}{'s' if resource == 'cpu' else ''} available for them",
            hint=f"raise the pod's {resource} in .spec.resources or lower a restartable init container's",
        )


class AllocationError(Refusal):
    """Everything else that goes wrong while CPUs or memory are taken."""

    rule = "what is taken must be free once the NUMA nodes are chosen"

    def __init__(self, why: str, *, hint: str | None = None, note: str = "", rule: str = "") -> None:
        super().__init__(f"Allocate failed due to {why}, which is unexpected{note}", hint=hint, rule=rule)
