"""Cgroup names of both drivers and runtimes, written and read back; nothing hostile becomes a path."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.pod import QOSClass
from agent.policy.cgroup_names import (
    CgroupNameError,
    Driver,
    ParsedCgroup,
    checked_container_name,
    checked_uid,
    exec_cgroup,
    parse_cgroup,
    pod_cgroup,
    qos_cgroup,
)
from tests.runtime_names import Runtime, container_leaf
from tests.shared import SHARED

UID = "5c1d9052-806b-4da6-a978-ab8429bf033c"
UID_ = UID.replace("-", "_")
ID = "0d660b973f95eeae153d6b895658651a38d67eca998acf42c94fef17ad8ed21b"
G, B, BE = QOSClass.GUARANTEED, QOSClass.BURSTABLE, QOSClass.BEST_EFFORT


@pytest.mark.parametrize(
    ("driver", "qos", "root", "path"),
    [
        (Driver.CGROUPFS, G, "/", f"kubepods/pod{UID}"),
        (Driver.CGROUPFS, B, "/", f"kubepods/burstable/pod{UID}"),
        (Driver.CGROUPFS, BE, "/", f"kubepods/besteffort/pod{UID}"),
        (Driver.CGROUPFS, B, "/node/a-b", f"node/a-b/kubepods/burstable/pod{UID}"),
        (Driver.SYSTEMD, G, "/", f"kubepods.slice/kubepods-pod{UID_}.slice"),
        (Driver.SYSTEMD, B, "/", f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice"),
        (
            Driver.SYSTEMD,
            BE,
            "/kubelet.slice",
            (
                "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
                f"kubelet-kubepods-besteffort-pod{UID_}.slice"
            ),
        ),
    ],
)
def test_pod_cgroups_are_named_as_the_kubelet_names_them(driver: Driver, qos: QOSClass, root: str, path: str) -> None:
    assert pod_cgroup(driver, qos, UID, root) == PurePosixPath(path)
    assert parse_cgroup(PurePosixPath(path)) == ParsedCgroup(qos, UID)
    assert parse_cgroup(qos_cgroup(driver, qos, root)) == ParsedCgroup(qos)


@pytest.mark.parametrize(
    ("driver", "runtime", "leaf"),
    [
        (Driver.CGROUPFS, Runtime.CONTAINERD, ID),
        (Driver.CGROUPFS, Runtime.CRIO, f"crio-{ID}"),
        (Driver.SYSTEMD, Runtime.CONTAINERD, f"cri-containerd-{ID}.scope"),
        (Driver.SYSTEMD, Runtime.CRIO, f"crio-{ID}.scope"),
    ],
)
def test_container_cgroups_are_named_by_their_runtime(driver: Driver, runtime: Runtime, leaf: str) -> None:
    assert container_leaf(driver, runtime, ID) == leaf
    path = pod_cgroup(driver, B, UID) / leaf
    assert parse_cgroup(path) == ParsedCgroup(B, UID, ID)
    assert parse_cgroup(path / "container") == ParsedCgroup(B, UID, ID, inner=True)  # crun's own level


@pytest.mark.parametrize(
    "path",
    [
        "system.slice/containerd.service",
        "kubepods/burstable/notapod",
        f"kubepods/pod{UID}/crio-conmon-{ID}",
        f"kubepods.slice/kubepods-pod{UID_}.slice/crio-conmon-{ID}.scope",
        f"kubepods.slice/pod{UID}",
        f"kubepods/kubepods-pod{UID_}.slice",
        f"kubepods/pod{UID}/{ID[:-1]}",
        "kubepods/pod../x",
        "",
    ],
)
def test_what_is_not_a_pods_or_containers_cgroup_is_nobodys(path: str) -> None:
    assert parse_cgroup(PurePosixPath(path)) is None


def test_a_file_pods_uid_has_no_dashes_and_stays_as_it_is() -> None:
    uid = "919ee8d351fe70a9642b2df4e313ca3c"
    for driver in Driver:
        assert parse_cgroup(pod_cgroup(driver, G, uid)) == ParsedCgroup(G, uid)


@pytest.mark.parametrize("uid", ["", ".", "..", "a/b", "../x", "/etc", "a b", "a\n", "-a", "x" * 129, "é", "a\0b"])
def test_a_uid_that_could_leave_its_place_is_refused(uid: str) -> None:
    with pytest.raises(CgroupNameError, match="cannot name a cgroup") as caught:
        exec_cgroup(PurePosixPath("pinfold"), uid)
    assert caught.value.hint
    with pytest.raises(CgroupNameError):
        pod_cgroup(Driver.CGROUPFS, G, uid)


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "a_b", "-a", "a-", "a.b", "x" * 64, "a\n"])
def test_a_container_name_that_kubernetes_would_refuse_is_refused(name: str) -> None:
    with pytest.raises(CgroupNameError):
        exec_cgroup(PurePosixPath("pinfold"), "uid", name)


def test_an_underscore_has_no_name_under_the_systemd_driver() -> None:
    assert pod_cgroup(Driver.CGROUPFS, G, "a_b") == PurePosixPath("kubepods/poda_b")
    with pytest.raises(CgroupNameError, match="systemd"):
        pod_cgroup(Driver.SYSTEMD, G, "a_b")


@given(st.text(max_size=20), st.text(max_size=20))
def test_an_exec_cgroup_is_always_two_levels_below_its_parent(uid: str, name: str) -> None:
    try:
        path = exec_cgroup(PurePosixPath("pinfold"), uid, name)
    except CgroupNameError:
        return
    assert path.parts == ("pinfold", checked_uid(uid), checked_container_name(name))
    assert not {".", ".."} & set(path.parts)


@given(
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9.-]{0,40}", fullmatch=True), st.sampled_from(Driver), st.sampled_from(QOSClass)
)
def test_every_uid_that_can_be_written_is_read_back(uid: str, driver: Driver, qos: QOSClass) -> None:
    assert parse_cgroup(pod_cgroup(driver, qos, uid)) == ParsedCgroup(qos, uid)


def _recorded() -> list[Path]:
    return sorted((SHARED / "samples" / "kubelet").glob("*/cgroups-*.txt"))


@pytest.mark.shared
@pytest.mark.parametrize("listing", _recorded(), ids=lambda path: f"{path.parent.name}")
def test_every_cgroup_of_a_recorded_node_is_understood(listing: Path) -> None:
    parsed = [parse_cgroup(PurePosixPath(line.split()[0].lstrip("/"))) for line in listing.read_text().splitlines()]
    assert parsed
    assert None not in parsed
    assert any(one and one.container_id for one in parsed)
