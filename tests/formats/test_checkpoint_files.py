"""Files of every version in checkpoints/, and some that a real kubelet wrote: reader and writer agree byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agent.formats import state as pinfold_state
from agent.formats.allocated_pods import allocations, read_allocated_pods, write_allocated_pods
from agent.formats.checkpoint import Reading, Verdict
from agent.formats.cpu_checkpoint import CPUVersion, cpu_state, read_cpu_checkpoint, write_cpu_checkpoint
from agent.formats.memory_checkpoint import (
    MemoryVersion,
    memory_state,
    read_memory_checkpoint,
    write_memory_checkpoint,
)
from tests.shared import SHARED

FOLDER = Path(__file__).parents[2] / "checkpoints"
FILES = sorted(path for path in FOLDER.glob("*/*/*_state") if path.parent.parent.name != "pinfold_state")
SAMPLES = SHARED / "samples" / "kubelet"
READERS: dict[str, Callable[[bytes], Reading]] = {
    "cpu_manager_state": read_cpu_checkpoint,
    "memory_manager_state": read_memory_checkpoint,
    "allocated_pods_state": read_allocated_pods,
    "actuated_pods_state": read_allocated_pods,
}


def written_again(name: str, version: str, reading: Reading, folder: Path) -> bytes:
    fields = reading.content()
    if name == "cpu_manager_state":
        known = folder / "containers.json"
        containers = (
            {each["ID"]: (each["UID"], each["Name"]) for each in json.loads(known.read_text())}
            if known.exists()
            else {}
        )
        ids = {key: container_id for container_id, key in containers.items()}
        return write_cpu_checkpoint(fields["policyName"], cpu_state(reading, containers), CPUVersion(version), ids)
    if name == "memory_manager_state":
        return write_memory_checkpoint(fields["policyName"], memory_state(reading), MemoryVersion(version))
    return write_allocated_pods(allocations(reading))


def test_there_is_a_file_of_every_version() -> None:
    versions = {(path.parent.parent.name, path.parent.name) for path in FILES}
    assert versions == (
        {("cpu_manager", version.value) for version in CPUVersion}
        | {("memory_manager", version.value) for version in MemoryVersion}
        | {("allocated_pods", "v1")}
    )
    assert {path.parent.name for path in FOLDER.glob("pinfold_state/*/pinfold_state")} == {
        str(schema) for schema in range(1, pinfold_state.SCHEMA + 1)
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.name}-{path.parent.name}")
def test_a_file_means_what_is_beside_it_and_is_written_again_byte_for_byte(path: Path) -> None:
    version = path.parent.name
    reading = READERS[path.name](path.read_bytes())
    assert reading.verdict is Verdict.VALID
    assert reading.version == version.removesuffix("-interim")
    assert json.loads(json.dumps(reading.fields)) == json.loads((path.parent / "state.json").read_text())
    assert written_again(path.name, version, reading, path.parent) == path.read_bytes()


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.name}-{path.parent.name}")
def test_its_damaged_twin_is_damaged_and_says_nothing(path: Path) -> None:
    reading = READERS[path.name](path.with_name(f"{path.name}.damaged").read_bytes())
    assert (reading.verdict, reading.fields) == (Verdict.DAMAGED, None)
    assert "does not match" in reading.why


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.name}-{path.parent.name}")
def test_a_file_cut_off_anywhere_is_unreadable(path: Path) -> None:
    data = path.read_bytes()
    for length in range(0, len(data), 7):
        assert READERS[path.name](data[:length]).verdict is Verdict.UNREADABLE


def test_our_own_files_of_every_schema_load_and_their_twins_do_not() -> None:
    newest = (FOLDER / "pinfold_state" / str(pinfold_state.SCHEMA) / "pinfold_state").read_bytes()
    state = pinfold_state.decode(newest)
    assert pinfold_state.encode(state) == newest
    first = pinfold_state.decode((FOLDER / "pinfold_state" / "1" / "pinfold_state").read_bytes())
    assert first == replace(state, pods={uid: replace(each, fingerprint="") for uid, each in state.pods.items()})
    for twin in FOLDER.glob("pinfold_state/*/*.damaged"):
        with pytest.raises(pinfold_state.DamagedStateError):
            pinfold_state.decode(twin.read_bytes())


@pytest.mark.shared
@pytest.mark.parametrize("name", READERS)
def test_files_of_a_real_kubelet_verify_and_are_written_again_byte_for_byte(name: str) -> None:
    found = sorted(SAMPLES.glob(f"*/{name}"))
    assert found
    for path in found:
        reading = READERS[name](path.read_bytes())
        assert reading.verdict is Verdict.VALID, path
        assert written_again(name, reading.version, reading, path.parent) == path.read_bytes(), path
