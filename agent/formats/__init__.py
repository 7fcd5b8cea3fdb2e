"""Bytes and objects of the outside to values of `agent.model` and back. Pure: no I/O."""
