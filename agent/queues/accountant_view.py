"""What the accountant knows at one moment, as values to read at leisure: shares, fair shares, violations, nodes, reservations.

Capturing is cheap and may hold up resizes; everything that takes time (fair shares, 1,000 queues as values) is computed from the
captured copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from agent.errors import AgentError
from agent.model.queue import PodGroup, QueueShare, ResourceQuantities
from agent.queues.accountant import Accountant
from agent.queues.accounting import Stamp
from agent.queues.charge import PodCharge
from agent.queues.fair_share import FairShares, divide_cluster
from agent.queues.jobs import Job, jobs_from
from agent.queues.ledger import Ledger, with_reserved
from agent.queues.options import QueueOptions
from agent.queues.quantities import summed
from agent.queues.resize_growth import CPUMemory
from agent.queues.snapshot import Snapshot, status_shares
from agent.queues.totals import QueueTotals, Totals
from agent.queues.tree import QueueProblem, QueueTree
from agent.queues.violations import Violation, violations_of
from agent.queues.workloads import Directory


@dataclass(frozen=True, slots=True)
class Capture:
    """A copy of what changes. taken: when, on the accountant's clock.

    nodes: those accounted for, with the stamp of the last report, None where only the API server tells. stale_since: of silent
    nodes. missing: nodes of which nothing is known. disagreements: by node and pod UID, since when.
    """

    taken: float
    totals: Totals
    stale: Totals
    directory: Directory
    ledger: Ledger
    nodes: Mapping[str, Stamp | None]
    stale_since: Mapping[str, float]
    missing: frozenset[str]
    complete: bool
    has_objects: bool
    allocatable: Mapping[str, ResourceQuantities]
    disagreements: Mapping[str, Mapping[str, float]]
    status_differs: Mapping[str, float]
    problems: tuple[AgentError | QueueProblem, ...]
    options: QueueOptions


@dataclass(frozen=True, slots=True)
class AccountantView:
    """What a capture means. total: what there is to divide. from_status: nothing but `Queue.status` is known.

    reserved: admitted growth by queue that no report shows yet. stale: by queue, the part of `shares` from silent nodes.
    """

    capture: Capture
    tree: QueueTree
    total: ResourceQuantities
    shares: Mapping[str, QueueShare]
    fair: FairShares
    from_status: bool
    violations: tuple[Violation, ...]
    unknown: Mapping[str, QueueTotals]
    reserved: Mapping[str, CPUMemory]
    stale: Mapping[str, QueueTotals]

    @property
    def snapshot(self) -> Snapshot:
        """The same moment in the form in which commands read it from files."""
        taken = self.capture
        problems = taken.problems
        return Snapshot(
            self.tree, taken.directory, self.total, self.shares, self.fair, (), self.unknown, problems, self.from_status
        )


def capture(accountant: Accountant, now: float) -> Capture:
    """Copy what may change. The accountant must not change meanwhile."""
    accounting, known = accountant.accounting, accountant.known
    silent = accounting.stale()
    return Capture(
        now,
        accounting.totals.copy(),
        accounting.stale_totals(),
        accountant.directory,
        accountant.ledger,
        accounting.nodes(),
        silent,
        accountant.missing_nodes(),
        accountant.is_complete(now),
        accountant.has_objects,
        accountant.allocatable(),
        accounting.disagreements(),
        accountant.status_watch.differing(),
        (*known.objects.problems, *known.refused),
        accountant.options.queues,
    )


def view_of(
    taken: Capture, total: ResourceQuantities | None = None, before: AccountantView | None = None
) -> AccountantView:
    """Everything that follows. total: what there is to divide, instead of what the nodes have.

    before: an earlier view of the same accountant and total. The answer is the same with it; what has not changed since is
    taken over, so that the cost is that of the change, and a queue as it was is the very same value.
    """
    tree = taken.totals.tree
    from_status = not taken.nodes
    if before is not None and (
        from_status
        or before.from_status
        or before.capture.options != taken.options
        or before.tree.children != tree.children
    ):
        before = None
    if total is not None:
        amounts = total
    elif before is not None and before.capture.allocatable == taken.allocatable:
        amounts = before.total
    else:
        amounts = cluster_allocatable(taken.allocatable)
    if before is None:
        shares = status_shares(tree) if from_status else taken.totals.shares()
        fair = divide_cluster(tree, shares, amounts, taken.options)
        known: Mapping[str, QueueShare] = {}
    else:
        changed = taken.totals.changed_since(before.capture.totals)
        anew = taken.totals.shares(changed)
        shares = {**before.shares, **anew}
        fair = divide_cluster(tree, shares, amounts, taken.options, before=before.fair, changed=changed)
        known = before.shares
    full = {name: _with_fair_share(each, fair.shares[name]) for name, each in shares.items()}
    charges = with_reserved({}, taken.ledger, taken.directory)
    return AccountantView(
        taken,
        tree,
        amounts,
        full,
        fair,
        from_status,
        tuple(_violations(full, known, () if before is None else before.violations, taken.options)),
        taken.totals.unknown(),
        {name: charge.reserved for name, charge in charges.items()},
        {name: taken.stale.of(name) for name in taken.stale.charged()},
    )


def _with_fair_share(share: QueueShare, fair_share: ResourceQuantities) -> QueueShare:
    if share.fair_share == fair_share:
        return share
    return QueueShare(
        share.queue, share.allocated, share.allocated_non_preemptible, share.request, share.usage, fair_share
    )


def _violations(
    shares: Mapping[str, QueueShare],
    known: Mapping[str, QueueShare],
    passed: Iterable[Violation],
    options: QueueOptions,
) -> Iterator[Violation]:
    """Those of `shares`; `passed` are those of `known`, and still are where a share is the same one."""
    found: dict[str, list[Violation]] = {}
    for each in passed:
        found.setdefault(each.queue, []).append(each)
    for name, share in shares.items():
        if known.get(name) is share:
            yield from found.get(name, ())
        else:
            yield from violations_of(share, options.profile)


def cluster_allocatable(allocatable: Mapping[str, ResourceQuantities]) -> ResourceQuantities:
    """What all nodes have to give together. Nodes in the order of their names, so that float sums are the same everywhere."""
    return summed(allocatable[name] for name in sorted(allocatable))


@dataclass(frozen=True, slots=True)
class CapturedJobs:
    """What the jobs follow from. counted: node and charge by pod UID; groups: the job by pod UID."""

    counted: Mapping[str, tuple[str, PodCharge]]
    groups: Mapping[str, str]
    pod_groups: Mapping[tuple[str, str], PodGroup]


def captured_jobs(accountant: Accountant) -> CapturedJobs:
    """For `jobs_of_capture`. The accountant must not change meanwhile."""
    return CapturedJobs(accountant.accounting.counted(), accountant.groups.copy(), accountant.directory.pod_groups)


def jobs_of_capture(taken: CapturedJobs) -> list[Job]:
    """The jobs of the captured pods."""
    members: dict[str, list[PodCharge]] = {}
    found = ((taken.groups.get(uid, charge.pod), charge) for uid, (_, charge) in taken.counted.items())
    for job, charge in sorted(found, key=lambda each: (each[0], each[1].pod)):
        members.setdefault(job, []).append(charge)
    min_members = {f"{group.namespace}/{group.name}": max(1, group.min_member) for group in taken.pod_groups.values()}
    return jobs_from(members, min_members)
