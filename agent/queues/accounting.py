"""Who occupies what: pods of many nodes, seen by their agents' reports and by the API server, charged to queues exactly
once.

A node counts as its report says; without a report, as the API server's pods say. Where the two differ on a pod for
longer than `patience_seconds`, the larger counts. A pod that several nodes claim counts once, where it is largest. A
silent node keeps its charge, marked stale, until it is released. Time is an argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
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
    """What is known of one node. report, api: the two views; None where that source has none. claims: what follows.

    differs: pods on which the views differ, and since when.
    """

    name: str
    stamp: Stamp | None = None
    report: dict[str, PodCharge] | None = None
    api: dict[str, PodCharge] | None = None
    claims: dict[str, PodCharge] = field(default_factory=dict)
    differs: dict[str, float] = field(default_factory=dict)


class Accounting:
    """The charges of all nodes. Updates cost what changed; the same reports in any order give the same sums."""

    def __init__(self, tree: QueueTree, *, patience_seconds: float = 60.0) -> None:
        self.totals = Totals(tree)
        self._patience = patience_seconds
        self._nodes: dict[str, _Node] = {}
        self._claimants: dict[str, tuple[str, ...]] = {}  # pod UID -> the nodes that claim it, nearly always one
        self._counted: dict[str, tuple[str, PodCharge]] = {}  # pod UID -> where it counts, and what is charged
        self._stale = Totals(tree)  # the part of `totals` from silent nodes
        self._silent: dict[str, float] = {}  # silent nodes, and since when
        self._stamps: dict[str, Stamp | None] = {}  # of every node but UNPLACED, the last report's
        self._differing: set[str] = set()  # nodes whose two views differ on some pod
        # since when, node and pod of new differences, as they came
        self._waiting: deque[tuple[float, str, str]] = deque()

    def take_report(self, node: str, stamp: Stamp, pods: PodCharges, now: float) -> Taken:
        """A full report: the node's pods are exactly these."""
        state = self._node(node)
        self._wake(state)
        if state.stamp is not None and stamp <= state.stamp:
            return Taken.OLD
        before = state.report or {}
        changed = {uid for uid in before.keys() | pods.keys() if before.get(uid) != pods.get(uid)}
        first = state.report is None
        state.stamp = self._stamps[node] = stamp
        state.report = dict(pods)
        self._recount(node, changed | state.claims.keys() | (state.api or {}).keys() if first else changed, now)
        return Taken.APPLIED

    def take_changes(
        self, node: str, base: Stamp, stamp: Stamp, changed: PodCharges, gone: Collection[str], now: float
    ) -> Taken:
        """Changes since the report `base`: pods that are new or different, and pods that are gone."""
        state = self._nodes.get(node)
        if state is None or state.report is None or state.stamp is None or state.stamp < base:
            return Taken.GAP
        self._wake(state)
        if stamp <= state.stamp:
            return Taken.OLD
        if state.stamp != base:
            return Taken.GAP
        state.stamp = self._stamps[node] = stamp
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
        state = self._node(node)
        before = state.api or {}
        state.api = dict(pods)
        self._recount(node, {uid for uid in before.keys() | pods.keys() if before.get(uid) != pods.get(uid)}, now)

    def observe_pod(self, node: str, uid: str, pod: PodCharge | None, now: float) -> None:
        """One pod of the API server as it is now; None: it is gone from this node."""
        state = self._node(node)
        state.api = {} if state.api is None else state.api
        if pod is None:
            state.api.pop(uid, None)
        else:
            state.api[uid] = pod
        self._recount(node, {uid}, now)

    def silent(self, node: str, since: float) -> None:
        """Nothing has been heard of the node: its charge stays and is stale."""
        state = self._nodes.get(node)
        if state is not None and node not in self._silent:
            self._silent[node] = since
            for charge in self._counted_of(state):
                self._stale.add(charge)

    def heard(self, node: str) -> None:
        """The node is heard of again."""
        if node in self._nodes:
            self._wake(self._nodes[node])

    def _wake(self, state: _Node) -> None:
        if self._silent.pop(state.name, None) is not None:
            for charge in self._counted_of(state):
                self._stale.remove(charge)

    def _counted_of(self, state: _Node) -> Iterator[PodCharge]:
        """What of the node's claims counts."""
        return (charge for uid, charge in state.claims.items() if self._counted[uid][0] == state.name)

    def release(self, node: str, now: float) -> None:
        """The node is gone for good, or an operator says so: nothing of it counts any more."""
        state = self._nodes.get(node)
        if state is not None:
            state.report = state.api = None
            self._recount(node, list(state.claims), now)
            self._differing.discard(node)
            del self._nodes[node]
            self._silent.pop(node, None)
            self._stamps.pop(node, None)

    def tick(self, now: float) -> None:
        """Let time pass: views that have differed for too long are counted by the larger."""
        while self._waiting and self._waiting[0][0] + self._patience <= now:
            since, node, uid = self._waiting.popleft()
            state = self._nodes.get(node)
            if state is not None and state.differs.get(uid) == since:
                self._recount(node, (uid,), now)

    def move_to(self, tree: QueueTree) -> None:
        """Another queue tree."""
        self.totals.move_to(tree)
        self._stale.move_to(tree)

    def stale(self) -> Mapping[str, float]:
        """Silent nodes, and since when: a copy."""
        return self._silent.copy()

    def stale_totals(self) -> Totals:
        """The part of all charges that comes from silent nodes, as it is now."""
        return self._stale.copy()

    def disagreements(self) -> Mapping[str, Mapping[str, float]]:
        """By node and pod UID since when, for every pod on which report and API server differ: a copy."""
        return {node: self._nodes[node].differs.copy() for node in sorted(self._differing)}

    def charge_of(self, uid: str) -> PodCharge | None:
        """What a pod is charged for now."""
        counted = self._counted.get(uid)
        return None if counted is None else counted[1]

    def pods_of(self, node: str) -> list[str]:
        """The UIDs of the pods that the node claims."""
        state = self._nodes.get(node)
        return [] if state is None else list(state.claims)

    def nodes(self) -> Mapping[str, Stamp | None]:
        """Every node that counts, with the stamp of its last report; None where the API server's view counts: a copy."""
        return self._stamps.copy()

    def has_nodes(self) -> bool:
        """Whether any node counts."""
        return bool(self._stamps)

    def observed(self) -> set[str]:
        """Nodes, UNPLACED too, of which the API server has told."""
        return {node for node, state in self._nodes.items() if state.api is not None}

    def observed_of(self, node: str) -> list[str]:
        """The UIDs of the node's pods of which the API server has told."""
        state = self._nodes.get(node)
        return [] if state is None or state.api is None else list(state.api)

    def counted(self) -> Mapping[str, tuple[str, PodCharge]]:
        """Node and charge of everything that counts, by pod UID: a copy, for a reader that takes its time."""
        return self._counted.copy()

    def _node(self, name: str) -> _Node:
        """The node, which begins to count with this."""
        if (state := self._nodes.get(name)) is None:
            state = self._nodes[name] = _Node(name)
            if name != UNPLACED:
                self._stamps[name] = None
        return state

    def _recount(self, node: str, uids: Iterable[str], now: float) -> None:
        """Look at these pods of a node anew."""
        state = self._nodes[node]
        for uid in uids:
            new, old = self._view(state, uid, now), state.claims.get(uid)
            if new == old:
                continue
            if new is None:
                del state.claims[uid]
                others = tuple(each for each in self._claimants[uid] if each != node)
                if others:
                    self._claimants[uid] = others
                else:
                    del self._claimants[uid]
            else:
                state.claims[uid] = new
                if old is None:
                    self._claimants[uid] = (*self._claimants.get(uid, ()), node)
            self._charge(uid)
        if state.differs:
            self._differing.add(node)
        else:
            self._differing.discard(node)

    def _charge(self, uid: str) -> None:
        """Count a pod where it is claimed; of several claims the one of a node, then the largest. No order of arrival matters."""
        claimants = self._claimants.get(uid, ())
        claims = [(node, self._nodes[node].claims[uid]) for node in claimants]
        if len(claims) > 1:
            claims.sort(key=lambda claim: (claim[0] != UNPLACED, *claim[1][3:], claim[0]))
        new = claims[-1] if claims else None
        old = self._counted.get(uid)
        if old is not None:
            self.totals.remove(old[1])
            if old[0] in self._silent:
                self._stale.remove(old[1])
            del self._counted[uid]
        if new is not None:
            self.totals.add(new[1])
            if new[0] in self._silent:
                self._stale.add(new[1])
            self._counted[uid] = new

    def _view(self, state: _Node, uid: str, now: float) -> PodCharge | None:
        """What counts of a pod on a node: the report, else the API server; the larger where they differ for long."""
        if state.report is None:
            state.differs.pop(uid, None)
            return None if state.api is None else state.api.get(uid)
        told = state.report.get(uid)
        if state.api is None or (seen := state.api.get(uid)) == told:
            state.differs.pop(uid, None)
            return told
        since = state.differs.get(uid)
        if since is None:
            since = state.differs[uid] = now
            self._waiting.append((now, state.name, uid))
        if now - since < self._patience:
            return told
        return (told or seen) if told is None or seen is None else larger(told, seen)
