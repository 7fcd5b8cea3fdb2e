"""The queue tree as an HTML page: per queue and resource one bar with allocated, reserved, quota, fair share and limit.

Server-rendered, no script, nothing from elsewhere; names and texts that others chose are escaped. Light and dark by the reader's
setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from agent.formats.page_text import safe
from agent.model.queue import RESOURCES, UNLIMITED, QueueShare, ResourceName
from agent.queues.accountant_view import AccountantView
from agent.queues.page_style import STYLE
from agent.queues.quantities import format_amount
from agent.queues.resize_growth import NOTHING, CPUMemory
from agent.queues.text_accountant import remark_lines, time_of_day

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}
REFRESH_SECONDS = 15
_OPEN_DEPTH = 2  # levels that are unfolded at first
_MOST_LISTED = 50
_UNITS = (", cores", "", ", devices")  # in the head of the column, so that they need not stand in every cell
_UNIT_WORDS = re.compile(r" (cores?|GPUs?)$")


def render_page(view: AccountantView) -> str:
    """The whole document."""
    parts = [_summary(view), _troubles(view), _queues(view), _reservations(view)]
    moment = datetime.fromtimestamp(view.capture.taken, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}"><title>Queues · pinfold</title><style>{STYLE}</style></head>'
        f'<body><header><h1>Queues <span>pinfold</span></h1><span class="soft">as of {moment}</span></header>'
        f"<main>{''.join(parts)}</main>"
        '<footer>Also here: <a href="v1/queues">JSON</a> · <a href="metrics">metrics</a> · '
        '<a href="readyz?verbose">health</a>. This page only shows; it changes nothing.</footer></body></html>\n'
    )


def _summary(view: AccountantView) -> str:
    taken = view.capture
    stale = len(taken.stale_since)
    pills = []
    if taken.complete:
        pills.append('<span class="pill good">every node accounted for</span>')
    elif taken.missing:
        pills.append(f'<span class="pill bad">{len(taken.missing)} nodes have not reported</span>')
    elif view.from_status:
        pills.append('<span class="pill warn">no node reports: charges as Queue.status says</span>')
    else:
        pills.append('<span class="pill warn">waiting for nodes</span>')
    if stale:
        pills.append(f'<span class="pill warn">{stale} silent nodes, their charge is kept</span>')
    if view.violations:
        pills.append(f'<span class="pill bad">{len(view.violations)} bounds exceeded</span>')
    total = ", ".join(
        f"{resource} <b>{safe(format_amount(resource, amount))}</b>"
        for resource, amount in zip(RESOURCES, view.total, strict=True)
    )
    facts = [
        f"To divide: {total}",
        f"Queues: <b>{len(view.shares)}</b>",
        f"Nodes: <b>{len(taken.nodes)}</b>",
        f"Reservations: <b>{len(taken.ledger.reservations)}</b>",
    ]
    items = "".join(f"<li>{fact}</li>" for fact in facts)
    return f'<section aria-label="Summary">{" ".join(pills)}<ul class="facts">{items}</ul></section>'


def _troubles(view: AccountantView) -> str:
    lines = list(remark_lines(view))
    if not lines:
        return ""
    more = len(lines) - _MOST_LISTED
    items = "".join(f"<li>{safe(line)}</li>" for line in lines[:_MOST_LISTED])
    items += f"<li>and {more} more: see JSON</li>" if more > 0 else ""
    return f'<section class="trouble"><h2>Not as it should be</h2><ul>{items}</ul></section>'


# --- the tree -----------------------------------------------------------------------------------------------------------


def _queues(view: AccountantView) -> str:
    if not view.shares:
        return "<section><h2>Queues</h2><p>There are none.</p></section>"
    shown = [
        position for position in range(len(RESOURCES)) if any(_used(each, position) for each in view.shares.values())
    ]
    shown = shown or [0]
    head = "".join(f"<span>{RESOURCES[position]}{_UNITS[position]}</span>" for position in shown)
    legend = (
        '<ul class="legend"><li><i class="key held"></i>allocated</li><li><i class="key fixed"></i>of it not preemptible</li>'
        '<li><i class="key reserved"></i>reserved by admitted resizes</li><li><i class="key over"></i>beyond a bound</li>'
        '<li><i class="key quota"></i>quota</li><li><i class="key fair"></i>fair share</li>'
        '<li><i class="key limit"></i>limit</li></ul>'
    )
    rows = "".join(_branches(view, shown))
    return (
        f'<section style="--columns:{len(shown)}"><h2>Queues</h2>{legend}<div class="tree">'
        f'<div class="row head"><span>queue, priority</span>{head}</div>{rows}</div></section>'
    )


def _used(share: QueueShare, position: int) -> bool:
    queue = share.queue
    amounts = (share.allocated, share.request, share.fair_share, queue.deserved, queue.limit)
    return any(amount[position] > 0 for amount in amounts)


def _branches(view: AccountantView, shown: list[int]) -> Iterator[str]:
    """Rows, those with children as something to fold. A stack, since a tree from strangers may be deep."""
    tree = view.tree
    stack: list[tuple[str, int] | None] = [(name, 0) for name in reversed(tree.children.get("", ()))]
    while stack:
        top = stack.pop()
        if top is None:
            yield "</details>"
            continue
        name, depth = top
        row = _row(view, name, depth, shown)
        if tree.is_leaf(name):
            yield f'<div class="row">{row}</div>'
            continue
        yield f'<details{" open" if depth < _OPEN_DEPTH else ""}><summary class="row">{row}</summary>'
        stack.append(None)
        stack += [(child, depth + 1) for child in reversed(tree.children.get(name, ()))]


def _row(view: AccountantView, name: str, depth: int, shown: list[int]) -> str:
    share = view.shares[name]
    title = safe(name)
    if share.queue.display_name and share.queue.display_name != name:
        title = f'{safe(share.queue.display_name)} <span class="soft">{title}</span>'
    mark = '<span class="pill warn">stale part</span>' if name in view.stale else ""
    priority = f'<span class="soft">{share.queue.priority}</span>'
    label = f'<span class="name" style="--depth:{min(depth, 12)}">{title} {priority}{mark}</span>'
    reserved = view.reserved.get(name, NOTHING)
    return label + "".join(_cell(view, share, position, reserved) for position in shown)


def _cell(view: AccountantView, share: QueueShare, position: int, reserved: CPUMemory) -> str:
    resource, queue = RESOURCES[position], share.queue
    held, fixed = share.allocated[position], share.allocated_non_preemptible[position]
    quota, fair, limit = queue.deserved[position], share.fair_share[position], queue.limit[position]
    coming = float(reserved[position]) if position < len(reserved) else 0.0
    full = max(held + coming, fair, *(bound for bound in (quota, limit) if bound != UNLIMITED), 0.0)
    if limit == UNLIMITED and full < view.total[position]:
        full = min(view.total[position], full * 1.25)
    over = any(each.queue == queue.name and each.resource is resource for each in view.violations)
    says = _says(resource, held, quota, fair, limit)
    bar = '<span class="bar none"></span>'
    if full > 0:
        bar = _bar(full, held, fixed, coming, quota, fair, limit, over=over, says=says)
    return f'<span class="cell">{bar}<span class="says"><b>{resource}</b> {says}</span></span>'


def _bar(
    full: float,
    held: float,
    fixed: float,
    coming: float,
    quota: float,
    fair: float,
    limit: float,
    *,
    over: bool,
    says: str,
) -> str:
    def percent(amount: float) -> str:
        return f"{min(100.0, max(0.0, amount / full * 100)):.4g}%"

    parts = [f'<i class="held{" over" if over else ""}" style="width:{percent(held)}"></i>']
    if fixed > 0:
        parts.append(f'<i class="fixed" style="width:{percent(fixed)}"></i>')
    if coming > 0:
        parts.append(f'<i class="reserved" style="left:{percent(held)};width:{percent(coming)}"></i>')
    for kind, amount in (("quota", quota), ("fair", fair), ("limit", limit)):
        if amount != UNLIMITED and (amount > 0 or kind == "limit"):
            parts.append(f'<i class="mark {kind}" style="left:{percent(amount)}"></i>')
    return f'<span class="bar" role="img" aria-label="{says}">{"".join(parts)}</span>'


def _says(resource: ResourceName, held: float, quota: float, fair: float, limit: float) -> str:
    allocated, deserved, share, most = (
        "∞" if amount == UNLIMITED else safe(_UNIT_WORDS.sub("", format_amount(resource, amount)))
        for amount in (held, quota, fair, limit)
    )
    return f"{allocated} · quota {deserved} · fair {share} · limit {most}"


def _reservations(view: AccountantView) -> str:
    reservations = view.capture.ledger.reservations
    if not reservations:
        return ""
    rows = "".join(
        f"<tr><td>{safe(each.pod)}</td><td>{safe(each.queue)}</td>"
        f"<td>{safe(format_amount(ResourceName.CPU, each.held.cpu_millis))}</td>"
        f"<td>{safe(format_amount(ResourceName.MEMORY, each.held.memory_bytes))}</td><td>{time_of_day(each.expires)}</td></tr>"
        for each in sorted(reservations.values(), key=lambda each: each.expires)[:_MOST_LISTED]
    )
    return (
        f"<section><h2>Growth admitted and not seen yet ({len(reservations)})</h2><table><thead><tr><th>pod</th><th>queue</th>"
        f"<th>cpu</th><th>memory</th><th>ends at</th></tr></thead><tbody>{rows}</tbody></table></section>"
    )
