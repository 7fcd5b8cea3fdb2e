"""What a pod means that its file does not say: the defaults an API server fills in, for pods that come without one.

Source: kubernetes 1.36 pkg/apis/core/v1/defaults.go (SetDefaults_Pod, SetDefaults_ResourceList); pod-level: KEP-2837.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from agent.model.pod import Pod, ResourceList, ResourceRequirements
from agent.model.quantity import Quantity
from agent.model.resources import aggregate, is_hugepages, is_pod_level_resource


def apply_defaults(pod: Pod, *, pod_level_resources: bool) -> Pod:
    """The pod with its defaults. pod_level_resources: the feature gate PodLevelResources.

    Amounts finer than a thousandth are rounded up. In a container a limit without a request is the request too. At pod level, in
    this order: a hugepages limit is the sum of the containers'; with any limit set, a missing request of cpu or memory is
    the sum of the containers' requests; a request that is then still missing equals the limit. Twice is the same as once.
    """
    containers = tuple(
        replace(container, resources=_requests_from_limits(_rounded(container.resources)))
        for container in pod.containers
    )
    pod = replace(
        pod,
        containers=containers,
        overhead=_round_up(pod.overhead),
        scheduler_name=pod.scheduler_name or "default-scheduler",
        restart_policy=pod.restart_policy or "Always",
    )
    if pod.resources is None:
        return pod
    resources = _rounded(pod.resources)
    return replace(pod, resources=_pod_level(pod, resources) if pod_level_resources else resources)


def _requests_from_limits(resources: ResourceRequirements) -> ResourceRequirements:
    return ResourceRequirements({**resources.limits, **resources.requests}, resources.limits)


def _pod_level(pod: Pod, resources: ResourceRequirements) -> ResourceRequirements:
    requests, limits = dict(resources.requests), dict(resources.limits)
    if requests or limits:
        for name, amount in aggregate((each.kind, each.resources.limits) for each in pod.containers).items():
            if is_hugepages(name) and name not in requests:
                limits.setdefault(name, amount)
    if limits:
        for name, amount in aggregate((each.kind, each.resources.requests) for each in pod.containers).items():
            if is_pod_level_resource(name) and not is_hugepages(name):
                requests.setdefault(name, amount)
        for name, amount in limits.items():
            if is_pod_level_resource(name):
                requests.setdefault(name, amount)
    return ResourceRequirements(requests, limits)


def _rounded(resources: ResourceRequirements) -> ResourceRequirements:
    return ResourceRequirements(_round_up(resources.requests), _round_up(resources.limits))


def _round_up(resources: ResourceList) -> ResourceList:
    return {name: Quantity(Fraction(amount.milli_value(), 1000), amount.format) for name, amount in resources.items()}
