"""The queue accountant's memory: objects, node reports and reservations.

One value that changes in place, without clock, lock or I/O: time is an argument, and whoever shares it between threads locks.
Reading is `agent.queues.accountant_view`, resizes are `agent.queues.accountant_resize`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from agent.formats.queue_objects import QueueObjects
from agent.model.queue import QUEUE_LABEL, ResourceQuantities
from agent.queues.accounting import Accounting, Taken
from agent.queues.charge import ChargeOptions, PodCharge
from agent.queues.ledger import Ledger, LedgerOptions
from agent.queues.ledger_watch import LedgerWatch
from agent.queues.node_report import NodeReport, ReportedPod, charge_of_reported
from agent.queues.node_roll import NodeRoll
from agent.queues.object_changes import KnownObjects, ObjectChanges, compare
from agent.queues.observed_pods import GroupKey, ObservedPods, PodChanges
from agent.queues.options import QueueOptions
from agent.queues.reported_nodes import ReportedNodes
from agent.queues.resize_admission import ResizeOptions
from agent.queues.status_watch import StatusWatch
from agent.queues.workloads import Directory, pod_group_of


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


class Accountant:
    """started: when it began, on the caller's clock."""

    def __init__(self, options: AccountantOptions, started: float) -> None:
        self.options = options
        self.known = KnownObjects.none()
        self.has_objects = False
        self.accounting = Accounting(self.known.tree, patience_seconds=options.patience_seconds)
        self.status_watch = StatusWatch(patience_seconds=options.patience_seconds)
        self.groups: dict[str, str] = {}  # pod UID -> the job it is part of, "namespace/name"
        self.observed = ObservedPods()
        self.ledger_watch = LedgerWatch(options.ledger, self.accounting, self.observed)
        self.reports = ReportedNodes()
        self._roll = NodeRoll()
        self.pods_known = False  # whether the API server's pods are told of
        self._started = started

    @property
    def directory(self) -> Directory:
        """The objects that pods are resolved with."""
        return self.known.directory

    @property
    def ledger(self) -> Ledger:
        """Growth that was admitted and that no report shows yet. Set: what a resize has made of it."""
        return self.ledger_watch.ledger

    @ledger.setter
    def ledger(self, ledger: Ledger) -> None:
        self.ledger_watch.ledger = ledger

    # --- what comes in ---

    def take_objects(
        self, changes: QueueObjects | ObjectChanges, now: float, pods: PodChanges | None = None
    ) -> Collection[str]:
        """Queues, pod groups, priority classes, nodes and pods, all of them as they are now. The nodes that are gone by it.

        changes: the objects, or what `compare` with `known` has found. pods: what is new of an API server's pods, besides those
        of the objects; None where none is asked.
        """
        if isinstance(changes, QueueObjects):
            changes = compare(self.known, changes)
        before, self.known, self.has_objects = self.known, changes.known, True
        if self.known.tree is not before.tree:
            self.accounting.move_to(self.known.tree)
        refitted = self._roll.list_all(before.objects.nodes, self.known.objects.nodes) if changes.nodes else set()
        self._recharge(changes.groups, refitted, now)
        knew_pods, self.pods_known = self.pods_known, self.pods_known or pods is not None or bool(changes.pods)
        self._observe({**changes.pods, **(pods or {})}, changes.groups, refitted, now)
        if changes.groups is None or changes.groups:
            self.ledger_watch.follow(self.ledger.reservations)
        gone: Collection[str] = ()
        if changes.nodes:
            gone = {node.name for node in before.objects.nodes} - self._roll.listed.keys()
            for node in gone:
                self.release(node, now)
        if self.pods_known and (changes.nodes or not knew_pods):
            for node in self._roll.listed.keys() - self.accounting.observed():
                self.accounting.observe(node, {}, now)  # a listed node without any pods has none
            self._roll.look_again()
        if self.ledger_watch.waits_for_pods and self.pods_known:
            self.rebuild_ledger(now)
        return gone

    def _recharge(self, groups: Collection[GroupKey] | None, nodes: Collection[str], now: float) -> None:
        """Reported pods whose pod group, or the priorities or the GPUs behind it, are others now. groups: None is all."""
        concerned = self.reports.everything() if groups is None else self.reports.concerned(groups)
        concerned |= {node: set(report.pods) for node in nodes if (report := self.reports.get(node)) is not None}
        for node, uids in concerned.items():
            if (report := self.reports.get(node)) is not None:
                pods = {uid: self._charge(node, report.pods[uid]) for uid in uids}
                self.accounting.restate(node, pods, now)

    def _charge(self, node: str, pod: ReportedPod) -> PodCharge:
        return charge_of_reported(pod, self.directory, self._roll.device_memory.get(node))

    def _observe(
        self, changes: PodChanges, groups: Collection[GroupKey] | None, nodes: Collection[str], now: float
    ) -> None:
        """The API server's pods that have changed, or whose charge may have. groups: None is all of them."""
        observed = self.observed
        left = {uid: place for uid in changes if (place := observed.place(uid)) is not None}
        observed.take(changes)
        again = set(observed.pods) if groups is None else observed.concerned(groups, nodes)
        charging = ChargeOptions(self._roll.device_memory, self.options.queue_label)
        for uid in changes.keys() | again:
            charge, place = observed.charge(uid, self.directory, charging), observed.place(uid)
            if (earlier := left.get(uid)) is not None and earlier != place:
                self.accounting.observe_pod(earlier, uid, None, now)
                self._drop_if_empty(earlier, now)
            if place is not None:
                self.accounting.observe_pod(place, uid, charge, now)
            if charge is not None:
                group = pod_group_of(observed.pods[uid], self.directory)
                self.groups[uid] = charge.pod if group is None else f"{group.namespace}/{group.name}"
            elif self.accounting.charge_of(uid) is None:
                self.groups.pop(uid, None)
        self.ledger_watch.settle(changes)
        self.ledger_watch.catch_up(changes, now)

    def _drop_if_empty(self, node: str, now: float) -> None:
        """Forget a node that has neither an object nor reports once its last pod is gone."""
        if node not in self._roll.listed and node not in self.reports and not self.accounting.observed_of(node):
            self.accounting.release(node, now)

    def take_report(self, report: NodeReport, now: float) -> Taken:
        """A node's report; see `Accounting`. GAP: the node must send a full one."""
        charges = {uid: self._charge(report.node, pod) for uid, pod in report.pods.items()}
        if report.base is None:
            taken = self.accounting.take_report(report.node, report.stamp, charges, now)
        else:
            taken = self.accounting.take_changes(report.node, report.base, report.stamp, charges, report.gone, now)
        if taken is not Taken.GAP:
            self._roll.hear(report.node, now)
        if taken is Taken.APPLIED:
            first = report.node not in self.reports
            touched = self._merge(report)
            self.ledger_watch.settle(touched)
            touched = [*touched, *self.accounting.observed_of(report.node)] if first else touched
            self.ledger_watch.catch_up(touched, now, first=first)
        return taken

    def _merge(self, report: NodeReport) -> Collection[str]:
        """Keep what the node says altogether; the pods that may have changed."""
        before, gone = self.reports.merge(report)
        whole = self.reports.get(report.node)
        if whole is not None and (before is None or before.allocatable != whole.allocatable):
            self._roll.report(report.node, whole.allocatable)
        if before is None:
            self._roll.remember(report.node)
        for uid, pod in report.pods.items():
            self.groups[uid] = f"{pod.namespace}/{pod.pod_group or pod.name}"
        for uid in gone:
            if self.accounting.charge_of(uid) is None:
                self.groups.pop(uid, None)
        return report.pods.keys() | gone

    def rebuild_ledger(self, now: float) -> bool:
        """Reserve what may have been admitted by somebody else: all that pods of the API server ask for beyond what is charged.

        To be called when no ledger was found, or when another replica has answered so far. What has been reserved here stays.
        False: the API server's pods are not known yet; it is done as soon as they are, and until then, or until every reservation
        that may exist has ended, growth cannot be judged.

        For some time after it, growth that the API server's pods show late is reserved too.
        """
        return self.ledger_watch.rebuild(now, pods_known=self.pods_known)

    def resume(self, report: NodeReport, now: float) -> None:
        """A report kept from before a restart: it counts, stale until the node is heard of."""
        if self.take_report(report, now) is Taken.APPLIED:
            self._roll.unhear(report.node)
            self.accounting.silent(report.node, now)

    def hear(self, node: str, now: float) -> None:
        """The node lives, though it has nothing new to say."""
        if node in self.reports:
            self._roll.hear(node, now)
            self.accounting.heard(node)

    def release(self, node: str, now: float) -> bool:
        """The node is gone for good: what it has reported counts no more. False where it is not known.

        Pods that the API server still has there count as it says, as they would after a restart.
        """
        known = node in self.accounting.nodes()
        uids = self.accounting.pods_of(node) if self.ledger.reservations else []
        self.accounting.release(node, now)
        charges, left = self.observed.charges, self.observed.of_node(node)
        if self.pods_known and (left or node in self._roll.listed):
            self.accounting.observe(node, {uid: charges[uid] for uid in left if uid in charges}, now)
        self.reports.remove(node)
        known |= self._roll.strike(node)
        self.ledger_watch.settle(uids)
        return known

    def tick(self, now: float) -> Collection[str]:
        """Let time pass: nodes fall silent, reservations end, the larger of two lasting views counts.

        The silent nodes that are released by it: where Node objects are known, those without one.
        """
        for node, heard in self._roll.silent(now, self.options.silent_seconds):
            self.accounting.silent(node, heard)
        gone = self._roll.deleted(self.accounting.stale())
        for node in gone:
            self.release(node, now)
        self.accounting.tick(now)
        self.status_watch.look(self.accounting.totals, now)
        self.ledger_watch.expire(now)
        return gone

    # --- what follows ---

    def report_of(self, node: str) -> NodeReport | None:
        """What all reports of a node say together, as one full report."""
        return self.reports.get(node)

    def allocatable(self) -> Mapping[str, ResourceQuantities]:
        """What each node has to give: as its object says, else as it reports."""
        return self._roll.allocatable()

    def missing_nodes(self) -> frozenset[str]:
        """Nodes that exist, or existed before the restart, and of which nothing is known."""
        return self._roll.missing(self.accounting.nodes)

    def is_complete(self, now: float) -> bool:
        """Whether every node of the cluster is accounted for."""
        if not self.has_objects or self.missing_nodes() or not self.accounting.has_nodes():
            return False
        return bool(self._roll.listed) or now - self._started >= self.options.settle_seconds
