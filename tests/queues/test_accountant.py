"""The accountant: from objects and node reports to answers, through restarts, silence and disagreement."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from agent.formats.queue_objects import QueueObjects
from agent.model.occupancy import GPUMemory
from agent.model.pod import Pod
from agent.model.quantity import Quantity
from agent.model.queue import ClusterNode, PodGroup, Preemptibility, PriorityClass, Queue, QueueStatus
from agent.model.state import Epoch
from agent.queues.accountant import Accountant, AccountantOptions
from agent.queues.accountant_resize import Unready, decide
from agent.queues.accountant_view import AccountantView, capture, captured_jobs, jobs_of_capture, view_of
from agent.queues.accounting import Taken
from agent.queues.charge import NANO, Amounts
from agent.queues.ledger import LedgerOptions
from agent.queues.node_report import NodeReport, ReportedPod
from agent.queues.node_report_format import decode_report, encode_report
from agent.queues.observed_pods import pod_changes
from agent.queues.resize_admission import ResizeReason
from tests.queues.build import queue
from tests.queues.test_resize_admission import pod

EPOCH = Epoch(1, "0" * 16)
CORES = {"cpu": Quantity.parse("64"), "memory": Quantity.parse("256Gi")}
NODES = tuple(ClusterNode(f"n{number}", CORES) for number in range(3))
QUEUES = (queue("dept", cpu=(-1, 20_000)), queue("leaf", "dept", cpu=(-1, 10_000)), queue("other", "dept"))


def objects(*queues: Queue, nodes: tuple[ClusterNode, ...] = NODES, pods: tuple[Pod, ...] = ()) -> QueueObjects:
    group = PodGroup("prod", "pg", "leaf", preemptibility=Preemptibility.NON_PREEMPTIBLE)
    return QueueObjects(queues or QUEUES, (group,), (PriorityClass("train", 50),), pods, nodes)


def reported(
    cores: float, name: str = "p", group: str = "pg", label: str = "", *, pending: bool = False
) -> ReportedPod:
    cost = Amounts(cpu=round(cores * NANO))
    return ReportedPod("prod", name, label, group, None, Amounts() if pending else cost, cost)


def full(node: str, generation: int, **pods: ReportedPod) -> NodeReport:
    return NodeReport(node, (EPOCH, generation), pods=pods, allocatable=CORES)


def delta(node: str, base: int, generation: int, *gone: str, **pods: ReportedPod) -> NodeReport:
    return NodeReport(node, (EPOCH, generation), (EPOCH, base), pods, gone)


def accountant(*, ledger: bool = False, taken: QueueObjects | None = None) -> Accountant:
    found = Accountant(AccountantOptions(ledger=LedgerOptions() if ledger else None), started=0)
    found.take_objects(taken or objects(), 0)
    return found


def everybody_reports(found: Accountant, cores: float = 2) -> Accountant:
    for number in range(3):
        found.take_report(full(f"n{number}", 1, **{f"u{number}": reported(cores, f"p{number}")}), 0)
    return found


def view(found: Accountant, now: float = 1) -> AccountantView:
    return view_of(capture(found, now))


def held(found: Accountant, name: str = "dept") -> float:
    return view(found).shares[name].allocated.cpu


def resize(found: Accountant, uid: str, before: int, after: int, now: float = 1) -> tuple[ResizeReason, Unready | None]:
    old, new = (replace(pod({"cpu": str(size)}), uid=uid, name=uid) for size in (before, after))
    answer, unready, found.ledger = decide(found, old, new, now)
    return answer.reason, unready


def test_reports_are_charged_to_the_queue_of_the_pod_group() -> None:
    found = everybody_reports(accountant())
    found.take_report(delta("n0", 1, 2, u9=reported(1, "p9", group="", label="other")), 1)
    assert (held(found, "leaf"), held(found, "other"), held(found)) == (6000, 1000, 7000)
    assert view(found).shares["leaf"].allocated_non_preemptible.cpu == 6000


def test_a_changed_pod_group_moves_what_was_reported_before() -> None:
    found = everybody_reports(accountant())
    moved = replace(objects(), pod_groups=(PodGroup("prod", "pg", "other"),))
    found.take_objects(moved, 1)
    assert (held(found, "leaf"), held(found, "other"), held(found)) == (0, 6000, 6000)
    assert view(found).shares["other"].allocated_non_preemptible.cpu == 0


def test_a_changed_priority_class_changes_what_is_preemptible() -> None:
    by_class = (PodGroup("prod", "pg", "leaf", priority_class="train"),)
    found = everybody_reports(accountant(taken=replace(objects(), pod_groups=by_class)))
    assert view(found).shares["leaf"].allocated_non_preemptible.cpu == 0
    found.take_objects(replace(objects(), pod_groups=by_class, priority_classes=(PriorityClass("train", 125),)), 1)
    assert view(found).shares["leaf"].allocated_non_preemptible.cpu == 6000


def test_before_every_node_has_reported_growth_cannot_be_judged() -> None:
    found = accountant()
    assert resize(found, "u0", 2, 4) == (ResizeReason.FITS, Unready.NODES_MISSING)
    assert resize(found, "u0", 4, 2) == (ResizeReason.NO_GROWTH, None)
    everybody_reports(found)
    assert resize(found, "u0", 2, 4) == (ResizeReason.FITS, None)


def test_nodes_are_accounted_for_once_their_pods_are_told_of_even_after_they_were_missed() -> None:
    taken = objects(queue("dept"))
    found = accountant(taken=taken)
    assert found.missing_nodes() == {"n0", "n1", "n2"}
    found.take_objects(taken, 2, pods={})  # the same nodes, and the first word of an API server's pods: there are none
    assert not found.missing_nodes()
    assert found.is_complete(2)


def test_a_rejection_stands_while_nodes_are_missing() -> None:
    found = accountant()
    found.take_report(full("n0", 1, u0=reported(9)), 0)
    assert resize(found, "u0", 9, 11) == (ResizeReason.REJECTED, None)


def test_without_reports_the_status_of_the_queues_counts() -> None:
    status = QueueStatus({"cpu": Quantity.parse("9")}, {"cpu": Quantity.parse("9")})
    found = accountant(taken=objects(*(replace(each, status=status) for each in QUEUES)))
    assert resize(found, "u0", 2, 3) == (ResizeReason.FITS, None)
    assert resize(found, "u0", 2, 4) == (ResizeReason.REJECTED, None)


def test_before_the_objects_are_read_nothing_that_grows_can_be_judged() -> None:
    found = Accountant(AccountantOptions(), started=0)
    assert resize(found, "u0", 2, 4) == (ResizeReason.POD_GROUP_NOT_FOUND, Unready.NO_OBJECTS)
    assert resize(found, "u0", 4, 2) == (ResizeReason.POD_GROUP_NOT_FOUND, None)


def test_without_node_objects_unknown_nodes_are_waited_for() -> None:
    found = accountant(taken=objects(nodes=()))
    found.take_report(full("n0", 1, u0=reported(2)), 0)
    assert resize(found, "u0", 2, 4, now=10)[1] is Unready.NODES_MISSING
    assert resize(found, "u0", 2, 4, now=31)[1] is None


def test_a_silent_node_keeps_its_charge_marked_stale() -> None:
    found = everybody_reports(accountant())
    found.take_report(delta("n1", 1, 2), 100)
    found.tick(150)
    stale = view(found)
    assert stale.capture.stale_since == {"n0": 0, "n2": 0}
    assert stale.stale["leaf"].allocated.cpu == 4 * NANO
    assert held(found) == 6000
    assert found.take_report(full("n0", 1, u0=reported(2, "p0")), 151) is Taken.OLD
    assert "n0" not in view(found).capture.stale_since


def test_an_operator_releases_a_node_and_a_node_object_that_goes_does_too() -> None:
    found = everybody_reports(accountant())
    assert found.release("n0", 1)
    assert not found.release("n9", 1)
    assert held(found) == 4000
    found.take_objects(objects(nodes=NODES[:2]), 2)
    assert held(found) == 2000


def test_a_gap_asks_for_a_full_report_and_nothing_is_counted_twice() -> None:
    found = everybody_reports(accountant())
    assert found.take_report(delta("n0", 5, 6, u0=reported(9)), 1) is Taken.GAP
    assert found.take_report(full("n0", 6, u0=reported(3)), 1) is Taken.APPLIED
    assert found.take_report(delta("n0", 5, 6, u0=reported(9)), 1) is Taken.OLD
    assert held(found) == 7000


def test_a_restart_resumes_where_reports_ended_and_marks_them_stale() -> None:
    first = everybody_reports(accountant())
    first.take_report(delta("n0", 1, 4, u0=reported(5, "p0")), 1)
    again = accountant()
    for node in ("n0", "n1"):
        kept = first.report_of(node)
        assert kept is not None
        again.resume(decode_report(encode_report(kept)), 0)
    assert held(again) == 7000
    assert again.missing_nodes() == {"n2"}
    assert view(again).capture.stale_since == {"n0": 0, "n1": 0}
    assert again.take_report(delta("n0", 4, 5, u0=reported(1)), 2) is Taken.APPLIED
    assert held(again) == 3000


def test_a_reservation_ends_with_the_report_that_shows_the_growth() -> None:
    found = everybody_reports(accountant(ledger=True))
    assert resize(found, "u0", 2, 6)[0] is ResizeReason.FITS
    assert resize(found, "u1", 2, 3)[0] is ResizeReason.REJECTED
    assert view(found).reserved["dept"].cpu_millis == 4000
    found.take_report(delta("n0", 1, 2, u0=reported(4, "p0")), 1)
    assert view(found).reserved["dept"].cpu_millis == 2000
    found.take_report(full("n0", 3, u0=reported(6, "p0")), 1)
    assert not found.ledger.reservations
    assert resize(found, "u1", 2, 3)[0] is ResizeReason.REJECTED


def test_a_reservation_ends_with_the_pod_the_node_or_its_time() -> None:
    found = everybody_reports(accountant(ledger=True))
    for end in (
        lambda: found.take_report(delta("n0", 1, 2, "u0"), 1),
        lambda: found.release("n0", 1),
        lambda: found.tick(10_000),
    ):
        assert resize(found, "u0", 2, 4)[0] is ResizeReason.FITS
        assert found.ledger.reservations
        end()
        assert not found.ledger.reservations
        found.take_report(full("n0", 3, u0=reported(2, "p0")), 1)


def test_the_larger_of_two_lasting_views_counts() -> None:
    seen = replace(pod({"cpu": "5"}), uid="u0", name="p0", node_name="n0")
    found = everybody_reports(accountant(taken=objects(pods=(seen,))))
    assert held(found, "leaf") == 6000
    found.tick(100)
    assert held(found, "leaf") == 9000


def test_pods_of_the_api_server_count_where_no_agent_reports() -> None:
    seen = replace(pod({"cpu": "5"}), uid="u0", name="p0", node_name="n0")
    found = accountant(taken=objects(pods=(seen,)))
    assert held(found) == 5000
    assert found.is_complete(1)
    found.take_objects(objects(pods=()), 2)
    assert held(found) == 0


def test_jobs_are_known_from_reports_alone() -> None:
    found = everybody_reports(accountant())
    jobs = jobs_of_capture(captured_jobs(found))
    assert [(job.name, job.queue, len(job.running)) for job in jobs] == [("prod/pg", "leaf", 3)]


def test_two_replicas_with_the_same_reports_in_any_order_say_the_same() -> None:
    history = [
        *(full(f"n{number}", 1, **{f"u{number}": reported(number + 0.1, f"p{number}")}) for number in range(3)),
        *(delta(f"n{number}", 1, 2, **{f"v{number}": reported(0.3, f"q{number}")}) for number in range(3)),
    ]
    views = []
    for seed in range(5):
        found = accountant()
        mixed = sorted(history, key=lambda each: (each.stamp[1], Random(seed).random()))
        Random(seed).shuffle(mixed)
        waiting = mixed
        while waiting:  # an agent sends again what was not taken
            waiting = [each for each in waiting if found.take_report(each, 1) is Taken.GAP]
        views.append((view(found).shares, view(found).fair.shares))
    assert all(each == views[0] for each in views)


def test_a_node_that_comes_back_under_its_name_starts_from_nothing() -> None:
    found = everybody_reports(accountant())
    assert found.take_objects(objects(nodes=NODES[1:]), 1) == {"n0"}
    found.take_objects(objects(), 2)
    assert held(found) == 4000
    assert found.missing_nodes() == {"n0"}
    assert found.take_report(full("n0", 1, u7=reported(1, "p7")), 3) is Taken.APPLIED
    assert held(found) == 5000


def test_a_late_report_of_a_node_that_is_gone_is_given_up_once_the_node_stays_silent() -> None:
    found = everybody_reports(accountant())
    found.take_objects(objects(nodes=NODES[1:]), 1)
    found.take_report(full("n0", 2, u0=reported(2, "p0")), 2)
    for number in (1, 2):
        found.hear(f"n{number}", 150)
    assert (list(found.tick(100)), held(found)) == ([], 6000)
    assert (list(found.tick(200)), held(found)) == (["n0"], 4000)


def test_a_node_deleted_while_the_accountant_was_down_is_given_up() -> None:
    kept = everybody_reports(accountant()).report_of("n2")
    assert kept is not None
    again = Accountant(AccountantOptions(), started=0)
    again.resume(kept, 0)
    again.take_objects(objects(nodes=NODES[:2]), 0)
    assert held(again) == 2000
    assert list(again.tick(5)) == ["n2"]
    assert held(again) == 0


def test_pods_that_stay_bound_to_a_released_node_count_as_the_api_server_says() -> None:
    seen = replace(pod({"cpu": "5"}), uid="u0", name="p0", node_name="n0")
    found = everybody_reports(accountant())
    found.take_objects(found.known.objects, 1, {"u0": seen})
    found.take_objects(objects(nodes=NODES[1:]), 2)
    assert held(found) == 9000
    found.take_objects(objects(nodes=NODES[1:]), 3, {"u0": None})
    assert held(found) == 4000
    assert "n0" not in found.accounting.nodes(), "and nothing of the node is left"


def test_a_pod_that_is_bound_counts_on_its_node_and_no_longer_as_waiting() -> None:
    waiting = replace(pod({"cpu": "5"}), uid="u0", name="p0")
    found = accountant()
    found.take_objects(found.known.objects, 1, {"u0": waiting})
    found.take_objects(found.known.objects, 2, {"u0": replace(waiting, node_name="n1")})
    assert {uid: node for uid, (node, _) in found.accounting.counted().items()} == {"u0": "n1"}
    assert held(found) == 5000
    assert found.groups == {"u0": "prod/pg"}
    found.take_objects(found.known.objects, 3, {"u0": None})
    assert (held(found), found.groups) == (0, {})


def test_a_queue_that_goes_while_it_is_charged_is_shown_and_comes_back_charged() -> None:
    found = everybody_reports(accountant())
    found.take_objects(objects(*(each for each in QUEUES if each.name != "leaf")), 1)
    assert held(found) == 0
    assert view(found).unknown["leaf"].allocated.cpu == 6 * NANO
    assert resize(found, "u0", 2, 200)[0] is ResizeReason.FITS, "as upstream: a queue that is not there bounds nothing"
    found.take_objects(objects(), 2)
    assert held(found) == 6000


def test_gpus_by_memory_follow_the_label_of_the_node() -> None:
    sharing = reported(1, "p0")._replace(gpu_memory=GPUMemory(2, 5000))
    found = accountant()
    found.take_report(full("n0", 1, u0=sharing), 0)
    assert view(found).shares["dept"].allocated.gpu == 0
    for memory, gpus in ((40_000, 0.26), (80_000, 0.14), (None, 0)):
        found.take_objects(objects(nodes=(replace(NODES[0], gpu_memory_mib=memory), *NODES[1:])), 1)
        assert view(found).shares["dept"].allocated.gpu == gpus


def test_absurd_amounts_are_counted_and_shown() -> None:
    found = everybody_reports(accountant())
    huge = Amounts(10**60, 10**60, 10**30)
    found.take_report(full("n0", 2, u0=reported(1)._replace(allocated=huge, requested=huge)), 1)
    assert held(found) > 1e50
    assert resize(found, "u1", 2, 3)[0] is ResizeReason.REJECTED
    found.take_report(full("n0", 3), 2)
    assert held(found) == 4000


pod_sizes = st.dictionaries(st.sampled_from("uvwxyz"), st.tuples(st.integers(1, 5), st.sampled_from(["", "n0", "n1"])))


@given(st.lists(pod_sizes, min_size=1, max_size=6), st.lists(st.sampled_from(["pg", "other", "none"]), max_size=6))
def test_pods_followed_one_by_one_count_as_those_that_are_listed(
    listings: list[dict[str, tuple[int, str]]], groups: list[str]
) -> None:
    def pods(sizes: dict[str, tuple[int, str]]) -> tuple[Pod, ...]:
        return tuple(
            replace(pod({"cpu": str(cores)}), uid=uid, name=uid, node_name=node) for uid, (cores, node) in sizes.items()
        )

    def with_group(name: str) -> QueueObjects:
        return replace(
            objects(), pod_groups=(PodGroup("prod", "pg", {"pg": "leaf", "other": "other"}.get(name, "gone")),)
        )

    followed, before = accountant(), tuple[Pod, ...]()
    for number, sizes in enumerate(listings):
        now = with_group(groups[number] if number < len(groups) else "pg")
        followed.take_objects(now, 1, pod_changes(before, pods(sizes)))
        before = pods(sizes)
    listed = accountant()
    listed.take_objects(replace(now, pods=before), 1)
    assert followed.accounting.counted() == listed.accounting.counted()
    assert followed.groups == listed.groups
    assert view(followed).shares == view(listed).shares
    assert view(followed).unknown == view(listed).unknown


def test_admitted_growth_follows_a_pod_group_to_its_new_queue() -> None:
    """Else the growth of a pod that moved would be given away a second time below its new queue."""
    found = everybody_reports(accountant(ledger=True))
    assert resize(found, "u0", 2, 4)[0] is ResizeReason.FITS
    before = objects()
    group = replace(before.pod_groups[0], queue="renamed")
    queues = (queue("dept", cpu=(-1, 20_000)), queue("renamed", "dept", cpu=(-1, 9_000)))
    found.take_objects(replace(before, queues=queues, pod_groups=(group,)), 2)
    assert {each.queue for each in found.ledger.reservations.values()} == {"renamed"}
    assert resize(found, "u1", 2, 4)[0] is ResizeReason.REJECTED  # 6 charged, 2 reserved, 2 more do not fit 9
    assert resize(found, "u1", 2, 3)[0] is ResizeReason.FITS
