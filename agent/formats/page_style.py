"""The status page's style sheet and script, as they stand in it: no build step, nothing from elsewhere.

Colours of CPUs are the picture's own (`agent.formats.topology_svg`), so that a legend can never say something else.
"""

from __future__ import annotations

from agent.formats.topology_svg import owner_fills

_LAYOUT = """
*{box-sizing:border-box}
:root{color-scheme:light dark;--paper:#f4f6f9;--card:#fff;--ink:#18212b;--soft:#56616e;--line:#d5dce4;--accent:#0b61c4;
--good:#17692f;--good-bg:#dff3e4;--bad:#a3161c;--bad-bg:#fde7e7;--warn:#7a4b00;--warn-bg:#fdf0d5;--lit:#d6006c}
@media (prefers-color-scheme:dark){:root{--paper:#101419;--card:#181e25;--ink:#e7edf3;--soft:#9dabb9;--line:#2d3742;
--accent:#79b4ff;--good:#86dd9c;--good-bg:#14331d;--bad:#ff9c9c;--bad-bg:#43191c;--warn:#f3c979;--warn-bg:#3b2c0c;--lit:#ff6fb5}}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.45 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',
sans-serif;-webkit-text-size-adjust:100%}
.skip{position:absolute;left:-999px}.skip:focus{left:8px;top:8px;background:var(--card);padding:8px;z-index:2}
header,main,footer{max-width:1280px;margin:0 auto;padding:0 16px}
header{display:flex;flex-wrap:wrap;gap:4px 14px;align-items:baseline;padding-top:14px}
h1{font-size:20px;margin:0}h1 span{color:var(--soft);font-weight:400}
h2{font-size:16px;margin:0 0 10px}h3{font-size:14px;margin:0 0 6px}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px;margin:12px 0}
a{color:var(--accent)}:focus-visible{outline:2px solid var(--lit);outline-offset:2px;border-radius:3px}
code,.cpus{font-family:ui-monospace,'SF Mono',Menlo,'DejaVu Sans Mono',monospace;font-size:13px}
.soft{color:var(--soft)}.wrap{overflow-wrap:anywhere}p{margin:4px 0}
.pill{display:inline-block;border-radius:99px;padding:1px 10px;font-size:13px;font-weight:600;background:var(--line)}
.good{background:var(--good-bg);color:var(--good)}.bad{background:var(--bad-bg);color:var(--bad)}
.warn{background:var(--warn-bg);color:var(--warn)}
#link{font-size:13px;color:var(--soft);margin-left:auto}#link.lost{color:var(--bad);font-weight:600}
.facts{display:flex;flex-wrap:wrap;gap:2px 20px;padding:0;margin:8px 0 0;list-style:none;font-size:14px}
.facts b{font-weight:600}
.trouble{border-color:var(--bad);border-left-width:5px}.trouble ul{margin:0;padding-left:20px}
.refusal{border-top:1px solid var(--line);padding:9px 0 8px}.refusal:first-of-type{border-top:0;padding-top:0}
.refusal:last-child{padding-bottom:0}
.machine{overflow-x:auto;padding-bottom:4px}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;list-style:none;padding:0;margin:0 0 10px;font-size:13px}
.legend li,.who{cursor:default;border-radius:4px}.legend li{display:flex;gap:6px;align-items:center}
.swatch{width:13px;height:13px;flex:none;display:inline-block;vertical-align:-2px}
.swatch rect{stroke:var(--soft);stroke-width:1}
.nodes{display:grid;grid-template-columns:repeat(auto-fill,minmax(290px,1fr));gap:12px}
.node-card{border:1px solid var(--line);border-radius:8px;padding:10px 12px;min-width:0}
.node-card ul{list-style:none;margin:4px 0 8px;padding:0;font-size:13px}
.node-card li{display:flex;gap:8px;justify-content:space-between}.node-card li span:last-child{text-align:right}
.bar{display:block;width:100%;height:12px;margin:4px 0 6px;border-radius:3px}
.bar .taken{fill:var(--accent)}.bar .rest{fill:var(--line)}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px}
caption{text-align:left;color:var(--soft);font-size:13px;padding-bottom:6px}
th,td{text-align:left;vertical-align:top;padding:5px 12px 5px 0;border-top:1px solid var(--line)}
thead th{border-top:0;font-size:12px;color:var(--soft);font-weight:600;white-space:nowrap}
tbody th{font-weight:600;overflow-wrap:anywhere;max-width:22em}tbody th .soft,tbody th a,tbody th .wrap
{font-weight:400;font-size:13px}
tr.more td{border-top:0}
[data-cpus]{transition:background .1s}[data-cpus].on{background:color-mix(in srgb,var(--lit) 16%,transparent)}
.machine .pinfold-machine .paper{fill:none}.pinfold-machine rect.cpu{transition:opacity .12s}
.focused .pinfold-machine rect.cpu:not(.lit){opacity:.22}
.pinfold-machine rect.lit{stroke:var(--lit);stroke-width:2;stroke-dasharray:none}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font:13px/1.5 ui-monospace,Menlo,'DejaVu Sans Mono',monospace;margin:0}
footer{padding-bottom:26px;font-size:13px;color:var(--soft)}
@media (max-width:640px){header,main,footer{padding-left:10px;padding-right:10px}section{padding:12px}
.machine .pinfold-machine{max-width:none}#link{margin-left:0}
.pods thead{display:none}.pods,.pods caption,.pods tbody,.pods tr,.pods td,.pods th{display:block;max-width:none}
.pods td,.pods tbody th{border:0;padding:1px 0}.pods tr{border-top:1px solid var(--line);padding:8px 0}
.pods tr.more{border-top:0;padding-top:0}.pods td[data-name]::before{content:attr(data-name) ": ";color:var(--soft)}
.pods td:empty{display:none}}
@media (prefers-reduced-motion:reduce){*{transition:none!important}}
@media print{#link,.skip{display:none}section{break-inside:avoid}}
"""

# .machine .paper outweighs the picture's own rule, which stands later in the page
STYLE = _LAYOUT.strip().replace("\n", "") + owner_fills(".swatch", ".bar")

SCRIPT = """
'use strict';
(() => {
  const main = document.querySelector('main'), link = document.getElementById('link');
  let tag = main.dataset.tag, pinned = null, pinnedCpu = null;
  const cpusOf = list => {
    const ids = new Set();
    for (const part of list.split(',')) {
      const [low, high] = part.split('-').map(Number);
      if (part) for (let id = low; id <= (high ?? low); id++) ids.add(id);
    }
    return ids;
  };
  const show = (ids, source) => {
    main.classList.toggle('focused', ids !== null);
    for (const square of main.querySelectorAll('rect.cpu'))
      square.classList.toggle('lit', ids !== null && ids.has(Number(square.dataset.cpu)));
    for (const row of main.querySelectorAll('[data-cpus]')) row.classList.toggle('on', row === source);
  };
  const showCpu = id => {
    let widest = new Set([id]), least = Infinity;
    const holders = [...main.querySelectorAll('[data-cpus]')].filter(row => cpusOf(row.dataset.cpus).has(id));
    for (const row of holders) {
      const ids = cpusOf(row.dataset.cpus);
      if (ids.size < least) { least = ids.size; widest = ids; }
    }
    show(widest, null);
    for (const row of holders) row.classList.add('on');
  };
  const keyed = key => [...main.querySelectorAll('[data-key]')].find(row => row.dataset.key === key);
  const rest = () => {
    const row = pinned === null ? null : keyed(pinned);
    if (row) show(cpusOf(row.dataset.cpus), row);
    else if (pinnedCpu !== null) showCpu(pinnedCpu);
    else show(null, null);
  };
  const at = target => target instanceof Element && {row: target.closest('[data-cpus]'), cpu: target.closest('rect.cpu')};
  const point = event => {
    const found = at(event.target);
    if (found && found.row) show(cpusOf(found.row.dataset.cpus), found.row);
    else if (found && found.cpu) showCpu(Number(found.cpu.dataset.cpu));
    else rest();
  };
  for (const kind of ['mouseover', 'focusin']) main.addEventListener(kind, point);
  for (const kind of ['mouseleave', 'focusout']) main.addEventListener(kind, rest);
  main.addEventListener('click', event => {
    const found = at(event.target);
    if (!found || event.target.closest('a')) return;
    const key = found.row ? found.row.dataset.key : null, cpu = found.cpu ? Number(found.cpu.dataset.cpu) : null;
    const same = key === pinned && cpu === pinnedCpu;
    pinned = same ? null : key;
    pinnedCpu = same ? null : cpu;
    rest();
  });
  document.addEventListener('keydown', event => {
    if (event.key === 'Escape') { pinned = pinnedCpu = null; rest(); }
  });
  const put = (text, fresh) => {
    const focus = main.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
    const across = main.querySelector('.machine')?.scrollLeft ?? 0;
    main.innerHTML = text;
    tag = fresh;
    const picture = main.querySelector('.machine');
    if (picture) picture.scrollLeft = across;
    rest();
    if (focus !== undefined) keyed(focus)?.focus({preventScroll: true});
  };
  const look = async () => {
    try {
      const answer = await fetch('live?seen=' + encodeURIComponent(tag), {cache: 'no-store', signal: AbortSignal.timeout(8000)});
      if (answer.status === 200) put(await answer.text(), answer.headers.get('X-Pinfold-Tag'));
      else if (answer.status !== 204) throw new Error(answer.status);
      link.textContent = 'live';
      link.className = '';
    } catch (error) {
      if (!link.className) link.textContent = 'no answer from the agent since ' + new Date().toLocaleTimeString();
      link.className = 'lost';
    }
    setTimeout(look, document.hidden ? 10000 : 2000);
  };
  setTimeout(look, 1000);
})();
""".strip()
