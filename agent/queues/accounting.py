"""Who occupies what: pods of many nodes, seen by their agents' reports and by the API server, charged to queues exactly
once.

A node counts as its report says; without a report, as the API server's pods say. Where the two differ on a pod for
longer than `patience_seconds`, the larger counts. A silent node keeps its charge, marked stale, until it is released.
Time is an argument.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from agent.model.state import Epoch
from agent.queues.charge import PodCharge, larger
from agent.queues.totals import Totals
from agent.queues.tree import QueueTree

Stamp: TypeAlias = tuple[Epoch, int]  # epoch and generation: the order of a node's reports
PodCharges: TypeAlias = Mapping[str, PodCharge]  # by pod UID

UNPLACED = ""  # the node of pods that have none yet


class Taken(StrEnum):
    """What became of a report."""

    APPLIED = "applied"
    OLD = "old"  # this or a later one was applied before
    GAP = "gap"  # changes to a report that never arrived: ask for a full one


@dataclass(slots=True)
class _Node:
    """What is known of one node. report, api: the two views; None where that source has none. counted: what is charged.

    differs: pods on which the views differ, and since when. silent_since: None while it is heard of.
    """

    stamp: Stamp | None = None
    report: dict[str, PodCharge] | None = None
    api: dict[str, PodCharge] | None = None
    counted: dict[str, PodCharge] = field(default_factory=dict)
    differs: dict[str, float] = field(default_factory=dict)
    silent_since: float | None = None


class Accounting:
    """The charges of all nodes. Updates cost what changed; the same reports in any order give the same sums."""

    def __init__(self, tree: QueueTree, *, patience_seconds: float = 60.0) -> None:
        self.totals = Totals(tree)
        self._patience = patience_seconds
        self._nodes: dict[str, _Node] = {}
        self._placed: dict[str, str] = {}  # pod UID -> the node that counts it

    def take_report(self, node: str, stamp: Stamp, pods: PodCharges, now: float) -> Taken:
        """A full report: the node's pods are exactly these."""
        state = self._nodes.setdefault(node, _Node())
        if state.stamp is not None and stamp <= state.stamp:
            state.silent_since = None
            return Taken.OLD
        before = state.report or {}
        changed = {uid for uid in before.keys() | pods.keys() if before.get(uid) != pods.get(uid)}
        first = state.report is None
        state.stamp, state.report, state.silent_since = stamp, dict(pods), None
        self._recount(node, changed | state.counted.keys() | (state.api or {}).keys() if first else changed, now)
        return Taken.APPLIED

    def take_changes(
        self, node: str, base: Stamp, stamp: Stamp, changed: PodCharges, gone: Collection[str], now: float
    ) -> Taken:
        """Changes since the report `base`: pods that are new or different, and pods that are gone."""
        state = self._nodes.get(node)
        if state is None or state.report is None or state.stamp is None or state.stamp < base:
            return Taken.GAP
        state.silent_since = None
        if stamp <= state.stamp:
            return Taken.OLD
        if state.stamp != base:
            return Taken.GAP
        state.stamp = stamp
        state.report.update(changed)
        for uid in gone:
            state.report.pop(uid, None)
        self._recount(node, {*changed, *gone}, now)
        return Taken.APPLIED

    def restate(self, node: str, pods: PodCharges, now: float) -> None:
        """The node's last report again, some of its pods charged otherwise: their pod groups have changed."""
        state = self._nodes.get(node)
        if state is not None and state.report is not None:
            changed = {uid for uid, charge in pods.items() if state.report.get(uid, charge) != charge}
            state.report.update((uid, pods[uid]) for uid in changed)
            self._recount(node, changed, now)

    def observe(self, node: str, pods: PodCharges, now: float) -> None:
        """The API server's pods of a node, or of UNPLACED: exactly these."""
        state = self._nodes.setdefault(node, _Node())
        before = state.api or {}
        state.api = dict(pods)
        self._recount(node, {uid for uid in before.keys() | pods.keys() if before.get(uid) != pods.get(uid)}, now)

    def observe_pod(self, node: str, uid: str, pod: PodCharge | None, now: float) -> None:
        """One pod of the API server as it is now; None: it is gone from this node."""
        state = self._nodes.setdefault(node, _Node())
        state.api = {} if state.api is None else state.api
        if pod is None:
            state.api.pop(uid, None)
        else:
            state.api[uid] = pod
        self._recount(node, {uid}, now)

    def silent(self, node: str, since: float) -> None:
        """Nothing has been heard of the node: its charge stays and is stale."""
        state = self._nodes.get(node)
        if state is not None and state.silent_since is None:
            state.silent_since = since

    def heard(self, node: str) -> None:
        """The node is heard of again."""
        if node in self._nodes:
            self._nodes[node].silent_since = None

    def release(self, node: str, now: float) -> None:
        """The node is gone for good, or an operator says so: nothing of it counts any more."""
        state = self._nodes.get(node)
        if state is not None:
            state.report = state.api = None
            self._recount(node, set(state.counted), now)
            del self._nodes[node]

    def tick(self, now: float) -> None:
        """Let time pass: views that have differed for too long are counted by the larger."""
        for node, state in self._nodes.items():
            if state.differs:
                self._recount(node, set(state.differs), now)

    def move_to(self, tree: QueueTree) -> None:
        """Another queue tree."""
        self.totals.move_to(tree)

    def stale(self) -> Mapping[str, float]:
        """Silent nodes, and since when."""
        return {node: state.silent_since for node, state in self._nodes.items() if state.silent_since is not None}

    def stale_totals(self) -> Totals:
        """The part of all charges that comes from silent nodes."""
        totals = Totals(self.totals.tree)
        for node in self.stale():
            for charge in self._nodes[node].counted.values():
                totals.add(charge)
        return totals

    def disagreements(self) -> Iterator[tuple[str, str, float]]:
        """Node, pod UID and since when, for every pod on which report and API server differ."""
        for node, state in self._nodes.items():
            for uid, since in state.differs.items():
                yield node, uid, since

    def charge_of(self, uid: str) -> PodCharge | None:
        """What a pod is charged for now."""
        node = self._nodes.get(self._placed.get(uid, UNPLACED))
        return None if node is None else node.counted.get(uid)

    def nodes(self) -> Mapping[str, Stamp | None]:
        """Every node that counts, with the stamp of its last report; None where the API server's view counts."""
        return {node: state.stamp for node, state in self._nodes.items() if node != UNPLACED}

    def has_nodes(self) -> bool:
        """Whether any node counts."""
        return any(node != UNPLACED for node in self._nodes)

    def observed(self) -> set[str]:
        """Nodes, UNPLACED too, of which the API server has told."""
        return {node for node, state in self._nodes.items() if state.api is not None}

    def pods(self) -> Iterator[tuple[str, str, PodCharge]]:
        """Node, pod UID and charge of everything that counts."""
        for node, state in self._nodes.items():
            for uid, charge in state.counted.items():
                yield node, uid, charge

    def _recount(self, node: str, uids: Collection[str], now: float) -> None:
        """Charge these pods of a node anew."""
        state = self._nodes[node]
        for uid in uids:
            new = self._view(state, uid, now)
            if node == UNPLACED and uid in self._placed:
                new = None  # it has a node by now and counts there
            old = state.counted.get(uid)
            if new == old:
                continue
            if old is not None:
                self.totals.remove(old)
                del state.counted[uid]
            if new is not None:
                self.totals.add(new)
                state.counted[uid] = new
            if node != UNPLACED:
                self._place(node, uid, counts=new is not None, now=now)

    def _view(self, state: _Node, uid: str, now: float) -> PodCharge | None:
        """What counts of a pod on a node: the report, else the API server; the larger where they differ for long."""
        if state.report is None:
            state.differs.pop(uid, None)
            return None if state.api is None else state.api.get(uid)
        told = state.report.get(uid)
        if state.api is None or (seen := state.api.get(uid)) == told:
            state.differs.pop(uid, None)
            return told
        since = state.differs.setdefault(uid, now)
        if now - since < self._patience:
            return told
        return (told or seen) if told is None or seen is None else larger(told, seen)

    def _place(self, node: str, uid: str, *, counts: bool, now: float) -> None:
        """A pod starts or stops to count on a node, so it stops or starts to count as unplaced."""
        if counts:
            self._placed[uid] = node
        elif self._placed.get(uid) == node:
            del self._placed[uid]
        if UNPLACED in self._nodes:
            self._recount(UNPLACED, (uid,), now)
