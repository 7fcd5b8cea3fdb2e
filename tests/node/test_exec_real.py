"""`pinfold exec` as a person runs it: a real command in real cgroups, asked for over a real control socket."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from agent.errors import AgentError, BadInputError
from agent.model.cpuset import CPUSet
from agent.node.exec_cgroups import ExecCgroups
from agent.node.tasks import Process, TaskError, affinity
from agent.policy.cgroup_names import ContainerCgroup, PodCgroup
from agent.policy.cgroup_settings import Settings
from agent.serve.control import ControlServer
from agent.serve.exec_grant import FINISHED, PREPARE, ExecFinished, ExecGrant
from tests.node.cgroup_parent import need_cpus, real_parent

pytestmark = pytest.mark.real
DB = ContainerCgroup("uid-1", "db")
SECONDS = 30.0

# what started the tests may have had them ignore signals (nohup, a shell's background), and that is inherited
UNIGNORED = ("env", "--default-signal")


@dataclass
class Node:
    """A node with one pod `web`, whose container `db` has one CPU, and `setup` is an init container."""

    socket: Path
    groups: ExecCgroups
    cpus: CPUSet
    server: ControlServer | None = None
    finished: list[ExecFinished] = field(default_factory=list)

    def handle(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        match method:
            case "exec-prepare":
                if params["pod"] != "web":
                    raise BadInputError(f"no pod {params['pod']}", hint="see pinfold status")
                key = ContainerCgroup(DB.pod, params["container"])
                directories = self.groups.prepare(key, Settings(), Settings(cpus=self.cpus))
                return ExecGrant(
                    key.pod, key.container, directories, str(self.cpus), "0", True, key.container == "setup"
                ).encode()
            case "exec-finished":
                self.finished.append(ExecFinished.decode(params))
                return {}
        raise AssertionError(method)

    def start(self) -> None:
        self.server = ControlServer(self.socket, self.handle)
        self.server.start()

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop()
            self.server = None

    def argv(self, *command: str, container: str = "db", options: tuple[str, ...] = ()) -> list[str]:
        return [
            sys.executable,
            "-m",
            "agent",
            "exec",
            "--socket",
            str(self.socket),
            *options,
            "web",
            container,
            "--",
            *command,
        ]

    def run(
        self, *command: str, container: str = "db", options: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        argv = self.argv(*command, container=container, options=options)
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL
        )

    @contextlib.contextmanager
    def running(self, *command: str, container: str = "db") -> Iterator[subprocess.Popen[str]]:
        """The client, once its command has printed a first line."""
        argv = [*UNIGNORED, *self.argv(*command, container=container)]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            yield process
        finally:
            process.kill()
            process.wait()
            for pid in self.groups.processes(ContainerCgroup(DB.pod, container)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with real_parent(frozenset({"cpuset", "cpu"})) as (hierarchy, parent):
        cpus = need_cpus(2, hierarchy)
        groups = ExecCgroups(hierarchy, parent)
        groups.open()
        found = Node(tmp_path / "control.sock", groups, CPUSet.of(list(cpus)[-1:]))
        found.start()
        try:
            yield found
        finally:
            found.stop()


def eventually(check: Any) -> None:
    """Wait for what the kernel does in its own time."""
    give_up = time.monotonic() + SECONDS
    while not check():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def gone(process: Process) -> bool:
    try:
        process.require()
    except TaskError:
        return True
    return False


def test_groups_that_are_gone_are_forgotten(node: Node) -> None:
    for number in range(5):
        node.groups.prepare(ContainerCgroup(f"gone-{number}", "db"), Settings(), Settings(cpus=node.cpus))
    kept = node.groups.find()
    assert ContainerCgroup("gone-4", "db") in kept
    assert node.groups.find() == kept
    for key in sorted(kept, key=lambda key: isinstance(key, PodCgroup)):  # a pod's own group last
        assert isinstance(key, ContainerCgroup | PodCgroup)
        assert node.groups.remove(key)
        assert node.groups.running(key.pod) == ()
    del kept, key
    assert node.groups.find() == {}
    gc.collect()
    assert [str(each) for each in gc.get_objects() if isinstance(each, PurePosixPath) and "gone-" in str(each)] == []


def test_the_command_runs_on_the_containers_cpus_and_nowhere_else(node: Node) -> None:
    ran = node.run("grep", "Cpus_allowed_list", "/proc/self/status", options=("-v",))
    assert ran.stdout.split() == ["Cpus_allowed_list:", str(node.cpus)]
    assert ran.returncode == 0
    assert ran.stderr == f"pinfold: web db: exclusive CPUs {node.cpus}, memory 0\n"
    assert node.finished == [ExecFinished("uid-1", "db", 0)]
    assert not node.groups.alive(DB)


def test_a_callers_own_affinity_does_not_narrow_the_grant(node: Node) -> None:
    elsewhere = min(os.sched_getaffinity(0) - set(node.cpus))
    argv = ["taskset", "-c", str(elsewhere), *node.argv("grep", "Cpus_allowed_list", "/proc/self/status")]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert ran.stdout.split()[-1] == str(node.cpus)


def test_the_command_has_the_callers_input_output_arguments_and_environment(node: Node) -> None:
    argv = node.argv("sh", "-c", 'cat; echo "$1 $NAME"; echo problem >&2', "sh", "--option=a b")
    env = {**os.environ, "NAME": "from outside"}
    ran = subprocess.run(argv, input="in\n", capture_output=True, text=True, timeout=SECONDS, check=False, env=env)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "in\n--option=a b from outside\n", "problem\n")


def test_the_dashes_before_the_command_may_be_left_out_and_a_command_may_not(node: Node) -> None:
    argv = [part for part in node.argv("sh", "-c", "exit 4") if part != "--"]
    assert subprocess.run(argv, timeout=SECONDS, check=False).returncode == 4
    empty = node.run()
    assert (empty.returncode, "no command given" in empty.stderr) == (2, True)


def test_the_exit_code_is_the_commands_own(node: Node) -> None:
    assert node.run("sh", "-c", "exit 37").returncode == 37
    assert node.finished == [ExecFinished("uid-1", "db", 37)]


def test_a_command_killed_by_a_signal_shows_as_such(node: Node) -> None:
    assert node.run("sh", "-c", "kill -KILL $$").returncode == -signal.SIGKILL
    assert node.run("sh", "-c", "kill -SEGV $$").returncode == -signal.SIGSEGV
    assert [finished.signal for finished in node.finished] == [signal.SIGKILL, signal.SIGSEGV]


def test_signals_reach_the_command(node: Node) -> None:
    script = "trap 'echo hup' HUP; trap 'echo term; exit 5' TERM; echo up; while :; do sleep 0.01; done"
    with node.running("sh", "-c", script) as client:
        assert client.stdout is not None
        client.send_signal(signal.SIGHUP)
        assert client.stdout.readline() == "hup\n"
        client.send_signal(signal.SIGTERM)
        assert client.stdout.readline() == "term\n"
        assert client.wait(SECONDS) == 5


def test_python_does_not_leave_its_signal_settings_to_the_command(node: Node) -> None:
    ran = node.run("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
    blocked, ignored = (int(line.split()[1], 16) for line in ran.stdout.splitlines())
    assert blocked == 0
    assert not ignored & (1 << signal.SIGPIPE - 1)


def test_a_command_that_does_not_exist_is_told_from_one_that_fails(node: Node, tmp_path: Path) -> None:
    absent = node.run("no-such-command-here")
    assert (absent.returncode, "no-such-command-here: No such file" in absent.stderr) == (127, True)
    (tmp_path / "plain").write_text("x")
    assert node.run(str(tmp_path / "plain")).returncode == 126
    assert node.finished == []
    assert not node.groups.alive(DB)


def test_a_refusal_of_the_agent_is_shown_with_its_hint(node: Node) -> None:
    argv = [part if part != "web" else "nobody" for part in node.argv("true")]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (ran.returncode, ran.stderr) == (2, "pinfold: error: no pod nobody\n         hint:  see pinfold status\n")


def test_a_cgroup_removed_before_the_command_joins_is_an_error_and_nothing_runs(node: Node) -> None:
    real = node.groups.prepare

    def prepare_and_remove(
        key: ContainerCgroup, pod: Settings, container: Settings, process: Process | None = None
    ) -> tuple[Path, ...]:
        directories = real(key, pod, container, process)
        node.groups.remove(key)
        return directories

    node.groups.prepare = prepare_and_remove  # type: ignore[method-assign]
    ran = node.run("echo", "ran")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert "the cgroup is gone" in ran.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_while_the_agent_makes_the_cgroup_ends_the_process_that_waits_for_it(
    node: Node, number: signal.Signals
) -> None:
    real, asked, going_on = node.groups.prepare, threading.Event(), threading.Event()
    waiting: list[Process] = []

    def slow(
        key: ContainerCgroup, pod: Settings, container: Settings, process: Process | None = None
    ) -> tuple[Path, ...]:
        asked.set()
        going_on.wait(SECONDS)
        return real(key, pod, container, process)

    node.groups.prepare = slow  # type: ignore[method-assign]
    client = subprocess.Popen(
        [*UNIGNORED, *node.argv("sleep", "600")], stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    try:
        assert asked.wait(SECONDS)
        children = Path(f"/proc/{client.pid}/task/{client.pid}/children").read_text().split()
        waiting += [Process.of(int(pid)) for pid in children]
        assert len(waiting) == 1
        client.send_signal(number)
        assert client.wait(SECONDS) != 0
        eventually(lambda: gone(waiting[0]))
    finally:
        going_on.set()
        client.kill()
        client.wait()
    assert not node.groups.alive(DB)


def test_without_an_agent_nothing_runs(node: Node) -> None:
    node.stop()
    ran = node.run("echo", "ran")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert "no agent answers" in ran.stderr


def test_the_command_outlives_the_agent_and_the_client(node: Node) -> None:
    with node.running("sh", "-c", "echo up; exec sleep 600") as client:
        (pid,) = node.groups.processes(DB)
        node.stop()
        client.kill()
        client.wait()
        assert node.groups.processes(DB) == (pid,)
        assert affinity(pid) == node.cpus
        node.start()
        assert node.groups.alive(DB)
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: not node.groups.alive(DB))


def test_the_end_of_an_init_container_is_told_to_an_agent_that_comes_back(node: Node) -> None:
    with node.running("sh", "-c", "echo up; sleep 0.2", container="setup") as client:
        node.stop()
        eventually(lambda: not node.groups.alive(ContainerCgroup(DB.pod, "setup")))
        node.start()
        assert client.wait(SECONDS) == 0
        assert node.finished == [ExecFinished("uid-1", "setup", 0)]


def test_the_method_names_are_those_of_the_client() -> None:
    assert (PREPARE, FINISHED) == ("exec-prepare", "exec-finished")
    assert issubclass(BadInputError, AgentError)


def test_a_caller_without_open_streams_gets_the_commands_status_all_the_same(node: Node) -> None:
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        argv = ["sh", "-c", f'exec "$@" {closed}', "sh", *node.argv("sh", "-c", "exit 3")]
        assert subprocess.run(argv, timeout=SECONDS, check=False).returncode == 3, closed
