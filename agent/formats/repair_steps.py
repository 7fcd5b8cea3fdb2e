"""Repair steps for people and programs: what `pinfold checkpoint repair` prints, whoever made the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agent.policy.repair_plan import RepairPlan


def encode_steps(plan: RepairPlan) -> list[dict[str, Any]]:
    """The stable form of `-o json`, one object per step. pods: UIDs. cpus: a list in kernel form."""
    return [
        {"rule": str(step.rule), "safe": step.safe, "text": step.text, "pods": list(step.pods), "cpus": str(step.cpus)}
        for step in plan.steps
    ]


def render_steps(steps: Sequence[Mapping[str, Any]], *, applied: bool = False) -> Iterator[str]:
    """One line per step of `encode_steps`; "nothing to repair" where there is none."""
    for step in steps:
        done = "done " if applied else "safe " if step["safe"] else "waits"
        yield f"{done} {step['rule']}: {step['text']}"
    if not steps:
        yield "nothing to repair"
