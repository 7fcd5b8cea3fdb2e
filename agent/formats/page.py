"""The status page as one HTML document: the frame around `agent.formats.page_body`, and the policy it is sent with.

The script replaces the content when something has changed. Without a script the page loads itself again every ten seconds.
"""

from __future__ import annotations

import base64
import hashlib

from agent.formats.page_style import SCRIPT, STYLE
from agent.formats.page_text import safe

_DRAWING = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#0b61c4"/>'
    '<path d="M4 4h3v3H4zM9 4h3v3H9zM4 9h3v3H4z" fill="#fff"/></svg>'
)
_ICON = f"data:image/svg+xml;base64,{base64.b64encode(_DRAWING.encode()).decode()}"
_SCRIPT_HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()

# Only our own script runs, and the page speaks to nobody but the agent. Pod-controlled text is escaped all the same.
HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; script-src 'sha256-{_SCRIPT_HASH}'; style-src 'unsafe-inline'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


def render_page(node: str, body: str, tag: str) -> str:
    """The live page. body: `render_body`'s; tag: names this content, so that the script asks for a newer one."""
    refresh = '<noscript><meta http-equiv="refresh" content="10"></noscript>'
    main = f'<main id="content" data-tag="{safe(tag)}">{body}</main>'
    return _document(
        node, refresh, '<span id="link" role="status">as of now</span>', main, f"<script>{SCRIPT}</script>"
    )


def render_explanation(node: str, pod: str, text: str) -> str:
    """The page that says why a pod is where it is, or why it is not here. text: `pinfold explain`'s."""
    main = (
        f'<main id="content"><section><h2>Why: <span class="wrap">{safe(pod)}</span></h2>'
        f'<pre>{safe(text, lines=True)}</pre></section><p><a href="./">Back to the node</a></p></main>'
    )
    return _document(node, "", "", main, "")


def _document(node: str, head: str, link: str, main: str, script: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<title>{safe(node)} · pinfold</title><link rel="icon" href="{_ICON}">{head}<style>{STYLE}</style></head><body>'
        '<a class="skip" href="#content">Skip to the content</a>'
        f"<header><h1>{safe(node)} <span>pinfold</span></h1>{link}</header>{main}"
        '<footer>Also here: <a href="metrics">metrics</a> · <a href="readyz?verbose">health</a>. '
        f"This page only shows; it changes nothing.</footer>{script}</body></html>\n"
    )
