from __future__ import annotations

import json
import zlib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.queues.ledger import Reservation
from agent.queues.ledger_format import encode_reservation
from agent.queues.ledger_lines import encode_head, encode_line, read_journal
from agent.queues.resize_growth import CPUMemory

ONE = Reservation("prod/p1", "leaf", True, CPUMemory(2000, 0), CPUMemory(1000, 0), 1e9)
TWO = Reservation("prod/p2", "leaf", False, CPUMemory(500, 1 << 30), CPUMemory(0, 0), 1e9 + 0.5)

Line = tuple[str, Reservation | None]
amounts = st.builds(CPUMemory, st.integers(0, 10**6), st.integers(0, 2**50))
reservations = st.builds(
    Reservation, st.text(), st.text(), st.booleans(), amounts, amounts, st.floats(0, 1e10, allow_nan=False)
)
histories = st.lists(st.tuples(st.sampled_from("abc"), st.none() | reservations), max_size=6)


def after(lines: list[Line]) -> dict[str, Reservation]:
    """What a history comes to."""
    kept = dict[str, Reservation]()
    for uid, each in lines:
        if each is None:
            kept.pop(uid, None)
        else:
            kept[uid] = each
    return kept


def journal(together: Mapping[str, Reservation], added: list[Line]) -> bytes:
    """A journal that was written anew with some reservations, and got lines since."""
    written = b"".join(encode_line(uid, each) for uid, each in together.items())
    return encode_head(len(together)) + written + b"".join(encode_line(*each) for each in added)


def schema_1(*lines: Line) -> bytes:
    documents = [{"uid": uid, "reservation": None if each is None else encode_reservation(each)} for uid, each in lines]
    return b"".join(json.dumps(each).encode() + b"\n" for each in documents)


@given(st.dictionaries(st.sampled_from("abc"), reservations), histories)
def test_what_is_written_is_read(together: dict[str, Reservation], added: list[Line]) -> None:
    content = read_journal(journal(together, added))
    assert (content.found, content.damage, content.torn) == (after([*together.items(), *added]), (), False)


@given(st.dictionaries(st.sampled_from("ab"), reservations, max_size=2), histories, st.data())
def test_a_flipped_bit_is_found(together: dict[str, Reservation], added: list[Line], data: st.DataObject) -> None:
    whole = bytearray(journal(together, added))
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    assert read_journal(bytes(whole)).damage


def test_every_single_bit_of_a_journal_is_guarded() -> None:
    whole = journal({"a": ONE}, [("b", TWO), ("a", None)])
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        content = read_journal(bytes(flipped))
        number = whole[: bit // 8].count(b"\n") + 1
        assert content.damage[0].startswith(f"line {number}: "), (bit, content.damage)


@given(st.dictionaries(st.sampled_from("ab"), reservations, max_size=2), histories, st.data())
def test_a_journal_that_is_cut_short_is_found_damaged_or_reads_as_it_was_before_the_lines_that_are_gone(
    together: dict[str, Reservation], added: list[Line], data: st.DataObject
) -> None:
    whole = journal(together, added)
    content = read_journal(whole[: data.draw(st.integers(0, len(whole) - 1))])
    moments = [after([*together.items(), *added[:count]]) for count in range(len(added) + 1)]
    assert content.damage or content.found in moments


def test_a_line_that_lacks_nothing_but_its_end_counts() -> None:
    content = read_journal(journal({}, [("a", ONE), ("b", TWO)])[:-1])
    assert (content.found, content.damage, content.torn) == ({"a": ONE, "b": TWO}, (), False)


def test_an_added_line_that_is_cut_short_is_torn_and_no_damage() -> None:
    content = read_journal(journal({"a": ONE}, [("b", TWO)])[:-5])
    assert (content.found, content.damage, content.torn) == ({"a": ONE}, (), True)


@pytest.mark.parametrize("cut", [0, 5, len(encode_head(2)), len(encode_head(2)) + 40])
def test_lines_that_were_written_together_are_all_there_or_missed(cut: int) -> None:
    assert read_journal(journal({"a": ONE, "b": TWO}, [])[:cut]).damage[-1].endswith("is missing or cut short")


def test_a_damaged_line_does_not_take_the_others_along() -> None:
    whole = journal({}, [("a", ONE), ("b", ONE), ("c", TWO)])
    content = read_journal(whole.replace(b'"uid":"b"', b'"uid":"z"'))
    assert content.found == {"a": ONE, "c": TWO}
    assert content.damage == ("line 3: its checksum is that of something else",)


def test_a_journal_without_checksums_is_still_read() -> None:
    content = read_journal(schema_1(("a", ONE), ("b", TWO), ("a", None)))
    assert (content.found, content.damage, content.torn) == ({"b": TWO}, (), False)


@pytest.mark.parametrize(
    "change",
    [(b'"reservation": null', b'"reservation": 0'), (b"true", b"tree"), (b'"uid"', b'"uic"'), (b'"uid"', b'"more": 1, "uid"')],
)  # fmt: skip
def test_a_line_without_checksum_that_says_something_else_is_damage(change: tuple[bytes, bytes]) -> None:
    damaged = schema_1(("a", ONE), ("b", None)).replace(*change)
    assert read_journal(damaged).damage


def test_a_schema_of_the_future_is_named() -> None:
    text = encode_head(0).partition(b" ")[2].rstrip(b"\n").replace(b"2", b"3")
    assert read_journal(b"%08x %s\n" % (zlib.crc32(text), text)).damage == (
        "line 1: schema 3 is not known to this version, 2 is",
    )
