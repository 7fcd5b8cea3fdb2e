from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.queues.ledger import Ledger, Reservation
from agent.queues.ledger_format import encode_reservation
from agent.queues.ledger_lines import encode_head, encode_line
from agent.queues.resize_growth import CPUMemory
from agent.serve.accountant_store import AccountantStore, Kept, StoreError
from tests.serve.accountants import report

ONE = Reservation("prod/p1", "leaf", True, CPUMemory(2000, 0), CPUMemory(1000, 0), 1e9)


def saved(directory: Path, *ledgers: Ledger) -> None:
    with AccountantStore(directory) as store:
        store.load_ledger()
        for ledger in ledgers:
            ended = dict.fromkeys(store.reservations.keys() - ledger.reservations.keys())
            store.save({**ledger.reservations, **ended})


def loaded(directory: Path) -> tuple[Ledger, Kept]:
    with AccountantStore(directory) as store:
        return store.load_ledger()


uids = st.sampled_from(["a", "b", "c", "d"])
ledgers = st.lists(
    st.dictionaries(uids, st.builds(lambda n: replace(ONE, expires=float(n)), st.integers(0, 9))), max_size=8
)


@settings(max_examples=20)
@given(ledgers)
def test_the_last_ledger_saved_is_the_one_loaded(
    tmp_path_factory: pytest.TempPathFactory, history: list[dict[str, Reservation]]
) -> None:
    directory = tmp_path_factory.mktemp("store")
    saved(directory, *map(Ledger, history))
    assert loaded(directory) == (Ledger(history[-1] if history else {}), Kept.WHOLE)


def test_a_journal_stays_short(tmp_path: Path) -> None:
    saved(tmp_path, *(Ledger({"a": replace(ONE, expires=float(number))}) for number in range(1500)))
    assert (tmp_path / "ledger.jsonl").read_bytes().count(b"\n") < 1100
    assert loaded(tmp_path)[0].reservations["a"].expires == 1499


def test_a_line_cut_short_by_a_crash_was_never_told(tmp_path: Path) -> None:
    saved(tmp_path, Ledger({"a": ONE}))
    with (tmp_path / "ledger.jsonl").open("ab") as stream:
        stream.write(b'{"uid": "b", "reserv')
    assert loaded(tmp_path) == (Ledger({"a": ONE}), Kept.WHOLE)
    saved(tmp_path, Ledger({"a": ONE, "c": ONE}))
    assert loaded(tmp_path) == (Ledger({"a": ONE, "c": ONE}), Kept.WHOLE)


@pytest.mark.parametrize("damage", [b"nonsense\n", b"{}\n", b"\xff\xff\n", b"[" * 9000 + b"\n", b"x" * 20_000 + b"\n"])
def test_a_damaged_journal_is_kept_aside_and_counts_as_lost(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    saved(tmp_path, Ledger({"a": ONE}))
    journal = tmp_path / "ledger.jsonl"
    head, *lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(damaged := head + damage + b"".join(lines))
    assert loaded(tmp_path) == (Ledger({"a": ONE}), Kept.DAMAGED)
    assert f"{journal}: damaged: line 2: " in caplog.text
    assert (tmp_path / "ledger.jsonl.damaged").read_bytes() == damaged
    assert loaded(tmp_path) == (Ledger({"a": ONE}), Kept.WHOLE)


def test_an_emptied_journal_counts_as_lost(tmp_path: Path) -> None:
    saved(tmp_path, Ledger({"a": ONE}))
    (tmp_path / "ledger.jsonl").write_bytes(b"")
    assert loaded(tmp_path) == (Ledger(), Kept.DAMAGED)


def test_a_journal_without_checksums_is_read_and_gets_them(tmp_path: Path) -> None:
    line = json.dumps({"uid": "a", "reservation": encode_reservation(ONE)})
    (tmp_path / "ledger.jsonl").write_text(f"{line}\n")
    assert loaded(tmp_path) == (Ledger({"a": ONE}), Kept.WHOLE)
    assert (tmp_path / "ledger.jsonl").read_bytes() == encode_head(1) + encode_line("a", ONE)
    assert loaded(tmp_path) == (Ledger({"a": ONE}), Kept.WHOLE)


def test_one_accountant_has_the_directory(tmp_path: Path) -> None:
    with AccountantStore(tmp_path), pytest.raises(StoreError, match="another accountant"), AccountantStore(tmp_path):
        pass
    assert loaded(tmp_path) == (Ledger(), Kept.NONE)


def test_reports_are_kept_by_node_and_unreadable_ones_passed_over(tmp_path: Path) -> None:
    first, second = report(3, {"p1": 1.5}), report(7, {}, node_name="n2")
    with AccountantStore(tmp_path) as store:
        for each in (first, second):
            store.save_report(each)
        assert sorted(store.load_reports(), key=lambda each: each.node) == [first, second]
        store.forget("n1")
        store.forget("n9")
        (tmp_path / "nodes" / "odd.json").write_text("{")
        assert list(store.load_reports()) == [second]


def test_no_node_name_becomes_a_path(tmp_path: Path) -> None:
    with AccountantStore(tmp_path / "inside") as store:
        store.save_report(report(1, {}, node_name="../../out"))
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=f"{tmp_path}/file"), AccountantStore(tmp_path / "file"):
        pass
