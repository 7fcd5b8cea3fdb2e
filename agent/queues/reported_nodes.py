"""What every node's reports together say, and which of their pods belong to a pod group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from agent.model.pod import ResourceList
from agent.queues.node_report import NodeReport, ReportedPod
from agent.queues.observed_pods import GroupKey


class ReportedNodes:
    """One full report a node, however many differences it came in. The cost of a change is the pods of its node."""

    def __init__(self) -> None:
        self._reports: dict[str, NodeReport] = {}
        self._of_group: dict[GroupKey, dict[str, set[str]]] = {}  # pod group -> node -> UIDs

    def get(self, node: str) -> NodeReport | None:
        """What all reports of a node say together, as one full report."""
        return self._reports.get(node)

    def __contains__(self, node: str) -> bool:
        return node in self._reports

    def merge(self, report: NodeReport) -> tuple[NodeReport | None, set[str]]:
        """Take in a report that was accepted. The node's report before, and the UIDs of pods that are gone by it."""
        before = self._reports.get(report.node)
        old: Mapping[str, ReportedPod] = {} if before is None else before.pods
        pods = dict(report.pods) if report.base is None or before is None else {**old, **report.pods}
        for uid in report.gone:
            pods.pop(uid, None)
        allocatable: ResourceList = report.allocatable or ({} if before is None else before.allocatable)
        gone = old.keys() - pods.keys()
        self._index(report.node, ((uid, old[uid]) for uid in (*gone, *report.pods) if uid in old), known=False)
        self._index(report.node, ((uid, pods[uid]) for uid in report.pods if uid in pods), known=True)
        self._reports[report.node] = replace(report, base=None, pods=pods, gone=(), allocatable=allocatable)
        return before, gone

    def remove(self, node: str) -> None:
        """The node is gone."""
        report = self._reports.pop(node, None)
        if report is not None:
            self._index(node, report.pods.items(), known=False)

    def concerned(self, groups: Collection[GroupKey]) -> dict[str, set[str]]:
        """The pods of these pod groups: UIDs by node."""
        found: dict[str, set[str]] = {}
        for key in groups:
            for node, uids in self._of_group.get(key, {}).items():
                found.setdefault(node, set()).update(uids)
        return found

    def everything(self) -> dict[str, set[str]]:
        """All pods: UIDs by node."""
        return {node: set(report.pods) for node, report in self._reports.items()}

    def _index(self, node: str, pods: Iterable[tuple[str, ReportedPod]], *, known: bool) -> None:
        for uid, pod in pods:
            if not pod.pod_group:
                continue
            key = pod.namespace, pod.pod_group
            if known:
                self._of_group.setdefault(key, {}).setdefault(node, set()).add(uid)
                continue
            nodes = self._of_group[key]
            nodes[node].discard(uid)
            if not nodes[node]:
                del nodes[node]
            if not nodes:
                del self._of_group[key]
