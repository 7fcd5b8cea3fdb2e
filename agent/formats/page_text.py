"""Text that may come from a pod, made safe for people: to be seen on a terminal, and to stand in HTML and in URLs."""

from __future__ import annotations

from html import escape

# Control characters, those that turn the direction of what stands beside them (Trojan Source, CVE-2021-42574), and lone
# surrogates, which JSON can spell and UTF-8 cannot.
_CONTROL = (range(9), range(11, 32), range(127, 160))
_DIRECTION = (range(0x200E, 0x2010), range(0x202A, 0x202F), range(0x2066, 0x206A))
_SURROGATES = range(0xD800, 0xE000)
_SHOWN = {code: f"\\u{code:04x}" for codes in (*_CONTROL, *_DIRECTION, _SURROGATES) for code in codes}

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def visible(text: str, *, lines: bool = False) -> str:
    """The text with what would be invisible, or be obeyed by a terminal, shown. lines: keep these."""
    shown = text.translate(_SHOWN)
    return shown if lines else shown.replace("\n", "\\n").replace("\t", " ")


def safe(text: str, *, lines: bool = False) -> str:
    """Text that is safe inside an HTML element or a quoted attribute: everything that means something there is escaped."""
    return escape(visible(text, lines=lines), quote=True)


def query_value(text: str) -> str:
    """The text as a value in a URL's query (RFC 3986, unreserved characters stay)."""
    return "".join(chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in text.encode(errors="replace"))
