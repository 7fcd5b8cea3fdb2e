"""Devices of another PodResources server, merged into the answers of a running agent."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from agent.proto import podresources_v1_pb2 as v1
from agent.proto import podresources_v1_pb2_grpc as v1_grpc
from agent.proto import podresources_v1alpha1_pb2 as v1alpha1
from agent.proto import podresources_v1alpha1_pb2_grpc as v1alpha1_grpc
from agent.serve import podresources_upstream
from agent.serve.loop import ServingLoop
from agent.serve.podresources_upstream import Upstream, UpstreamAccess, passed_devices
from tests.agents import PATIENCE_SECONDS, Agent, pod_text, running
from tests.serve.browser import free_port
from tests.serve.kubelets import Kubelet, serving

GPU = v1.ContainerDevices(
    resource_name="example.com/gpu", device_ids=["gpu-1", "gpu-0"], topology=v1.TopologyInfo(nodes=[v1.NUMANode(ID=1)])
)
CLAIM = v1.DynamicResource(
    claim_name="nic",
    claim_namespace="default",
    claim_resources=[v1.ClaimResource(driver_name="d", device_name="nic-0")],
)


def pod(name: str, container: str = "main") -> v1.PodResources:
    wrong = v1.ContainerMemory(memory_type="memory", size=1)
    told = v1.ContainerResources(
        name=container, cpu_ids=[4095], memory=[wrong], devices=[GPU], dynamic_resources=[CLAIM]
    )
    return v1.PodResources(name=name, namespace="default", containers=[told])


def until(look: Callable[[], object], wanted: object) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while (seen := look()) != wanted:
        assert time.monotonic() < end, seen
        time.sleep(0.02)


@contextmanager
def asking(agent: Agent) -> Iterator[v1_grpc.PodResourcesListerStub]:
    with grpc.insecure_channel(f"unix:{agent.socket}") as channel:
        yield v1_grpc.PodResourcesListerStub(channel)


def container(stub: v1_grpc.PodResourcesListerStub, name: str) -> v1.ContainerResources:
    request = v1.GetPodResourcesRequest(pod_name=name, pod_namespace="default")
    return stub.Get(request, timeout=2).pod_resources.containers[0]


def upstream(path: Path, period: float = 0.1) -> dict[str, object]:
    return {"socket": str(path), "periodSeconds": period, "timeoutSeconds": 0.3}


def test_devices_are_merged_per_container_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    with serving(Kubelet(pod("a"), pod("elsewhere"), devices=[GPU]), path), running(tmp_path) as agent:
        agent.stop()
        agent.config["podResources"] = {"socket": str(agent.socket), "qps": 0, "upstream": upstream(path)}
        agent.start()
        agent.manifest("a", pod_text("a", "2"))
        agent.manifest("b", pod_text("b"))
        agent.until(lambda status: len(status["pods"]) == 2)
        with asking(agent) as stub:
            until(lambda: list(container(stub, "a").devices), [GPU])
            merged = container(stub, "a")
            assert list(merged.dynamic_resources) == [CLAIM]
            assert list(merged.cpu_ids) == [1, 17]
            assert list(merged.memory) == []
            listed = stub.List(v1.ListPodResourcesRequest()).pod_resources
            assert [(each.name, len(each.containers[0].devices)) for each in listed] == [("a", 1), ("b", 0)]
            allocatable = stub.GetAllocatableResources(v1.AllocatableResourcesRequest())
            assert list(allocatable.devices) == [GPU]
            assert len(allocatable.cpu_ids) == 31
        with grpc.insecure_channel(f"unix:{agent.socket}") as channel:
            old = v1alpha1_grpc.PodResourcesListerStub(channel).List(v1alpha1.ListPodResourcesRequest())
            devices = old.pod_resources[0].containers[0].devices
            assert [(each.resource_name, list(each.device_ids)) for each in devices] == [
                ("example.com/gpu", ["gpu-1", "gpu-0"])
            ]


def test_a_server_that_hangs_leaves_its_last_answer(tmp_path: Path) -> None:
    path, port = tmp_path / "kubelet.sock", free_port()
    kubelet = Kubelet(pod("a"))
    section = {"socket": str(tmp_path / "pr" / "kubelet.sock"), "qps": 0, "upstream": upstream(path)}
    with serving(kubelet, path), running(tmp_path, podResources=section, http={"port": port}) as agent:
        agent.manifest("a", pod_text("a", "2"))
        agent.until_pod("a")
        with asking(agent) as stub:
            until(lambda: list(container(stub, "a").devices), [GPU])
            until(lambda: sample(port, "pinfold_source_readable"), 1.0)
            kubelet.hang = True
            until(lambda: sample(port, "pinfold_source_readable"), 0.0)
            assert list(container(stub, "a").devices) == [GPU]
            kubelet.hang = False
            until(lambda: sample(port, "pinfold_source_readable"), 1.0)


def test_a_server_that_comes_late_and_goes_early_leaves_its_last_answer_and_an_age(tmp_path: Path) -> None:
    path, port = tmp_path / "kubelet.sock", free_port()
    section = {"socket": str(tmp_path / "pr" / "kubelet.sock"), "qps": 0, "upstream": upstream(path)}
    with running(tmp_path, podResources=section, http={"port": port}) as agent, asking(agent) as stub:
        agent.manifest("a", pod_text("a", "2"))
        agent.until_pod("a")
        assert list(container(stub, "a").devices) == []
        assert sample(port, "pinfold_source_readable") == 0.0
        with serving(Kubelet(pod("a")), path):
            until(lambda: list(container(stub, "a").devices), [GPU])
        until(lambda: sample(port, "pinfold_source_readable"), 0.0)
        assert list(container(stub, "a").devices) == [GPU]
        before = sample(port, "pinfold_source_age_seconds")
        until(lambda: sample(port, "pinfold_source_age_seconds") > before, wanted=True)


def test_a_new_pod_does_not_inherit_the_devices_of_its_name(tmp_path: Path) -> None:
    answer = v1.ListPodResourcesResponse(pod_resources=[pod("a")])
    told = passed_devices(answer, v1.AllocatableResourcesResponse(), frozenset({"first"}))
    assert told.of("first", "default", "a")
    assert not told.of("second", "default", "a")


def test_a_new_pod_has_the_server_asked_at_once(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    kubelet = Kubelet(pod("a"))
    section = {"socket": str(tmp_path / "pr" / "kubelet.sock"), "qps": 0, "upstream": upstream(path, 3600)}
    with serving(kubelet, path), running(tmp_path, podResources=section) as agent:
        agent.manifest("a", pod_text("a", "2"))
        agent.until_pod("a")
        with asking(agent) as stub:
            until(lambda: list(container(stub, "a").devices), [GPU])


def test_what_a_kubelet_prepares_after_it_has_admitted_a_pod_is_told_soon(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.sock"
    unprepared, prepared = pod("a"), pod("a")
    unprepared.containers[0].ClearField("dynamic_resources")
    kubelet = Kubelet(unprepared)
    section = {"socket": str(tmp_path / "pr" / "kubelet.sock"), "qps": 0, "upstream": upstream(path, 3600)}
    with serving(kubelet, path), running(tmp_path, podResources=section) as agent:
        agent.manifest("a", pod_text("a", "2"))
        agent.until_pod("a")
        with asking(agent) as stub:
            until(lambda: list(container(stub, "a").devices), [GPU])
            assert list(container(stub, "a").dynamic_resources) == []
            kubelet.pods = [prepared]
            until(lambda: list(container(stub, "a").dynamic_resources), [CLAIM])


def test_devices_that_a_kubelet_learns_one_by_one_after_its_restart_are_all_told(tmp_path: Path) -> None:
    path, port = tmp_path / "kubelet.sock", free_port()
    section = {"socket": str(tmp_path / "pr" / "kubelet.sock"), "qps": 0, "upstream": upstream(path, 3600)}
    kubelet = Kubelet(devices=[GPU])

    def allocatable(stub: v1_grpc.PodResourcesListerStub) -> list[v1.ContainerDevices]:
        return list(stub.GetAllocatableResources(v1.AllocatableResourcesRequest(), timeout=2).devices)

    with running(tmp_path, podResources=section, http={"port": port}) as agent, asking(agent) as stub:
        with serving(kubelet, path):
            until(lambda: allocatable(stub), [GPU])
        until(lambda: sample(port, "pinfold_source_readable"), 0.0)
        kubelet.devices = []
        with serving(kubelet, path):
            until(lambda: allocatable(stub), [])
            kubelet.devices = [GPU]
            until(lambda: allocatable(stub), [GPU])


def test_the_longer_nothing_changes_the_less_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(podresources_upstream, "FIRST_QUIET_SECONDS", 0.05)
    path = tmp_path / "kubelet.sock"
    kubelet = Kubelet(pod("a"))
    with serving(kubelet, path), ServingLoop() as loop:
        asker = Upstream(loop, UpstreamAccess(path, 3600), frozenset, lambda: None)
        began = time.monotonic()
        asker.start()
        until(lambda: kubelet.asked >= 6, wanted=True)
        assert time.monotonic() - began > 0.05 * (1 + 2 + 4 + 8 + 16)
        asker.look()
        until(lambda: kubelet.asked >= 9, wanted=True)  # news of pods: at once, and soon again
        asker.stop()


def test_devices_that_come_after_a_pod_has_waited_for_them_in_vain_are_told_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(podresources_upstream, "FIRST_QUIET_SECONDS", 0.05)
    monkeypatch.setattr(podresources_upstream, "LONGEST_PAUSE_SECONDS", 0.01)
    kubelet, awaited = Kubelet(), [True]
    with serving(kubelet, tmp_path / "kubelet.sock"), ServingLoop() as loop:
        access = UpstreamAccess(tmp_path / "kubelet.sock", 3600)
        asker = Upstream(loop, access, frozenset[str], lambda: None, lambda: awaited[0])
        asker.start()
        until(lambda: kubelet.asked >= 16, wanted=True)
        awaited[0] = False
        asked = kubelet.asked
        until(lambda: kubelet.asked >= asked + 4, wanted=True)  # as after any news, not as after 16 looks without any
        asker.stop()


class Garbled(grpc.GenericRpcHandler):  # type: ignore[type-arg] # it is not generic when it runs
    """Answers every call with bytes that are no message, until it is `well`."""

    well = False

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"" if self.well else b"\n\x03\n\x01\xff")


def test_an_answer_that_cannot_be_read_is_a_fault_and_the_server_is_asked_again(tmp_path: Path) -> None:
    server, garbled = grpc.server(ThreadPoolExecutor(2)), Garbled()
    server.add_generic_rpc_handlers((garbled,))
    server.add_insecure_port(f"unix:{tmp_path / 'kubelet.sock'}")
    server.start()
    with ServingLoop() as loop:
        asked = Upstream(loop, UpstreamAccess(tmp_path / "kubelet.sock", 0.05), frozenset[str], lambda: None)
        asked.start()
        try:
            until(lambda: asked.answering, False)
            assert not asked.health().readable
            garbled.well = True
            until(lambda: asked.answering, True)
            assert asked.health().readable
        finally:
            asked.stop()
            server.stop(None).wait()


def test_every_group_of_clients_has_its_socket_and_its_budget(tmp_path: Path) -> None:
    port = free_port()
    group = {"socket": str(tmp_path / "pr-gpu" / "kubelet.sock"), "qps": 0.001, "burst": 2}
    section = {"socket": str(tmp_path / "pr" / "kubelet.sock"), "qps": 0, "clients": {"gpu": group}}
    with running(tmp_path, podResources=section, http={"port": port}) as agent:
        with grpc.insecure_channel(f"unix:{group['socket']}") as channel:
            stub = v1_grpc.PodResourcesListerStub(channel)
            stub.List(v1.ListPodResourcesRequest())
            stub.List(v1.ListPodResourcesRequest())
            with pytest.raises(grpc.RpcError) as refusal:
                stub.List(v1.ListPodResourcesRequest())
            assert (refusal.value.code(), refusal.value.details()) == (
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                "rejected by rate limit",
            )
        with asking(agent) as stub:
            for _ in range(20):
                stub.List(v1.ListPodResourcesRequest())
        calls = {
            (each.labels["client_group"], each.labels["code"]): each.value
            for each in samples(port, "pinfold_podresources_calls_total")
            if each.labels["method"] == "List" and each.labels["server_api_version"] == "v1"
        }
        assert calls == {("default", "OK"): 20.0, ("gpu", "OK"): 2.0, ("gpu", "RESOURCE_EXHAUSTED"): 1.0}


def samples(port: int, name: str) -> list[Sample]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS) as answer:
        text = answer.read().decode()
    return [each for family in text_string_to_metric_families(text) for each in family.samples if each.name == name]


def sample(port: int, name: str) -> float:
    found = [each for each in samples(port, name) if each.labels["source"] == "podresources-upstream"]
    return found[0].value if found else -1.0
