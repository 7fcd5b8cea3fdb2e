"""The queue accountant's memory: objects, node reports and reservations, and what follows from them for a resize.

One value that changes in place, without clock, lock or I/O: time is an argument, and whoever shares it between threads locks.
Reading is `agent.queues.accountant_view`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agent.formats.queue_objects import QueueObjects
from agent.model.pod import Pod
from agent.model.queue import ResourceQuantities
from agent.queues.accounting import Accounting, Taken
from agent.queues.charge import ChargeOptions, PodCharge, occupies
from agent.queues.ledger import Ledger, LedgerOptions, Reservation, admit, expire, follow, rebuild, settle
from agent.queues.node_report import NodeReport, ReportedPod, charge_of_reported
from agent.queues.node_roll import NodeRoll
from agent.queues.object_changes import KnownObjects, ObjectChanges, compare
from agent.queues.observed_pods import GroupKey, ObservedPods, PodChanges, uid_of
from agent.queues.options import QueueOptions
from agent.queues.reported_nodes import ReportedNodes
from agent.queues.resize_admission import (
    NOTHING,
    CPUMemory,
    QueueCharge,
    ResizeAnswer,
    ResizeOptions,
    ResizeReason,
    decide_resize,
)
from agent.queues.status_watch import StatusWatch
from agent.queues.workloads import QUEUE_LABEL, Directory, pod_group_of

CATCH_UP_SECONDS = (
    60.0  # longer than an API server takes from a webhook's answer to the stored pod (its own time-out is 34 s)
)


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
        self.known = KnownObjects.none()
        self.has_objects = False
        self.ledger = Ledger()
        self.accounting = Accounting(self.known.tree, patience_seconds=options.patience_seconds)
        self.status_watch = StatusWatch(patience_seconds=options.patience_seconds)
        self.ledger_lost_until = 0.0  # reservations may be missing until all that could be have ended
        self.groups: dict[str, str] = {}  # pod UID -> the job it is part of, "namespace/name"
        self.observed = ObservedPods()
        self.reports = ReportedNodes()
        self._roll = NodeRoll()
        self.pods_known = False  # whether the API server's pods are told of
        self._started = started
        self._rebuilding = False  # a ledger that was not found is wanted, and waits for pods
        self._rebuilt = False
        self._catching_up_until = 0.0

    @property
    def directory(self) -> Directory:
        """The objects that pods are resolved with."""
        return self.known.directory

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
            self._follow(self.ledger.reservations)
        gone: Collection[str] = ()
        if changes.nodes:
            gone = {node.name for node in before.objects.nodes} - self._roll.listed.keys()
            for node in gone:
                self.release(node, now)
        if self.pods_known and (changes.nodes or not knew_pods):
            for node in self._roll.listed.keys() - self.accounting.observed():
                self.accounting.observe(node, {}, now)  # a listed node without any pods has none
            self._roll.look_again()
        if self._rebuilding and self.pods_known:
            self.rebuild_ledger(now)
        return gone

    def _follow(self, uids: Iterable[str]) -> None:
        """Move reservations of pods that are charged to another queue now, or are preemptible now or not any more."""
        charges = {uid: self.accounting.charge_of(uid) for uid in uids if uid in self.ledger.reservations}
        charged = {uid: (each.queue, each.preemptible) for uid, each in charges.items() if each is not None}
        self.ledger = follow(self.ledger, charged)

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
        self._settle(changes)
        if now < self._catching_up_until:
            self._reserve_unseen(changes, now)

    def _drop_if_empty(self, node: str, now: float) -> None:
        """Of a node without an object and without reports nothing is left to know once its last pod is gone."""
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
            self._settle(touched)
            if now < self._catching_up_until or (first and self._rebuilt):
                self._reserve_unseen([*touched, *self.accounting.observed_of(report.node)] if first else touched, now)
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

    def _settle(self, uids: Iterable[str]) -> None:
        """End reservations whose growth is seen, or whose pods are gone: neither reported nor known to the API server."""
        concerned = [uid for uid in uids if uid in self.ledger.reservations] if self.ledger.reservations else []
        if concerned:
            charges = {uid: self.accounting.charge_of(uid) for uid in concerned}
            occupied = {
                uid: NOTHING if each is None else each.allocated.cpu_memory()
                for uid, each in charges.items()
                if each is not None or uid in self.observed.charges
            }
            self.ledger = settle(self.ledger, occupied, [uid for uid in concerned if uid not in occupied])
            self._follow(concerned)

    # --- a ledger that was lost ---

    def rebuild_ledger(self, now: float) -> bool:
        """Reserve what may have been admitted by somebody else: all that pods of the API server ask for beyond what is charged.

        To be called when no ledger was found, or when another replica has answered so far. What has been reserved here stays.
        False: the API server's pods are not known yet; it is done as soon as they are, and until then, or until every reservation
        that may exist has ended, growth cannot be judged.

        For some time after it, growth that the API server's pods show late is reserved too.
        """
        limits = self.options.ledger
        if limits is None:
            return True
        self._rebuilding = not self.pods_known
        if self._rebuilding:
            self.ledger_lost_until = now + limits.ttl_seconds
            return False
        self.ledger_lost_until = 0.0
        self._rebuilt = True
        self._catching_up_until = now + CATCH_UP_SECONDS
        self._reserve_unseen(self.observed.charges, now)
        return True

    def _reserve_unseen(self, uids: Iterable[str], now: float) -> None:
        """Reserve what these pods of the API server occupy by their spec beyond what they are charged for."""
        limits = self.options.ledger
        if limits is None:
            return
        found: dict[str, Reservation] = {}
        for uid in uids:
            asked, charged = self.observed.charges.get(uid), self.accounting.charge_of(uid)
            if asked is None or asked == charged:
                continue
            seen = NOTHING if charged is None else charged.allocated.cpu_memory()
            found[uid] = Reservation(
                asked.pod,
                asked.queue,
                asked.preemptible,
                asked.allocated.cpu_memory(),
                seen,
                now + limits.ttl_seconds,
            )
        self.ledger = rebuild(self.ledger, found)

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
        self._settle(uids)
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
        self.ledger = expire(self.ledger, now)
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
        if not self.has_objects:
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
        if not self.has_objects:
            return answer.reason is ResizeReason.POD_GROUP_NOT_FOUND and bool(answer.delta)
        return answer.reason is ResizeReason.FITS

    def _seen(self, old: Pod) -> CPUMemory:
        """What the pod is charged for; where only the queue's status counts it, what it occupies."""
        charge = self.accounting.charge_of(uid_of(old))
        return occupies(old) if charge is None else charge.allocated.cpu_memory()
