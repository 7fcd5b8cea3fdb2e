"""`pinfold checkpoint`: show, verify, import, export, repair, from the command line."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from agent.cli import main
from agent.formats.state import decode, encode
from agent.model.state import FirstGrant, State
from agent.node.state_store import StateStore
from tests.node.sysfs_machines import FIXTURES
from tests.shared import SHARED
from tests.states import small_state

CHECKPOINTS = Path(__file__).parents[2] / "checkpoints"
MACHINE = FIXTURES / "two-socket-smt"  # 32 CPUs
SETTINGS = ("--sysroot", str(MACHINE), "--set", "cpuManagerPolicy=static", "--set", "reservedSystemCPUs=0")


def run(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of `pinfold checkpoint ARGS`."""
    with pytest.raises(SystemExit) as exit_info:
        main(["checkpoint", *map(str, args)])
    output = capsys.readouterr()
    assert isinstance(exit_info.value.code, int)
    return exit_info.value.code, output.out, output.err


def test_verify_says_one_line_per_file_and_the_exit_status_is_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    good = CHECKPOINTS / "cpu_manager" / "v4" / "cpu_manager_state"
    assert run(capsys, "verify", good) == (0, f"{good}: valid (cpu v4)\n", "")
    status, out, _ = run(capsys, "verify", good, good.with_name("cpu_manager_state.damaged"))
    assert status == 1
    assert "damaged (cpu v4): dataChecksum" in out


def test_verify_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "verify", "-o", "json", *CHECKPOINTS.glob("*/*/*_state"))
    assert status == 0
    assert {each["verdict"] for each in json.loads(out)["files"]} == {"valid"}


@pytest.mark.parametrize("path", sorted(CHECKPOINTS.glob("*/*/*_state")), ids=lambda path: "-".join(path.parts[-3:-1]))
def test_show_prints_every_kind_of_file(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "show", path)
    assert status == 0
    assert len(out.splitlines()) > 3
    status, out, _ = run(capsys, "show", "-o", "json", path)
    shown = json.loads(out)[0]
    beside = path.with_name("state.json")
    if beside.exists():
        assert shown["state"] == json.loads(beside.read_text())
    assert set(shown) == {"file", "manager", "version", "verdict", "why", "note", "state"}


def test_show_of_a_damaged_file_shows_the_verdict_only(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "show", CHECKPOINTS / "memory_manager" / "v1" / "memory_manager_state.damaged")
    assert status == 1
    assert out.count("\n") == 1


def test_a_file_is_known_by_its_content_where_its_name_says_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, path in enumerate(sorted(CHECKPOINTS.glob("*/*/*_state"))):
        shutil.copy(path, tmp_path / f"file-{number}")
    status, out, _ = run(capsys, "verify", *sorted(tmp_path.iterdir()))
    assert (status, out.count(": valid (")) == (0, len(list(tmp_path.iterdir())))


def test_an_empty_directory_and_a_missing_file_are_wrong_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run(capsys, "verify", tmp_path)
    assert status == 2
    assert "no state file in it" in err
    assert run(capsys, "show", tmp_path / "absent")[0] == 2


def stored(directory: Path, state: State) -> None:
    directory.mkdir(exist_ok=True)
    (directory / "pinfold_state").write_bytes(encode(state))


def kubelet_directory(folder: Path) -> Path:
    folder.mkdir()
    file = '{"policyName":"static","defaultCpuSet":"0,3-31","entries":{"uid-a":{"app":"1-2"}}}'
    (folder / "cpu_manager_state").write_text(file)
    return folder


def test_import_says_first_and_writes_only_when_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubelet, target = kubelet_directory(tmp_path / "kubelet"), tmp_path / "state"
    common = ("import", kubelet, *SETTINGS, "--set", f"state.directory={target}")
    status, _, err = run(capsys, *common)
    assert status == 2
    assert "carries no checksum" in err
    status, out, _ = run(capsys, *common, "--accept-unverified")
    assert (status, target.exists()) == (0, False)
    assert "pod uid uid-a has no record" in out
    pods = tmp_path / "pods.json"
    pods.write_text(
        json.dumps(
            {"items": [{"metadata": {"name": "web", "uid": "uid-a"}, "spec": {"containers": [{"name": "app"}]}}]}
        )
    )
    status, out, _ = run(capsys, *common, "--accept-unverified", "--pods", pods, "--apply")
    assert status == 0
    assert "1 pods known by name" in out
    state = decode((target / "pinfold_state").read_bytes())
    assert str(state.grants.cpu.entries["uid-a"]["app"]) == "1-2"
    assert state.pods["uid-a"].pod.namespaced_name == "default/web"
    status, _, err = run(capsys, *common, "--accept-unverified", "--apply")
    assert status == 2
    assert "pods hold something in it already" in err


def test_export_gives_back_what_import_took(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubelet, target, back = kubelet_directory(tmp_path / "kubelet"), tmp_path / "state", tmp_path / "back"
    back.mkdir()
    run(capsys, "import", kubelet, *SETTINGS, "--set", f"state.directory={target}", "--accept-unverified", "--apply")
    status, out, _ = run(capsys, "export", "--kubelet-version", "1.37", "--state", target)
    assert (status, list(back.iterdir())) == (0, [])
    assert "not written: cpu_manager_state" in out
    status, out, _ = run(capsys, "export", "--kubelet-version", "1.37", "--state", target, "--to", back)
    assert status == 0
    assert run(capsys, "verify", back)[0] == 0
    status, out, _ = run(capsys, "show", "-o", "json", back / "cpu_manager_state")
    assert json.loads(out)[0]["state"]["entries"] == {"uid-a": {"app": "1-2"}}
    status, _, err = run(capsys, "export", "--kubelet-version", "1.37", "--state", target, "--to", back)
    assert status == 2
    assert "is there already" in err
    assert run(capsys, "export", "--kubelet-version", "1.37", "--state", target, "--to", back, "--force")[0] == 0


def test_export_of_a_damaged_state_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pinfold_state").write_bytes(encode(small_state())[:-5])
    status, _, err = run(capsys, "export", "--kubelet-version", "1.37", "--state", tmp_path)
    assert status == 2
    assert "cut off" in err


def test_repair_lists_what_differs_and_makes_it_when_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = small_state(pods=3)  # made for 16 CPUs; pod uid-2 holds CPU 3
    pods = {uid: replace(record, first=FirstGrant.of(state.grants, uid)) for uid, record in state.pods.items()}
    stored(tmp_path, replace(state, pods=pods))
    common = ("repair", *SETTINGS, "--set", f"state.directory={tmp_path}")
    status, out, _ = run(capsys, *common, "--plan")
    assert status == 0
    assert "safe  cpus-added: CPUs 16-31 are new" in out
    status, out, _ = run(capsys, *common, "--set", "reservedSystemCPUs=0,3", "-o", "json")
    assert status == 1
    waiting = [step for step in json.loads(out)["steps"] if not step["safe"]]
    assert [(step["rule"], step["pods"], step["cpus"]) for step in waiting] == [("reserved-held", ["uid-2"], "3")]
    status, out, _ = run(capsys, *common, "--set", "reservedSystemCPUs=0,3", "--apply")
    assert status == 0
    after = decode((tmp_path / "pinfold_state").read_bytes())
    assert "3" not in str(after.grants.cpu.entries["uid-2"]["main"]).split(",")
    assert after.pods["uid-2"].first.cpus == after.grants.cpu.entries["uid-2"]
    assert run(capsys, *common, "--set", "reservedSystemCPUs=0,3")[1] == "nothing to repair\n"


def test_repair_of_a_state_that_an_agent_holds_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored(tmp_path, small_state())
    with StateStore(tmp_path):
        status, _, err = run(capsys, "repair", "--apply", *SETTINGS, "--set", f"state.directory={tmp_path}")
    assert status == 3
    assert "held by another pinfold" in err


@pytest.mark.shared
def test_a_real_kubelets_directory_is_verified_and_taken_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubelet = SHARED / "samples" / "kubelet" / "vm-v2-2numa-smt"
    assert run(capsys, "verify", kubelet)[0] == 0
    pods = ("--pods", kubelet / "pods.json")
    run(capsys, "import", kubelet, *pods, *SETTINGS, "--set", f"state.directory={tmp_path}", "--apply")
    state = decode((tmp_path / "pinfold_state").read_bytes())
    names = {uid: record.pod.name for uid, record in state.pods.items()}
    assert names == {"3a2bd2c8cc066a29b4c7de8c9e49b6e4": "gu-2cpu", "a390ef1528a2bb5b5f896984f7583aa6": "gu-two"}
    assert state.manifest_uids["default/gu-two"] == "a390ef1528a2bb5b5f896984f7583aa6"
