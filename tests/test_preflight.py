"""What `run` would refuse is what `config check` says, in the same words, before anything was changed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.backends import assemble
from agent.config_schema import Config
from tests.agents import TWO_SOCKETS, Agent, launched, pod_text, running
from tests.node.scripted_manager import ScriptedManager

GATE = "featureGates"
ON_ANOTHER_RUN = """\
import os, sys
script = 'mount --bind "$0" /run && exec "$@"'
command = ["unshare", "--mount", "sh", "-c", script, sys.argv[1], sys.executable, "-m", "agent", *sys.argv[2:]]
os.execvp(command[0], command)
"""


class Place:
    """A directory for one agent, and a configuration that it would start with."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.values: dict[str, Any] = {
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0,16",
            "node": {"root": str(TWO_SOCKETS)},
            "sources": {"manifests": {"path": str(directory / "manifests")}},
            "state": {"directory": str(directory / "state")},
            "podResources": {"socket": str(directory / "pr" / "kubelet.sock")},
            "control": {"socket": str(directory / "control.sock")},
            "nodeService": {"socket": str(directory / "node.sock")},
            "http": {"port": 0},
            "enforcement": {"backend": "none"},
        }

    def call(self, *words: str, launcher: Sequence[str] = ("-m", "agent")) -> subprocess.CompletedProcess[str]:
        path = self.directory / "config.yaml"
        path.write_text(yaml.safe_dump(self.values))
        command = [sys.executable, *launcher, *words, "--config", str(path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def there(self) -> set[str]:
        found = {str(path.relative_to(self.directory)) for path in self.directory.rglob("*")}
        return found - {"config.yaml"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_configuration_that_is_right_is_said_to_be_and_nothing_is_made(place: Place) -> None:
    done = place.call("config", "check")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("the agent starts with this configuration\n")
    assert place.there() == set()


@pytest.mark.parametrize(
    ("section", "values", "said"),
    [
        ("podResources", {"group": "no-such-group"}, "no such group: 'no-such-group'"),
        ("podResources", {"socket": "/tmp/" + "x" * 120}, "longer than 102 bytes"),
        ("podResources", {"socket": "{dir}/plain"}, "{dir}/plain: exists and is not a socket"),
        ("podResources", {"clients": {"team": {"socket": "{dir}/t.sock", "group": "nobody-here"}}}, "'nobody-here'"),
        ("nodeService", {"group": "no-such-group"}, "no such group"),
        ("control", {"socket": "{dir}/plain/control.sock"}, "{dir}/plain is not a directory"),
        ("state", {"directory": "{dir}/plain"}, "{dir}/plain is not a directory"),
        ("state", {"directory": "{dir}/plain/below"}, "{dir}/plain is not a directory"),
        ("enforcement", {"backend": "cgroup", "cgroupRoot": "{dir}/nothing"}, "{dir}/nothing"),
        (
            "enforcement",
            {"backend": "cgroup", "parent": "/pinfold"},
            "enforcement.parent: '/pinfold' is not a relative",
        ),
        ("enforcement", {"backend": "cri"}, "enforcement.backend cri needs"),
        ("sources", {"apiserver": {"kubeconfig": "{dir}/absent"}}, "{dir}/absent"),
        ("reports", {"kubernetes": {}}, "KUBERNETES_SERVICE_HOST"),
        ("http", {"port": 9557, "certificate": "{dir}/absent", "key": "{dir}/absent"}, "{dir}/absent"),
        ("http", {"port": 9557, "certificate": "{dir}/plain", "key": "{dir}/plain"}, "not PEM, or of the wrong kind"),
        ("control", {"socket": "{dir}/node.sock"}, "{dir}/node.sock: two of the configured sockets are there"),
        ("queues", {"enabled": True, "total": "cpu=lots"}, "queues.total: invalid quantity 'lots'"),
        ("sources", {"kubelet": {"url": "https://127.0.0.1:999999"}}, "'https://127.0.0.1:999999' is not an address"),
        ("topologyManagerScope", "node", 'topologyManagerScope (--topology-manager-scope) "node" must be one of'),
    ],
)
def test_what_the_start_would_refuse_the_check_says_first_and_both_leave_nothing_behind(
    place: Place, section: str, values: Any, said: str
) -> None:
    filled = json.loads(json.dumps(values).replace("{dir}", str(place.directory)))
    place.values[section] = {**place.values.get(section, {}), **filled} if isinstance(filled, dict) else filled
    (place.directory / "plain").write_text("somebody's\n")
    told = [place.call(*words) for words in (("config", "check"), ("run",))]
    for done in told:
        assert said.replace("{dir}", str(place.directory)) in done.stderr
        assert "hint" in done.stderr
    assert told[0].returncode == told[1].returncode > 1
    assert not told[0].stdout
    assert place.there() == {"plain"}
    assert (place.directory / "plain").read_text() == "somebody's\n"


def test_where_everything_is_reserved_the_check_says_that_nothing_is_left(place: Place) -> None:
    place.values["reservedSystemCPUs"] = "0-31"
    assert "CPUs: online 0-31, reserved 0-31, exclusive none\n" in place.call("config", "check").stdout


def test_every_fault_is_named_not_the_first_alone(place: Place) -> None:
    place.values["podResources"]["group"] = "no-such-group"
    place.values["nodeService"]["group"] = "nor-this-one"
    place.values["reservedSystemCPUs"] = "99"
    done = place.call("config", "check")
    assert all(part in done.stderr for part in ("unknown CPU ID: 99", "no-such-group", "nor-this-one"))


def test_a_gate_that_decides_nothing_is_told_with_what_was_meant_and_refused_by_nobody(place: Place) -> None:
    place.values[GATE] = {"PodLevelResourceManager": True, "GracefulNodeShutdown": True, "AllAlpha": False}
    done = place.call("config", "check")
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert "GracefulNodeShutdown decides nothing here" in lines[0]
    assert lines[1].endswith("PodLevelResourceManager decides nothing here, did you mean PodLevelResourceManagers?")


def test_gates_of_the_kubelets_own_file_are_its_business(place: Place) -> None:
    kubelet = place.directory / "kubelet.yaml"
    kubelet.write_text("kind: KubeletConfiguration\nfeatureGates: {GracefulNodeShutdown: true}\n")
    place.values["kubeletConfig"] = str(kubelet)
    done = place.call("config", "check")
    assert (done.returncode, done.stderr) == (0, "")


def test_of_a_captured_machine_the_hosts_sockets_and_groups_are_not_looked_at(place: Place) -> None:
    place.values["podResources"]["group"] = "no-such-group"
    done = place.call("config", "check", "--sysroot", str(TWO_SOCKETS))
    assert (done.returncode, done.stderr) == (0, "")


def test_empty_policies_mean_the_defaults_as_in_the_kubelet(place: Place) -> None:
    for key in ("cpuManagerPolicy", "memoryManagerPolicy", "topologyManagerPolicy", "topologyManagerScope"):
        place.values[key] = ""
    place.values["reservedSystemCPUs"] = ""
    done = place.call("config", "check")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_taken_http_port_is_refused_before_any_pod_is_touched(place: Place) -> None:
    manifests = place.directory / "manifests"
    manifests.mkdir()
    (manifests / "db.yaml").write_text(pod_text("db", "4"))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        place.values["http"] = {"port": port}
        done = place.call("run")
    assert done.returncode == 3
    assert f"127.0.0.1 port {port}: Address already in use" in done.stderr
    assert "configure another port" in done.stderr
    assert "admitted" not in done.stderr
    assert not (place.directory / "state" / "pinfold_state").exists()


def test_the_check_runs_beside_the_agent_that_uses_everything(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with running(tmp_path, node={"root": str(TWO_SOCKETS)}, http={"port": port}) as agent:
        command = [sys.executable, "-m", "agent", "config", "check", "--config", str(agent.directory / "config.yaml")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ))
        assert (done.returncode, done.stderr) == (0, "")
        agent.status()


@pytest.mark.parametrize(("gates", "state"), [({}, "on"), ({"AllAlpha": False}, "off"), ({"AllBeta": False}, "off")])
def test_the_pod_level_managers_are_off_where_their_stage_or_what_they_need_is(
    place: Place, gates: dict[str, bool], state: str
) -> None:
    place.values[GATE] = gates
    assert any(
        line.startswith("pod-level resource managers") and f": {state}" in line
        for line in place.call("config", "check").stdout.splitlines()
    )


# --- the parts are made once ------------------------------------------------------------------------------------------------


@dataclass
class SilentManager:
    """A service manager that takes calls and answers none, for whoever is started by `launcher`. parts: needs it to be asked."""

    manager: ScriptedManager
    launcher: Sequence[str]
    parts: dict[str, Any]


@pytest.fixture
def silent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SilentManager]:
    directory = tmp_path_factory.mktemp("silent")
    (directory / "run").mkdir()
    trial = ["unshare", "--mount", "mount", "--bind", str(directory / "run"), "/run"]
    if subprocess.run(trial, capture_output=True, timeout=60, check=False).returncode:
        pytest.skip("a process cannot be given a /run of its own here: needs root")
    cgroups = directory / "cgroups"
    cgroups.mkdir()
    (cgroups / "cgroup.controllers").write_text("cpuset cpu memory\n")  # all that is read of it without kubepods
    manager = ScriptedManager(directory, mute=True)
    with manager.listening():
        yield SilentManager(
            manager,
            ("-c", ON_ANOTHER_RUN, str(directory / "run")),
            {
                "sources": {"kubelet": {"url": "http://127.0.0.1:9"}},
                "enforcement": {
                    "backend": "cri",
                    "cgroupRoot": str(cgroups),
                    "runtimeEndpoint": str(directory / "nobody.sock"),
                },
            },
        )


@pytest.mark.real
def test_a_manager_that_is_silent_is_waited_for_once_and_every_warning_is_said_once(
    place: Place, silent: SilentManager
) -> None:
    place.values.update(silent.parts)
    gates = {"PodLevelResourceManager": True}
    agent = Agent(place.directory, {**place.values, GATE: gates}, launcher=silent.launcher)
    with launched(agent):
        log = agent.log()
        assert agent.stop() == 0
    assert silent.manager.connections == 1
    for said in ("did you mean PodLevelResourceManagers", "cgroups are written directly", "no answer within 5 s"):
        assert log.count(said) == 1, log


@pytest.mark.real
@pytest.mark.parametrize("words", [("config", "check"), ("run",)])
def test_a_refused_start_asks_the_manager_no_more_than_once_either(
    place: Place, silent: SilentManager, words: Sequence[str]
) -> None:
    place.values.update(silent.parts)
    place.values["podResources"]["group"] = "no-such-group"
    done = place.call(*words, launcher=silent.launcher)
    assert (done.returncode, silent.manager.connections) == (3, 1), done.stderr
    assert "no such group" in done.stderr
    assert "cgroups are written" not in done.stderr  # nor are they
    assert place.there() == set()


@pytest.mark.real
def test_the_check_of_a_sound_configuration_makes_the_backend_of_the_start_and_nothing_else(
    place: Place, silent: SilentManager
) -> None:
    place.values.update(silent.parts)
    done = place.call("config", "check", launcher=silent.launcher)
    assert (done.returncode, done.stderr, silent.manager.connections) == (0, "", 1)
    assert place.there() == set()


def cgroup_v1(directory: Path) -> Path:
    """A tree in which a backend can be put together, with kubepods of a kubelet in it: a container that nobody has told of."""
    for controller in ("cpuset", "cpu", "memory"):
        (directory / controller / "kubepods" / "podu-1" / ("c" * 64)).mkdir(parents=True)
    (directory / "cpuset" / "cpuset.cpus").write_text("0-31\n")
    return directory


def with_runtime(place: Place) -> Config:
    place.values["sources"] = {"kubelet": {"url": "http://127.0.0.1:9"}}
    place.values["enforcement"] = {
        "backend": "cri",
        "cgroupRoot": str(cgroup_v1(place.directory / "cgroups")),
        "runtimeEndpoint": str(place.directory / "nobody.sock"),
    }
    return Config.model_validate(place.values)


def test_the_runtimes_client_is_closed_with_what_it_was_made_for(place: Place) -> None:
    with ExitStack() as stack:
        kubelet = assemble(with_runtime(place), stack).enforcement.kubelet
        assert kubelet is not None
        kubelet.find()  # nobody listens: what was known holds
    with pytest.raises(ValueError, match="closed channel"):
        kubelet.find()
