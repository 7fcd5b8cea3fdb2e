"""The queue accountant's memory: objects, node reports and reservations, and what follows from them for a resize.

One value that changes in place, without clock, lock or I/O: time is an argument, and whoever shares it between threads locks.
Reading is `agent.queues.accountant_view`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from agent.formats.queue_objects import QueueObjects
from agent.model.pod import Pod, ResourceList
from agent.model.queue import ResourceQuantities
from agent.queues.accounting import UNPLACED, Accounting, Taken
from agent.queues.charge import ChargeOptions, PodCharge, occupies, pod_charge
from agent.queues.ledger import Ledger, LedgerOptions, admit, expire, settle
from agent.queues.node_report import NodeReport, ReportedPod, charge_of_reported
from agent.queues.options import QueueOptions
from agent.queues.resize_admission import (
    CPUMemory,
    QueueCharge,
    ResizeAnswer,
    ResizeOptions,
    ResizeReason,
    decide_resize,
)
from agent.queues.snapshot import quantities_of
from agent.queues.status_watch import StatusWatch
from agent.queues.tree import QueueProblem, build
from agent.queues.workloads import QUEUE_LABEL, Directory, pod_group_of


@dataclass(frozen=True, slots=True)
class AccountantOptions:
    """ledger: None keeps no reservations. silent_seconds: without a word from a node it is stale.

    settle_seconds: after the start, how long unknown nodes are waited for where no Node objects tell which there are.
    patience_seconds: how long two sources may disagree before the larger counts.
    """

    queues: QueueOptions = field(default_factory=QueueOptions)
    resize: ResizeOptions = field(default_factory=ResizeOptions)
    ledger: LedgerOptions | None = None
    queue_label: str = QUEUE_LABEL
    silent_seconds: float = 120.0
    settle_seconds: float = 30.0
    patience_seconds: float = 60.0


class Unready(StrEnum):
    """Why a resize cannot be judged yet."""

    NO_OBJECTS = "queues and pod groups have not been read yet"
    LEDGER_LOST = "reservations of admitted resizes may have been lost, they are waited for"
    NODES_MISSING = "not every node has reported yet, and Queue.status does not say what the queues hold"


class Accountant:
    """started: when it began, on the caller's clock."""

    def __init__(self, options: AccountantOptions, started: float) -> None:
        self.options = options
        self.directory = Directory()
        self.objects: QueueObjects | None = None
        self.refused: tuple[QueueProblem, ...] = ()
        self.ledger = Ledger()
        tree, _ = build(())
        self.accounting = Accounting(tree, patience_seconds=options.patience_seconds)
        self.status_watch = StatusWatch(patience_seconds=options.patience_seconds)
        self.ledger_lost_until = 0.0  # reservations may be missing until all that could be have ended
        self.groups: dict[str, str] = {}  # pod UID -> the job it is part of, "namespace/name"
        self._started = started
        self._reports: dict[str, NodeReport] = {}  # by node: what all its reports together say
        self._heard: dict[str, float] = {}
        self._remembered: set[str] = set()  # nodes that reported before a restart
        self._device_memory: Mapping[str, int] = {}
        self._charged: dict[str, tuple[Pod, PodCharge | None]] = {}  # by UID, pods of the API server
        self._listed: Mapping[str, ResourceQuantities] = {}  # what nodes have, by their objects and by their reports
        self._reported: dict[str, ResourceQuantities] = {}
        self._missing: frozenset[str] | None = None  # None: to be found out anew

    # --- what comes in ---

    def take_objects(self, objects: QueueObjects, now: float) -> None:
        """Queues, pod groups, priority classes, nodes and pods, all of them as they are now."""
        before, had, memory = self.directory, self.objects, self._device_memory
        tree, self.refused = build(objects.queues)
        self.directory = Directory.of(tree.queues.values(), objects.pod_groups, objects.priority_classes)
        self.objects, self._missing = objects, None
        if had is None or had.nodes != objects.nodes:
            self._listed = {node.name: quantities_of(node.allocatable) for node in objects.nodes}
        self._device_memory = {
            node.name: node.gpu_memory_mib for node in objects.nodes if node.gpu_memory_mib is not None
        }
        if tree != self.accounting.totals.tree:
            self.accounting.move_to(tree)
        self._recharge(before, now)
        if had is None or had.pods != objects.pods or had.nodes != objects.nodes or before != self.directory:
            self._observe(objects, before, memory, now)
        if had is not None:
            for name in {node.name for node in had.nodes} - {node.name for node in objects.nodes}:
                self.release(name, now)

    def _recharge(self, before: Directory, now: float) -> None:
        """Reported pods whose pod group, or the priorities behind it, are others now."""
        after = self.directory
        everything = before.priority_classes != after.priority_classes
        changed = {
            key
            for key in before.pod_groups.keys() | after.pod_groups.keys()
            if before.pod_groups.get(key) != after.pod_groups.get(key)
        }
        if not everything and not changed:
            return
        for node, report in self._reports.items():
            pods = {
                uid: charge_of_reported(pod, after)
                for uid, pod in report.pods.items()
                if everything or (pod.namespace, pod.pod_group) in changed
            }
            if pods:
                self.accounting.restate(node, pods, now)

    def _observe(self, objects: QueueObjects, before: Directory, memory: Mapping[str, int], now: float) -> None:
        """The API server's pods by node. With pods in the objects, a listed node without any has none."""
        charging = ChargeOptions(self._device_memory, self.options.queue_label)
        # Of 50,000 pods a few have changed: the others keep their charge, unless what it was derived from is another one now.
        earlier = self._charged if before == self.directory and memory == self._device_memory else {}
        self._charged = {}
        by_node: dict[str, dict[str, PodCharge]] = {}
        if objects.pods:
            by_node = {node.name: {} for node in objects.nodes}
        for pod in objects.pods:
            uid = pod.uid or pod.namespaced_name  # a file may leave it out
            known = earlier.get(uid)
            charge = known[1] if known is not None and known[0] is pod else pod_charge(pod, self.directory, charging)
            self._charged[uid] = pod, charge
            if charge is not None:
                by_node.setdefault(pod.node_name or UNPLACED, {})[uid] = charge
                group = pod_group_of(pod, self.directory)
                self.groups[uid] = charge.pod if group is None else f"{group.namespace}/{group.name}"
        for node in self.accounting.observed() - by_node.keys():
            by_node[node] = {}
        for node, pods in by_node.items():
            self.accounting.observe(node, pods, now)
        self._settle(uid for pods in by_node.values() for uid in pods)

    def take_report(self, report: NodeReport, now: float) -> Taken:
        """A node's report; see `Accounting`. GAP: the node must send a full one."""
        charges = {uid: charge_of_reported(pod, self.directory) for uid, pod in report.pods.items()}
        if report.base is None:
            taken = self.accounting.take_report(report.node, report.stamp, charges, now)
        else:
            taken = self.accounting.take_changes(report.node, report.base, report.stamp, charges, report.gone, now)
        if taken is not Taken.GAP:
            self._heard[report.node] = now
        if taken is Taken.APPLIED:
            self._settle(self._merge(report))
        return taken

    def _merge(self, report: NodeReport) -> Collection[str]:
        """Keep what the node says altogether; the pods that may have changed."""
        before = self._reports.get(report.node)
        old: Mapping[str, ReportedPod] = {} if before is None else before.pods
        pods = dict(report.pods) if report.base is None or before is None else {**old, **report.pods}
        gone = {uid for uid in old if uid not in pods}
        for uid in report.gone:
            if pods.pop(uid, None) is not None:
                gone.add(uid)
        allocatable: ResourceList = report.allocatable or ({} if before is None else before.allocatable)
        self._reports[report.node] = replace(report, base=None, pods=pods, gone=(), allocatable=allocatable)
        if before is None or before.allocatable != allocatable:
            self._reported[report.node] = quantities_of(allocatable)
        if before is None:
            self._remembered.add(report.node)
            self._missing = None
        for uid, pod in report.pods.items():
            self.groups[uid] = f"{pod.namespace}/{pod.pod_group or pod.name}"
        for uid in gone:
            if self.accounting.charge_of(uid) is None:
                self.groups.pop(uid, None)
        return report.pods.keys() | gone

    def _settle(self, uids: Iterable[str]) -> None:
        """End reservations whose growth is seen, or whose pods are gone."""
        concerned = [uid for uid in uids if uid in self.ledger.reservations] if self.ledger.reservations else []
        if concerned:
            charges = {uid: self.accounting.charge_of(uid) for uid in concerned}
            occupied = {uid: each.allocated.cpu_memory() for uid, each in charges.items() if each is not None}
            gone = [uid for uid, each in charges.items() if each is None]
            self.ledger = settle(self.ledger, occupied, gone)

    def resume(self, report: NodeReport, now: float) -> None:
        """A report kept from before a restart: it counts, stale until the node is heard of."""
        if self.take_report(report, now) is Taken.APPLIED:
            del self._heard[report.node]
            self.accounting.silent(report.node, now)

    def hear(self, node: str, now: float) -> None:
        """The node lives, though it has nothing new to say."""
        if node in self._reports:
            self._heard[node] = now
            self.accounting.heard(node)

    def release(self, node: str, now: float) -> bool:
        """The node is gone for good: nothing of it counts any more. False where it is not known."""
        known = node in self.accounting.nodes() or node in self._remembered
        uids = [uid for where, uid, _ in self.accounting.pods() if where == node] if self.ledger.reservations else []
        self.accounting.release(node, now)
        self._reports.pop(node, None)
        self._reported.pop(node, None)
        self._heard.pop(node, None)
        self._remembered.discard(node)
        self._missing = None
        self._settle(uids)
        return known

    def tick(self, now: float) -> None:
        """Let time pass: nodes fall silent, reservations end, the larger of two lasting views counts."""
        for node, heard in self._heard.items():
            if now - heard > self.options.silent_seconds:
                self.accounting.silent(node, heard)
        self.accounting.tick(now)
        self.status_watch.look(self.accounting.totals, now)
        self.ledger = expire(self.ledger, now)

    # --- what follows ---

    def report_of(self, node: str) -> NodeReport | None:
        """What all reports of a node say together, as one full report."""
        return self._reports.get(node)

    def allocatable(self) -> Mapping[str, ResourceQuantities]:
        """What each node has to give: as its object says, else as it reports."""
        return {**self._reported, **self._listed}

    def missing_nodes(self) -> frozenset[str]:
        """Nodes that exist, or existed before the restart, and of which nothing is known."""
        if self._missing is None:
            listed = set() if self.objects is None else {node.name for node in self.objects.nodes}
            self._missing = frozenset((listed | self._remembered) - self.accounting.nodes().keys())
        return self._missing

    def is_complete(self, now: float) -> bool:
        """Whether every node of the cluster is accounted for."""
        if self.objects is None or self.missing_nodes() or not self.accounting.has_nodes():
            return False
        return bool(self.objects.nodes) or now - self._started >= self.options.settle_seconds

    def charges(self, names: Iterable[str], now: float) -> dict[str, QueueCharge]:
        """What the resize check counts for these queues, reservations apart."""
        complete, totals = self.is_complete(now), self.accounting.totals
        return {
            name: self.status_watch.charge(queue, totals.of(name), complete=complete, now=now)
            for name in names
            if (queue := self.directory.queues.get(name)) is not None
        }

    def unready(self, queue: str, now: float) -> Unready | None:
        """Why growth in this queue cannot be judged yet; None where it can."""
        if self.objects is None:
            return Unready.NO_OBJECTS
        if now < self.ledger_lost_until:
            return Unready.LEDGER_LOST
        if self.is_complete(now):
            return None
        path = self.accounting.totals.tree.path(queue)
        return None if all(each.status.allocated for each in path) else Unready.NODES_MISSING

    def decide(
        self, old: Pod, new: Pod, now: float, *, reserve: bool = True
    ) -> tuple[ResizeAnswer, Unready | None, Ledger]:
        """Whether a pod may be resized, why that cannot be judged yet, and the ledger that is to be kept before it is told.

        With an Unready the answer is the best that can be said. reserve: False only asks.
        """
        group = pod_group_of(old, self.directory)
        queue = "" if group is None else group.queue
        path = [each.name for each in self.accounting.totals.tree.path(queue)]
        charges, limits = self.charges(path, now), self.options.ledger
        if limits is None:
            answer, ledger = decide_resize(old, new, self.directory, self.options.resize, charges), self.ledger
        else:
            args = (self.directory, self.options.resize, limits, charges, self._seen(old), now)
            answer, ledger = admit(self.ledger, old, new, *args)
        unready = self.unready(queue, now) if self._depends_on_charges(answer) else None
        return answer, unready, ledger if reserve else self.ledger

    def _depends_on_charges(self, answer: ResizeAnswer) -> bool:
        """Whether the answer could be another one if more were known. A rejection stands: charges only grow with knowledge."""
        if self.objects is None:
            return answer.reason is ResizeReason.POD_GROUP_NOT_FOUND and bool(answer.delta)
        return answer.reason is ResizeReason.FITS

    def _seen(self, old: Pod) -> CPUMemory:
        """What the pod is charged for; where only the queue's status counts it, what it occupies."""
        charge = self.accounting.charge_of(old.uid)
        return occupies(old) if charge is None else charge.allocated.cpu_memory()
