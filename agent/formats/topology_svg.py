"""A machine as a picture: sockets, NUMA nodes, caches, cores and CPUs, each CPU coloured by its owner.

Used by `pinfold topology -o svg` and by the status page. No script, no external asset; all text is escaped. Colours follow the
reader's light or dark preference. Every CPU square carries `data-cpu`, its classes and a tooltip.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from agent.formats.topology_layout import GAP, MAX_WIDTH, PlacedBlock, PlacedCore, cell_size, header, place
from agent.formats.topology_tree import Block, node_facts, topology_blocks
from agent.model.topology import CPU, NUMANode, Topology

_CLASS = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
_MARGIN = 12
_LINE = 18

# Class -> fill, light and dark. Owners differ in hue and are readable under black or white digits.
_FILLS = {
    "paper": ("#ffffff", "#14181d"),
    "socket": ("#f1f4f8", "#1c2229"),
    "die": ("#e9eef4", "#202730"),
    "node": ("#ffffff", "#242c35"),
    "cache": ("#e6edf5", "#2e3945"),
    "core": ("#c3ceda", "#4b5866"),
    "cpu": ("#fbfcfd", "#12161b"),
    "owner-0": ("#8ec5ff", "#1f6fbf"),
    "owner-1": ("#ffc48a", "#b0611a"),
    "owner-2": ("#9fe0a5", "#2e8540"),
    "owner-3": ("#f7a8b8", "#b13c57"),
    "owner-4": ("#cdb4f6", "#7350b8"),
    "owner-5": ("#f5e27a", "#8f7a10"),
    "owner-6": ("#8fe3dc", "#1c8078"),
    "owner-7": ("#e0b0a0", "#8c5440"),
    "shared": ("#dfe6ee", "#3d4854"),
    "reserved": ("#b0b8c2", "#6b747e"),
    "ink": ("#1b232c", "#e8edf2"),
    "fact": ("#5f6b78", "#9aa7b4"),
}
_FRAMES = ("#a9b5c1", "#4a5663")
HUES = 8  # owner-0 to owner-7
# The next eight have the same hues with another edge, and so on: that is seen without colours too. A pooled one is dashed.
_EDGES = ("", "stroke-width:1.5", "stroke-width:3", "stroke-width:2;stroke-dasharray:1 2")
OWNER_LOOKS = HUES * len(_EDGES)  # give the n-th owner class owner-(n mod 32)


@dataclass(frozen=True, slots=True)
class CPUOwner:
    """Who has a CPU. label: shown in the tooltip and the legend. css_class: owner-0 to owner-31, shared, reserved or a class of
    the surrounding page. pooled: several containers of one pod share it; drawn paler, with a dashed edge.

    Raises ValueError for a class that is not a plain lower-case name.
    """

    label: str
    css_class: str
    pooled: bool = False

    def __post_init__(self) -> None:
        if not _CLASS.fullmatch(self.css_class):
            raise ValueError(f"not a CSS class name: {self.css_class!r}")

    @property
    def classes(self) -> str:
        """The classes of its squares and swatches."""
        return f"{self.css_class} pooled" if self.pooled else self.css_class


def render_svg(topology: Topology, owners: Mapping[int, CPUOwner] | None = None, *, legend: bool = True) -> str:
    """The picture as one <svg> element. owners: CPU -> its owner; CPUs without one are drawn neutral.

    legend: explain the owners below; a page that does so itself needs none.
    """
    owners = owners or {}
    placed, width, height = place(topology_blocks(topology), cell_size(len(topology.cpus)))
    footer = [*_footer(topology), *(_legend(owners) if legend else ())]
    width = max(width, *(_footer_width(line) for line in footer), 260)
    total_height = height + 2 * _MARGIN + (GAP + len(footer) * _LINE if footer else 0)
    cpus = {cpu.id: cpu for cpu in topology.cpus}
    parts = [_head(topology, f"{width + 2 * _MARGIN:.0f}", f"{total_height:.0f}")]
    parts += [line for block in placed for line in _block(block, cpus, owners)]
    parts += [_footer_line(line, height + GAP + (index + 1) * _LINE) for index, line in enumerate(footer)]
    parts.append("</g></svg>")
    return "\n".join(parts) + "\n"


def owner_fills(*scopes: str) -> str:
    """Style rules that give a surrounding page's swatches the picture's colours. scopes: selectors they stand below."""

    def rules(scheme: int) -> str:
        names = [name for name in _FILLS if name.startswith("owner-") or name in ("shared", "reserved")]
        return f"{_fills(names, scopes, scheme)}{_edges(scopes, scheme)}"

    return f"{rules(0)}@media (prefers-color-scheme:dark){{{rules(1)}}}"


def _fills(names: Iterable[str], scopes: Sequence[str], scheme: int) -> str:
    return "".join(f"{_selector(scopes, _alike(name))}{{fill:{_FILLS[name][scheme]}}}" for name in names)


def _edges(scopes: Sequence[str], scheme: int) -> str:
    ink = f"stroke:{_FILLS['ink'][scheme]}"
    rules = [
        f"{_selector(scopes, [f'owner-{number}' for number in range(turn * HUES, (turn + 1) * HUES)])}"
        f"{{{ink};vector-effect:non-scaling-stroke;{edge}}}"
        for turn, edge in enumerate(_EDGES)
        if edge
    ]
    return f"{''.join(rules)}{_selector(scopes, ['pooled'])}{{fill-opacity:.55;{ink};stroke-dasharray:3 2}}"


def _alike(name: str) -> list[str]:
    """The classes that have the fill of this name."""
    if not name.startswith("owner-"):
        return [name]
    return [f"owner-{number}" for number in range(int(name.removeprefix("owner-")), OWNER_LOOKS, HUES)]


def _selector(scopes: Iterable[str], names: Iterable[str]) -> str:
    return ",".join(f"{scope} .{name}" for scope in scopes for name in names)


def _head(topology: Topology, width: str, height: str) -> str:
    title = (
        f"Machine with {len(topology.packages)} sockets, {len(topology.numa)} NUMA nodes, "
        f"{len(topology.cores)} cores and {len(topology.cpus)} CPUs"
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" class="pinfold-machine" role="img" '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f"<title>{escape(title)}</title>{_style(cell_size(len(topology.cpus)))}"
        f'<rect class="paper" width="100%" height="100%"/><g transform="translate({_MARGIN} {_MARGIN})">'
    )


def _style(cell: int) -> str:
    """Plain properties, no variables: also viewers outside browsers show them."""
    digits = max(7.0, min(11.0, cell * 0.45))
    return (
        "<style>.pinfold-machine{max-width:100%;height:auto;font-size:11px;"
        "font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
        ".pinfold-machine .name{font-weight:600}"
        f".pinfold-machine .number{{font-size:{digits:.1f}px;text-anchor:middle;pointer-events:none}}"
        f"{_colours(0)}@media (prefers-color-scheme:dark){{{_colours(1)}}}</style>"
    )


def _colours(scheme: int) -> str:
    scope = (".pinfold-machine",)
    frames = _selector(scope, ("socket", "die", "node"))
    return f"{_fills(_FILLS, scope, scheme)}{frames}{{stroke:{_FRAMES[scheme]}}}{_edges(scope, scheme)}"


def _block(placed: PlacedBlock, cpus: Mapping[int, CPU], owners: Mapping[int, CPUOwner]) -> Iterator[str]:
    block = placed.block
    name, fact = header(block)
    yield f'<g transform="translate({placed.x:.1f} {placed.y:.1f})">'
    yield (
        f'<rect class="{block.level.value}" width="{placed.width:.1f}" height="{placed.height:.1f}" rx="5">'
        f"<title>{escape(_block_tooltip(block))}</title></rect>"
        f'<text class="ink" x="8" y="13"><tspan class="name">{escape(name)}</tspan> '
        f'<tspan class="fact">{escape(fact)}</tspan></text>'
    )
    for inner in placed.inner:
        yield from _block(inner, cpus, owners)
    for core in placed.cores:
        yield from _core(core, cpus, owners)
    yield "</g>"


def _block_tooltip(block: Block) -> str:
    return "\n".join(
        [block.name, f"CPUs {block.cpus}", *block.facts, *([] if block.whole else ["continues elsewhere"])]
    )


def _core(core: PlacedCore, cpus: Mapping[int, CPU], owners: Mapping[int, CPUOwner]) -> Iterator[str]:
    yield (
        f'<g transform="translate({core.x:.1f} {core.y:.1f})">'
        f'<rect class="core" width="{core.width:.1f}" height="{core.height:.1f}" rx="3"/>'
    )
    for index, cpu in enumerate(core.cpus):
        x = 2 + index % core.columns * core.cell
        y = 2 + index // core.columns * core.cell
        owner = owners.get(cpu)
        classes = f"cpu {owner.classes}" if owner else "cpu"
        yield (
            f'<rect class="{classes}" data-cpu="{cpu}" x="{x + 0.5}" y="{y + 0.5}" width="{core.cell - 1}" '
            f'height="{core.cell - 1}" rx="2"><title>{escape(_cpu_tooltip(cpus[cpu], owner))}</title></rect>'
            f'<text class="ink number" x="{x + core.cell / 2}" y="{y + core.cell / 2}" dy=".35em">{cpu}</text>'
        )
    yield "</g>"


def _cpu_tooltip(cpu: CPU, owner: CPUOwner | None) -> str:
    node = "no NUMA node" if cpu.node is None else f"NUMA node {cpu.node}"
    lines = [f"CPU {cpu.id}", f"core of CPU {cpu.core}, {node}"]
    if cpu.capacity is not None:
        lines.append(f"capacity {cpu.capacity}")
    if owner:
        lines.append(owner.label)
    return "\n".join(lines)


def _footer(topology: Topology) -> list[tuple[str, str]]:
    """(class of a colour swatch or "", text) for what has no CPU square: memory-only nodes and offline CPUs."""
    lines = [("", _node_line(node)) for node in topology.numa if not node.cpus]
    if topology.lists.offline:
        lines.append(("", f"CPUs {topology.lists.offline}: offline"))
    return lines


def _node_line(node: NUMANode) -> str:
    near = [f"nearest CPUs {node.local_cpus}"] if node.local_cpus else []
    return f"NUMA node {node.id}: " + ", ".join([node.kind.value, *node_facts(node), *near])


def _legend(owners: Mapping[int, CPUOwner]) -> list[tuple[str, str]]:
    """One line per owner, in the order of the first CPU."""
    counts: dict[CPUOwner, int] = {}
    for cpu in sorted(owners):
        counts[owners[cpu]] = counts.get(owners[cpu], 0) + 1
    return [(owner.classes, f"{owner.label}: {count} CPU{'s' if count > 1 else ''}") for owner, count in counts.items()]


def _footer_width(line: tuple[str, str]) -> float:
    return min(MAX_WIDTH, len(line[1]) * 6.4 + 20)


def _footer_line(line: tuple[str, str], y: float) -> str:
    css_class, text = line
    swatch = f'<rect class="{css_class}" y="{y - 10:.1f}" width="12" height="12" rx="2"/>' if css_class else ""
    return f'{swatch}<text class="fact" x="{18 if css_class else 0}" y="{y:.1f}">{escape(text)}</text>'
