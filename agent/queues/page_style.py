"""The queue page's style sheet."""

from __future__ import annotations

STYLE = """
*{box-sizing:border-box}
:root{color-scheme:light dark;--paper:#f4f6f9;--card:#fff;--ink:#18212b;--soft:#56616e;--line:#d5dce4;--accent:#0b61c4;
--track:#e6ebf1;--held:#5b9be6;--fixed:#1f5fae;--reserved:#f0a92b;--over:#d3302f;--quota:#17692f;--fair:#8e24aa;--limit:#18212b;
--good:#17692f;--good-bg:#dff3e4;--bad:#a3161c;--bad-bg:#fde7e7;--warn:#7a4b00;--warn-bg:#fdf0d5}
@media (prefers-color-scheme:dark){:root{--paper:#101419;--card:#181e25;--ink:#e7edf3;--soft:#9dabb9;--line:#2d3742;
--accent:#79b4ff;--track:#2a333d;--held:#3f7cc4;--fixed:#8fc0ff;--reserved:#e0a53a;--over:#ef5350;--quota:#7ee29a;--fair:#dd9bf2;
--limit:#f2f5f8;--good:#86dd9c;--good-bg:#14331d;--bad:#ff9c9c;--bad-bg:#43191c;--warn:#f3c979;--warn-bg:#3b2c0c}}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.45 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',
sans-serif;-webkit-text-size-adjust:100%}
header,main,footer{max-width:1400px;margin:0 auto;padding:0 16px}
header{display:flex;flex-wrap:wrap;gap:4px 14px;align-items:baseline;padding-top:14px}
h1{font-size:20px;margin:0}h1 span{color:var(--soft);font-weight:400}h2{font-size:16px;margin:0 0 10px}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px;margin:12px 0}
a{color:var(--accent)}.soft{color:var(--soft);font-weight:400}footer{padding-bottom:26px;font-size:13px;color:var(--soft)}
.pill{display:inline-block;border-radius:99px;padding:1px 10px;font-size:13px;font-weight:600;background:var(--line)}
.good{background:var(--good-bg);color:var(--good)}.bad{background:var(--bad-bg);color:var(--bad)}
.warn{background:var(--warn-bg);color:var(--warn)}
.facts,.legend{display:flex;flex-wrap:wrap;gap:2px 20px;padding:0;margin:8px 0 0;list-style:none;font-size:14px}
.legend{margin:0 0 10px;font-size:13px;gap:4px 16px}.legend li{display:flex;gap:6px;align-items:center}
.trouble{border-color:var(--bad);border-left-width:5px}.trouble ul{margin:0;padding-left:20px}.trouble li{overflow-wrap:anywhere}
.row{display:grid;grid-template-columns:minmax(190px,1.1fr) repeat(var(--columns),minmax(190px,1.6fr));gap:4px 18px;
padding:7px 0;border-top:1px solid var(--line);align-items:center}
.head{border-top:0;padding:0 0 4px;font-size:12px;color:var(--soft);font-weight:600}
summary{cursor:pointer;list-style:none}summary::-webkit-details-marker{display:none}
summary .name::before{content:"▸ ";color:var(--soft)}details[open]>summary .name::before{content:"▾ "}
summary .name{font-weight:600}summary:focus-visible{outline:2px solid var(--accent);border-radius:3px}
.name{padding-left:calc(var(--depth)*18px);overflow-wrap:anywhere}div.row>.name{padding-left:calc(var(--depth)*18px + 16px)}
.name .pill{font-size:11px;padding:0 7px;margin-left:4px}
.cell{min-width:0;display:block}.says b{display:none}
.says{display:block;font-size:12px;color:var(--soft);font-variant-numeric:tabular-nums}
.bar{display:block;position:relative;height:14px;background:var(--track);border-radius:3px;margin:3px 0}
.bar.none{opacity:.45}.bar i{position:absolute;top:0;bottom:0;left:0}
.bar i.held,.key.held{background:var(--held)}.bar i.held{border-radius:3px 0 0 3px}.bar i.over,.key.over{background:var(--over)}
.bar i.fixed,.key.fixed{background:var(--fixed)}.bar i.fixed{top:auto;height:5px;border-radius:0 0 0 3px}
.bar i.reserved,.key.reserved{background:repeating-linear-gradient(135deg,var(--reserved) 0 4px,transparent 4px 7px)}
.bar i.mark{top:-3px;bottom:-3px;width:0;margin-left:-1px;border-left:2px solid}
.bar i.quota{border-color:var(--quota)}.bar i.fair{border-color:var(--fair);border-left-style:dotted;border-left-width:3px}
.bar i.limit{border-color:var(--limit);border-left-width:3px;margin-left:-3px}
.key{display:inline-block;width:14px;height:12px;border-radius:2px}
.key.quota,.key.fair,.key.limit{width:0;border-left:2px solid var(--quota);border-radius:0;height:15px}
.key.fair{border-left:3px dotted var(--fair)}.key.limit{border-left:3px solid var(--limit)}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:left;padding:4px 12px 4px 0;border-top:1px solid var(--line)}
th{border-top:0;font-size:12px;color:var(--soft)}td{overflow-wrap:anywhere}
@media (max-width:760px){.row{grid-template-columns:1fr}.head{display:none}.cell{padding-left:16px}.says b{display:inline}}
""".strip().replace("\n", "")
