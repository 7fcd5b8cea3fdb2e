"""The agent as a process: manifests in, grants out, over restarts and kills."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from agent.serve.control_client import RemoteError
from tests.agents import TWO_SOCKETS, Agent, pod_text, running
from tests.kube.servers import wait_until


def test_pods_come_and_go_with_their_files(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.manifest("db", pod_text("db", "2"))
        agent.manifest("web", pod_text("web"))
        agent.until(lambda status: len(status["pods"]) == 2)
        assert agent.cpus() == {"db": "1,17"}
        agent.remove("db")
        status = agent.until(lambda status: len(status["pods"]) == 1)
        assert status["cpus"]["shared"] == "0-31"
        assert agent.stop() == 0
        assert "all pins stay" in agent.log()


def test_a_broken_file_is_named_and_the_rest_go_on(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.manifest("a", "kind: Pod\nmetadata: {name: [broken")
        agent.manifest("b", pod_text("b", "2"))
        status = agent.until(lambda status: len(status["pods"]) == 1 and bool(status["problems"]))
        assert "a.yaml" in status["problems"][0]
        assert status["ready"]


def test_a_half_written_edit_keeps_what_ran_from_the_file(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.manifest("db", pod_text("db", "2"))
        agent.until(lambda status: len(status["pods"]) == 1)
        agent.manifest("db", pod_text("db", "2")[:40])
        agent.until(lambda status: bool(status["problems"]))
        assert agent.cpus() == {"db": "1,17"}
        agent.manifest("db", pod_text("db", "2"))
        agent.until(lambda status: not status["problems"])
        assert agent.cpus() == {"db": "1,17"}


def test_two_manifests_with_one_uid_are_told_apart_by_name(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.manifest("a", pod_text("a", "2", uid="same"))
        agent.manifest("b", pod_text("b", "2", uid="same"))
        status = agent.until(lambda status: bool(status["refused"]))
        assert [(each["name"], each["reason"]) for each in status["refused"]] == [("b", "DuplicateUID")]
        assert "default/a" in status["refused"][0]["message"]
        assert agent.cpus() == {"a": "1,17"}


def test_a_pod_larger_than_the_machine_is_refused_with_the_numbers(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.manifest("huge", pod_text("huge", "64"))
        (refused,) = agent.until(lambda status: bool(status["refused"]))["refused"]
        assert refused["reason"] == "UnexpectedAdmissionError"
        assert "requested=64, available=31" in refused["message"]
        (answer,) = agent.control.call("explain", {"pod": "huge"})["pods"]
        assert "would fit: cpu 31 instead of 64" in answer["text"]


def test_a_pod_refused_for_lack_of_room_is_tried_again_when_something_is_freed(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.manifest("a", pod_text("a", "20"))
        agent.until(lambda status: len(status["pods"]) == 1)
        agent.manifest("b", pod_text("b", "20"))
        agent.until(lambda status: bool(status["refused"]))
        agent.remove("a")
        status = agent.until(lambda status: [pod["name"] for pod in status["pods"]] == ["b"])
        assert not status["refused"]


def test_what_an_api_server_would_refuse_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        text = pod_text("odd", "2").replace("limits:", "requests: {cpu: '3'}\n      limits:")
        agent.manifest("odd", text)
        (refused,) = agent.until(lambda status: bool(status["refused"]))["refused"]
        assert refused["reason"] == "InvalidPod"
        assert "requests[cpu]" in refused["message"]


def test_a_restart_continues_exactly(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        for name, cpu in (("a", "3"), ("b", "4"), ("c", "")):
            agent.manifest(name, pod_text(name, cpu))
        before = agent.until(lambda status: len(status["pods"]) == 3)
        state = (agent.state / "pinfold_state").read_bytes()
        agent.stop()
        agent.start()
        after = agent.status()
        assert (after["pods"], after["cpus"], after["epoch"]) == (before["pods"], before["cpus"], before["epoch"])
        assert (agent.state / "pinfold_state").read_bytes() == state


def test_kills_at_random_moments_lose_and_move_nothing(tmp_path: Path) -> None:
    """A short form of the kill loop; the long one is in tests/test_crash_loops.py."""
    rng = random.Random(7)
    with running(tmp_path) as agent:
        held: dict[str, str] = {}
        for round_number in range(6):
            name = f"p{round_number}"
            agent.manifest(name, pod_text(name, "2"))
            if rng.random() < 0.5:
                agent.until_pod(name)
            agent.kill()
            agent.start()
            agent.until_pod(name)
            now = agent.cpus()
            assert {pod: now[pod] for pod in held} == held
            held = now
        assert len(set(",".join(held.values()).split(","))) == 12


def test_a_second_agent_on_the_same_state_directory_is_refused(tmp_path: Path) -> None:
    with running(tmp_path / "one") as first:
        second = Agent(tmp_path / "two", {**first.config, "state": {"directory": str(first.state)}})
        (tmp_path / "two").mkdir()
        second.start(wait=False)
        assert second.process is not None
        assert first.process is not None
        assert second.process.wait(30) == 3
        assert str(first.state) in second.log()
        assert str(first.process.pid) in second.log()


def test_a_socket_of_a_live_process_is_refused_and_one_of_a_dead_one_taken_over(tmp_path: Path) -> None:
    with running(tmp_path / "one") as first:
        second = Agent(tmp_path / "two", {**first.config, "podResources": {"socket": str(first.socket)}})
        second.manifests.mkdir(parents=True)
        second.manifest("db", pod_text("db", "2"))
        second.start(wait=False)
        assert second.process is not None
        assert second.process.wait(30) == 3
        assert str(first.socket) in second.log()
        assert "admitted" not in second.log()
        assert not (second.state / "pinfold_state").exists()
        first.kill()
        second.start()
        second.stop()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"nonsense": 1}, "nonsense: unknown key"),
        ({"http": {"port": "many"}}, "http.port"),
        ({"reservedSystemCPUs": "99"}, "unknown CPU ID: 99"),
        ({"reservedSystemCPUs": "3-1"}, "invalid CPU list '3-1'"),
        ({"http": {"tls": {}}}, "http.tls: unknown key"),
        ({"cpuManagerPolicy": "dynamic"}, 'unknown policy: "dynamic"'),
        ({"node": {"root": "/nonexistent"}}, "/nonexistent"),
        ({"memoryManagerPolicy": "Static"}, "determined by Node Allocatable feature"),
        ({"enforcement": {"backend": "none", "parent": "../up"}}, None),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_wrong_configuration_ends_at_start_with_what_is_wrong(
    tmp_path: Path, config: dict[str, object], expected: str | None
) -> None:
    agent = Agent(tmp_path, {"node": {"root": str(TWO_SOCKETS)}, **config})
    agent.start(wait=False)
    assert agent.process is not None
    if expected is None:
        agent.until(lambda status: True)
        agent.stop()
        return
    assert agent.process.wait(30) in (2, 3)
    assert expected in agent.log()
    assert "hint:" in agent.log()
    assert "Traceback" not in agent.log()


def test_sighup_applies_what_can_change_live_and_names_what_needs_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.manifest("big", pod_text("big", "31"))
        agent.until(lambda status: len(status["pods"]) == 1)
        agent.remove("big")
        agent.until(lambda status: not status["pods"])
        agent.config["cpuManagerPolicyOptions"] = {"full-pcpus-only": "true"}
        agent.config["state"] = {"directory": str(tmp_path / "elsewhere")}
        agent.write_config()
        agent.hang_up()
        agent.manifest("odd", pod_text("odd", "3"))
        (refused,) = agent.until(lambda status: bool(status["refused"]))["refused"]
        assert refused["reason"] == "SMTAlignmentError"
        assert '"needs a restart"' in agent.log()
        assert '"state"' in agent.log()


def test_shorter_periods_count_from_the_reload_on(tmp_path: Path) -> None:
    def looking_every(seconds: float) -> dict[str, Any]:
        manifests = {"path": str(tmp_path / "manifests"), "periodSeconds": seconds}
        return {"sources": {"manifests": manifests}, "enforcement": {"backend": "none", "periodSeconds": seconds}}

    with running(tmp_path, **looking_every(3600.0)) as agent:
        agent.config |= looking_every(0.05)
        agent.write_config()
        agent.control.call("reload", {})
        agent.manifest("a", pod_text("a", "2"))
        agent.until_pod("a")


def test_sighup_during_the_start_is_a_reload_after_it(tmp_path: Path) -> None:
    agent = Agent(tmp_path, {"node": {"root": str(TWO_SOCKETS)}})
    agent.start(wait=False)
    try:
        wait_until((agent.state / "pinfold_state.pid").exists)  # the configuration is read, nothing is served yet
        agent.config["reservedSystemCPUs"] = "0-1"
        agent.write_config()
        agent.hang_up()
        agent.until(lambda status: status["cpus"]["reserved"] == "0-1")
    finally:
        agent.kill()


def test_a_reload_with_a_wrong_configuration_keeps_the_one_in_force(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.config["reservedSystemCPUs"] = "77"
        agent.write_config()
        agent.hang_up()
        status = agent.until(lambda status: not status["ready"])
        assert "unknown CPU ID: 77" in status["problems"][0]
        agent.config["reservedSystemCPUs"] = "0"
        agent.write_config()
        agent.hang_up()
        agent.until(lambda status: bool(status["ready"]))


def test_explain_names_what_is_no_text(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        with pytest.raises(RemoteError, match="not UTF-8 text"):
            agent.control.call("explain", {"manifest": "a: \ud800", "file": "a.yaml"})
        assert "Traceback" not in agent.log()


def test_exec_says_why_it_cannot(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        with pytest.raises(RemoteError, match=r"enforcement\.backend is none"):
            agent.control.call("exec-prepare", {"pod": "db", "container": "main"})
        with pytest.raises(RemoteError, match="unknown method"):
            agent.control.call("make-coffee", {})


def test_an_edit_of_anything_else_ends_the_pod_and_admits_a_new_one(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.manifest("db", pod_text("db", "2"))
        (old,) = agent.until(lambda status: len(status["pods"]) == 1)["pods"]
        agent.manifest("db", pod_text("db", "2", label="two"))
        (new,) = agent.until(lambda status: [p["uid"] for p in status["pods"]] not in ([], [old["uid"]]))["pods"]
        assert new["name"] == "db"
        assert agent.cpus() == {"db": "1,17"}


def test_pause_holds_over_a_restart_and_ends_when_told(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.manifest("a", pod_text("a", "2"))
        agent.until_pod("a")
        agent.control.call("pause", {"on": True})
        agent.manifest("b", pod_text("b", "2"))
        agent.manifest("c", pod_text("c"))
        status = agent.until(lambda status: bool(status["refused"]) and len(status["pods"]) == 2)
        assert [(each["name"], each["reason"]) for each in status["refused"]] == [("b", "Paused")]
        assert status["paused"]
        agent.kill()
        agent.start()
        assert agent.status()["paused"]
        assert agent.cpus() == {"a": "1,17"}
        agent.control.call("pause", {"on": False})
        agent.until_pod("b")
        assert agent.cpus() == {"a": "1,17", "b": "2,18"}


def test_a_file_that_was_broken_while_the_agent_was_down_ends_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.manifest("db", pod_text("db", "2"))
        agent.manifest("web", pod_text("web", "1"))
        agent.until(lambda status: len(status["pods"]) == 2)
        held = agent.cpus()
        agent.stop()
        agent.manifest("db", "kind: Pod\nmetadata: {name: [broken")
        agent.start()
        agent.until(lambda status: bool(status["problems"]))
        assert agent.cpus() == held
        agent.remove("web")
        agent.until(lambda status: [pod["name"] for pod in status["pods"]] == ["db"])
        agent.remove("db")
        agent.until(lambda status: not status["pods"])
