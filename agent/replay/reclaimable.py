"""Records of kind `reclaimable`: can-reclaim gate, levelled queues, victim filter and validation, flag off and on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent.model.queue import QueueShares
from agent.queues.options import Profile, QueueOptions
from agent.queues.reclaim import can_reclaim, keeps_victim, reclaimable
from agent.queues.reclaim_scenario import Reclaimer, Victims
from agent.queues.reclaim_verdict import level_queues
from agent.replay.context import Context, JSONObject
from agent.replay.queue_records import quantities, queue_shares


def replay(record_input: JSONObject, context: Context) -> Mapping[str, Any]:
    """One scenario with the flag off and on."""
    shares = queue_shares(record_input["queues"])
    wanted = record_input["reclaimer"]
    reclaimer = Reclaimer(wanted["queue"], quantities(wanted["resources"]), wanted["preemptible"])
    victims = [Victims(group["queue"], tuple(map(quantities, group["resources"]))) for group in record_input["victims"]]
    off = QueueOptions(
        saturation_multiplier=record_input.get("saturationMultiplier", 1.0), profile=Profile.parse(context.profile)
    )
    return {
        "canReclaimResources": can_reclaim(shares, reclaimer, off).allowed,
        "leveled": [_leveled(shares, reclaimer.queue, group.queue) for group in victims],
        "off": _answers(shares, reclaimer, victims, off),
        "on": _answers(shares, reclaimer, victims, replace(off, queue_priority_in_quota_reclaim=True)),
    }


def _leveled(shares: QueueShares, reclaimer_queue: str, victim_queue: str) -> Mapping[str, str | None]:
    level = level_queues(shares, reclaimer_queue, victim_queue)
    return {
        "victim": victim_queue,
        "reclaimerSide": level.reclaimer_side.queue.name if level else None,
        "victimSide": level.victim_side.queue.name if level else None,
    }


def _answers(
    shares: QueueShares, reclaimer: Reclaimer, victims: Sequence[Victims], options: QueueOptions
) -> Mapping[str, Any]:
    return {
        "filterVictim": {
            group.queue: keeps_victim(shares, reclaimer, group.queue, options).allowed for group in victims
        },
        "reclaimable": reclaimable(shares, reclaimer, victims, options).allowed,
    }
