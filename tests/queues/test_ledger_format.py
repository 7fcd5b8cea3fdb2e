from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.fields import FieldError
from agent.queues.ledger import Reservation
from agent.queues.ledger_format import decode_reservation, encode_reservation
from agent.queues.resize_growth import CPUMemory

amounts = st.builds(CPUMemory, st.integers(0, 10**9), st.integers(0, 2**62))
reservations = st.builds(
    Reservation, st.text(), st.text(), st.booleans(), amounts, amounts, st.floats(0, 1e12, allow_nan=False)
)


@given(reservations)
def test_a_reservation_survives_a_restart(reservation: Reservation) -> None:
    assert decode_reservation(json.loads(json.dumps(encode_reservation(reservation))), "") == reservation


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"extra": 1}, "extra"),
        ({"pod": 1}, "pod"),
        ({"target": {"cpu_millis": "1"}}, "target.cpu_millis"),
        ({"expires": "soon"}, "expires"),
    ],
)
def test_a_wrong_reservation_is_refused_by_field(change: dict[str, Any], told: str) -> None:
    one = Reservation("prod/p", "leaf", True, CPUMemory(1, 2), CPUMemory(), 1.0)
    with pytest.raises(FieldError, match=told):
        decode_reservation({**encode_reservation(one), **change}, "")
