"""Why a benchmark has no figures."""

from __future__ import annotations


class CannotRunError(Exception):
    """It needs something that this machine or this user does not have; the text says what."""


class WrongResultError(Exception):
    """What was to be measured does not do what it should: its figures would mean nothing. The text says what is wrong."""
