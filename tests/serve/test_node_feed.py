"""How many changes are kept for watchers: so many, and so many bytes, with any number of pods."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.serve.node_feed import KEPT_BYTES, KEPT_CHANGES, NodeFeed
from tests.serve.views import empty_view


@pytest.mark.parametrize(
    ("size", "kept"),
    [
        pytest.param(10, KEPT_CHANGES, id="small ones by number"),
        pytest.param(20_000, KEPT_BYTES // 21_000, id="large ones by size"),
        pytest.param(2 * KEPT_BYTES, 1, id="the newest in any case"),
    ],
)
def test_kept_changes_have_a_bound(size: int, kept: int) -> None:
    feed, view = NodeFeed("n1"), empty_view()
    for number in range(KEPT_CHANGES + 20):
        feed.show(replace(view, problems=(str(number), "x" * size)))
        newest = feed.number
    changes = [feed.after(number) for number in range(newest)]
    events = [each.event for each in changes if each is not None]
    assert changes[-1] is not None
    assert events == [each.event for each in changes[-len(events) :] if each is not None], "the newest, without a gap"
    assert len(events) == pytest.approx(kept, abs=1)
    assert len(events) == 1 or sum(map(len, events)) <= KEPT_BYTES
