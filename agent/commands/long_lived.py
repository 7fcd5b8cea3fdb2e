"""Keeps Python's garbage collector away from what lives long.

The collector walks everything that lives whenever enough is new: with 50,000 pods that is a pause of 0.1 s, in which no review is
answered. What is kept is free of cycles and ends by reference counts, so it need not be walked.
"""

from __future__ import annotations

import gc

_GROWTH = 1.25  # by how much the number of things kept must have changed for another look at them


class LongLived:
    """Tell it now and then how much is kept."""

    def __init__(self) -> None:
        self._kept = 0

    def look(self, kept: int) -> None:
        """Put everything aside once `kept` is quite another number than at the last time; that takes one full collection."""
        if self._kept / _GROWTH - 1 <= kept <= self._kept * _GROWTH + 1000:
            return
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._kept = kept
