"""The configuration: files over files, flags over all, where each value came from, and what is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from agent.commands.config import command
from agent.commands.options import parse_flags
from agent.config import ConfigError, Loaded, load
from agent.config_schema import Config
from agent.model.quantity import Quantity
from agent.node_config import reserved
from tests.nodes import GIB, machine
from tests.policy.cpu_machines import regular


def loaded(directory: Path, text: str, *set_flags: str, **drop_ins: str) -> Loaded:
    """text: config.yaml. drop_ins: files of config.d by name."""
    path = directory / "config.yaml"
    path.write_bytes(text.encode())
    for name, content in drop_ins.items():
        (directory / "config.d").mkdir(exist_ok=True)
        (directory / "config.d" / f"{name}.yaml").write_text(content)
    return load(path, parse_flags(set_flags))


def test_drop_ins_lie_over_the_file_key_by_key_also_inside_nested_sections(tmp_path: Path) -> None:
    main = "sources: {manifests: {path: /m}}\nhttp: {port: 1}\nsystemReserved: {cpu: '1', memory: 1Gi}\n"
    found = loaded(
        tmp_path, main, a="sources: {manifests: {periodSeconds: 5.0}}\n", b="systemReserved: {memory: 2Gi}\n"
    )
    manifests = found.config.sources.manifests
    assert manifests is not None
    assert (manifests.path, manifests.periodSeconds) == ("/m", 5.0)
    assert found.config.systemReserved == {"memory": "2Gi"}
    assert found.config.http.port == 1
    assert found.origin("sources.manifests.path").endswith("config.yaml:1")
    assert found.origin("sources.manifests.periodSeconds").endswith("a.yaml:1")
    assert "systemReserved.cpu" not in found.origins
    assert found.origin("state.directory") == "default"


def test_a_section_that_a_drop_in_switches_off_is_off(tmp_path: Path) -> None:
    found = loaded(tmp_path, "sources: {manifests: {path: /m}}\n", a="sources: {manifests: null}\n")
    assert found.config.sources.manifests is None


@pytest.mark.parametrize(
    ("flags", "key", "value"),
    [
        (["reservedSystemCPUs=0"], "reservedSystemCPUs", "0"),
        (["reservedSystemCPUs=0,16"], "reservedSystemCPUs", "0,16"),
        (["kubeletVersion=1.37"], "kubeletVersion", "1.37"),
        (["systemReserved.cpu=1"], "systemReserved", {"cpu": "1"}),
        (["evictionHard.memory.available=5%"], "evictionHard", {"memory.available": "5%"}),
        (["cpuManagerPolicyOptions.full-pcpus-only=true"], "cpuManagerPolicyOptions", {"full-pcpus-only": "true"}),
        (["featureGates.PodLevelResources=false"], "featureGates", {"PodLevelResources": False}),
        (["reservedMemory=[{numaNode: 0, limits: {memory: 1Gi}}]"], "reservedMemory", None),
        (["podResources.mode=0600"], "podResources.mode", "0600"),
        (["node.maxPods=7"], "node.maxPods", 7),
        (["sources.manifests=null", "sources.manifests.path=/m"], "sources.manifests.path", "/m"),
        (["podResources.clients.team-a.socket=/s"], "podResources.clients", None),
    ],
)
def test_a_flag_is_what_its_key_takes(tmp_path: Path, flags: list[str], key: str, value: object) -> None:
    found = loaded(tmp_path, "", *flags)
    have: Any = found.config
    for step in key.split("."):
        have = getattr(have, step)
    assert have if value is None else have == value
    assert found.origin(flags[-1].partition("=")[0]) == "flag"


@pytest.mark.parametrize("flag", ["node.maxPods", "=1", "a..b=1", "node.maxPods=[1", "node.maxPods=2001-99-99"])
def test_a_flag_that_is_none_is_wrong_use(flag: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_flags((flag,))


def alias_bomb(link: str) -> str:
    """Nine lines that unfold to 10^8 values."""
    links = [link.format(", ".join([f"*a{number}"] * 10), number + 1) for number in range(8)]
    return "\n".join(["a0: &a0 {x: 1}", *links])


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        ("nodes: {}\n", [], "config.yaml:1: nodes: unknown key"),
        ("node:\n  maxPod: 1\n", [], "config.yaml:2: node.maxPod: unknown key"),
        ("node: yes\n", [], "config.yaml:1: node: expected keys and values below it"),
        ("node: {maxPods: many}\n", [], "config.yaml:1: node.maxPods"),
        ("node: {maxPods: 1}\nnode: {maxPods: 2}\n", [], "config.yaml:2: node is given twice, first in line 1"),
        ("node: {maxPods: 2001-99-99}\n", [], "config.yaml: not YAML"),
        ("node: {maxPods: !!int x}\n", [], "config.yaml: not YAML"),
        ("node: [\n", [], "not YAML"),
        ("node: &n {a: *n}\n", [], "not YAML"),
        ("node: &n [*n]\n", [], "not YAML"),
        (f"a: {'[' * 2000}\n", [], "not YAML"),
        ("a: \0\n", [], "not YAML"),
        (alias_bomb("a{1}: &a{1} [{0}]"), [], "more than 10000 values"),
        (alias_bomb("a{1}: &a{1} {{<<: [{0}]}}"), [], "more than 10000 values"),
        ("state: {directory: ''}\n", [], "config.yaml:1: state.directory"),
        ("", ["control.socket="], "flag: control.socket"),
        ("", ["podResources.clients.a.socket="], "flag: podResources.clients.a.socket"),
        ("- a\n", [], "expected keys and values, found list"),
        ("node: text\n", ["node.maxPods=1"], "flag: node.maxPods: node holds no keys"),
        ("", ["node=5", "node.maxPods=1"], "flag: node.maxPods: node holds no keys"),
        ("", ["zork=1"], "flag: zork: unknown key"),
        ("kubeletConfig: /nonexistent/kubelet.yaml\n", [], "/nonexistent/kubelet.yaml: No such file"),
    ],
)
def test_a_wrong_configuration_is_refused_by_name(tmp_path: Path, text: str, flags: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, text, *flags)
    assert said in str(refused.value)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("cpuManagerPolcy: static\n", "unknown key", "did you mean cpuManagerPolicy?"),
        ("http: {prot: 1}\n", "http.prot: unknown key", "did you mean http.port?"),
        ("podresources: {}\n", "unknown key", "did you mean podResources?"),
        ("zork: 1\n", "unknown key", "see docs/configuration.md"),
        ("http: {port: '9557'}\n", "expected a whole number, without quotes (given: '9557')", "docs/configuration.md"),
        ("kubeletVersion: 1.36\n", "should be '1.36' or '1.37' (given: 1.36)", "docs/configuration.md"),
        ("control: {socket: 7}\n", "expected text; write it in quotes (given: 7)", "docs/configuration.md"),
        ("podResources: {mode: 0660}\n", "expected text; write it in quotes (given: 432)", "docs/configuration.md"),
        ("podResources: {mode: rw}\n", 'three octal digits in quotes, such as "0660"', "docs/configuration.md"),
        (
            "featureGates: {PodLevelResources: 'yes'}\n",
            "expected true or false, without quotes",
            "docs/configuration.md",
        ),
        ("http: {address: 0.0.0.0}\n", "config.yaml:1: http: address 0.0.0.0: beyond loopback certificate", "docs"),
        ("enforcement:\n  eviction: {}\n", "config.yaml:2: enforcement.eviction: only a kubelet's pods can be", "docs"),
    ],
)
def test_what_is_wrong_is_said_in_words_with_what_was_probably_meant(
    tmp_path: Path, text: str, said: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, text)
    assert said in str(refused.value)
    assert hint in refused.value.hint
    assert "Input" not in str(refused.value)


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        ("100Mi", 100 << 20),
        ("5%", 64 * GIB * 5 // 100),
        ("0.5%", 64 * GIB // 200),
        ("-1Gi", "is negative"),
        ("-5%", "is negative"),
        ("101%", "is more than there is"),
        ("1e99999999%", "is neither a quantity nor a percentage"),
        ("some", "is neither a quantity nor a percentage"),
        ("%", "is neither a quantity nor a percentage"),
    ],
)
def test_an_eviction_threshold_is_an_amount_or_a_share(threshold: str, expected: int | str) -> None:
    config = Config(evictionHard={"memory.available": threshold})
    if isinstance(expected, str):
        with pytest.raises(ConfigError, match=expected):
            reserved(machine(regular(8)), config)
        return
    amounts: Mapping[str, Quantity] = reserved(machine(regular(8)), config)
    assert amounts["memory"].number == expected


def test_show_has_a_line_for_every_value_with_its_own_origin(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("reports:\n  kubernetes:\n    force: true\nqueues: {api: {port: 1}}\nfeatureGates: {A: true}\n")
    done = CliRunner().invoke(
        command, ["show", "--config", str(path), "--set", "resize.exclusive=true", "--set", "http={port: 1}"]
    )
    assert {
        f"reports.kubernetes.force: true  # {path}:3",
        "reports.kubernetes.events: true  # default",
        f"queues.api.port: 1  # {path}:4",
        "queues.grpc.port: 0  # default",
        "resize.exclusive: true  # flag",
        "http.port: 1  # flag",
        'http.address: "127.0.0.1"  # default',
        'nodeService.mode: "0660"  # default',
        f'featureGates: {{"A": true}}  # {path}:5',
        "reports.spool: null  # default",
    } <= set(done.output.splitlines())
