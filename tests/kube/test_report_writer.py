"""What reaches an API server, and how often: against a small one of our own on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from agent.errors import AgentError
from agent.formats.numa_placement import OBSERVED
from agent.kube.http_access import Access, Server
from agent.kube.report_writer import ForeignWriterError, ReportWriter, WriterOptions
from tests.formats.test_occupancy import labelled, report_of, small_node
from tests.kube.servers import wait_until
from tests.nodes import named
from tests.pods import app
from tests.policy.resizing import Node, sizes

TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/"


class Cluster:
    """A Node, pods, topology objects; it merges annotations and applies objects as an API server does."""

    def __init__(self, *pods: str) -> None:
        self.pods: dict[str, dict[str, Any]] = {name: {"uid": name, "annotations": {}, "managers": []} for name in pods}
        self.topologies: dict[str, Any] = {}
        self.requests: list[tuple[str, str]] = []
        self.fail = 0
        self.topology_owner = ""
        self.url = ""

    def writes(self) -> int:
        return sum(method == "PATCH" for method, _ in self.requests)

    def reads(self) -> int:
        return sum(method == "GET" for method, _ in self.requests)

    def placement(self, name: str) -> Any:
        return self.pods[name]["annotations"].get(OBSERVED)

    def overwrite(self, name: str, value: str) -> None:
        self.pods[name]["annotations"][OBSERVED] = value
        fields: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{OBSERVED}": {}}}}
        self.pods[name]["managers"] = [{"manager": "kai-exporter", "fieldsV1": fields}]

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        self.requests.append((method, path))
        if self.fail:
            self.fail -= 1
            return 503, {"message": "not now"}
        if method == "GET" and path.startswith("/api/v1/nodes/"):
            return 200, {"metadata": {"uid": "node-uid"}}
        if method == "GET":
            assert query["fieldSelector"] == "spec.nodeName=worker-1"
            return 200, {"items": [self._shown(name) for name in self.pods]}
        if path.startswith(TOPOLOGIES):
            if self.topology_owner and query["force"] == "false":
                return 409, {"message": f'Apply failed with 1 conflict: conflict with "{self.topology_owner}": .zones'}
            self.topologies[path.removeprefix(TOPOLOGIES)] = body
            return 201, {}
        return self._patch_pod(path.rpartition("/")[2], body)

    def _patch_pod(self, name: str, body: Any) -> tuple[int, Any]:
        if name not in self.pods:
            return 404, {"message": f'pods "{name}" not found'}
        if body["metadata"]["uid"] != self.pods[name]["uid"]:
            return 409, {"message": "Precondition failed: UID in precondition"}
        for key, value in body["metadata"]["annotations"].items():
            if value is None:
                self.pods[name]["annotations"].pop(key, None)
            else:
                self.pods[name]["annotations"][key] = value
        return 200, {}

    def _shown(self, name: str) -> Any:
        pod = self.pods[name]
        return {
            "metadata": {
                "uid": pod["uid"],
                "namespace": "default",
                "name": name,
                "annotations": pod["annotations"],
                "managedFields": pod["managers"],
            }
        }


@contextmanager
def serving(cluster: Cluster) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length", "0"))
            body = json.loads(self.rfile.read(length)) if length else None
            status, answer = cluster.answer(self.command, parts.path, dict(parse_qsl(parts.query)), body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PATCH = _serve  # noqa: N815 - the names are http.server's

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    cluster.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class Running:
    """A writer, and what it said."""

    def __init__(self, cluster: Cluster, options: WriterOptions) -> None:
        self.errors: list[AgentError] = []
        self.done = 0
        self.writer = ReportWriter(Server(Access(cluster.url)), options, self.errors.append, self._written)

    def _written(self) -> None:
        self.done += 1

    def show(self, node: Node) -> None:
        """Write the node's report, and wait until that is done."""
        before = self.done
        self.writer.show(report_of(node))
        wait_until(lambda: self.done > before, lambda: self.errors)


@contextmanager
def writing(cluster: Cluster, **options: Any) -> Iterator[Running]:
    with serving(cluster):
        running = Running(cluster, WriterOptions(topology_interval_seconds=0.0, **options))
        running.writer.worker.start()
        try:
            yield running
        finally:
            running.writer.worker.stop()


def busy_node() -> Node:
    node = small_node()
    node.want(labelled(), named("web", app("cpu=500m", "cpu=1")))
    return node


VALUE = '[{"zone":"node-0","amount":{"cpu":"2","memory":"1073741824"}}]'


def test_the_object_and_the_annotations_follow_the_node_without_any_further_read() -> None:
    cluster, node = Cluster("db", "web"), busy_node()
    with writing(cluster) as running:
        running.show(node)
        assert (cluster.placement("db"), cluster.placement("web")) == (VALUE, None)
        (topology,) = cluster.topologies.values()
        assert topology["metadata"]["ownerReferences"][0]["uid"] == "node-uid"
        assert topology["zones"][0]["resources"][0]["available"] == "1"
        reads, writes = cluster.reads(), cluster.writes()
        node.want(named("late", app("cpu=1", "cpu=2")))
        running.show(node)
        assert cluster.writes() == writes, "nothing that is shown has changed"
        node.want(sizes(labelled(), "cpu=3 memory=1Gi"))
        running.show(node)
        assert cluster.placement("db") == VALUE.replace('"2"', '"3"')
        assert cluster.writes() == writes + 2
        assert cluster.reads() == reads


def test_an_obsolete_annotation_is_removed_and_strangers_are_left_alone() -> None:
    cluster, node = Cluster("web", "stranger"), busy_node()
    cluster.pods["web"]["annotations"][OBSERVED] = VALUE  # from before the pod shared
    cluster.pods["stranger"]["annotations"][OBSERVED] = "its own"
    with writing(cluster) as running:
        running.show(node)
        assert cluster.placement("web") is None
        assert cluster.placement("stranger") == "its own"


def test_a_pod_that_the_api_server_does_not_have_is_asked_for_once() -> None:
    cluster, node = Cluster(), busy_node()
    with writing(cluster) as running:
        running.show(node)
        node.want(sizes(labelled(), "cpu=3 memory=1Gi"))
        running.show(node)
        assert sum("/pods/db" in path for _, path in cluster.requests) == 1
        assert not running.errors


def test_a_pod_that_has_ended_is_forgotten_whoever_had_it() -> None:
    cluster, node = Cluster("web"), busy_node()
    with writing(cluster) as running:
        running.show(node)
        node.end("db")
        node.end("web")
        running.show(node)
        node.want(labelled(), named("web", app("cpu=500m", "cpu=1")))
        running.show(node)
        assert sum("/pods/db" in path for _, path in cluster.requests) == 2
        assert not running.errors


def test_another_pod_of_the_same_name_is_never_annotated() -> None:
    cluster = Cluster("db")
    cluster.pods["db"]["uid"] = "another"
    with writing(cluster) as running:
        running.show(busy_node())
        assert cluster.placement("db") is None


def test_an_api_server_that_is_away_is_tried_again_until_it_is_back() -> None:
    cluster = Cluster("db")
    cluster.fail = 1
    with writing(cluster) as running:
        running.show(busy_node())
        assert cluster.placement("db") == VALUE
        assert [str(error).partition(": ")[2] for error in running.errors] == ["HTTP 503: not now"]


def test_an_object_that_another_exporter_owns_is_named_and_left_alone() -> None:
    cluster, node = Cluster("db"), busy_node()
    cluster.topology_owner = "rte"
    with writing(cluster) as running:
        running.show(node)
        assert not cluster.topologies
        assert isinstance(running.errors[0], ForeignWriterError)
        assert 'conflict with "rte"' in str(running.errors[0])
        node.want(sizes(labelled(), "cpu=3 memory=1Gi"))
        running.show(node)
        assert len(running.errors) == 1
        assert cluster.placement("db") is not None


def test_with_force_it_goes_on() -> None:
    cluster = Cluster("db")
    cluster.topology_owner = "rte"
    with writing(cluster, force=True) as running:
        running.show(busy_node())
        assert list(cluster.topologies) == ["worker-1"]


def test_drift_is_mended_once_and_a_second_writer_is_named_and_left_alone() -> None:
    cluster, node = Cluster("db"), busy_node()
    with writing(cluster, resync_seconds=0.05) as running:
        running.show(node)
        cluster.overwrite("db", "[]")
        wait_until(lambda: cluster.placement("db") == VALUE)
        assert not running.errors
        cluster.overwrite("db", "[]")
        wait_until(lambda: bool(running.errors))
        assert "is written by kai-exporter too" in str(running.errors[0])
        reads = cluster.reads()
        wait_until(lambda: cluster.reads() > reads + 2)
        assert cluster.placement("db") == "[]"
