"""`pinfold queues`: queue accounting on files, or asked of a server."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from agent.commands.queues_remote import server_options, show_answer
from agent.errors import BadInputError
from agent.formats.pods import encode_pod
from agent.formats.queue_objects import QueueObjects, decode_objects
from agent.kube.object_files import MAX_FILE_BYTES, ObjectFiles, decode_file, read_objects
from agent.model.pod import Pod
from agent.model.queue import ResourceQuantities
from agent.queues.encode import encode_outcome, encode_proposal, encode_resize, encode_snapshot, encode_step
from agent.queues.jobs import Job
from agent.queues.options import Profile, QueueOptions
from agent.queues.quantities import minus, parse_total
from agent.queues.reclaim_search import propose
from agent.queues.resize_admission import QueueCharge, ResizeOptions, decide_resize
from agent.queues.simulation import simulate
from agent.queues.snapshot import Snapshot, take_snapshot
from agent.queues.status_watch import share_charge
from agent.queues.text import reclaim_lines, resize_lines, simulation_lines, status_lines
from agent.queues.violations import violations
from agent.queues.what_if import resized
from agent.queues.workloads import SCHEDULER_NAME
from agent.serve.queue_client import QueueClient, ServerAddress

_F = TypeVar("_F", bound=Callable[..., Any])


class _Group(click.Group):
    """Loads `serve` only where it is called: it brings the servers with it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return ["serve", *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name != "serve":
            return super().get_command(ctx, cmd_name)
        found: click.Command = importlib.import_module("agent.commands.queues_serve").command
        return found


@click.group(cls=_Group)
def command() -> None:
    """Queue accounting: who holds what, may a pod grow, who would be reclaimed.

    FILE is YAML or JSON with KAI Queues and PodGroups, PriorityClasses, Pods and Nodes, as `kubectl get -o yaml` writes them; -
    is standard input. Objects of other kinds are passed over. --server asks an accountant (`pinfold queues serve`) instead.

    \b
    Example:
      pinfold queues status examples/queues/cluster.yaml
    """


def _shared_options(function: _F) -> _F:
    options = (
        click.argument("files", nargs=-1, metavar="[FILE...]"),
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
@server_options
@click.option("--queue", "name", help="Show instead how the fair share of this queue came about.")
def status(
    files: tuple[str, ...],
    total: str | None,
    profile: str,
    k_value: float,
    output: str,
    server: ServerAddress | None,
    name: str | None,
) -> int:
    """Show every queue: allocated, quota, fair share, limit.

    \b
    Examples:
      pinfold queues status cluster.yaml
      pinfold queues status cluster.yaml --queue vision
      pinfold queues status --server http://127.0.0.1:9558
      kubectl get queues,podgroups,pods,nodes -A -o json | pinfold queues status -
    """
    if server is not None:
        path, query = ("/v1/queues", {}) if name is None else ("/v1/queue", {"name": name})
        show_answer(QueueClient(server).get(path, **query, output="both"), output)
        return 0
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
@server_options
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
    server: ServerAddress | None,
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
      kubectl get pod web -n prod -o json | pinfold queues check-resize - --pod prod/web --set main.cpu=4 --server http://127.0.0.1:9558
    """
    if server is not None:
        wanted = _sizes(sizes)
        question: dict[str, object] = {"pod": name if "/" in name else f"default/{name}", "set": wanted}
        if files:
            before = _find_pod(_read(files).pods, name)
            question = {"oldPod": encode_pod(before), "newPod": encode_pod(resized(before, wanted))}
        text = QueueClient(server).post("/v1/check-resize", question, output="both")
        return 0 if show_answer(text, output)["allowed"] else 1
    objects = _read(files)
    old = _find_pod(objects.pods, name)
    options = QueueOptions(k_value=k_value, profile=Profile.parse(profile))
    alone = len(objects.pods) == 1
    snapshot = take_snapshot(replace(objects, pods=()) if alone else objects, options, _total(total))
    charges: Mapping[str, QueueCharge] | None = None
    if not alone:
        charges = {each: share_charge(share) for each, share in snapshot.shares.items()}
    resize = ResizeOptions(scheduler_name=scheduler_name, block_upsize_on_bounded_queues=strict)
    answer = decide_resize(old, resized(old, _sizes(sizes)), snapshot.directory, resize, charges)
    _warn(snapshot)
    _print(output, lambda: encode_resize(answer), lambda: resize_lines(answer))
    return 0 if answer.allowed else 1


@command.command()
@_shared_options
@server_options
@_reclaim_options
@click.option("--job", "name", required=True, metavar="[NAMESPACE/]PODGROUP", help="The waiting pod group.")
def reclaim(
    files: tuple[str, ...],
    total: str | None,
    profile: str,
    k_value: float,
    output: str,
    server: ServerAddress | None,
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
    if server is not None:
        wanted = name if "/" in name else f"default/{name}"
        asked = {"job": wanted, **_flags(in_quota_priority=in_quota_priority, forbid_take_back=forbid_take_back)}
        text = QueueClient(server).post("/v1/reclaim", asked, output="both")
        return 0 if show_answer(text, output)["possible"] else 1
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
@server_options
@_reclaim_options
@click.option("--rounds", type=click.IntRange(1, 10_000), default=100, help="Stop after so many.")
def simulate_command(
    files: tuple[str, ...],
    total: str | None,
    profile: str,
    k_value: float,
    output: str,
    server: ServerAddress | None,
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
    if server is not None:
        asked = {"rounds": rounds, **_flags(in_quota_priority=in_quota_priority, forbid_take_back=forbid_take_back)}
        text = QueueClient(server).post("/v1/simulate", asked, output="both")
        return 1 if show_answer(text, output)["looped"] else 0
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


def _flags(*, in_quota_priority: bool, forbid_take_back: bool) -> dict[str, bool]:
    """What the command line asks for beyond what a server is set to."""
    flags = {"queuePriorityInQuotaReclaim": in_quota_priority, "forbidTakeBack": forbid_take_back}
    return {name: True for name, given in flags.items() if given}


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
    try:
        return None if text is None else parse_total(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--total") from error


def _read(files: Sequence[str]) -> QueueObjects:
    if not files:
        raise click.UsageError("give files with the objects, or --server")
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


def _sizes(texts: Sequence[str]) -> dict[str, str]:
    """CONTAINER.RESOURCE=AMOUNT by target."""
    pairs = [text.partition("=") for text in texts]
    for text, (target, equals, _) in zip(texts, pairs, strict=True):
        if not equals or target.rpartition(".")[2] not in ("cpu", "memory"):
            raise click.BadParameter(
                f"{text!r} is not CONTAINER.cpu=AMOUNT or CONTAINER.memory=AMOUNT", param_hint="--set"
            )
    return {target: amount for target, _, amount in pairs}
