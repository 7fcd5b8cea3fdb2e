from __future__ import annotations

import pytest

from agent.queues.capacity import Task, job_over_capacity, non_preemptible_over_quota, requested_by
from agent.queues.options import Profile, QueueOptions
from tests.queues.build import amounts, by_name, queue, share

TREE = by_name(
    [
        share(queue("dept", gpu=(4, 6)), allocated=amounts(gpu=5), non_preemptible=amounts(gpu=1)),
        share(queue("team", "dept", gpu=(2, -1)), allocated=amounts(gpu=3), non_preemptible=amounts(gpu=1)),
    ]
)


@pytest.mark.parametrize(
    ("gpu", "preemptible", "reason", "queue_name"),
    [
        pytest.param(1, True, "", "", id="fits"),
        pytest.param(2, True, "OverLimit", "dept", id="an ancestor's limit"),
        pytest.param(1, False, "", "", id="within quota"),
        pytest.param(2, False, "OverLimit", "dept", id="the root's limit is told before the leaf's quota"),
        pytest.param(0, False, "", "", id="what is not asked for is not checked"),
    ],
)
def test_a_job_fits_every_limit_and_non_preemptible_work_every_quota(
    gpu: float, preemptible: bool, reason: str, queue_name: str
) -> None:
    answer = job_over_capacity(TREE, "team", amounts(gpu=gpu), preemptible=preemptible, options=QueueOptions())
    assert answer.reason == reason
    assert answer.schedulable == (not reason)
    assert (answer.failed.queue if answer.failed else "") == queue_name


def test_the_quota_check_alone_does_not_look_at_limits() -> None:
    answer = non_preemptible_over_quota(TREE, "team", amounts(gpu=2), preemptible=False, options=QueueOptions())
    assert answer.reason == "NonPreemptibleOverQuota"
    assert answer.message == (
        "queue team: gpu quota 2 GPUs, allocated to non-preemptible pods 1 GPU, requested 2 GPUs; "
        "a preemptible workload may go over quota"
    )


def test_an_unknown_queue_passes() -> None:
    assert job_over_capacity({}, "gone", amounts(gpu=2), preemptible=False, options=QueueOptions()).schedulable


@pytest.mark.parametrize(("profile", "schedulable"), [(Profile.V0_18, False), (Profile.MAIN, True)])
def test_a_tenth_and_two_tenths_of_a_gpu_fit_three_tenths_only_in_profile_main(
    profile: Profile, schedulable: bool
) -> None:
    shares = by_name([share(queue("a", gpu=(0, 0.3)), allocated=amounts(gpu=0.1))])
    answer = job_over_capacity(shares, "a", amounts(gpu=0.2), preemptible=True, options=QueueOptions(profile=profile))
    assert answer.schedulable is schedulable
    if answer.failed is not None:
        assert "0.3 GPUs" in str(answer.failed)


@pytest.mark.parametrize(("node_memory", "gpus"), [(24000, 2.0), (None, 1.0), (0, 1.0)])
def test_gpu_memory_counts_as_devices_times_the_share_of_a_device(node_memory: float | None, gpus: float) -> None:
    tasks = [Task(amounts(cpu=5), gpu_memory_mib=12000, gpu_devices=2), Task(amounts(gpu=1, cpu=5))]
    assert requested_by(tasks, node_memory) == amounts(cpu=10, gpu=gpus)


def test_a_refusal_says_which_bound_of_which_queue_and_what_would_help() -> None:
    shares = by_name(
        [share(queue("q", cpu=(2000, 4000)), allocated=amounts(cpu=3000), non_preemptible=amounts(cpu=1500))]
    )
    limit = job_over_capacity(shares, "q", amounts(cpu=2000), preemptible=True, options=QueueOptions())
    assert limit.message == "queue q: cpu limit 4 cores, allocated 3 cores, requested 2 cores"
    quota = job_over_capacity(shares, "q", amounts(cpu=1000), preemptible=False, options=QueueOptions())
    assert quota.message == (
        "queue q: cpu quota 2 cores, allocated to non-preemptible pods 1.5 cores, requested 1 core; "
        "a preemptible workload may go over quota"
    )
    fits = job_over_capacity(shares, "q", amounts(cpu=1000), preemptible=True, options=QueueOptions())
    assert (fits.message, fits.failed) == ("", None)


def test_preemptible_work_has_no_quota() -> None:
    shares = by_name([share(queue("q", cpu=(0, -1)))])
    options = QueueOptions()
    asked = amounts(cpu=1)
    assert non_preemptible_over_quota(shares, "q", asked, preemptible=True, options=options).schedulable
    assert not non_preemptible_over_quota(shares, "q", asked, preemptible=False, options=options).schedulable
