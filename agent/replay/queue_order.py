"""Records of kind `queue_order`: which of two queues goes first, flag off and on, and both ways round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.model.queue import ResourceQuantities
from agent.queues.options import Profile, QueueOptions
from agent.queues.order import Contender, compare
from agent.replay.context import Context, JSONObject
from agent.replay.queue_records import quantities, queue_share


def replay(record_input: JSONObject, context: Context) -> Mapping[str, Any]:
    """Result, deciding rule, and the result with the sides exchanged."""
    left, right = (_contender(record_input[side]) for side in ("left", "right"))
    total = quantities(record_input["total"])
    off = QueueOptions(profile=Profile.parse(context.profile))
    return {
        "off": _answer(left, right, total, off),
        "on": _answer(left, right, total, replace(off, queue_priority_in_quota_reclaim=True)),
    }


def _contender(record: JSONObject) -> Contender:
    victims = tuple(map(quantities, record.get("victims") or ()))
    return Contender(queue_share(record["queue"]), quantities(record.get("job")), victims)


def _answer(left: Contender, right: Contender, total: ResourceQuantities, options: QueueOptions) -> Mapping[str, Any]:
    order = compare(left, right, total, options)
    swapped = compare(right, left, total, options)
    return {
        "result": -1 if order.left_first else 1,
        "swapped": -1 if swapped.left_first else 1,
        "step": order.rule.value,
    }
