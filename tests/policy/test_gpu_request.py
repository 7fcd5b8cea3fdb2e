from __future__ import annotations

import pytest

from agent.model.pod import Pod
from agent.model.quantity import Quantity
from agent.policy.gpu_request import gpu_request


@pytest.mark.parametrize(
    ("annotations", "resources", "node_memory", "gpus"),
    [
        pytest.param({}, {"nvidia.com/gpu": "2", "cpu": "4"}, None, 2, id="whole devices"),
        pytest.param({}, {"amd.com/gpu": "1"}, None, 1, id="of any vendor"),
        pytest.param({"gpu-fraction": "0.5"}, {}, None, 0.5, id="a fraction"),
        pytest.param(
            {"gpu-fraction": "0.333", "gpu-fraction-num-devices": "3"}, {}, None, 0.99, id="fractions are hundredths"
        ),
        pytest.param({"gpu-memory": "5120"}, {}, 40960, 0.13, id="memory is rounded up to a hundredth of a device"),
        pytest.param({"gpu-memory": "2000", "gpu-fraction-num-devices": "2"}, {}, 8000, 0.5, id="on several devices"),
        pytest.param({"gpu-memory": "2000"}, {}, None, 0, id="memory without a node counts nothing yet"),
        pytest.param(
            {"gpu-fraction": "0.5", "gpu-memory": "9"}, {"nvidia.com/gpu": "4"}, 10, 0.5, id="the fraction wins"
        ),
        pytest.param({}, {"nvidia.com/mig-3g.20gb": "2", "nvidia.com/mig-1g.5gb": "1"}, None, 7, id="MIG slices"),
        pytest.param({}, {"nvidia.com/gpu.shared": "1", "nvidia.com/mig-oops": "1"}, None, 0, id="other resources"),
    ],
)
def test_gpus_count_as_upstream_counts_them(
    annotations: dict[str, str], resources: dict[str, str], node_memory: int | None, gpus: float
) -> None:
    pod = Pod("u", "p", annotations=annotations)
    request = gpu_request(pod, {name: Quantity.parse(amount) for name, amount in resources.items()})
    assert request.hundredths(node_memory) == round(gpus * 100)
    assert not request.problems


@pytest.mark.parametrize(
    "annotations",
    [
        {"gpu-fraction": "1.0"},
        {"gpu-fraction": "nan"},
        {"gpu-fraction": "-0.5"},
        {"gpu-fraction": "1e999"},
        {"gpu-memory": "0"},
        {"gpu-memory": "2Gi"},
        {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"},
        {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "9" * 50},
    ],
)
def test_an_annotation_that_cannot_be_read_counts_as_absent_and_is_told(annotations: dict[str, str]) -> None:
    request = gpu_request(Pod("u", "p", annotations=annotations), {"nvidia.com/gpu": Quantity.parse(1)})
    assert request.hundredths(1000) == 100
    assert len(request.problems) == 1
