"""What a PodResources call takes at 1, 8 and 64 clients, with prepared bytes and with answers rebuilt per call, in one run.

Pods have two containers with two CPUs and a memory block each on a machine of 256 CPUs. Every server is a process of its own;
the clients are one thread with a connection for each, all with a call under way all the time (`benchmarks.http2_load`).
`prepared` is what the agent runs, without its limit; `threads` sends the same bytes from gRPC's thread pool server, where
clients that open calls and send no request can take every thread; `rebuilt` makes the message anew for each call. The servers
take turns, three for each line.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import grpc.aio

from agent.formats.podresources import AnswersEncoder, encode_allocatable, encode_get
from agent.model.cpuset import CPUSet
from agent.model.podresources import ContainerView, PodResourcesView, PodView
from agent.model.state import MemoryBlock
from agent.serve.loop import ServingLoop
from agent.serve.podresources import Endpoint, PodResourcesServer
from agent.serve.sockets import SocketAccess
from benchmarks.figure import Figure, Scale
from benchmarks.http2_load import measure
from benchmarks.row import KUBELET, Recorded, Reference, Row, Target

# kubelet 1.36.2, List over gRPC on a unix socket, end to end, fastest ms: (pods, clients)
GO = {(110, 1): 0.388, (500, 1): 1.248}
BUDGET_PODS = 500  # of design section 13
METHODS = ("List", "GetAllocatableResources")
ROUNDS = 3


def view(pods: int) -> PodResourcesView:
    """A node with this many pods; sets overlap where the machine would be too small."""
    return PodResourcesView(
        pods=tuple(
            PodView(
                f"workload-{number:04}",
                "default",
                tuple(
                    ContainerView(
                        name,
                        cpus=CPUSet.of([(4 * number + 2 * place + two) % 256 for two in range(2)]),
                        memory=(MemoryBlock("memory", 1 << 30, 1 << number % 2),),
                    )
                    for place, name in enumerate(("main", "side"))
                ),
            )
            for number in range(pods)
        ),
        allocatable_cpus=CPUSet.of(range(4, 256)),
        allocatable_memory=(MemoryBlock("memory", 1 << 40, 1), MemoryBlock("memory", 1 << 40, 2)),
    )


def serve_prepared(path: Path, node: PodResourcesView) -> None:
    with ServingLoop() as loop:
        server = PodResourcesServer(loop, [Endpoint(SocketAccess(path), limit=None)])
        server.start(AnswersEncoder().encode(node))
        wait_for_the_end()
        server.stop()


def serve_rebuilt(path: Path, node: PodResourcesView) -> None:
    def listing() -> bytes:
        return b"".join(map(encode_get, node.pods))

    answers: dict[str, Callable[[], bytes]] = {"List": listing, METHODS[1]: lambda: encode_allocatable(node)}

    def handler(answer: Callable[[], bytes]) -> Callable[[bytes, object], Awaitable[bytes]]:
        async def handle(_: bytes, __: object) -> bytes:
            return answer()

        return handle

    async def start() -> grpc.aio.Server:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((service({name: handler(answer) for name, answer in answers.items()}),))
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        return server

    with ServingLoop() as loop:
        server = loop.run(start())
        wait_for_the_end()
        loop.run(server.stop(None))


def serve_threads(path: Path, node: PodResourcesView) -> None:
    prepared = AnswersEncoder().encode(node)
    answers: dict[str, Callable[[bytes, object], bytes]] = {
        "List": lambda _, __: prepared.list,
        METHODS[1]: lambda _, __: prepared.allocatable,
    }
    server = grpc.server(ThreadPoolExecutor(4), handlers=[service(answers)])
    server.add_insecure_port(f"unix:{path}")
    server.start()
    wait_for_the_end()


SERVERS = {"prepared": serve_prepared, "threads": serve_threads, "rebuilt": serve_rebuilt}


def service(behaviors: Mapping[str, Callable[[bytes, object], object]]) -> grpc.GenericRpcHandler[bytes, bytes]:
    methods = {name: grpc.unary_unary_rpc_method_handler(behavior) for name, behavior in behaviors.items()}
    return grpc.method_handlers_generic_handler("v1.PodResourcesLister", methods)


def wait_for_the_end() -> None:
    print("ready", flush=True)
    sys.stdin.read()


@contextmanager
def server(kind: str, path: Path, pods: int) -> Iterator[None]:
    """A server of this kind in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.bench_podresources", kind, os.fspath(path), str(pods)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            process.stdout.readline()
            yield
        finally:
            process.kill()


def rows(scale: Scale) -> Iterator[Row]:
    calls = scale.pick(1500, 30)
    for pods in scale.pick((110, 500), (5,)):
        with tempfile.TemporaryDirectory() as folder, ExitStack() as servers:
            paths = {kind: Path(folder) / kind / "kubelet.sock" for kind in SERVERS}
            for kind, path in paths.items():
                path.parent.mkdir()
                servers.enter_context(server(kind, path, pods))
            for clients in scale.pick((1, 8, 64), (1, 2)):
                yield from listed(pods, clients, paths, calls)
            yield from allocatable(pods, paths, calls)


def called(method: str, clients: int, paths: Mapping[str, Path], calls: int) -> dict[str, Figure]:
    millis: dict[str, list[float]] = {kind: [] for kind in paths}
    for _ in range(ROUNDS):
        for kind, path in paths.items():
            millis[kind] += measure(
                path, f"/v1.PodResourcesLister/{method}", clients, max(calls // ROUNDS, 2 * clients)
            )
    return {kind: Figure.of(found) for kind, found in millis.items()}


def listed(pods: int, clients: int, paths: Mapping[str, Path], calls: int) -> Iterator[Row]:
    figures, go = called("List", clients, paths, calls), GO.get((pods, clients))
    targets: tuple[Target | None, ...] = (None,)
    if go is not None and pods == BUDGET_PODS:
        targets = Target("p50 not above Go's min", "p50", go), Target("p99 not above Go's min", "p99", go)
    plural = "" if clients == 1 else "s"
    for target in targets:
        yield Row(
            f"List, {pods} pods, {clients} client{plural}{f', {target.statistic}' if target else ''}",
            figures["prepared"],
            reference=Reference("rebuilt per call", figures["rebuilt"]),
            recorded=Recorded(go, KUBELET) if go is not None else None,
            target=target,
            compared="p50",
        )
    yield Row(f"  the same bytes from gRPC's thread pool server, {clients} client{plural}", figures["threads"])


def allocatable(pods: int, paths: Mapping[str, Path], calls: int) -> Iterator[Row]:
    figures = called(METHODS[1], 1, paths, calls)
    yield Row(
        f"GetAllocatableResources, {pods} pods, 1 client",
        figures["prepared"],
        reference=Reference("rebuilt per call", figures["rebuilt"]),
        recorded=Recorded(0.050, KUBELET),
        compared="p50",
    )


if __name__ == "__main__":  # one of the servers, started by `server`
    SERVERS[sys.argv[1]](Path(sys.argv[2]), view(int(sys.argv[3])))
