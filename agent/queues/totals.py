"""Sums per queue and all its ancestors, kept up to date one pod at a time: the cost of a change is the depth of the
tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import add

from agent.model.queue import QueueShare
from agent.queues.charge import NO_AMOUNTS, Amounts, PodCharge
from agent.queues.tree import QueueTree


@dataclass(frozen=True, slots=True)
class QueueTotals:
    """What a queue is charged for, descendants included. pods: how many cost it something."""

    allocated: Amounts = NO_AMOUNTS
    allocated_non_preemptible: Amounts = NO_AMOUNTS
    requested: Amounts = NO_AMOUNTS
    pods: int = 0


class Totals:
    """Running sums. Queues that are not in the tree are summed under their own name, so that nothing gets lost unseen."""

    def __init__(self, tree: QueueTree) -> None:
        self._tree = tree
        # three resources of allocated, non-preemptible and requested, and the number of pods
        self._own: dict[str, Sequence[int]] = {}  # what stands directly in each queue
        self._sums: dict[str, Sequence[int]] = {}
        self._paths: dict[str, tuple[str, ...]] = {}

    @property
    def tree(self) -> QueueTree:
        """The tree that is summed up over."""
        return self._tree

    def copy(self) -> Totals:
        """The sums as they are now, for a reader that takes its time."""
        copied = Totals(self._tree)
        copied._own, copied._sums = dict(self._own), dict(self._sums)  # sums are replaced, never edited in place
        return copied

    def move_to(self, tree: QueueTree) -> None:
        """Another tree: where queues have come, gone or moved, everything is summed up again from what stands in each."""
        before, self._tree = self._tree, tree
        if before.children == tree.children:
            return  # other limits, another status
        self._paths, self._sums = {}, {}
        for name, own in self._own.items():
            for above in self._path(name):
                _add(self._sums, above, own)

    def add(self, charge: PodCharge) -> None:
        """Charge a pod."""
        self._change(charge, 1)

    def remove(self, charge: PodCharge) -> None:
        """Take away what was added before."""
        self._change(charge, -1)

    def of(self, queue: str) -> QueueTotals:
        """The sums of one queue; zero where nothing is charged to it."""
        return _frozen(self._sums.get(queue))

    def charged(self) -> Iterable[str]:
        """The queues of the tree that anything is charged to, descendants included."""
        return self._sums.keys() & self._tree.queues.keys()

    def unknown(self) -> Mapping[str, QueueTotals]:
        """Queues that pods name but the tree does not have; "" are pods that name none."""
        return {name: _frozen(own) for name, own in self._own.items() if name not in self._tree.queues}

    def changed_since(self, before: Totals) -> set[str]:
        """The queues of the tree that are other ones, or hold or ask for something else, than in this earlier copy."""
        now, then = self._sums, before._sums
        changed = {name for name, sums in now.items() if then.get(name) is not sums} | (then.keys() - now.keys())
        queues, had = self._tree.queues, before._tree.queues
        if queues is not had:
            changed |= {name for name, queue in queues.items() if had.get(name) is not queue}
        return changed & queues.keys()

    def shares(self, names: Iterable[str] | None = None) -> dict[str, QueueShare]:
        """Queues of the tree with their sums, as the rules read them; fair shares are still 0. names: None is all of them."""
        shares, queues = {}, self._tree.queues
        for name in queues if names is None else names:
            queue = queues[name]
            sums = _frozen(self._sums.get(name))
            shares[name] = QueueShare(
                queue,
                sums.allocated.quantities(),
                sums.allocated_non_preemptible.quantities(),
                sums.requested.quantities(),
            )
        return shares

    def _change(self, charge: PodCharge, sign: int) -> None:
        fixed = NO_AMOUNTS if charge.preemptible else charge.allocated
        amounts = [*charge.allocated, *fixed, *charge.requested, 1]
        if sign < 0:
            amounts = [-amount for amount in amounts]
        _add(self._own, charge.queue, amounts)
        for name in self._path(charge.queue):
            _add(self._sums, name, amounts)

    def _path(self, queue: str) -> tuple[str, ...]:
        path = self._paths.get(queue)
        if path is None:
            path = tuple(each.name for each in self._tree.path(queue)) or (queue,)
            self._paths[queue] = path
        return path


def _add(sums: dict[str, Sequence[int]], name: str, amounts: Sequence[int]) -> None:
    held = sums.get(name)
    total = list(amounts) if held is None else list(map(add, held, amounts))
    if total[-1]:
        sums[name] = total
    elif held is not None:
        del sums[name]  # no pods left: amounts are exact, so nothing else is left either


def _frozen(sums: Sequence[int] | None) -> QueueTotals:
    if sums is None:
        return QueueTotals()
    return QueueTotals(Amounts(*sums[0:3]), Amounts(*sums[3:6]), Amounts(*sums[6:9]), sums[9])
