"""Whether a pod may be preempted, as far as the pod itself tells; its pod group has the last word (`agent.queues.workloads`).

Source: KAI-Scheduler 0.18, pod grouper: the label counts first, then the priority class that a label or the spec names.
"""

from __future__ import annotations

from agent.model.pod import Pod
from agent.model.queue import Preemptibility

PREEMPTIBILITY_LABEL = "kai.scheduler/preemptibility"
PRIORITY_CLASS_LABEL = "priorityClassName"  # KAI's way to give a workload another class than its pods have
NON_PREEMPTIBLE_PRIORITY = 100  # from here on work is not preemptible, unless it is said to be


def pod_preemptibility(pod: Pod) -> bool | None:
    """None where only the pod group can tell: no label, and no priority class whose value the pod carries."""
    label = pod.labels.get(PREEMPTIBILITY_LABEL, "")
    if label in (Preemptibility.PREEMPTIBLE, Preemptibility.NON_PREEMPTIBLE):
        return label == Preemptibility.PREEMPTIBLE
    named = pod.labels.get(PRIORITY_CLASS_LABEL) or pod.priority_class_name
    if not named or named != pod.priority_class_name or pod.priority is None:
        return None
    return pod.priority < NON_PREEMPTIBLE_PRIORITY
