"""Whoever the agent talks to, each to be ended and begun again: API server, Pods and PodResources services, accountant."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from benchmarks.problems import CannotRunError
from benchmarks.soak.api_server import Pods, api_server
from tests.certificates import make_ca, make_pair
from tests.kube.pods_service import Kubelet as PodsKubelet
from tests.kube.pods_service import serving as serving_pods
from tests.serve.accountants import node, pod_group, queue
from tests.serve.browser import free_port
from tests.serve.kubelets import Kubelet, device, holding
from tests.serve.kubelets import serving as serving_resources

DEVICE = "example.com/device"


@dataclass
class Neighbour:
    """One of them. begin: until the end of its block it is there."""

    name: str
    begin: Callable[[], AbstractContextManager[Any]]
    _stack: ExitStack | None = None

    @property
    def up(self) -> bool:
        return self._stack is not None

    def start(self) -> None:
        stack = ExitStack()
        stack.enter_context(self.begin())
        self._stack = stack

    def stop(self) -> None:
        """End it as a kill does. Nothing to do where it has ended."""
        stack, self._stack = self._stack, None
        if stack is not None:
            stack.close()


@dataclass
class Neighbours:
    """All of them, below one directory. config: how the agent reaches them. accountant: its newest process."""

    directory: Path
    pods: Pods = field(default_factory=Pods)
    pods_service: PodsKubelet = field(default_factory=PodsKubelet)
    resources: Kubelet = field(default_factory=Kubelet)
    accountant: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        if shutil.which("openssl") is None:
            raise CannotRunError("the accountant takes reports with certificates, which need the openssl command")
        self._api_port, self._accountant_port = free_port(), free_port()
        ca = make_ca(self.directory)
        self._ca, self._pair = ca, make_pair(ca, self.directory, "pair", "soak")
        self.all = {
            each.name: each
            for each in (
                Neighbour("api server", lambda: api_server(self.pods, self._api_port)),
                Neighbour("pods service", lambda: serving_pods(self.directory / "pods.sock", self.pods_service)),
                Neighbour("upstream", lambda: serving_resources(self.resources, self.directory / "upstream.sock")),
                Neighbour("accountant", self._accountant),
            )
        }

    @property
    def config(self) -> Mapping[str, Any]:
        """The parts of the agent's configuration that name them, by section."""
        credentials = {
            "caFile": str(self._ca.certificate),
            "clientCertificateFile": str(self._pair.certificate),
            "clientKeyFile": str(self._pair.key),
        }
        return {
            "sources": {
                "pods": {"socket": str(self.directory / "pods.sock")},
                "apiserver": {"url": f"http://127.0.0.1:{self._api_port}"},
            },
            "upstream": {"socket": str(self.directory / "upstream.sock")},
            "reports": {
                "spool": {"directory": str(self.directory / "spool"), "keep": 20},
                "kubernetes": {},
                "accountant": {"url": f"https://127.0.0.1:{self._accountant_port}", **credentials},
            },
        }

    def start(self) -> None:
        for each in self.all.values():
            each.start()

    def stop(self) -> None:
        for each in self.all.values():
            each.stop()

    def put(self, pod: dict[str, Any], *, devices: int = 0) -> None:
        """A kubelet's pod is here, or has changed: told by all who know of pods."""
        self.pods.put(pod)
        self.pods_service.add(pod)
        self._hold(pod["metadata"]["name"], devices)

    def remove(self, uid: str, name: str) -> None:
        """It is gone."""
        self.pods.remove(uid)
        self.pods_service.remove(uid)
        self._hold(name, 0)

    def _hold(self, name: str, devices: int) -> None:
        others = [each for each in self.resources.pods if each.name != name]
        if devices:
            ids = [f"{name}-{number}" for number in range(devices)]
            others.append(holding(name, device(DEVICE, *ids, numa=0)))
        self.resources.pods = others

    @contextmanager
    def _accountant(self) -> Iterator[None]:
        """`pinfold queues serve`, killed at the end; its log goes on where it was."""
        objects = self.directory / "objects.yaml"
        objects.write_text(
            yaml.safe_dump_all([queue("dept"), queue("leaf", "dept", 100_000), pod_group("pg", "leaf"), node("n1")])
        )
        pair = {"certificate": str(self._pair.certificate), "key": str(self._pair.key)}
        section = {
            "objects": [str(objects)],
            "stateDirectory": str(self.directory / "accountant"),
            "ledger": True,
            "socket": str(self.directory / "queues.sock"),
            "api": {"port": self._accountant_port, **pair, "clientCA": str(self._ca.certificate)},
        }
        path = self.directory / "accountant.yaml"
        path.write_text(yaml.safe_dump({"queues": section}))
        with (self.directory / "accountant.log").open("ab") as log:
            command = [sys.executable, "-m", "agent", "queues", "serve", "--config", str(path)]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.accountant = process
        try:
            yield
        finally:
            process.kill()
            process.wait()
