"""Metrics as text (Prometheus exposition format 0.0.4).

prometheus-client has a writer too, but that one renames every counter to `..._total`; several of the kubelet's do not end so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from agent.serve.http_connection import Route
from agent.serve.http_messages import Request, Response

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics_route(collector: Collector) -> Route:
    """/metrics: what `collector` (a CollectorRegistry, say) knows at that moment."""

    def metrics(_: Request) -> Response:
        return Response(write_metrics(collector.collect()), CONTENT_TYPE)

    return metrics


def write_metrics(families: Iterable[Metric]) -> str:
    """The families, each with its help and type, under exactly the names of their samples."""
    return "".join(line + "\n" for family in families for line in _lines(family))


def _lines(family: Metric) -> Iterator[str]:
    name = family.samples[0].name if family.type == "counter" and family.samples else family.name
    yield f"# HELP {name} {_escape(family.documentation)}"
    yield f"# TYPE {name} {family.type}"
    for sample in family.samples:
        if not sample.name.endswith("_created"):  # an OpenMetrics extra of prometheus-client's own collectors
            yield f"{sample.name}{_labels(sample)} {_number(sample.value)}"


def family_text(name: str, kind: str, text: str, samples: Iterable[tuple[str, float]]) -> str:
    """One family whose samples all have its name, by the text of their labels; for families of thousands of samples."""
    return family_head(name, kind, text) + "".join([sample_text(name, labels, value) for labels, value in samples])


def family_head(name: str, kind: str, text: str) -> str:
    """The two lines before a family's samples."""
    return f"# HELP {name} {_escape(text)}\n# TYPE {name} {kind}\n"


def sample_text(name: str, labels: str, value: float) -> str:
    """One sample's line, by the text of its labels."""
    return f"{name}{labels} {_number(value)}\n"


def _labels(sample: Sample) -> str:
    return label_text(sample.labels)


def label_text(labels: Mapping[str, str]) -> str:
    """Labels with their values, as they stand between name and number."""
    if not labels:
        return ""
    pairs = (f'{name}="{_escape(value, quoted=True)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _escape(text: str, *, quoted: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quoted else text


def _number(value: float) -> str:
    value = float(value)
    return str(int(value)) if value.is_integer() else repr(value)
