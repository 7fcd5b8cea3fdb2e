"""cpu_manager_state: verdicts by the stated rules, the content as a value, every version there and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.checkpoint import MAX_BYTES, CheckpointError, Verdict
from agent.formats.cpu_checkpoint import CPUVersion, cpu_state, read_cpu_checkpoint, write_cpu_checkpoint
from agent.formats.go_dump import fnv1a, string_checksum
from agent.model.cpuset import MAX_CPUS, CPUSet
from agent.model.state import CPUState

STATE = CPUState(
    CPUSet.parse("0,6-7"),
    {"uid-a": {"app": CPUSet.parse("1-2"), "log": CPUSet.parse("3")}},
    {"uid-a": CPUSet.parse("1-3")},
)
NO_BUBBLES = CPUState(STATE.default, STATE.entries)
IDS = {("uid-a", "app"): "cid-1", ("uid-a", "log"): "cid-2"}


def file(version: CPUVersion, state: CPUState = STATE, **changes: Any) -> bytes:
    """A genuine file, then edited; None removes a field."""
    fields = {**json.loads(write_cpu_checkpoint("static", state, version, IDS)), **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not None}).encode()


@pytest.mark.parametrize("version", [CPUVersion.V3, CPUVersion.V4, CPUVersion.V4_INTERIM])
def test_the_versions_with_bubbles_bring_everything_back(version: CPUVersion) -> None:
    assert cpu_state(read_cpu_checkpoint(file(version))) == STATE


def test_v1_and_v2_load_to_the_same_state_without_bubbles() -> None:
    known = {container_id: key for key, container_id in IDS.items()}
    assert cpu_state(read_cpu_checkpoint(file(CPUVersion.V1)), known) == NO_BUBBLES
    assert cpu_state(read_cpu_checkpoint(file(CPUVersion.V2))) == NO_BUBBLES


names = st.text(min_size=1, max_size=6)
sets = st.builds(CPUSet, st.integers(0, (1 << 300) - 1))


@given(
    sets,
    st.dictionaries(names, st.dictionaries(names, sets, min_size=1, max_size=3), max_size=3),
    st.dictionaries(names, sets),
)
def test_any_state_comes_back_from_any_version_that_holds_it(
    default: CPUSet, entries: dict[str, dict[str, CPUSet]], pods: dict[str, CPUSet]
) -> None:
    state = CPUState(default, entries, pods)
    for version in (CPUVersion.V3, CPUVersion.V4, CPUVersion.V4_INTERIM):
        reading = read_cpu_checkpoint(write_cpu_checkpoint("static", state, version))
        assert (reading.verdict, cpu_state(reading)) == (Verdict.VALID, state)
    reading = read_cpu_checkpoint(write_cpu_checkpoint("static", state, CPUVersion.V2))
    assert (reading.verdict, cpu_state(reading)) == (Verdict.VALID, CPUState(default, entries))


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        pytest.param(file(CPUVersion.V2, checksum=0), Verdict.UNVERIFIED, id="checksum zero"),
        pytest.param(file(CPUVersion.V2, checksum=None), Verdict.UNVERIFIED, id="no checksum"),
        pytest.param(file(CPUVersion.V4, checksum=0), Verdict.VALID, id="no inline checksum, data verified"),
        pytest.param(file(CPUVersion.V4, dataChecksum=0), Verdict.VALID, id="inline verified, data not"),
        pytest.param(file(CPUVersion.V4, checksum=0, dataChecksum=0), Verdict.UNVERIFIED, id="neither"),
        pytest.param(file(CPUVersion.V4, checksum=1), Verdict.DAMAGED, id="inline wrong, data right"),
        pytest.param(file(CPUVersion.V4, dataChecksum=1), Verdict.DAMAGED, id="inline right, data wrong"),
        pytest.param(file(CPUVersion.V2, dataChecksum=1), Verdict.DAMAGED, id="a checksum of data that is not there"),
        pytest.param(file(CPUVersion.V2, defaultCpuSet="0,5-7"), Verdict.DAMAGED, id="a set edited"),
        pytest.param(
            file(CPUVersion.V3, podEntries={"uid-a": {"cpuSet": "1-4"}}), Verdict.DAMAGED, id="a bubble edited"
        ),
        pytest.param(file(CPUVersion.V2, entries={}), Verdict.DAMAGED, id="entries emptied"),
        pytest.param(
            file(CPUVersion.V2, NO_BUBBLES, checksum=0, defaultCpuSet="0, 6-7"), Verdict.DAMAGED, id="a blank in a set"
        ),
        pytest.param(
            file(CPUVersion.V3, checksum=0, podEntries={"u": {"cpuSet": "x"}}), Verdict.DAMAGED, id="bubble no set"
        ),
        pytest.param(file(CPUVersion.V2, checksum=-1), Verdict.UNREADABLE, id="checksum negative"),
        pytest.param(file(CPUVersion.V2, checksum="1"), Verdict.UNREADABLE, id="checksum a string"),
        pytest.param(file(CPUVersion.V2, checksum=1.0), Verdict.UNREADABLE, id="checksum a float"),
        pytest.param(file(CPUVersion.V2, checksum=1 << 64), Verdict.UNREADABLE, id="checksum beyond uint64"),
        pytest.param(file(CPUVersion.V2, entries=[]), Verdict.UNREADABLE, id="entries a list"),
        pytest.param(
            file(CPUVersion.V2, entries={"a": "1", "b": {"c": "2"}}), Verdict.UNREADABLE, id="V1 and V2 mixed"
        ),
        pytest.param(file(CPUVersion.V4, checksum=0, dataChecksum=0, data="{"), Verdict.UNREADABLE, id="data cut off"),
        pytest.param(file(CPUVersion.V4, data="{"), Verdict.DAMAGED, id="data cut off and its checksum says so"),
        pytest.param(b"{}", Verdict.UNREADABLE, id="neither policy nor checksum"),
        pytest.param(b'{"checksum":0}', Verdict.UNVERIFIED, id="a checksum alone"),
        pytest.param(b" " * (MAX_BYTES + 1), Verdict.UNREADABLE, id="too large"),
    ],
)
def test_verdicts(data: bytes, verdict: Verdict) -> None:
    reading = read_cpu_checkpoint(data)
    assert reading.verdict is verdict
    assert (reading.fields is None) == (verdict in (Verdict.DAMAGED, Verdict.UNREADABLE))
    assert bool(reading.why) == (reading.fields is None)


def test_a_checksum_is_compared_in_all_of_its_64_bits() -> None:
    fields = json.loads(file(CPUVersion.V2))
    assert read_cpu_checkpoint(file(CPUVersion.V2, checksum=fields["checksum"] + (1 << 32))).verdict is Verdict.DAMAGED


@pytest.mark.parametrize(("name", "version"), [("V1", CPUVersion.V1), ("V2", CPUVersion.V2)])
def test_a_checksum_over_the_versioned_type_name_is_accepted(name: str, version: CPUVersion) -> None:
    kind = "map[string]string" if name == "V1" else "map[string]map[string]string"
    entries = "map[cid-1:1-2 cid-2:3]" if name == "V1" else "map[uid-a:map[app:1-2 log:3]]"
    own = fnv1a(
        f"(*state.CPUManagerCheckpoint{name}){{PolicyName:(string)static DefaultCPUSet:(string)0,6-7 "
        f"Entries:({kind}){entries} Checksum:(checksum.Checksum)0}}"
    )
    reading = read_cpu_checkpoint(file(version, checksum=own))
    assert (reading.verdict, reading.version) == (Verdict.VALID, name.lower())


def test_entries_null_are_not_entries_absent() -> None:
    data = write_cpu_checkpoint("static", CPUState(CPUSet.parse("0-3")), CPUVersion.V2)
    assert read_cpu_checkpoint(data.replace(b',"checksum"', b',"entries":null,"checksum"')).verdict is Verdict.DAMAGED


def test_unknown_fields_of_a_later_version_are_passed_over() -> None:
    reading = read_cpu_checkpoint(file(CPUVersion.V4, epoch=9, layout={"a": [1]}))
    assert reading.verdict is Verdict.VALID
    assert cpu_state(reading) == STATE


def test_the_newest_form_counts_and_a_difference_inline_is_told() -> None:
    assert not read_cpu_checkpoint(file(CPUVersion.V4)).inline_differs
    edited = read_cpu_checkpoint(file(CPUVersion.V4, checksum=0, defaultCpuSet="0-7"))
    assert edited.inline_differs
    assert cpu_state(edited) == STATE


def test_an_unparsable_set_in_the_form_that_does_not_count_does_not_matter() -> None:
    assert read_cpu_checkpoint(file(CPUVersion.V4, checksum=0, defaultCpuSet="x")).verdict is Verdict.VALID


def test_v1_without_the_runtimes_list_names_the_container() -> None:
    with pytest.raises(CheckpointError, match="cid-1"):
        cpu_state(read_cpu_checkpoint(file(CPUVersion.V1)))


def test_writing_v1_needs_every_id() -> None:
    with pytest.raises(CheckpointError, match="uid-a/app has no id"):
        write_cpu_checkpoint("static", STATE, CPUVersion.V1)


def test_a_cpu_that_no_machine_has_is_valid_in_the_file_but_gives_no_state() -> None:
    data = json.dumps({"policyName": "static", "defaultCpuSet": f"0-{MAX_CPUS}", "checksum": 0}).encode()
    reading = read_cpu_checkpoint(data)
    assert reading.verdict is Verdict.UNVERIFIED
    with pytest.raises(CheckpointError, match=f"CPU {MAX_CPUS} is beyond"):
        cpu_state(reading)


def test_a_file_without_content_gives_no_state() -> None:
    with pytest.raises(CheckpointError, match="damaged: checksum 1 does not match"):
        cpu_state(read_cpu_checkpoint(file(CPUVersion.V2, checksum=1)))


def test_names_that_html_would_mind_are_escaped_twice_in_data() -> None:
    state = CPUState(CPUSet.parse("0"), {"<&>": {"c": CPUSet.parse("1")}})
    data = write_cpu_checkpoint("static", state, CPUVersion.V4)
    assert b'"\\u003c\\u0026\\u003e":{"c"' in data
    assert b'\\"\\\\u003c\\\\u0026\\\\u003e\\":' in data
    fields = json.loads(data)
    assert string_checksum(fields["data"]) == fields["dataChecksum"]
    assert cpu_state(read_cpu_checkpoint(data)) == state
