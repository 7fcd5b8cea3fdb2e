"""The client of the service manager, on managers that answer well, badly, late and not at all."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from agent.model.cpuset import CPUSet
from agent.node.cgroup import detect
from agent.node.systemd_bus import (
    NoSuchUnitError,
    SystemdBus,
    SystemdError,
    SystemdRefusedError,
    SystemdSilentError,
    UnitExistsError,
)
from agent.node.systemd_detect import find_manager
from agent.policy.cgroup_settings import Settings
from agent.policy.systemd_units import properties_of
from tests.node.scripted_cgroup2 import ScriptedV2
from tests.node.scripted_manager import Answer, RefusalError, ScriptedManager, nothing

SLICE = "kubepods-burstable.slice"


@pytest.fixture
def manager(tmp_path: Path) -> ScriptedManager:
    return ScriptedManager(tmp_path)


def refuse(name: str, text: str) -> Any:
    def act(member: str, body: tuple[Any, ...]) -> Answer:
        raise RefusalError(name, text)

    return act


def test_properties_are_sent_for_this_boot_only(manager: ScriptedManager) -> None:
    with manager.listening():
        SystemdBus(manager.root).set_properties(SLICE, properties_of(Settings(cpus=CPUSet.parse("0-2"))))
    assert manager.calls == [("SetUnitProperties", (SLICE, True, [("AllowedCPUs", ("ay", b"\x07"))]))]


def test_a_scope_is_delegated_and_begins_around_the_process(manager: ScriptedManager) -> None:
    with manager.listening():
        bus = SystemdBus(manager.root)
        bus.start_scope("a.scope", "pinfold.slice", 4711, "it", properties_of(Settings(mems=1)))
    ((member, (unit, mode, properties, others)),) = manager.calls
    said = dict(properties)
    assert (member, unit, mode, others) == ("StartTransientUnit", "a.scope", "fail", [])
    assert (said["PIDs"], said["Slice"], said["Delegate"]) == (("au", [4711]), ("s", "pinfold.slice"), ("b", True))
    assert said["AllowedMemoryNodes"] == ("ay", b"\x01")


def test_signals_before_the_answer_are_not_the_answer(manager: ScriptedManager) -> None:
    manager.noise = 50
    with manager.listening():
        assert SystemdBus(manager.root).version() == 252


def test_without_its_private_socket_the_system_bus_is_asked_after_a_greeting(manager: ScriptedManager) -> None:
    with manager.listening("run/dbus/system_bus_socket"):
        assert SystemdBus(manager.root).version() == 252
    assert [member for member, _ in manager.calls] == ["Hello", "Get"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("org.freedesktop.systemd1.NoSuchUnit", NoSuchUnitError),
        ("org.freedesktop.systemd1.UnitExists", UnitExistsError),
        ("org.freedesktop.DBus.Error.AccessDenied", SystemdRefusedError),
        ("org.freedesktop.DBus.Error.ServiceUnknown", SystemdSilentError),
        ("org.freedesktop.DBus.Error.InvalidArgs", SystemdError),
    ],
)
def test_a_refusal_names_the_unit_the_reason_and_what_to_do(
    manager: ScriptedManager, name: str, kind: type[SystemdError]
) -> None:
    manager.act = refuse(name, "because of this")
    with manager.listening(), pytest.raises(SystemdError) as caught:
        SystemdBus(manager.root).stop(SLICE)
    assert type(caught.value) is kind
    assert str(caught.value) == f"{SLICE}: systemd refused to StopUnit: because of this"
    assert caught.value.hint


def test_a_manager_that_does_not_answer_is_left_alone_for_a_while(manager: ScriptedManager) -> None:
    now = [100.0]
    bus = SystemdBus(manager.root, timeout_seconds=0.2, clock=lambda: now[0])
    manager.mute = True
    with manager.listening():
        with pytest.raises(SystemdSilentError, match=r"kubepods-burstable.slice: systemd did not StopUnit: no answer"):
            bus.stop(SLICE)
        manager.mute = False
        with pytest.raises(SystemdSilentError, match=r"is not asked to StopUnit yet: no answer within 0.2 s"):
            bus.stop(SLICE)
        assert len(manager.calls) == 1
        now[0] += 31
        bus.stop(SLICE)
    assert len(manager.calls) == 2


@pytest.mark.parametrize("fault", ["nobody", "hang up", "garbage", "endless noise"])
def test_whatever_goes_wrong_with_the_connection_is_an_error_of_the_unit(manager: ScriptedManager, fault: str) -> None:
    manager.hang_up = fault == "hang up"
    manager.garbage = b"no D-Bus at all, whatever this is" * 10 if fault == "garbage" else b""
    manager.noise = 20_000 if fault == "endless noise" else 0
    bus = SystemdBus(manager.root, timeout_seconds=10.0)
    if fault == "nobody":
        with pytest.raises(SystemdSilentError, match=SLICE):
            bus.stop(SLICE)
        return
    with manager.listening(), pytest.raises(SystemdSilentError, match=SLICE):
        bus.stop(SLICE)


def versioned(version: str, top: str = "") -> Any:
    def act(member: str, body: tuple[Any, ...]) -> Answer:
        return "v", (("s", version if body[1] == "Version" else top),)

    return act


@pytest.mark.parametrize(
    ("act", "used", "odd", "text"),
    [
        (nothing, True, False, "systemd 252"),
        (versioned("244~rc1"), True, False, "systemd 244"),
        (versioned("243 (243.7)"), False, True, "systemd 243 has no AllowedCPUs yet, 244 has"),
        (versioned("devel"), False, True, "systemd 0 has no AllowedCPUs yet, 244 has"),
        (versioned("252", "/docker/ab"), False, True, "systemd's own cgroup is /docker/ab"),
        (refuse("org.freedesktop.DBus.Error.AccessDenied", "no"), False, True, "systemd refused to Get: no"),
    ],
)
def test_only_a_manager_that_can_keep_cpusets_is_used(
    manager: ScriptedManager, act: Any, used: bool, odd: bool, text: str
) -> None:
    kernel = ScriptedV2(manager.root / "cgroup")
    manager.act = act
    with manager.listening():
        found = find_manager(detect(kernel.root, kernel), kernel.root, SystemdBus(manager.root))
    assert (found.bus is not None, found.odd) == (used, odd)
    assert text in found.text


def test_without_systemd_or_a_unified_hierarchy_files_are_written(manager: ScriptedManager) -> None:
    kernel = ScriptedV2(manager.root / "cgroup")
    hierarchy = detect(kernel.root, kernel)
    assert find_manager(hierarchy, kernel.root, SystemdBus(manager.root)).text == "systemd does not run here"
    with manager.listening():
        found = find_manager(hierarchy, kernel.root.parent, SystemdBus(manager.root))
    assert (found.bus, found.odd) == (None, False)
    assert manager.calls == []
    assert hierarchy.directories(PurePosixPath()) == (kernel.root,)
