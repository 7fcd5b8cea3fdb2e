"""Would a pod be admitted: the API server's checks, the resource managers, node fit, free hugepages, in this order."""

from __future__ import annotations

from agent.model.devices import PodDevices
from agent.model.pod import Pod
from agent.model.state import State
from agent.policy.admission import admit
from agent.policy.device_hints import device_hints
from agent.policy.eligibility import claims
from agent.policy.free_hugepages import FreeHugepages, FreeHugepagesRule, check_free_hugepages
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity, PodAmounts, check_node_fit
from agent.policy.pod_validation import InvalidPodError, require_valid
from agent.policy.refusal import Refusal
from agent.policy.verdict import Verdict

INVALID_POD = "InvalidPod"  # what an API server would have refused


def judge(
    managers: Managers,
    node: NodeCapacity | None,
    state: State,
    pod: Pod,
    hugepages: FreeHugepages | None = None,
    devices: PodDevices | None = None,
    amounts: PodAmounts | None = None,
) -> Verdict:
    """Would this pod be admitted now.

    node: None where a kubelet has judged the fit. hugepages: what is really free, judged only where its rule is to refuse.
    devices: what a kubelet has given the pod; None where that is nothing, or not known.
    amounts: kept while many pods are judged.
    """
    gates = managers.gates
    try:
        require_valid(pod, pod_level_resources=gates.pod_level_resources)
    except InvalidPodError as error:
        rule = "resources that an API server refuses are refused first"
        return Verdict(False, state.grants, claims(pod, gates), INVALID_POD, str(error), error.hint, rule=rule)
    verdict = admit(managers, state.grants, pod, device_hints(managers.machine.numa_mask, devices))
    if not verdict.admitted:
        return verdict
    try:
        if node is not None:
            check_node_fit(node, [record.pod for record in state.pods.values()], pod, amounts)
        if hugepages is not None and hugepages.rule is FreeHugepagesRule.REFUSE:
            check_free_hugepages(verdict.grants, pod, hugepages)
    except Refusal as refusal:
        return Verdict.refused(state.grants, verdict.claims, refusal)
    return verdict
