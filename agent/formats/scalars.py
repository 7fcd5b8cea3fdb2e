"""What an unquoted scalar of YAML or a number of JSON means to Kubernetes: YAML 1.1 as go-yaml reads it (sigs.k8s.io/yaml).

`yes` is a boolean, 010 is eight, a date is a string. There are no infinities: a number out of range stays text.
"""

from __future__ import annotations

import re
from math import isfinite

from agent.formats.documents import MAX_NUMBER

_NULLS = {"", "~", "null", "Null", "NULL"}
_BOOLEANS = {
    spelling: meaning
    for meaning, words in ((True, ("y", "yes", "true", "on")), (False, ("n", "no", "false", "off")))
    for word in words
    for spelling in (word, word.capitalize(), word.upper())
}
_INTEGER = re.compile(r"[-+]?(0b[01]+|0o?[0-7]+|0x[0-9a-fA-F]+|0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NUMBER_BEGINS = "+-.0123456789"


def resolve(text: str) -> bool | int | float | str | None:
    """The value of a scalar without quotes."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if len(text) > MAX_NUMBER or text[0] not in _NUMBER_BEGINS:
        return text
    plain = text.replace("_", "")
    if _INTEGER.fullmatch(plain):
        digits = plain.lstrip("+-")
        octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
        number = int(digits, 8) if octal else int(digits, 0)
        return -number if plain[0] == "-" else number
    if _FLOAT.fullmatch(plain) and isfinite(real := float(plain)):
        return real
    return text
