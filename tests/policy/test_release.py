"""What cgroups say after a release: as if pinfold had never been there."""

from __future__ import annotations

from agent.model.cpuset import CPUSet
from agent.model.pod import QOSClass
from agent.policy.cgroup_intents import Rules
from agent.policy.cgroup_names import ContainerCgroup, PodCgroup, QOSCgroup
from agent.policy.release import released
from tests.nodes import admitted, named, node
from tests.pods import app, guaranteed
from tests.policy.cpu_machines import regular

ALL = CPUSet.parse("0-7")


def test_everybody_may_use_everything_and_has_the_quotas_of_his_own_limits() -> None:
    managers = node(regular(8, numa=2), memory_policy="Static")
    db, web = named("db", guaranteed("2")), named("web", app("cpu=100m", "cpu=500m"))
    grants = admitted(managers, db, web)
    intents = released(grants, {"db": db, "web": web}, Rules(frozenset({"web"})), ALL, 0b11)
    assert not intents.exclusive
    container = intents.of(ContainerCgroup("db", "app")).settings
    assert (container.cpus, container.mems, container.quota_us) == (ALL, 0b11, 200_000)
    assert intents.of(PodCgroup("db")).settings.quota_us == 200_000
    assert intents.of(QOSCgroup(QOSClass.BURSTABLE)).settings.cpus == ALL
    other = intents.of(ContainerCgroup("web", "app")).settings
    assert (other.cpus, other.mems, other.quota_us) == (ALL, None, 50_000)


def test_a_kubelets_pod_that_held_nothing_is_left_as_it_is_but_for_its_cpus() -> None:
    managers = node(regular(8))
    web = named("web", app("cpu=100m", "cpu=500m"))
    intents = released(admitted(managers, web), {"web": web}, Rules(), ALL, 1)
    settings = intents.of(ContainerCgroup("web", "app")).settings
    assert (settings.cpus, settings.quota_us, settings.memory_bytes) == (ALL, None, None)
