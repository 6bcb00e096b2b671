"""The document of a route's quality."""

from __future__ import annotations

import orjson
import pytest

from policies.types import ArmId, ClassId
from router.sentinel.model import Book, Evidence, Quarantine, as_document, of_document

CELL = ArmId("fast"), ClassId("chat")
OTHER = ArmId("fast"), ClassId("code")
BOOK = Book(
    period=7,
    folded=42,
    evidence={CELL: Evidence((0.5, 1.0, 2.0, 3.0), {"drawn": 9, "drawn.bad": 1})},
    since={OTHER: 41},
    quarantines={CELL: Quarantine(1.0, None, "why"), OTHER: Quarantine(1.0, 2.0, "w", 2, 2.0)},
)


def test_it_is_read_as_it_was_written() -> None:
    """Evidence, quarantines, and where cells began anew."""
    assert of_document(as_document(BOOK)) == BOOK


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"period":1,"folded":2}', b"\xff"])
def test_what_cannot_be_read_holds_nothing(data: bytes) -> None:
    """Somebody else's document keeps nobody out."""
    assert of_document(data) == Book()


def test_a_cell_that_cannot_be_read_is_left_out() -> None:
    """The others stay; so does its quarantine where only the evidence is of another version."""
    kept = orjson.loads(as_document(BOOK))
    kept["cells"][0]["evidence"]["log_ratios"] = [1.0]
    kept["cells"].append({"pool": "x"})
    read = of_document(orjson.dumps(kept))
    assert OTHER in read.quarantines
    assert read.evidence == {}


def test_a_cell_that_begins_anew() -> None:
    """It has shown nothing and is kept out of nothing; others are as they were."""
    after = BOOK.begun_anew(CELL, 50)
    assert CELL not in after.evidence
    assert set(after.quarantines) == {OTHER}
    assert after.since == {OTHER: 41, CELL: 50}
