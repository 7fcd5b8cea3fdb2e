"""How PodResources holds out against many clients: 500 pods, every client with a call under way all the time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench_podresources import BUDGET_PODS, server
from benchmarks.curve import Curve, Series
from benchmarks.figure import Figure, Scale, milliseconds
from benchmarks.http2_load import measure

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
METHOD = "/v1.PodResourcesLister/List"
WARM_UP = 3


def curves(scale: Scale) -> Iterator[Curve]:
    rates, latencies = list[tuple[float, float]](), list[tuple[float, Figure]]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kubelet.sock"
        with server("prepared", path, scale.pick(BUDGET_PODS, 5)):
            for clients in scale.pick(SIZES, (1, 2)):
                calls = max(scale.pick(1500, 10), 4 * clients)
                found = list[float]()
                took = milliseconds(lambda: found.extend(measure(path, METHOD, clients, calls, WARM_UP)))  # noqa: B023
                rates.append((float(clients), 1000 * (calls + WARM_UP * clients) / took))
                latencies.append((float(clients), Figure.of(found)))
    waits = (
        Series("p50", tuple((clients, figure.p50) for clients, figure in latencies)),
        Series("p99", tuple((clients, figure.p99) for clients, figure in latencies)),
    )
    title = f"PodResources List, {BUDGET_PODS} pods"
    yield Curve("clients-latency", f"{title}: one call, by clients", "clients that call all the time", "ms", waits)
    rate = (Series("calls", tuple(rates)),)
    yield Curve("clients-rate", f"{title}: calls a second, by clients", "clients that call all the time", "1/s", rate)
