"""A Lease behind HTTP as an API server keeps it, and the ways in which one misbehaves."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.kube.servers import Answer, Asked, HTTPPart, served

PATH = "/apis/coordination.k8s.io/v1/namespaces/pinfold/leases"


@dataclass
class LeaseStore:
    """objects: Leases by path. trouble: may answer a request itself, and then says True."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    trouble: Callable[[Asked, Answer], bool] = lambda asked, to: False
    versions: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, asked: Asked, to: Answer) -> None:
        if self.trouble(asked, to):
            return
        to.json(*self.apply(asked))

    def apply(self, asked: Asked) -> tuple[Any, int]:
        """The object after the request, and the status."""
        with self.lock:
            path = f"{asked.path}/{asked.body['metadata']['name']}" if asked.method == "POST" else asked.path
            found = self.objects.get(path)
            if asked.method == "GET":
                return (found, 200) if found is not None else _status(404, "not found")
            version = asked.body["metadata"].get("resourceVersion")
            if asked.method == "POST" and found is not None:
                return _status(409, "exists already")
            if asked.method == "PUT" and (found is None or version != found["metadata"]["resourceVersion"]):
                return _status(409, "the object has been modified") if found else _status(404, "not found")
            if found is not None and found["spec"] == asked.body["spec"]:
                return found, 200
            self.versions += 1
            made = json.loads(json.dumps(asked.body))
            made["metadata"]["resourceVersion"] = str(self.versions)
            self.objects[path] = made
            return made, 201 if asked.method == "POST" else 200

    def spec(self, name: str = "queues") -> dict[str, Any]:
        with self.lock:
            return dict(self.objects.get(f"{PATH}/{name}", {}).get("spec", {}))

    def holder(self, name: str = "queues") -> str:
        return str(self.spec(name).get("holderIdentity", ""))

    def put(self, holder: str, seconds: int = 15, name: str = "queues", **spec: Any) -> None:
        """As another candidate writes it; "": as it gives it back."""
        spec = {"acquireTime": "1999-01-01T00:00:00.000000Z", **spec}
        with self.lock:
            self.versions += 1
            self.objects[f"{PATH}/{name}"] = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": "pinfold", "resourceVersion": str(self.versions)},
                "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds if holder else 1, **spec},
            }


def _status(code: int, message: str) -> tuple[dict[str, Any], int]:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "message": message}, code


@contextmanager
def keeping(store: LeaseStore) -> Iterator[HTTPPart]:
    with served(store.answer) as part:
        yield part
