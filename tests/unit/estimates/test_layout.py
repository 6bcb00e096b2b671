"""How sums lie in the store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.types import ArmId, ClassId
from router.estimates.layout import (
    COPYING,
    MAX_PART,
    Cells,
    field_name,
    keep_largest_parts,
    merge_cells,
    merge_fields,
    part_of,
    segment_of,
    slot_at,
    slot_key,
    stored_fields,
    writer_key,
)
from router.types import POOLED, SegmentId

FAST, CHAT = ArmId("fast"), ClassId("chat")
NAMES = st.text(st.characters(exclude_characters="|", exclude_categories=["Cs"]), max_size=8)
MODELS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
PARTS = st.sampled_from(["", "+", "a1f", "a1f+", "0b"]).map(SegmentId)
CELLS = st.dictionaries(
    st.tuples(NAMES.map(ArmId), NAMES.map(ClassId), PARTS),
    st.dictionaries(NAMES | st.just("y.s.n"), INTEGERS, min_size=1, max_size=4),
    max_size=5,
)


@given(CELLS)
def test_what_is_stored_is_read_back(cells: Cells) -> None:
    """Names in any script come back as they were."""
    read: Cells = {}
    assert merge_fields(read, stored_fields(cells)) == 0
    assert read == cells


@given(CELLS, CELLS, CELLS)
def test_merging_adds_in_any_order(a: Cells, b: Cells, c: Cells) -> None:
    """Whether fields or cells are merged, and whoever comes first."""
    by_fields: Cells = {}
    for cells in (a, b, c):
        merge_fields(by_fields, stored_fields(cells))
    by_cells: Cells = {}
    for cells in (c, a, b):
        merge_cells(by_cells, cells)
    assert by_cells == by_fields


@given(CELLS)
def test_merging_leaves_its_source_alone(cells: Cells) -> None:
    """What was merged from is not shared with what it was merged into."""
    before = {key: dict(fields) for key, fields in cells.items()}
    into: Cells = {}
    merge_cells(into, cells)
    merge_cells(into, cells)
    assert cells == before


@pytest.mark.parametrize(
    "field", ["", "fast", "fast|chat", "garbage", "a|b||n", "a|b|c|d|n", f"a|b|{'x' * 41}|n"]
)
def test_a_field_whose_name_nobody_understands_is_counted_and_left_out(field: str) -> None:
    """Another version, or another program, wrote it."""
    cells: Cells = {}
    assert merge_fields(cells, {field: 1, "fast|chat|n": 2}) == 1
    assert cells == {(ArmId("fast"), ClassId("chat"), POOLED): {"n": 2}}


@given(MODELS, st.integers(0, 10**9))
def test_all_keys_of_a_route_share_one_slot_of_a_cluster(model: str, slot: int) -> None:
    """The hash tag is what stands between the first braces; model names may hold braces."""
    keys = (slot_key("p", model, slot), writer_key("p", model, "w"))
    tags = {key[key.index("{") + 1 : key.index("}")] for key in keys}
    assert len(tags) == 1
    assert all(key.isascii() and key.isprintable() for key in keys)


@given(st.lists(MODELS, unique=True, min_size=2, max_size=2))
def test_keys_of_two_models_never_meet(names: list[str]) -> None:
    """Whatever the names hold."""
    assert slot_key("p", names[0], 1) != slot_key("p", names[1], 1)


def test_keys_are_what_the_module_says() -> None:
    """Operators look for them."""
    assert slot_key("specroute", "org/model", 7) == "{specroute:org/model}:v1:slot:7"
    assert writer_key("specroute", "m", "ab") == "{specroute:m}:v1:writer:ab"


@pytest.mark.parametrize(("wall", "slot"), [(0.0, 0), (9.999, 0), (10.0, 1), (1e9 + 5, 10**8)])
def test_a_slot_lasts_ten_seconds(wall: float, slot: int) -> None:
    """Its end belongs to the next one."""
    assert slot_at(wall) == slot


def test_a_field_without_a_part_is_the_whole_class() -> None:
    """As it was before there were segments: old and new proxies read the same store."""
    assert field_name(FAST, CHAT, "n") == "fast|chat|n"
    assert field_name(FAST, CHAT, "n", SegmentId("a1")) == "fast|chat|a1|n"


@pytest.mark.parametrize(
    ("segment", "copying", "part"),
    [
        ("", False, ""),
        ("", True, "+"),
        ("a1", False, "a1"),
        ("a1", True, "a1+"),
        ("a|b", False, ""),
        ("a+", True, "+"),
        ("x" * MAX_PART, False, ""),
    ],
)
def test_a_part_is_a_segment_and_a_band(segment: str, *, copying: bool, part: str) -> None:
    """A segment that could be taken for something else counts as unknown."""
    made = part_of(SegmentId(segment), 0.5 if copying else 0.49)
    assert made == part
    assert segment_of(made) in (segment, "")


@given(st.dictionaries(st.integers(0, 30), st.tuples(st.integers(1, 9), st.booleans())))
def test_only_the_largest_parts_are_kept(sizes: dict[int, tuple[int, bool]]) -> None:
    """The others stay in their class, and in its copy band."""
    whole = {(FAST, CHAT, POOLED): {"n": sum(n for n, _ in sizes.values())}}
    parts: Cells = {
        (FAST, CHAT, part_of(SegmentId(f"s{name}"), float(copying))): {"n": n}
        for name, (n, copying) in sizes.items()
    }
    cells: Cells = {**whole, **{key: dict(fields) for key, fields in parts.items()}}
    keep_largest_parts(cells, 5)
    kept = {key: fields for key, fields in cells.items() if segment_of(key[2])}
    assert len(kept) == min(len(sizes), 5)
    assert kept.items() <= parts.items()
    lost = [fields["n"] for key, fields in parts.items() if key not in kept]
    assert not lost or max(lost) <= min(fields["n"] for fields in kept.values())
    assert cells.items() >= whole.items()
    copying = sum(fields["n"] for key, fields in cells.items() if key[2].endswith(COPYING))
    assert copying == sum(n for n, copied in sizes.values() if copied)


def test_cells_become_fields_of_one_hash() -> None:
    """Each under the name that readers know."""
    cells: Cells = {
        (FAST, CHAT, POOLED): {"n": 2, "y.s.n": 1},
        (FAST, CHAT, SegmentId("a1+")): {"n": 1},
    }
    assert stored_fields(cells) == {
        "fast|chat|n": 2,
        "fast|chat|y.s.n": 1,
        "fast|chat|a1+|n": 1,
    }
