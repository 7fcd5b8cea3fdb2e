"""What is done to a running agent, one action at a time, counted."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agent.model.pod import QOSClass
from benchmarks.soak.neighbours import DEVICE, Neighbours
from benchmarks.soak.runtime import Runtime
from tests.agents import Agent, pod_text
from tests.kube.servers import pod

MOST_PODS = 25  # of a kind at once
_MOST_INSIDE = 3  # processes of `pinfold exec` at once

# action -> seconds between two of it, on average
RATES = {
    "pod comes": 0.5,
    "pod goes": 0.6,
    "pod is resized": 1.0,
    "container restarts": 2.0,
    "manifest comes": 1.0,
    "manifest goes": 1.2,
    "manifest is resized": 2.0,
    "manifest is broken": 15.0,
    "drift": 3.0,
    "neighbour restarts": 8.0,
    "reload": 20.0,
    "exec": 10.0,
}
# start of a log line's event -> the actions that can lead to it
CAUSES = {
    "admitted": ("pod comes", "manifest comes", "start"),
    "adopted": ("start",),
    "refused": ("manifest comes", "manifest goes", "pod goes", "manifest is resized", "start", "reload"),
    "unplaced": ("pod comes", "pod is resized", "neighbour restarts", "start"),
    "placed": ("pod comes", "pod goes", "manifest goes"),
    "released": ("pod goes", "manifest goes", "start"),
    "terminating": ("pod goes", "manifest goes"),
    "waiting": ("pod comes", "neighbour restarts"),
    "resize": ("pod is resized", "manifest is resized"),
    "manifest": ("manifest is broken", "start"),
    "pod source": ("neighbour restarts", "start"),
    "report": ("neighbour restarts", "start"),
    "event not written": ("neighbour restarts", "start"),
    "drift repaired": ("drift", "container restarts"),
    "started": ("start",),
    "stopped": ("start",),
    "exec": ("exec",),
}


@dataclass
class Churn:
    """done: how often each action was taken. Neighbours that are down come back by themselves."""

    agent: Agent
    neighbours: Neighbours
    runtime: Runtime | None
    rng: random.Random
    done: Counter[str] = field(default_factory=Counter)
    _pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    _manifests: dict[str, str] = field(default_factory=dict)
    _inside: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _number: int = 0
    _restarting: list[threading.Thread] = field(default_factory=list)

    def step(self, seconds: float) -> None:
        """Do what is due in so many seconds."""
        actions: dict[str, Callable[[], bool]] = {
            "pod comes": self.pod_comes,
            "pod goes": self.pod_goes,
            "pod is resized": self._resize_pod,
            "container restarts": self._restart_container,
            "manifest comes": self.manifest_comes,
            "manifest goes": self._manifest_goes,
            "manifest is resized": self._resize_manifest,
            "manifest is broken": self._break_manifest,
            "drift": lambda: self.runtime is not None and self.runtime.drift(self.rng),
            "neighbour restarts": self._restart_neighbour,
            "reload": self._reload,
            "exec": self._exec,
        }
        for name, act in actions.items():
            if self.rng.random() < seconds / RATES[name] and act():
                self.done[name] += 1

    def calm(self) -> None:
        """All neighbours are back and nothing runs inside any more."""
        for thread in self._restarting:
            thread.join()
        for each in self._inside:
            each.terminate()
        for each in self._inside:
            each.wait(30)
        self._inside.clear()
        (self.agent.manifests / "broken.yaml").unlink(missing_ok=True)

    def empty(self) -> None:
        """Every pod goes."""
        while self.pod_goes() or self._manifest_goes():
            pass

    # --- pods of the kubelet ---

    def pod_comes(self) -> bool:
        if len(self._pods) >= MOST_PODS:
            return False
        self._number += 1
        name, devices = f"pod-{self._number}", int(self.rng.random() < 0.2)
        cpu = self.rng.choice(["1", "200m", "300m", "500m", ""])
        made = pod(name, 1, cpu)
        if devices:
            for amounts in made["spec"]["containers"][0]["resources"].values():
                amounts[DEVICE] = "1"
        self._pods[name] = made
        self._tell(made, cpu, devices=devices)
        return True

    def _tell(self, made: dict[str, Any], cpu: str, *, devices: int = 0) -> None:
        """With a container that runs, of this size."""
        uid, name = made["metadata"]["uid"], made["metadata"]["name"]
        qos = QOSClass.GUARANTEED if cpu else QOSClass.BEST_EFFORT
        ident = self.runtime.container(uid, qos) if self.runtime is not None else f"{self._number:064x}"
        amounts = {"cpu": cpu, "memory": "64Mi"} if cpu else {}
        status = {
            "name": "main",
            "containerID": f"containerd://{ident}",
            "state": {"running": {}},
            "allocatedResources": amounts,
            "resources": {"requests": amounts, "limits": amounts},
        }
        made = {**made, "metadata": dict(made["metadata"])}
        made["status"] = {"phase": "Running", "qosClass": str(qos), "containerStatuses": [status]}
        self._pods[name] = made
        self.neighbours.put(made, devices=devices)

    def pod_goes(self) -> bool:
        if not self._pods:
            return False
        name = self.rng.choice(list(self._pods))
        uid = self._pods.pop(name)["metadata"]["uid"]
        if self.runtime is not None:
            self.runtime.end(uid)
        self.neighbours.remove(uid, name)
        return True

    def _resize_pod(self) -> bool:
        small = [name for name, each in self._pods.items() if _cpu(each).endswith("m")]
        if not small:
            return False
        made, cpu = self._pods[self.rng.choice(small)], f"{self.rng.randint(1, 9)}00m"
        amounts = {**made["spec"]["containers"][0]["resources"]["limits"], "cpu": cpu}
        container = {**made["spec"]["containers"][0], "resources": {"requests": amounts, "limits": amounts}}
        self._tell({**made, "spec": {**made["spec"], "containers": [container]}}, cpu)
        return True

    def _restart_container(self) -> bool:
        if not self._pods:
            return False
        made = self._pods[self.rng.choice(list(self._pods))]
        self._tell(made, _cpu(made))
        return True

    # --- manifests ---

    def manifest_comes(self) -> bool:
        if len(self._manifests) >= MOST_PODS:
            return False
        self._number += 1
        name, cpu = f"static-{self._number}", self.rng.choice(["1", "100m", "300m", ""])
        self._manifests[name] = cpu
        self.agent.manifest(name, pod_text(name, cpu))
        return True

    def _manifest_goes(self) -> bool:
        if not self._manifests:
            return False
        name = self.rng.choice(list(self._manifests))
        del self._manifests[name]
        self.agent.remove(name)
        return True

    def _resize_manifest(self) -> bool:
        small = [name for name, cpu in self._manifests.items() if cpu.endswith("m")]
        if not small:
            return False
        name, cpu = self.rng.choice(small), f"{self.rng.randint(1, 9)}00m"
        self._manifests[name] = cpu
        self.agent.manifest(name, pod_text(name, cpu))
        return True

    def _break_manifest(self) -> bool:
        """A file that cannot be read for a while; the next time it is gone."""
        path = self.agent.manifests / "broken.yaml"
        if path.exists():
            path.unlink()
        else:
            path.write_text(f"a: [{self._number}")
        return True

    # --- the rest ---

    def _restart_neighbour(self) -> bool:
        """One that is up goes, and is back after a while."""
        self._restarting = [thread for thread in self._restarting if thread.is_alive()]
        busy = {thread.name for thread in self._restarting}
        names = [name for name in self.neighbours.all if name not in busy]
        if not names:
            return False
        each = self.neighbours.all[self.rng.choice(names)]
        away = self.rng.choice([0.1, 1.0, 5.0, 15.0])

        def restart() -> None:
            each.stop()
            threading.Event().wait(away)
            each.start()

        thread = threading.Thread(target=restart, name=each.name, daemon=True)
        thread.start()
        self._restarting.append(thread)
        return True

    def _reload(self) -> bool:
        self.agent.hang_up()
        return True

    def _exec(self) -> bool:
        """A process in the container of some manifest; the oldest goes when there are too many, its pod maybe before it."""
        self._inside = [each for each in self._inside if each.poll() is None]
        if len(self._inside) >= _MOST_INSIDE:
            self._inside[0].send_signal(signal.SIGTERM)
        if not self._manifests or self.runtime is None:
            return False
        name = self.rng.choice(list(self._manifests))
        command = [
            *(sys.executable, "-m", "agent", "exec", "--socket", str(self.agent.directory / "control.sock")),
            *(name, "main", "--", "sleep", "30"),
        ]
        quiet = subprocess.DEVNULL
        self._inside.append(subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet))
        return True


def _cpu(made: dict[str, Any]) -> str:
    limits = made["spec"]["containers"][0]["resources"].get("limits", {})
    return str(limits.get("cpu", ""))
