"""What Prometheus is told: gauges computed from the state at that moment, counters from the tally.

`kubelet_*` and `resource_manager_*` series carry the kubelet's names so that its dashboards work; they are left out on a
node whose kubelet serves them itself. `pinfold_*` are always there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.serve.gauges import GaugedNode, Labels, kubelet_gauges, own_gauges
from agent.serve.podresources import CallKind
from agent.serve.series import Histogram, LabelValues, Series, Tally


class NodeCollector(Collector):
    """Register in a prometheus_client.CollectorRegistry.

    observe: called at every scrape, from another thread. calls: of the PodResources server. kubelet_names: serve the series
    that carry the kubelet's names.
    """

    def __init__(
        self,
        observe: Callable[[], GaugedNode],
        tally: Tally,
        calls: Callable[[], Mapping[CallKind, int]],
        *,
        kubelet_names: bool,
    ) -> None:
        self._observe = observe
        self._tally = tally
        self._calls = calls
        self._kubelet_names = kubelet_names

    def collect(self) -> Iterator[Metric]:
        observed, calls = self._observe(), self._calls()
        yield from own_gauges(observed)
        yield _calls(calls)
        yield from (family for family in tallied(self._tally) if family.name.startswith("pinfold_"))
        if self._kubelet_names:
            yield from kubelet_gauges(observed)
            yield from _kubelet_calls(calls)
            yield from (family for family in tallied(self._tally) if not family.name.startswith("pinfold_"))


def _calls(calls: Mapping[CallKind, int]) -> Metric:
    samples = [
        (
            {
                "client_group": kind.client_group,
                "server_api_version": kind.api_version,
                "method": kind.method,
                "code": kind.code,
            },
            count,
        )
        for kind, count in calls.items()
    ]
    return counter("pinfold_podresources_calls_total", "PodResources calls by client group and answer.", samples)


def _kubelet_calls(calls: Mapping[CallKind, int]) -> Iterator[Metric]:
    """The kubelet counts a call when its method begins: one that the rate limit refuses is in none of these."""
    served = [(kind, count) for kind, count in calls.items() if kind.code != "RESOURCE_EXHAUSTED"]

    def total(version: str, method: str = "", *, errors: bool = False) -> int:
        return sum(
            count
            for kind, count in served
            if kind.api_version == version and method in ("", kind.method) and not (errors and kind.code == "OK")
        )

    name = "kubelet_pod_resources_endpoint_requests_total"
    by_version = [({"server_api_version": version}, total(version)) for version in ("v1", "v1alpha1")]
    yield counter(name, "PodResources calls by API version.", by_version)
    suffixes = {"List": "list", "Get": "get", "GetAllocatableResources": "get_allocatable"}
    for method, suffix in suffixes.items():
        for what, count in (("requests", total("v1", method)), ("errors", total("v1", method, errors=True))):
            name = f"kubelet_pod_resources_endpoint_{what}_{suffix}"
            yield counter(name, f"PodResources {method}: {what}.", [({"server_api_version": "v1"}, count)])


def tallied(tally: Tally) -> Iterator[Metric]:
    """Every counter and histogram of a tally."""
    for series, values in tally.counters():
        for name in filter(None, (series.name, series.alias)):
            yield counter(name, series.help, [(_named(series, key), count) for key, count in values.items()])
    for series, histograms in tally.histograms():
        yield _histogram(series, histograms)


def _named(series: Series, values: LabelValues) -> Labels:
    return dict(zip(series.labels, values, strict=True))


def _histogram(series: Series, values: Mapping[LabelValues, Histogram]) -> Metric:
    family = HistogramMetricFamily(series.name, series.help, labels=list(series.labels))
    bounds = [f"{bound:g}" for bound in series.buckets] + ["+Inf"]
    for key, histogram in values.items():
        below, buckets = 0, []
        for bound, count in zip(bounds, histogram.counts, strict=True):
            below += count
            buckets.append((bound, float(below)))
        family.add_metric(key, buckets=buckets, sum_value=histogram.total)
    return family


def counter(name: str, text: str, samples: Iterable[tuple[Labels, float]]) -> Metric:
    """A family of type counter whose samples have exactly this name (prometheus-client's own class adds `_total`)."""
    family = Metric(name, text, "counter")
    for labels, value in samples:
        family.add_sample(name, dict(labels), value)
    return family
