"""Records of kind `fair_share`: the fair share of every queue of a tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.queues.encode import quantities as by_resource
from agent.queues.fair_share import divide_cluster
from agent.queues.options import Profile, QueueOptions
from agent.queues.tree import build
from agent.replay.context import Context, JSONObject
from agent.replay.queue_records import quantities, queue_shares


def replay(record_input: JSONObject, context: Context) -> Mapping[str, Any]:
    """Queues that are not part of a tree get no entry, as upstream."""
    shares = queue_shares(record_input["queues"])
    tree, _ = build(share.queue for share in shares.values())
    options = QueueOptions(k_value=record_input.get("kValue", 1.0), profile=Profile.parse(context.profile))
    answer = divide_cluster(tree, shares, quantities(record_input["total"]), options)
    return {"fairShare": {name: by_resource(share) for name, share in answer.shares.items()}}
