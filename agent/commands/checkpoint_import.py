"""`pinfold checkpoint import`: take a node over from the kubelet."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from agent.commands.options import config_options, parse_flags
from agent.commands.state_files import read_file
from agent.config import load
from agent.errors import BadInputError
from agent.formats.cpu_checkpoint import ContainerKey
from agent.formats.kubelet_export import ALLOCATED_FILE, CPU_FILE, MEMORY_FILE
from agent.formats.kubelet_import import read_files, record_pods
from agent.formats.pods import decode_pod
from agent.formats.repair_steps import encode_steps, render_steps
from agent.model.pod import Pod
from agent.model.state import Epoch, State
from agent.node.state_store import StateStore
from agent.node_rules import rules_here
from agent.policy.repair import plan_repair
from agent.policy.repair_plan import Holders


@click.command("import")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--pods", "pods_path", type=click.Path(exists=True, path_type=Path), help="The kubelet's pods: GET /pods as JSON."
)
@click.option(
    "--containers",
    "containers_path",
    type=click.Path(exists=True, path_type=Path),
    help='For a CPU file of V1: the runtime\'s containers, [{"ID", "UID", "Name"}].',
)
@click.option("--accept-unverified", is_flag=True, help="Take files that carry no checksum.")
@click.option("--apply", "apply_", is_flag=True, help="Write the state; without it only say what would be.")
@click.option("--sysroot", "root", type=click.Path(path_type=Path), help="A captured machine: directory or archive.")
@config_options
def import_command(
    directory: Path,
    pods_path: Path | None,
    containers_path: Path | None,
    accept_unverified: bool,
    apply_: bool,
    root: Path | None,
    config: Path | None,
    flags: tuple[str, ...],
) -> int:
    """Take the grants of a kubelet's state directory over into ours, so that no running pod moves.

    Every version of the files is read, their checksums and the pair of them are checked, and what does not fit this
    machine and configuration is listed by the rules of docs/state.md. With --pods the pods are known by name at once, static
    pods included. Stop the kubelet's own managers first (cpuManagerPolicy and memoryManagerPolicy none).

    \b
    Examples:
      pinfold checkpoint import /var/lib/kubelet --pods pods.json
      pinfold checkpoint import /var/lib/kubelet --pods pods.json --apply
    """
    values = load(config, parse_flags(flags)).config
    rules = rules_here(values, root)
    files = {
        name: read_file(directory / name)
        for name in (CPU_FILE, MEMORY_FILE, ALLOCATED_FILE)
        if (directory / name).is_file()
    }
    if not files:
        raise BadInputError(f"{directory}: none of the kubelet's state files in it", hint=f"expected: {CPU_FILE}")
    imported = read_files(files, _containers(containers_path), accept_unverified=accept_unverified)
    records, uids = record_pods(imported, _pods(pods_path))
    for note in imported.notes:
        click.echo(f"note: {note}")
    change = rules.change_from(None)
    plan = plan_repair(rules.managers, imported.grants, records, change)
    for line in render_steps(encode_steps(plan)):
        click.echo(line)
    if apply_:
        # the safe steps are made; the others wait for `repair --apply`, the pods marked
        marked = {uid: replace(record, degraded=plan.marks.get(uid)) for uid, record in records.items()}
        policy = plan.policy_until_applied(change)
        _write(Path(values.state.directory), State(_epoch(None), 1, "", policy, plan.safe, marked, uids))
        click.echo(f"written: {values.state.directory}, {len(records)} pods known by name")
    return 1 if plan.waiting else 0


def _epoch(before: Epoch | None) -> Epoch:
    return Epoch.after(before, now_millis=time.time_ns() // 1_000_000, nonce=secrets.token_hex(8))


def _write(directory: Path, state: State) -> None:
    with StateStore(directory) as store:
        before = store.load(datetime.now(UTC)).state
        if before is not None:
            if before.pods or Holders.of(before.grants, {}).order:
                raise BadInputError(
                    f"{store.path}: pods hold something in it already",
                    hint="an import begins a state; move this one away if it is not wanted any more",
                )
            state = replace(state, epoch=_epoch(before.epoch))
        store.save(state)


def _pods(path: Path | None) -> list[Pod]:
    if path is None:
        return []
    document = _json(path)
    items = document.get("items") if isinstance(document, dict) else document
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadInputError(f"{path}: not a list of pods", hint="give what the kubelet answers to GET /pods")
    return [decode_pod(item) for item in items]


def _containers(path: Path | None) -> dict[str, ContainerKey]:
    if path is None:
        return {}
    try:
        return {str(each["ID"]): (str(each["UID"]), str(each["Name"])) for each in _json(path)}
    except (TypeError, KeyError) as error:
        raise BadInputError(
            f"{path}: not a list of containers", hint='[{"ID": ..., "UID": ..., "Name": ...}]'
        ) from error


def _json(path: Path) -> Any:
    try:
        return json.loads(read_file(path))
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: not JSON: {error}") from error
