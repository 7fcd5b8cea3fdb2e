"""Unit names of cgroups and cgroups of unit names, and settings as unit properties."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.cpuset import CPUSet
from agent.policy.cgroup_names import CgroupNameError
from agent.policy.cgroup_settings import NO_LIMIT, Observed, Settings, lacking
from agent.policy.systemd_units import (
    container_of_scope,
    container_scope,
    exec_slice,
    id_bytes,
    pod_slice,
    properties_of,
    uid_of_slice,
    unit_of,
    whole_percents,
)

ROOT = PurePosixPath("pinfold.slice")
UIDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,50}", fullmatch=True)
NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)


@pytest.mark.parametrize(
    ("group", "unit"),
    [
        ("kubepods.slice/kubepods-burstable.slice", "kubepods-burstable.slice"),
        (f"kubepods.slice/kubepods-podu_1.slice/cri-containerd-{'a' * 64}.scope", f"cri-containerd-{'a' * 64}.scope"),
        (f"kubepods.slice/kubepods-podu_1.slice/crio-{'a' * 64}.scope/container", None),
        ("kubepods.slice/kubepods-podu_1.slice/x.scope/inner.slice", None),
        ("kubepods/burstable/podu-1", None),
        ("pinfold/uid.slice", None),
        ("pinfold/u/main", None),
        ("x y.slice", None),
        (f"{'a' * 250}.slice", None),
        (".", None),
    ],
)
def test_a_cgroup_is_a_units_only_where_slices_lead_to_it(group: str, unit: str | None) -> None:
    assert unit_of(PurePosixPath(group)) == unit


@pytest.mark.parametrize(
    ("cpus", "array"),
    [("0", b"\x01"), ("0-7", b"\xff"), ("8", b"\x00\x01"), ("0-1,17", b"\x03\x00\x02"), ("63", bytes(7) + b"\x80")],
)
def test_cpus_are_bits_from_the_lowest_byte_on(cpus: str, array: bytes) -> None:
    assert id_bytes(CPUSet.parse(cpus)) == array


def test_no_cpus_at_all_are_never_sent() -> None:
    with pytest.raises(ValueError, match="empty set"):
        properties_of(Settings(cpus=CPUSet()))


def test_every_setting_has_its_property() -> None:
    wanted = Settings(cpus=CPUSet.parse("1"), mems=2, quota_us=150_000, shares=1024, memory_bytes=1 << 26)
    assert dict(properties_of(wanted)) == {
        "AllowedCPUs": ("ay", b"\x02"),
        "AllowedMemoryNodes": ("ay", b"\x02"),
        "CPUQuotaPerSecUSec": ("t", 1_500_000),
        "CPUWeight": ("t", 39),
        "MemoryMax": ("t", 1 << 26),
    }
    assert properties_of(Settings()) == ()
    free = dict(properties_of(Settings(quota_us=NO_LIMIT, memory_bytes=NO_LIMIT)))
    assert {value for _, value in free.values()} == {2**64 - 1}


@given(st.integers(1_000, 10_000_000))
def test_a_quota_is_kept_in_whole_percents_and_never_made_smaller(quota_us: int) -> None:
    ((_, (_, said)),) = properties_of(Settings(quota_us=quota_us))
    assert isinstance(said, int)
    assert said % 10_000 == 0
    assert 0 <= said - quota_us * 10 < 10_000
    exact = whole_percents(Settings(shares=2, quota_us=quota_us))
    assert exact == Settings(shares=2, quota_us=quota_us if said == quota_us * 10 else None)


@given(UIDS, NAMES)
def test_units_of_exec_are_found_again_by_their_names(uid: str, container: str) -> None:
    pod, scope = pod_slice(ROOT, uid), container_scope(ROOT, uid, container)
    assert uid_of_slice(ROOT, pod.name) == uid
    assert container_of_scope(ROOT, uid, scope.name) == container
    assert (unit_of(pod), unit_of(scope)) == (pod.name, scope.name)
    assert pod.name.count("-") == 1, "one more would put it into another slice"
    assert re.fullmatch(r"[A-Za-z0-9:_.\\-]{1,255}", scope.name)


@given(UIDS, NAMES, UIDS, NAMES)
def test_no_two_containers_share_a_scope(uid: str, name: str, other_uid: str, other_name: str) -> None:
    same = container_scope(ROOT, uid, name).name == container_scope(ROOT, other_uid, other_name).name
    assert same == ((uid, name) == (other_uid, other_name))


def test_names_that_could_be_read_two_ways_are_different_units() -> None:
    assert container_scope(ROOT, "a", "b-c").name != container_scope(ROOT, "a-b", "c").name


@pytest.mark.parametrize(
    "name", ["pinfold-podu-1.slice", "pinfold-u.slice", "other-podu.slice", "pinfold-pod.slice", "x"]
)
def test_slices_of_others_are_nobodys_pod(name: str) -> None:
    with pytest.raises(CgroupNameError):
        uid_of_slice(ROOT, name)


@pytest.mark.parametrize(
    "name", ["pinfold-u.main", "pinfold-v.main.scope", "main.scope", "pinfold-u.Main.scope", "cgroup"]
)
def test_scopes_of_others_are_nobodys_container(name: str) -> None:
    with pytest.raises(CgroupNameError):
        container_of_scope(ROOT, "u", name)


def test_a_uid_that_makes_too_long_a_name_is_refused() -> None:
    with pytest.raises(CgroupNameError, match="too long"):
        pod_slice(ROOT, "a" + "-" * 100)


def test_the_slice_is_named_after_the_configured_parent() -> None:
    assert exec_slice(PurePosixPath("pinfold")) == ROOT
    assert exec_slice(PurePosixPath("a-b/c.slice")) == PurePosixPath("a_b.slice/a_b-c.slice")
    with pytest.raises(CgroupNameError):
        exec_slice(PurePosixPath("a b"))


def test_what_is_lacking_is_what_is_not_in_force() -> None:
    cpus, wide = CPUSet.parse("1-2"), CPUSet.parse("0-3")
    wanted = Settings(cpus=cpus, mems=1, quota_us=50_000, shares=1024, memory_bytes=4096)
    there = Observed(cpus, cpus, 1, 50_000, 1024, None, 4096)
    assert lacking(there, wanted) == Settings()
    assert lacking(Observed(cpus, wide, 3, NO_LIMIT, 2, None, NO_LIMIT), wanted) == wanted
    assert lacking(Observed(wide, wide), Settings(mems=0)) == Settings()
    assert lacking(Observed(wide, wide), Settings(quota_us=1000, memory_bytes=1)) == Settings(), "no such controller"
