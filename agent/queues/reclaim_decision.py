"""The whole reclaim decision for one pending job: gate, victim filter, validation, and our guard against take-back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.model.queue import QueueShares
from agent.queues.derivation import Rule, Step
from agent.queues.options import QueueOptions
from agent.queues.reclaim import can_reclaim, keeps_victim, reclaimable
from agent.queues.reclaim_scenario import Reclaimer, Victims
from agent.queues.reclaim_verdict import Verdict, explain
from agent.queues.take_back import TakeBack, take_backs


@dataclass(frozen=True, slots=True)
class ReclaimDecision:
    """Whether the reclaimer gets exactly these victims. steps: every rule asked, the last one decided.

    scenario: None where gate or filter said no. take_backs: filled where the option forbids them, or for information.
    """

    allowed: bool
    steps: tuple[Step, ...]
    gate: Verdict
    filtered: Mapping[str, Verdict]
    scenario: Verdict | None = None
    take_backs: tuple[TakeBack, ...] = ()


def filter_victims(
    shares: QueueShares, reclaimer: Reclaimer, queues: Iterable[str], options: QueueOptions
) -> dict[str, Verdict]:
    """The victim filter for each of these queues: who could be reclaimed, and why not the others."""
    return {queue: keeps_victim(shares, reclaimer, queue, options) for queue in queues}


def decide_reclaim(
    shares: QueueShares, reclaimer: Reclaimer, victims: Sequence[Victims], options: QueueOptions
) -> ReclaimDecision:
    """Gate, then filter, then validation; all must say yes. With `forbid_take_back` a scenario that a victim could undo
    at once is refused too.
    """
    gate = can_reclaim(shares, reclaimer, options)
    filtered = filter_victims(shares, reclaimer, (group.queue for group in victims), options)
    if not gate.allowed:
        return ReclaimDecision(False, gate.steps, gate, filtered)
    refused = next((verdict for verdict in filtered.values() if not verdict.allowed), None)
    if refused is not None:
        return ReclaimDecision(False, gate.steps + refused.steps, gate, filtered)
    scenario = reclaimable(shares, reclaimer, victims, options)
    steps = gate.steps + tuple(explain(taken, options) for taken in scenario.taken) + scenario.steps
    if not scenario.allowed:
        return ReclaimDecision(False, steps, gate, filtered, scenario)
    found = tuple(take_backs(shares, reclaimer, victims, scenario, options))
    if found and options.forbid_take_back:
        steps += tuple(map(_take_back_step, found))
        return ReclaimDecision(False, steps, gate, filtered, scenario, found)
    return ReclaimDecision(True, steps, gate, filtered, scenario, found)


def _take_back_step(found: TakeBack) -> Step:
    values = (("way", found.kind.value), ("by", ", ".join(dict.fromkeys(found.by))))
    return Step(Rule.NO_TAKE_BACK, found.queue, False, values=values)
