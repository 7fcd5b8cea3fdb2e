from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.fields import FieldError
from agent.queues.ledger import Ledger, Reservation
from agent.queues.ledger_format import decode_ledger, encode_ledger
from agent.queues.resize_admission import CPUMemory

amounts = st.builds(CPUMemory, st.integers(0, 10**9), st.integers(0, 2**62))
reservations = st.builds(
    Reservation, st.text(), st.text(), st.booleans(), amounts, amounts, st.floats(0, 1e12, allow_nan=False)
)


@given(st.dictionaries(st.text(), reservations, max_size=5).map(Ledger))
def test_a_ledger_survives_a_restart(ledger: Ledger) -> None:
    assert decode_ledger(json.loads(json.dumps(encode_ledger(ledger)))) == ledger


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema": 2}, "schema"),
        ({"extra": 1}, "extra"),
        ({"reservations": []}, "reservations"),
        ({"reservations": {"u": {}}}, "reservations.u.pod"),
        ({"reservations": {str(uid): None for uid in range(2)}}, "reservations.0"),
    ],
)
def test_a_wrong_ledger_is_refused_by_field(change: dict[str, Any], told: str) -> None:
    with pytest.raises(FieldError, match=told):
        decode_ledger({**encode_ledger(Ledger()), **change})
