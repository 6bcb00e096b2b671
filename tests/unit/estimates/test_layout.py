"""How sums lie in the store."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.types import ArmId, ClassId
from router.estimates.layout import (
    COPYING,
    LOAD,
    MAX_ARMS,
    MAX_CLASSES,
    MAX_NAMES,
    MAX_PART,
    MAX_PARTS,
    Cells,
    RouteKeys,
    clock_key,
    field_name,
    keep_largest,
    merge_cells,
    merge_fields,
    month_of,
    part_of,
    segment_of,
    slot_at,
    stored_increments,
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


def stored_fields(cells: Cells) -> dict[str, int]:
    """The fields that a store would have."""
    return {
        stem + name: value
        for stem, sums in stored_increments(cells).items()
        for name, value in sums.items()
    }


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
    of = RouteKeys("p", model)
    keys = [of.slot(slot), of.hour(slot), of.made(slot), of.month("2026-11"), of.writer("w")]
    assert len(set(keys)) == len(keys)
    tags = {key[key.index("{") + 1 : key.index("}")] for key in keys}
    assert len(tags) == 1
    assert all(key.isascii() and key.isprintable() for key in keys)


@given(st.lists(MODELS, unique=True, min_size=2, max_size=2))
def test_keys_of_two_models_never_meet(names: list[str]) -> None:
    """Whatever the names hold."""
    assert RouteKeys("p", names[0]).slot(1) != RouteKeys("p", names[1]).slot(1)


def test_keys_are_what_the_module_says() -> None:
    """Operators look for them; another version of the layout never meets them."""
    of = RouteKeys("specroute", "org/model")
    assert of.slot(7) == "{specroute:org/model}:v2:slot:7"
    assert of.hour(7) == "{specroute:org/model}:v2:hour:7"
    assert of.month("2026-11") == "{specroute:org/model}:v2:month:2026-11"
    assert of.made(7) == "{specroute:org/model}:v2:made:7"
    assert of.writer("ab") == "{specroute:org/model}:v2:writer:ab"
    assert clock_key("specroute") == "{specroute}:v2:clock"


def test_a_month_begins_at_midnight_utc() -> None:
    """Whatever the host's time zone."""
    first = slot_at(datetime(2027, 1, 1, tzinfo=UTC).timestamp())
    assert [month_of(slot) for slot in (first - 1, first)] == ["2026-12", "2027-01"]


@pytest.mark.parametrize(("wall", "slot"), [(0.0, 0), (9.999, 0), (10.0, 1), (1e9 + 5, 10**8)])
def test_a_slot_lasts_ten_seconds(wall: float, slot: int) -> None:
    """Its end belongs to the next one."""
    assert slot_at(wall) == slot


def test_a_field_without_a_part_is_the_whole_class() -> None:
    """A part has its name between the class and the sum."""
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
    keep_largest(cells, 5)
    kept = {key: fields for key, fields in cells.items() if segment_of(key[2])}
    assert len(kept) == min(len(sizes), 5)
    assert kept.items() <= parts.items()
    lost = [fields["n"] for key, fields in parts.items() if key not in kept]
    assert not lost or max(lost) <= min(fields["n"] for fields in kept.values())
    assert cells.items() >= whole.items()
    copying = sum(fields["n"] for key, fields in cells.items() if key[2].endswith(COPYING))
    assert copying == sum(n for n, copied in sizes.values() if copied)


def test_cells_become_increments_of_one_hash() -> None:
    """Each under the name that readers know, with what it has in common with others apart."""
    cells: Cells = {
        (FAST, CHAT, POOLED): {"n": 2, "y.s.n": 1},
        (FAST, CHAT, SegmentId("a1+")): {"n": 1},
    }
    assert stored_increments(cells) == {
        "fast|chat|": {"n": 2, "y.s.n": 1},
        "fast|chat|a1+|": {"n": 1},
    }


def test_classes_and_arms_are_bounded_whatever_the_store_holds() -> None:
    """The largest stay, with their parts; a class that has only parts counts as nothing."""
    cells: Cells = {(FAST, CHAT, POOLED): {"n": 1000}, (FAST, CHAT, SegmentId("a")): {"n": 10}}
    for number in range(500):
        other, name = ClassId(f"c{number}"), ArmId(f"a{number}")
        cells[FAST, other, POOLED] = {"n": number}
        cells[name, CHAT, POOLED] = {"n": number}
        cells[FAST, ClassId(f"p{number}"), SegmentId(COPYING)] = {"n": 10_000}
        cells[FAST, ClassId(f"l{number}"), SegmentId(f"{LOAD}0")] = {"n": 10_000}
    keep_largest(cells)
    assert len({key[0] for key in cells}) == MAX_ARMS
    assert len({key[1] for key in cells}) == MAX_CLASSES
    assert cells[FAST, CHAT, POOLED] == {"n": 1000}
    assert cells[FAST, CHAT, SegmentId("a")] == {"n": 10}
    assert (FAST, ClassId("c499"), POOLED) in cells
    assert (FAST, ClassId("c0"), POOLED) not in cells


def test_bands_of_load_are_kept_beside_the_largest_parts() -> None:
    """But only those there can be."""
    cells: Cells = {(FAST, CHAT, POOLED): {"n": 9}}
    for number in range(300):
        cells[FAST, CHAT, SegmentId(f"s{number}")] = {"n": 100}
        cells[FAST, CHAT, SegmentId(f"{LOAD}x{number}")] = {"n": 100}
    bands = [SegmentId(f"{LOAD}{band}") for band in range(5)]
    for part in bands:
        cells[FAST, CHAT, part] = {"n": 1}
    keep_largest(cells)
    assert all((FAST, CHAT, part) in cells for part in bands)
    assert len(cells) == 1 + len(bands) + MAX_PARTS


def test_names_of_a_cell_are_bounded() -> None:
    """Those beyond are counted with what nobody understands; what is there goes on."""
    cells: Cells = {}
    assert merge_fields(cells, {f"fast|chat|x{number}": 1 for number in range(MAX_NAMES)}) == 0
    assert merge_fields(cells, {"fast|chat|more": 1, "fast|chat|x0": 1}) == 1
    cell = cells[FAST, CHAT, POOLED]
    assert (len(cell), cell["x0"]) == (MAX_NAMES, 2)
