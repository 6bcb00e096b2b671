"""Keeps the garbage collector from stopping the loop for what a process has anyway."""

from __future__ import annotations

import gc

_YOUNG, _MIDDLE, _OLD = 5_000, 20, 50
"""Python's own 700, 10, 10 look through everything that lives, estimates and routes included, in
the middle of requests, and every stream stands still meanwhile. Nearly all that a request makes is
freed by its reference count."""


def spare_what_stays() -> None:
    """Leaves what is there now out of all collections, and makes these rarer."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
