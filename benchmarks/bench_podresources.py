"""What a PodResources call takes at 1, 8 and 64 clients, with prepared bytes and with answers rebuilt per call, in one run.

    python -m benchmarks.bench_podresources [CALLS]

Pods have two containers with two CPUs and a memory block each on a machine of 256 CPUs. Every server is a process of its own;
the clients are one thread with a connection for each, all with a call under way all the time (`benchmarks.http2_load`).
`prepared` is what the agent runs, without its limit; `threads` sends the same bytes from gRPC's thread pool server, where
clients that open calls and send no request can take every thread; `rebuilt` makes the message anew for each call. The servers
take turns, three for each line. Figures are milliseconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import grpc.aio

from agent.formats.podresources import Answers, encode_allocatable, encode_answers, encode_get
from agent.model.cpuset import CPUSet
from agent.model.podresources import ContainerView, PodResourcesView, PodView
from agent.model.state import MemoryBlock
from agent.serve.loop import ServingLoop
from agent.serve.podresources import Endpoint, PodResourcesServer
from agent.serve.sockets import SocketAccess
from benchmarks.http2_load import measure

POD_COUNTS = (5, 110, 500)
CLIENT_COUNTS = (1, 8, 64)
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
        server.start(encode_answers(node))
        wait_for_the_end()
        server.stop()


def serve_rebuilt(path: Path, node: PodResourcesView) -> None:
    def listing() -> bytes:
        return b"".join(map(encode_get.__wrapped__, node.pods))

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
    prepared = encode_answers(node)
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
    command = [sys.executable, "-m", "benchmarks.bench_podresources", "serve", kind, os.fspath(path), str(pods)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        yield
        process.kill()


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def run(calls: int) -> None:
    print(
        f"{'pods':>5} {'call':<24}{'bytes':>7} {'clients':>7}" + "".join(f"{kind:>10} p50     p99" for kind in SERVERS)
    )
    for pods in POD_COUNTS:
        answers = encode_answers(view(pods))
        with tempfile.TemporaryDirectory() as folder:
            paths = {kind: Path(folder) / kind / "kubelet.sock" for kind in SERVERS}
            for path in paths.values():
                path.parent.mkdir()
            with (
                server("prepared", paths["prepared"], pods),
                server("threads", paths["threads"], pods),
                server("rebuilt", paths["rebuilt"], pods),
            ):
                for method in METHODS:
                    for clients in CLIENT_COUNTS:
                        row(pods, method, clients, answers, paths, calls)


def row(pods: int, method: str, clients: int, answers: Answers, paths: dict[str, Path], calls: int) -> None:
    millis: dict[str, list[float]] = {kind: [] for kind in paths}
    for _ in range(ROUNDS):
        for kind, path in paths.items():
            millis[kind] += measure(path, f"/v1.PodResourcesLister/{method}", clients, calls // ROUNDS)
    size = len(answers.list if method == "List" else answers.allocatable)
    figures = "".join(f"{percentile(found, 0.5):>14.2f}{percentile(found, 0.99):>8.2f}" for found in millis.values())
    print(f"{pods:>5} {method:<24}{size:>7} {clients:>7}{figures}", flush=True)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["serve"]:
        SERVERS[arguments[1]](Path(arguments[2]), view(int(arguments[3])))
    else:
        run(int(arguments[0]) if arguments else 3000)


if __name__ == "__main__":
    main(sys.argv[1:])
