"""Random dialogues through whole proxies: the long run of them is `python -m bench.verify_fuzz`."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from bench.fuzz.generate import dialogue
from bench.fuzz.streams import stream
from bench.verify_fuzz import fuzz, shown


@pytest.mark.parametrize("seed", ["a", "b"])
async def test_random_dialogues(seed: str) -> None:
    """No byte or line differs that should not, and nothing is left behind, whoever leaves when.

    A case that fails is made small before it is shown.
    """
    tally = await fuzz(1_000, seed, most_found=1, told=lambda _: None)
    assert [await shown(finding) for finding in tally.found] == []
    assert tally.cases >= 1_000
    # What a run is made of: a generator that has come to avoid something would show nothing of it.
    assert min(tally.kinds.values()) >= 5, tally.kinds
    assert len(tally.kinds) == 19


def test_a_seed_is_a_case() -> None:
    """The same seed is the same dialogue, so a failing one can be played again."""
    assert dialogue("a:1") == dialogue("a:1")
    assert dialogue("a:1") != dialogue("a:2")


def test_both_halves_of_a_line_end_go_the_same_way() -> None:
    """A LF behind the CR of an event that is taken out is no line of its own."""
    met = 0
    for seed in range(3_000):
        parts = stream(
            Random(seed), "openai", strips=True, announces=False, record=True, ended=True
        )
        for before, part in pairwise(parts):
            if before.sent.endswith(b"\r") and not before.shown and part.sent == b"\n":
                met += 1
                assert part.shown == b""
    assert met
