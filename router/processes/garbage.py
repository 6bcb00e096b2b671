"""Keeps the garbage collector from stopping the loop for what a process has anyway."""

from __future__ import annotations

import gc

_YOUNG = 2_000
"""Python's own 700 begins a round every few streams. Rounds through all that lives stay as
frequent: with what stays left out they are short, and they free what broken connections leave."""


def spare_what_stays() -> None:
    """Leaves what is there now out of all collections: estimates, routes, weights, code."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])
