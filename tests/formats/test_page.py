from __future__ import annotations

import base64
import hashlib
import re

from hypothesis import given
from hypothesis import strategies as st

from agent.formats.cpu_owners import cpu_owners, pod_colours
from agent.formats.page import HEADERS, render_explanation, render_page
from agent.formats.page_body import render_body
from agent.formats.page_parts import PageContent
from agent.formats.page_style import STYLE
from agent.formats.page_text import query_value, safe
from agent.formats.topology_svg import HUES, OWNER_LOOKS, owner_fills
from agent.model.cpuset import CPUSet
from agent.model.pod import Pod
from agent.node.topology import read_topology
from agent.policy.managers import ManagerConfig, start
from agent.policy.policy_machine import policy_machine
from agent.serve.board import NodeView
from tests.agents import TWO_SOCKETS
from tests.html_outline import Outline
from tests.nodes import GIB, PODS_ON, named
from tests.pods import app, sized
from tests.serve.views import empty_view, exclusive, shared, with_pods

MACHINE = read_topology(TWO_SOCKETS)


def two_sockets(*, scope: str = "pod") -> NodeView:
    config = ManagerConfig(
        cpu_policy="static",
        reserved_cpus=CPUSet.of([0]),
        memory_policy="Static",
        reserved_memory={0: {"memory": GIB}},
        topology_policy="best-effort",
        topology_scope=scope,
        feature_gates=PODS_ON,
    )
    return empty_view(start(policy_machine(MACHINE), config))


def body(view: NodeView) -> str:
    owners = cpu_owners(view.state, view.managers)
    return render_body(PageContent(view.status(), MACHINE, owners, pod_colours(view.state)))


def bubble(name: str) -> Pod:
    own = "cpu=4 memory=1Gi"
    return named(
        name, app(own, own, name="trainer"), app(name="helper"), resources=sized("cpu=8 memory=2Gi", "cpu=8 memory=2Gi")
    )


def test_every_cpu_has_the_colour_of_its_owner() -> None:
    view = with_pods(two_sockets(), exclusive("db", 4), bubble("ml"), shared("web"))
    found = Outline(body(view))
    classes = {int(a["data-cpu"]): a["class"].split()[1:] for tag, a in found.elements if "data-cpu" in a}
    colours = pod_colours(view.state)
    own = {cpu for cpu, names in classes.items() if names == [colours["db"]]}
    assert CPUSet.of(own) == view.state.grants.cpu.entries["db"]["main"]
    pooled = CPUSet.of(cpu for cpu, names in classes.items() if names == [colours["ml"], "pooled"])
    slice_ = CPUSet.of(cpu for cpu, names in classes.items() if names == [colours["ml"]])
    assert slice_ == view.state.grants.cpu.entries["ml"]["trainer"]
    assert slice_ | pooled == view.state.grants.cpu.pod_entries["ml"]
    assert [cpu for cpu, names in classes.items() if names == ["reserved"]] == [0]
    assert CPUSet.of(cpu for cpu, names in classes.items() if names == ["shared"]) == CPUSet.of(
        cpu for cpu in view.state.grants.cpu.default if cpu
    )


def test_every_colour_that_is_used_is_explained_and_defined() -> None:
    view = with_pods(two_sockets(), *(exclusive(f"p{n}", 2) for n in range(9)), bubble("ml"))
    text = body(view)
    legend = text[text.index('class="legend"') : text.index('class="machine"')]
    used = {name for _, names in re.findall(r'class="(cpu) ([^"]+)"', text) for name in names.split()}
    for name in used:
        assert name in legend
        assert f".swatch .{name}" in STYLE


def test_pods_take_different_colours_as_long_as_there_are_some() -> None:
    view = with_pods(two_sockets(), *(exclusive(f"p{n}", 1) for n in range(8)))
    assert len(set(pod_colours(view.state).values())) == 8


def test_pods_that_share_a_hue_have_different_edges_and_pods_beside_each_other_different_hues() -> None:
    view = with_pods(two_sockets(), *(exclusive(f"p{n}", 1) for n in range(31)))
    classes = list(pod_colours(view.state).values())
    assert len(set(classes)) == len(classes) == 31
    hues = [int(name.removeprefix("owner-")) % HUES for name in classes]
    assert all(len(set(hues[start : start + HUES])) == len(hues[start : start + HUES]) for start in range(0, 31, HUES))


def test_every_look_has_a_fill_and_no_two_the_same_fill_and_edge() -> None:
    light = owner_fills(".x").partition("@media")[0]
    looks: dict[str, str] = {}
    for selectors, rule in re.findall(r"([^{}]+)\{([^{}]*)\}", light):
        for selector in selectors.split(","):
            looks[selector] = looks.get(selector, "") + rule
    owners = {selector: look for selector, look in looks.items() if ".owner-" in selector}
    assert len(owners) == len(set(owners.values())) == OWNER_LOOKS
    assert all("fill:" in look for look in owners.values())


def test_a_refusal_says_what_was_asked_what_is_free_and_who_holds_the_nodes() -> None:
    view = with_pods(two_sockets(), exclusive("a", 14), exclusive("b", 12), exclusive("late", 9))
    text = Outline(body(view)).text
    assert "Refused pods (1)" in text
    assert "Asks for 9 exclusive CPUs; free now: NUMA 0: 1, NUMA 1: 4." in text
    second = text[text.index("NUMA node 1") :]
    assert "default/b" in second[: second.index("free, shared")]


def test_the_document_nests_and_works_without_its_script() -> None:
    view = with_pods(two_sockets(), exclusive("a", 2), bubble("ml"), exclusive("late", 40))
    page = render_page("node-1", body(view), "t")
    found = Outline(page)
    assert (found.wrong, found.open) == ([], [])
    assert ("meta", {"http-equiv": "refresh", "content": "10"}) in found.elements
    names = [tag for tag, _ in found.elements]
    assert names.count("main") == names.count("h1") == 1
    sources = [a[key] for _, a in found.elements for key in ("src", "href", "action", "data") if key in a]
    assert all(not re.match(r"(?i)(https?:)?//", source) for source in sources), "nothing comes from elsewhere"
    assert not any(name.startswith("on") for _, a in found.elements for name in a), "no handlers in attributes"


def test_only_the_pages_own_script_may_run() -> None:
    script = render_page("n", "", "t").partition("<script>")[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = HEADERS["Content-Security-Policy"]
    assert f"script-src 'sha256-{digest}';" in policy
    assert "default-src 'none'" in policy


def test_what_has_cpus_can_be_reached_by_keyboard_and_has_a_key() -> None:
    found = Outline(body(with_pods(two_sockets(), exclusive("a", 2), bubble("ml"))))
    holders = [a for _, a in found.elements if "data-cpus" in a]
    assert all(a["tabindex"] == "0" and CPUSet.parse(a["data-cpus"]) for a in holders)
    keys = [a["data-key"] for a in holders]
    assert len(set(keys)) == len(keys)


@given(st.text(st.characters(), max_size=60))
def test_any_name_stays_text(name: str) -> None:
    view = two_sockets()
    hostile = Pod(f"u{name}", f"n{name}", f"s{name}", exclusive("x", 2).containers)
    view = with_pods(view, hostile, Pod("late", f"late{name}", "d", exclusive("x", 50).containers))
    status = view.status()
    status["problems"], status["drift"] = [name], [name]
    calm = with_pods(two_sockets(), exclusive("x", 2), Pod("late", "late", "d", exclusive("x", 50).containers))
    calm_status = calm.status()
    calm_status["problems"], calm_status["drift"] = ["-"], ["-"]
    shapes = []
    for each, said in ((view, status), (calm, calm_status)):
        owners = cpu_owners(each.state, each.managers)
        found = Outline(render_body(PageContent(said, None, owners, pod_colours(each.state))))
        assert (found.wrong, found.open) == ([], [])
        shapes.append([(tag, sorted(attributes)) for tag, attributes in found.elements])
    assert shapes[0] == shapes[1], "the same elements, whatever a pod is called"


@given(st.text(st.characters()))
def test_safe_text_has_nothing_that_html_or_a_reader_could_take_for_something_else(text: str) -> None:
    shown = safe(text)
    assert not set(shown) & set("<>\"'\n\t\x00\x1b\u202e\u2066")
    assert shown.encode().decode() == shown
    assert re.fullmatch(r"[A-Za-z0-9._~%-]*", query_value(text))


def test_an_explanation_keeps_its_lines_and_escapes_its_text() -> None:
    page = render_explanation("n", "<b>", "first\n  <script>second")
    assert "first\n  &lt;script&gt;second" in page
    assert "<b>" not in page.replace("<body>", "")
