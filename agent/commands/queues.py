"""`pinfold queues`: queue accounting on files."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from agent.errors import BadInputError
from agent.formats.queue_objects import QueueObjects, decode_objects
from agent.kube.object_files import MAX_FILE_BYTES, ObjectFiles, decode_file, read_objects
from agent.model.pod import Pod
from agent.model.quantity import Quantity
from agent.model.queue import RESOURCES, ResourceQuantities
from agent.queues.encode import encode_outcome, encode_proposal, encode_resize, encode_snapshot, encode_step
from agent.queues.jobs import Job
from agent.queues.options import Profile, QueueOptions
from agent.queues.quantities import minus
from agent.queues.reclaim_search import propose
from agent.queues.resize_admission import QueueCharge, ResizeOptions, decide_resize
from agent.queues.simulation import simulate
from agent.queues.snapshot import Snapshot, take_snapshot
from agent.queues.status_watch import share_charge
from agent.queues.text import reclaim_lines, resize_lines, simulation_lines, status_lines
from agent.queues.violations import violations
from agent.queues.workloads import SCHEDULER_NAME

_F = TypeVar("_F", bound=Callable[..., Any])


@click.group()
def command() -> None:
    """Queue accounting: who holds what, may a pod grow, who would be reclaimed.

    FILE is YAML or JSON with KAI Queues and PodGroups, PriorityClasses, Pods and Nodes, as `kubectl get -o yaml` writes them; -
    is standard input. Objects of other kinds are passed over.
    """


def _shared_options(function: _F) -> _F:
    options = (
        click.argument("files", nargs=-1, required=True, metavar="FILE..."),
        click.option("--total", help="What there is to divide, such as cpu=64,memory=512Gi,gpu=8 [sum of the nodes]."),
        click.option(
            "--profile", type=click.Choice([each.value for each in Profile]), default="0.18", help="KAI release."
        ),
        click.option("--k-value", type=float, default=1.0, help="Weight of past usage in fair shares."),
        click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the answer."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _reclaim_options(function: _F) -> _F:
    options = (
        click.option("--in-quota-priority", is_flag=True, help="KAI's queuePriorityInQuotaReclaim."),
        click.option("--saturation-multiplier", type=float, default=1.0, help="KAI's relcaimerSaturationMultiplier."),
        click.option("--forbid-take-back", is_flag=True, help="Refuse what victims could undo at once."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@command.command()
@_shared_options
@click.option("--queue", "name", help="Show instead how the fair share of this queue came about.")
def status(
    files: tuple[str, ...], total: str | None, profile: str, k_value: float, output: str, name: str | None
) -> int:
    """Show every queue: allocated, quota, fair share, limit.

    \b
    Examples:
      pinfold queues status cluster.yaml
      pinfold queues status cluster.yaml --queue team-a
      kubectl get queues,podgroups,pods,nodes -A -o json | pinfold queues status -
    """
    options = QueueOptions(k_value=k_value, profile=Profile.parse(profile))
    snapshot = _snapshot(files, total, options)
    if name is not None:
        if name not in snapshot.tree.queues:
            raise BadInputError(
                f"queue {name} is not in the files, or was refused", hint="leave --queue away to see all"
            )
        steps = snapshot.fair.derivation(snapshot.tree, name)
        _print(output, lambda: [encode_step(step) for step in steps], lambda: map(str, steps))
        return 0
    found = list(violations(snapshot.shares, options.profile))
    _print(output, lambda: encode_snapshot(snapshot, found), lambda: status_lines(snapshot, found))
    return 0


@command.command("check-resize")
@_shared_options
@click.option(
    "--pod", "name", required=True, metavar="[NAMESPACE/]NAME", help="The pod to be resized, one of the files."
)
@click.option(
    "--set",
    "sizes",
    multiple=True,
    metavar="CONTAINER.RESOURCE=AMOUNT",
    help="A new request; without CONTAINER pod-level.",
)
@click.option("--strict", is_flag=True, help="KAI's blockUpsizeOnBoundedQueues.")
@click.option("--scheduler-name", default=SCHEDULER_NAME, help="Pods of other schedulers are not checked.")
def check_resize(
    files: tuple[str, ...],
    total: str | None,
    profile: str,
    k_value: float,
    output: str,
    name: str,
    sizes: tuple[str, ...],
    strict: bool,
    scheduler_name: str,
) -> int:
    """Say whether a pod may grow in place, and if not which queue stands in the way. Exit status 1 if not.

    What a queue holds is the sum of the given pods; with no pod of any queue but the one to resize, what Queue.status says.

    \b
    Examples:
      pinfold queues check-resize cluster.yaml --pod prod/web --set main.cpu=4 --set main.memory=8Gi
    """
    objects = _read(files)
    old = _find_pod(objects.pods, name)
    options = QueueOptions(k_value=k_value, profile=Profile.parse(profile))
    alone = len(objects.pods) == 1
    snapshot = take_snapshot(replace(objects, pods=()) if alone else objects, options, _total(total))
    charges: Mapping[str, QueueCharge] | None = None
    if not alone:
        charges = {each: share_charge(share) for each, share in snapshot.shares.items()}
    resize = ResizeOptions(scheduler_name=scheduler_name, block_upsize_on_bounded_queues=strict)
    answer = decide_resize(old, _resized(old, sizes), snapshot.directory, resize, charges)
    _warn(snapshot)
    _print(output, lambda: encode_resize(answer), lambda: resize_lines(answer))
    return 0 if answer.allowed else 1


@command.command()
@_shared_options
@_reclaim_options
@click.option("--job", "name", required=True, metavar="[NAMESPACE/]PODGROUP", help="The waiting pod group.")
def reclaim(
    files: tuple[str, ...],
    total: str | None,
    profile: str,
    k_value: float,
    output: str,
    in_quota_priority: bool,
    saturation_multiplier: float,
    forbid_take_back: bool,
    name: str,
) -> int:
    """Say who would be reclaimed for a waiting job, and why not the others. Exit status 1 if it would not start.

    \b
    Examples:
      pinfold queues reclaim cluster.yaml --job research/train-7 --in-quota-priority
    """
    options = QueueOptions(k_value, saturation_multiplier, in_quota_priority, Profile.parse(profile), forbid_take_back)
    snapshot = _snapshot(files, total, options)
    _warn(snapshot)
    job = _find_job(snapshot.jobs, name)
    free = snapshot.total
    for share in snapshot.shares.values():
        if not share.queue.parent:
            free = minus(free, share.allocated)
    proposal = propose(job, snapshot.jobs, snapshot.shares, snapshot.total, free, options)
    _print(output, lambda: encode_proposal(job.name, proposal), lambda: reclaim_lines(job.name, proposal))
    return 0 if proposal.possible else 1


@command.command("simulate")
@_shared_options
@_reclaim_options
@click.option("--rounds", type=click.IntRange(1, 10_000), default=100, help="Stop after so many.")
def simulate_command(
    files: tuple[str, ...],
    total: str | None,
    profile: str,
    k_value: float,
    output: str,
    in_quota_priority: bool,
    saturation_multiplier: float,
    forbid_take_back: bool,
    rounds: int,
) -> int:
    """Let the scheduler's decisions run, the cluster taken as one node. Exit status 1 if they go round in circles.

    \b
    Examples:
      pinfold queues simulate cluster.yaml --in-quota-priority
    """
    options = QueueOptions(k_value, saturation_multiplier, in_quota_priority, Profile.parse(profile), forbid_take_back)
    snapshot = _snapshot(files, total, options)
    _warn(snapshot)
    outcome = simulate(snapshot.tree, snapshot.jobs, snapshot.total, options, rounds)
    counts = Counter(back.kind.value for event in outcome.events for back in event.take_backs)
    _print(
        output,
        lambda: encode_outcome(outcome, counts),
        lambda: simulation_lines(snapshot.tree, outcome, counts),
    )
    return 1 if outcome.looped else 0


def _print(output: str, encoded: Callable[[], object], lines: Callable[[], Iterable[str]]) -> None:
    if output == "json":
        click.echo(json.dumps(encoded(), indent=2))
    else:
        for line in lines():
            click.echo(line)


def _warn(snapshot: Snapshot) -> None:
    for problem in snapshot.problems:
        click.echo(f"refused: {problem}", err=True)


def _snapshot(files: Sequence[str], total: str | None, options: QueueOptions) -> Snapshot:
    return take_snapshot(_read(files), options, _total(total))


def _total(text: str | None) -> ResourceQuantities | None:
    """`cpu=64,memory=512Gi,gpu=8` in the scheduler's units."""
    if text is None:
        return None
    amounts = {}
    for part in text.split(","):
        name, equals, amount = part.strip().partition("=")
        if not equals or name not in [resource.value for resource in RESOURCES]:
            raise click.BadParameter(f"{part!r} is not cpu=AMOUNT, memory=AMOUNT or gpu=AMOUNT", param_hint="--total")
        amounts[name] = float(Quantity.parse(amount).number)
    return ResourceQuantities(amounts.get("cpu", 0.0) * 1000, amounts.get("memory", 0.0), amounts.get("gpu", 0.0))


def _read(files: Sequence[str]) -> QueueObjects:
    return decode_objects(document for name in files for document in _documents(name))


def _documents(name: str) -> Iterator[object]:
    if name != "-":
        yield from ObjectFiles([Path(name)]).read()
    else:
        yield from read_objects(decode_file(sys.stdin.buffer.read(MAX_FILE_BYTES + 1), name), name)


def _find_pod(pods: Sequence[Pod], name: str) -> Pod:
    wanted = name if "/" in name else f"default/{name}"
    found = next((pod for pod in pods if pod.namespaced_name == wanted), None)
    if found is None:
        raise BadInputError(
            f"pod {wanted} is not in the files", hint="give the pod's object, with its status, in a file"
        )
    return found


def _find_job(jobs: Sequence[Job], name: str) -> Job:
    wanted = name if "/" in name else f"default/{name}"
    found = next((job for job in jobs if job.name == wanted), None)
    if found is None:
        raise BadInputError(f"no pod of {wanted} waits or runs", hint="name a pod group, or a pod without one")
    return found


def _resized(pod: Pod, sizes: Sequence[str]) -> Pod:
    """The pod with other requests."""
    for size in sizes:
        target, equals, amount = size.partition("=")
        container, _, resource = target.rpartition(".")
        if not equals or resource not in ("cpu", "memory"):
            raise click.BadParameter(
                f"{size!r} is not CONTAINER.cpu=AMOUNT or CONTAINER.memory=AMOUNT", param_hint="--set"
            )
        pod = _with_request(pod, container, resource, Quantity.parse(amount))
    return pod


def _with_request(pod: Pod, container: str, resource: str, amount: Quantity) -> Pod:
    if not container:
        if pod.resources is None:
            raise BadInputError(f"pod {pod.namespaced_name} has no pod-level resources", hint="name a container")
        requests = {**pod.resources.requests, resource: amount}
        return replace(pod, resources=replace(pod.resources, requests=requests))
    if container not in [each.name for each in pod.containers]:
        names = ", ".join(each.name for each in pod.containers)
        raise BadInputError(f"pod {pod.namespaced_name} has no container {container}", hint=f"its containers: {names}")
    containers = tuple(
        replace(each, resources=replace(each.resources, requests={**each.resources.requests, resource: amount}))
        if each.name == container
        else each
        for each in pod.containers
    )
    return replace(pod, containers=containers)
