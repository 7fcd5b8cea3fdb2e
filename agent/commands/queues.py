"""`pinfold queues`: queue accounting on files, or asked of a server."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import click

from agent.commands.queues_subject import Subject, subject_options, warn
from agent.errors import BadInputError
from agent.formats.pods import encode_pod
from agent.model.pod import Pod
from agent.queues.encode import encode_outcome, encode_proposal, encode_resize, encode_snapshot, encode_step
from agent.queues.jobs import Job
from agent.queues.reclaim_search import propose
from agent.queues.resize_admission import ResizeOptions, decide_resize
from agent.queues.resize_bounds import QueueCharge
from agent.queues.simulation import simulate
from agent.queues.snapshot import take_snapshot, unallocated
from agent.queues.status_watch import share_charge
from agent.queues.text import fair_share_lines, reclaim_lines, resize_lines, simulation_lines, status_lines
from agent.queues.violations import violations
from agent.queues.what_if import resized
from agent.queues.workloads import SCHEDULER_NAME


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


@command.command()
@subject_options()
@click.option("--queue", "name", help="Show instead how the fair share of this queue came about.")
def status(subject: Subject, name: str | None) -> int:
    """Show every queue: allocated, quota, fair share, limit.

    \b
    Examples:
      pinfold queues status cluster.yaml
      pinfold queues status cluster.yaml --queue vision
      pinfold queues status --server http://127.0.0.1:9558
      kubectl get queues,podgroups,pods,nodes -A -o json | pinfold queues status -
    """
    if subject.client is not None:
        path, query = ("/v1/queues", {}) if name is None else ("/v1/queue", {"name": name})
        subject.show_answer(subject.client.get(path, **query, output="both"))
        return 0
    snapshot = take_snapshot(subject.objects(), subject.options, subject.total)
    if name is not None:
        if name not in snapshot.tree.queues:
            raise BadInputError(
                f"queue {name} is not in the files, or was refused", hint="leave --queue away to see all"
            )
        steps = snapshot.fair.derivation(snapshot.tree, name)
        subject.show(
            lambda: [encode_step(step) for step in steps],
            lambda: fair_share_lines(snapshot.tree, snapshot.shares, snapshot.fair, name),
        )
        return 0
    found = list(violations(snapshot.shares, subject.options.profile))
    subject.show(lambda: encode_snapshot(snapshot, found), lambda: status_lines(snapshot, found))
    return 0


@command.command("check-resize")
@subject_options(only_files=("strict", "scheduler_name"))
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
def check_resize(subject: Subject, name: str, sizes: tuple[str, ...], strict: bool, scheduler_name: str) -> int:
    """Say whether a pod may grow in place, and if not which queue stands in the way. Exit status 1 if not.

    What a queue holds is the sum of the given pods; with no pod of any queue but the one to resize, what Queue.status says.

    \b
    Examples:
      pinfold queues check-resize cluster.yaml --pod prod/web --set main.cpu=4 --set main.memory=8Gi
      kubectl get pod web -n prod -o json | pinfold queues check-resize - --pod prod/web --set main.cpu=4 --server http://127.0.0.1:9558
    """
    if subject.client is not None:
        wanted = _sizes(sizes)
        question: dict[str, object] = {"pod": _with_namespace(name), "set": wanted}
        if subject.files:
            before = _find_pod(subject.objects().pods, name)
            question = {"oldPod": encode_pod(before), "newPod": encode_pod(resized(before, wanted))}
        text = subject.client.post("/v1/check-resize", question, output="both")
        return 0 if subject.show_answer(text)["allowed"] else 1
    objects = subject.objects()
    old = _find_pod(objects.pods, name)
    alone = len(objects.pods) == 1
    snapshot = take_snapshot(replace(objects, pods=()) if alone else objects, subject.options, subject.total)
    charges: Mapping[str, QueueCharge] | None = None
    if not alone:
        charges = {each: share_charge(share) for each, share in snapshot.shares.items()}
    resize = ResizeOptions(scheduler_name=scheduler_name, block_upsize_on_bounded_queues=strict)
    answer = decide_resize(old, resized(old, _sizes(sizes)), snapshot.directory, resize, charges)
    warn(snapshot)
    subject.show(lambda: encode_resize(answer), lambda: resize_lines(answer))
    return 0 if answer.allowed else 1


@command.command()
@subject_options(reclaim=True)
@click.option("--job", "name", required=True, metavar="[NAMESPACE/]PODGROUP", help="The waiting pod group.")
def reclaim(subject: Subject, name: str) -> int:
    """Say who would be reclaimed for a waiting job, and why not the others. Exit status 1 if it would not start.

    \b
    Examples:
      pinfold queues reclaim cluster.yaml --job research/train-7 --in-quota-priority
    """
    if subject.client is not None:
        asked = {"job": _with_namespace(name), **subject.flags()}
        text = subject.client.post("/v1/reclaim", asked, output="both")
        return 0 if subject.show_answer(text)["possible"] else 1
    snapshot = subject.snapshot()
    job = _find_job(snapshot.jobs, name)
    free = unallocated(snapshot.shares, snapshot.total)
    proposal = propose(job, snapshot.jobs, snapshot.shares, snapshot.total, free, subject.options)
    subject.show(lambda: encode_proposal(job.name, proposal), lambda: reclaim_lines(job.name, proposal))
    return 0 if proposal.possible else 1


@command.command("simulate")
@subject_options(reclaim=True)
@click.option("--rounds", type=click.IntRange(1, 10_000), default=100, help="Stop after so many.")
def simulate_command(subject: Subject, rounds: int) -> int:
    """Let the scheduler's decisions run, the cluster taken as one node. Exit status 1 if they go round in circles.

    \b
    Examples:
      pinfold queues simulate cluster.yaml --in-quota-priority
    """
    if subject.client is not None:
        text = subject.client.post("/v1/simulate", {"rounds": rounds, **subject.flags()}, output="both")
        return 1 if subject.show_answer(text)["looped"] else 0
    snapshot = subject.snapshot()
    outcome = simulate(snapshot.tree, snapshot.jobs, snapshot.total, subject.options, rounds)
    counts = Counter(back.kind.value for event in outcome.events for back in event.take_backs)
    subject.show(lambda: encode_outcome(outcome, counts), lambda: simulation_lines(snapshot.tree, outcome, counts))
    return 1 if outcome.looped else 0


def _with_namespace(name: str) -> str:
    return name if "/" in name else f"default/{name}"


def _find_pod(pods: Sequence[Pod], name: str) -> Pod:
    wanted = _with_namespace(name)
    found = next((pod for pod in pods if pod.namespaced_name == wanted), None)
    if found is None:
        raise BadInputError(
            f"pod {wanted} is not in the files", hint="give the pod's object, with its status, in a file"
        )
    return found


def _find_job(jobs: Sequence[Job], name: str) -> Job:
    wanted = _with_namespace(name)
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
