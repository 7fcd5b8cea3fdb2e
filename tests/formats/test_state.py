"""Our own state file: exact there and back, and every kind of damage told apart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.state import (
    MAX_BYTES,
    SCHEMA,
    DamagedStateError,
    NewerStateError,
    StateEncoder,
    UnreadableStateError,
    decode,
    encode,
)
from agent.model.state import Epoch, EpochError, PodPhase, State
from tests.states import epochs, small_state, states


def forged(payload: object, schema: int = SCHEMA, inner_schema: int | None = None) -> bytes:
    """A file with a right digest over whatever payload."""
    if isinstance(payload, dict):
        payload = {**payload, "schema": schema if inner_schema is None else inner_schema}
    text = json.dumps(payload).encode()
    header = {"schema": schema, "bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()}
    return json.dumps(header, separators=(",", ":")).encode() + b"\n" + text + b"\n"


def payload_of(state: State) -> dict[str, object]:
    parsed: dict[str, object] = json.loads(encode(state).split(b"\n")[1])
    return parsed


@given(states)
def test_a_state_comes_back_exactly_with_the_pods_in_their_order(state: State) -> None:
    back = decode(encode(state))
    assert back == state
    assert list(back.pods) == list(state.pods)
    assert encode(back) == encode(state)


@given(st.data())
def test_an_encoder_that_has_written_before_writes_the_same_bytes(data: st.DataObject) -> None:
    encoder = StateEncoder()
    first, second = data.draw(states), data.draw(states)
    mixed = replace(second, pods={**first.pods, **second.pods})
    for state in (first, mixed, second):
        assert encoder.encode(state) == encode(state)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_is_always_damage(place: int, change: int) -> None:
    data = bytearray(encode(small_state()))
    data[place % len(data)] ^= change
    with pytest.raises(DamagedStateError):
        decode(bytes(data))


def test_a_file_cut_off_anywhere_is_damaged() -> None:
    data = encode(small_state())
    for length in range(len(data)):
        with pytest.raises(DamagedStateError):
            decode(data[:length])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\0" * 4096, id="zeros, as after a power cut"),
        pytest.param(b'{"policyName":"static","defaultCpuSet":"0-3","checksum":1}', id="another program's file"),
        pytest.param(encode(small_state()) + b"\n", id="one byte more"),
        pytest.param(b" " + encode(small_state()), id="a byte before"),
        pytest.param(forged({}, schema=SCHEMA, inner_schema=SCHEMA + 1), id="header and payload of two schemas"),
        pytest.param(forged({}, schema=SCHEMA + 1, inner_schema=SCHEMA), id="header raised by hand"),
        pytest.param(b"x" * (MAX_BYTES + 1), id="larger than allowed"),
    ],
)
def test_what_cannot_be_trusted_is_damaged(data: bytes) -> None:
    with pytest.raises(DamagedStateError):
        decode(data)


def drop(name: str) -> Callable[[dict[str, object]], None]:
    def change(payload: dict[str, object]) -> None:
        del payload[name]

    return change


def put(name: str, value: object) -> Callable[[dict[str, object]], None]:
    def change(payload: dict[str, object]) -> None:
        payload[name] = value

    return change


@pytest.mark.parametrize(
    ("change", "path"),
    [
        pytest.param(drop("generation"), "generation", id="a field is missing"),
        pytest.param(put("comment", 1), "comment", id="a field is unknown"),
        pytest.param(put("generation", True), "generation", id="true is no number"),
        pytest.param(put("generation", -1), "generation", id="negative"),
        pytest.param(put("epoch", "yesterday"), "yesterday", id="no epoch"),
        pytest.param(put("pods", {}), "pods", id="pods not a list"),
        pytest.param(put("cpu", {"default": "3-1", "entries": {}, "pod_entries": {}}), "cpu.default", id="no CPU list"),
        pytest.param(
            put("cpu", {"default": "99999999", "entries": {}, "pod_entries": {}}), "cpu.default", id="CPU id too large"
        ),
        pytest.param(
            put("memory", {"machine": {"-1": {}}, "entries": {}, "pod_entries": {}}), "memory.machine.-1", id="no node"
        ),
    ],
)
def test_intact_bytes_that_the_schema_does_not_allow_are_refused_naming_the_field(
    change: Callable[[dict[str, object]], None], path: str
) -> None:
    payload = payload_of(small_state())
    change(payload)
    with pytest.raises(UnreadableStateError, match=path):
        decode(forged(payload))


def test_an_unknown_field_anywhere_in_a_pod_is_refused() -> None:
    payload = payload_of(small_state())
    payload["pods"][0]["first"]["colour"] = "red"  # type: ignore[index]
    with pytest.raises(UnreadableStateError, match=r"pods\[0\].first.colour"):
        decode(forged(payload))


def test_one_pod_listed_twice_is_refused() -> None:
    payload = payload_of(small_state())
    payload["pods"] *= 2  # type: ignore[operator]
    with pytest.raises(UnreadableStateError, match="uid-0 is there twice"):
        decode(forged(payload))


def test_json_too_deep_to_parse_is_unreadable_not_a_crash() -> None:
    text = b"[" * 200_000
    header = b'{"schema":%d,"bytes":%d,"sha256":"%s"}\n' % (
        SCHEMA,
        len(text),
        hashlib.sha256(text).hexdigest().encode(),
    )
    with pytest.raises(UnreadableStateError):
        decode(header + text + b"\n")


def test_a_newer_file_gives_what_can_be_read_of_it() -> None:
    state = small_state(7)
    payload = payload_of(state)
    payload["moon_phase"] = "waning"
    payload["pods"][0]["mood"] = "good"  # type: ignore[index]
    with pytest.raises(NewerStateError) as caught:
        decode(forged(payload, schema=SCHEMA + 3))
    assert caught.value.schema == SCHEMA + 3
    assert caught.value.state == state


@pytest.mark.parametrize("cut", [0, 20])
def test_a_newer_file_of_which_nothing_is_understood_is_still_newer_even_when_torn(cut: int) -> None:
    data = forged({"all": "different"}, schema=SCHEMA + 1)
    with pytest.raises(NewerStateError) as caught:
        decode(data[: len(data) - cut])
    assert caught.value.state is None


@given(epochs, st.integers(0, (1 << 48) - 1), st.integers(0, (1 << 64) - 1))
def test_a_new_epoch_comes_after_the_old_one_as_value_and_as_text(epoch: Epoch, now: int, nonce: int) -> None:
    if epoch.number < (1 << 48) - 1:
        after = Epoch.after(epoch, now_millis=now, nonce=f"{nonce:016x}")
        assert after > epoch
        assert str(after) > str(epoch)
    assert Epoch.parse(str(epoch)) == epoch


@pytest.mark.parametrize("text", ["", "1", "00000000000g-0000000000000000", "000000000001-000000000000000", " "])
def test_an_epoch_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(EpochError):
        Epoch.parse(text)


def test_the_file_grows_with_what_is_held_only() -> None:
    assert len(encode(small_state(pods=0))) < 700
    terminal = replace(small_state().pods["uid-0"], phase=PodPhase.TERMINAL)
    assert len(encode(replace(small_state(pods=0), pods={"uid-0": terminal}))) < 1200
