"""Recorded decisions run again: one module per kind of record, each a pure function from `input` to `output`.

Record forms: the READMEs of the conformance vectors; command: `pinfold replay` (design section 12).
"""
