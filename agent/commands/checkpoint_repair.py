"""`pinfold checkpoint repair`: what does not fit in the state, and putting it right: by the running agent, or in its file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from agent.commands.options import config_options, parse_flags
from agent.commands.state_files import read_state
from agent.config import load
from agent.errors import BadInputError
from agent.formats.repair_steps import encode_steps, render_steps
from agent.node.state_store import NAME, StateStore
from agent.node_rules import rules_here
from agent.policy.repair import plan_repair
from agent.policy.repair_apply import with_all_steps
from agent.serve.control_client import AgentNotRunningError, ControlClient

Steps = Sequence[Mapping[str, Any]]
_WHERE = {"state.directory", "control.socket"}  # which agent and which state; all other keys are its configuration


@click.command("repair")
@click.option("--plan", "plan_only", is_flag=True, help="Only list the steps (the default).")
@click.option("--apply", "apply_", is_flag=True, help="Make all steps, those that touch running pods too.")
@click.option("--sysroot", "root", type=click.Path(path_type=Path), help="A captured machine: directory or archive.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the answer.")
@config_options
def repair_command(
    plan_only: bool, apply_: bool, root: Path | None, output: str, config: Path | None, flags: tuple[str, ...]
) -> int:
    """Compare the state with this machine and configuration, pod by pod, by the rules of docs/state.md.

    Safe steps the agent makes by itself. --apply makes all of them: an agent that runs on this state directory makes them at
    once, without one the file is changed. With --set, --plan says what another configuration would mean for the pods that are
    here. Exit status 1 where steps wait for --apply.

    \b
    Examples:
      pinfold checkpoint repair --plan
      pinfold checkpoint repair --plan --set reservedSystemCPUs=0-3
      pinfold checkpoint repair --apply
    """
    if plan_only and apply_:
        raise click.UsageError("--plan and --apply exclude each other")
    steps = None
    if root is None and not _supposes(flags):
        steps = _by_agent(config, flags, apply_=apply_)
    elif apply_ and root is None and _by_agent(config, flags, apply_=False) is not None:
        raise BadInputError(
            "an agent runs on this state, by its own configuration: beside it --set is for --plan",
            hint="change its configuration, then: pinfold config reload, pinfold checkpoint repair --apply",
        )
    if steps is None:
        steps = _in_file(config, flags, root, apply_=apply_)
    if output == "json":
        click.echo(json.dumps({"applied": apply_, "steps": steps}, indent=2))
    else:
        for line in render_steps(steps, applied=apply_):
            click.echo(line)
    return 0 if apply_ or all(step["safe"] for step in steps) else 1


def _supposes(flags: tuple[str, ...]) -> bool:
    """Whether the question is about another configuration than the one that is in the files."""
    return not parse_flags(flags).keys() <= _WHERE


def _by_agent(config: Path | None, flags: tuple[str, ...], *, apply_: bool) -> Steps | None:
    """The steps as the running agent sees and makes them; None where none runs on this state directory."""
    values = load(config, parse_flags(flags)).config
    directory = Path(values.state.directory).resolve()
    try:
        answer = ControlClient(Path(values.control.socket)).call(
            "repair", {"directory": str(directory), "apply": apply_}
        )
    except AgentNotRunningError:
        return None
    steps: Steps | None = answer["steps"]
    return steps


def _in_file(config: Path | None, flags: tuple[str, ...], root: Path | None, *, apply_: bool) -> Steps:
    values = load(config, parse_flags(flags)).config
    rules = rules_here(values, root)
    directory = Path(values.state.directory)
    # before a store is opened, which makes the directory
    if not any((directory / name).exists() for name in (NAME, f"{NAME}.previous")):
        raise BadInputError(
            f"{directory}: no state to repair",
            hint="the agent begins one at its first start; another directory: --set state.directory=DIRECTORY",
        )
    if not apply_:
        state = read_state(directory / NAME)
        return encode_steps(plan_repair(rules.managers, state.grants, state.pods, rules.change_of(state)))
    with StateStore(directory) as store:
        loaded = store.load(datetime.now(UTC)).state
        if loaded is None:
            raise BadInputError(f"{store.path}: no state to repair", hint="the agent begins one at its start")
        plan = plan_repair(rules.managers, loaded.grants, loaded.pods, rules.change_of(loaded))
        after = with_all_steps(loaded, plan, rules.change_of(loaded))
        if after is not loaded:
            store.save(after)
        return encode_steps(plan)
