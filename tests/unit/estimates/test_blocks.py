"""A block, read."""

from __future__ import annotations

from policies.estimators.increments import effect_fields
from router.estimates.blocks import Block, parse, summed
from router.estimates.layout import Cells
from router.types import POOLED, SegmentId
from tests.support.builders import ARMS, CHAT, FAST
from tests.support.pieces import result

FIELDS = {
    "n": 3,
    "status.ok": 3,
    "tokens": 30,
    "tokens.n": 3,
    "ttft.300": 3,
    "y.s.n": 3,
    "y.s.s": 3_000_000,
    "y.s.q": 3_000_000,
}


def read(cells: Cells) -> Block:
    """A block of these cells."""
    return result(parse(ARMS, cells))


def test_load_bands_are_no_segments() -> None:
    """They count the same requests again, so nothing is taken out of the class for them."""
    band = SegmentId("~2")
    plain = read({(FAST, CHAT, POOLED): FIELDS})
    loaded = read({(FAST, CHAT, POOLED): FIELDS, (FAST, CHAT, band): effect_fields(FIELDS)})
    assert loaded.sizes == {}
    assert loaded.strata[CHAT].names == plain.strata[CHAT].names
    assert loaded.strata[CHAT].sums.tolist() == plain.strata[CHAT].sums.tolist()
    assert loaded.loads[CHAT].sums[:, 0, 1].tolist() == [3.0]
    assert plain.loads == {}


def test_what_is_added_up_holds_no_histograms() -> None:
    """They are rows, and are kept apart by block."""
    block = read({(FAST, CHAT, POOLED): FIELDS})
    cell = block.cells[FAST, CHAT]
    assert (cell.n, cell.latency, cell.log_cost) == (3, {}, {})
    assert len(block.durations[CHAT].count) == 1
    assert summed([block.cells, block.cells])[FAST, CHAT].plain["tokens"] == 60


def test_a_large_block_is_read_in_pieces() -> None:
    """So that requests get their turn in between."""
    cells: Cells = {
        (FAST, CHAT, SegmentId(f"s{number}")): effect_fields(FIELDS) for number in range(600)
    }
    assert len(list(parse(ARMS, {(FAST, CHAT, POOLED): FIELDS, **cells}))) >= 3
