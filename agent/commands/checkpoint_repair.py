"""`pinfold checkpoint repair`: what does not fit in a stored state, and putting it right while the agent is stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click

from agent.commands.options import config_options
from agent.commands.state_files import read_file, read_rules
from agent.errors import BadInputError
from agent.formats.state import DamagedStateError, NewerStateError, UnreadableStateError, decode
from agent.model.state import State
from agent.node.state_store import NAME, StateStore
from agent.policy.plan import first_grant
from agent.policy.repair import plan_repair
from agent.policy.repair_plan import Change, RepairPlan


@click.command("repair")
@click.option("--plan", "plan_only", is_flag=True, help="Only list the steps (the default).")
@click.option("--apply", "apply_", is_flag=True, help="Make all steps, those that touch running pods too.")
@click.option(
    "--tolerance-mib", type=click.IntRange(min=0), default=64, show_default=True, help="Memory drift to bear."
)
@click.option("--sysroot", "root", type=click.Path(path_type=Path), help="A captured machine: directory or archive.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the answer.")
@config_options
def repair_command(
    plan_only: bool,
    apply_: bool,
    tolerance_mib: int,
    root: Path | None,
    output: str,
    config: Path | None,
    flags: tuple[str, ...],
) -> int:
    """Compare the stored state with this machine and configuration, pod by pod, by the rules of docs/state.md.

    Safe steps the agent makes by itself at its start. --apply makes all of them; the agent must be stopped. Exit status 1
    where steps wait for --apply.

    \b
    Examples:
      pinfold checkpoint repair --plan
      pinfold checkpoint repair --apply
    """
    if plan_only and apply_:
        raise click.UsageError("--plan and --apply exclude each other")
    rules = read_rules(config, flags, root)
    directory = Path(rules.config.state.directory)
    tolerance = tolerance_mib << 20
    if apply_:
        with StateStore(directory) as store:
            state = store.load(datetime.now(UTC)).state
            if state is None:
                raise BadInputError(f"{store.path}: no state to repair", hint="the agent begins one at its start")
            plan = plan_repair(rules.managers, state.grants, state.pods, Change(state.policy, rules.policy, tolerance))
            if plan.steps:
                store.save(applied(replace(state, policy=rules.policy), plan))
    else:
        state = _stored(directory / NAME)
        plan = plan_repair(rules.managers, state.grants, state.pods, Change(state.policy, rules.policy, tolerance))
    if output == "json":
        click.echo(json.dumps({"applied": apply_, "steps": steps_as_json(plan)}, indent=2))
    else:
        print_steps(plan)
    return 1 if plan.waiting and not apply_ else 0


def applied(state: State, plan: RepairPlan) -> State:
    """The state once all steps are made. A pod whose CPUs were exchanged has the new ones as its first grant."""
    touched = {uid for step in plan.waiting for uid in step.pods}
    pods = {
        uid: replace(
            record,
            degraded=plan.marks_after.get(uid),
            first=first_grant(plan.whole, uid) if uid in touched else record.first,
        )
        for uid, record in state.pods.items()
    }
    return replace(state, generation=state.generation + 1, grants=plan.whole, pods=pods)


def print_steps(plan: RepairPlan) -> None:
    """One line per step; "nothing to do" where there is none."""
    for step in plan.steps:
        click.echo(f"{'safe' if step.safe else 'waits'}  {step.rule}: {step.text}")
    if not plan.steps:
        click.echo("nothing to repair")


def steps_as_json(plan: RepairPlan) -> list[dict[str, object]]:
    """The stable form of `-o json`."""
    return [
        {"rule": step.rule, "safe": step.safe, "text": step.text, "pods": list(step.pods), "cpus": str(step.cpus)}
        for step in plan.steps
    ]


def _stored(path: Path) -> State:
    try:
        return decode(read_file(path))
    except (DamagedStateError, UnreadableStateError, NewerStateError) as error:
        raise BadInputError(f"{path}: {error}", hint=error.hint) from error
