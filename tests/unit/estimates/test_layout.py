"""How sums lie in the store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.types import ArmId, ClassId
from router.estimates.layout import (
    Cells,
    field_name,
    merge_cells,
    merge_fields,
    slot_at,
    slot_key,
    writer_key,
)

NAMES = st.text(st.characters(exclude_characters="|", exclude_categories=["Cs"]), max_size=8)
MODELS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
CELLS = st.dictionaries(
    st.tuples(NAMES.map(ArmId), NAMES.map(ClassId)),
    st.dictionaries(NAMES | st.just("y.s.n") | st.just("a|b"), INTEGERS, min_size=1, max_size=4),
    max_size=5,
)


def stored(cells: Cells) -> dict[str, int]:
    """Cells in the form of the store."""
    return {
        field_name(arm, class_id, name): value
        for (arm, class_id), fields in cells.items()
        for name, value in fields.items()
    }


@given(CELLS)
def test_what_is_stored_is_read_back(cells: Cells) -> None:
    """Names in any script come back as they were."""
    read: Cells = {}
    assert merge_fields(read, stored(cells)) == 0
    assert read == cells


@given(CELLS, CELLS, CELLS)
def test_merging_adds_in_any_order(a: Cells, b: Cells, c: Cells) -> None:
    """Whether fields or cells are merged, and whoever comes first."""
    by_fields: Cells = {}
    for cells in (a, b, c):
        merge_fields(by_fields, stored(cells))
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


@pytest.mark.parametrize("field", ["", "fast", "fast|chat", "garbage"])
def test_a_field_whose_name_nobody_understands_is_counted_and_left_out(field: str) -> None:
    """Another version, or another program, wrote it."""
    cells: Cells = {}
    assert merge_fields(cells, {field: 1, "fast|chat|n": 2}) == 1
    assert cells == {(ArmId("fast"), ClassId("chat")): {"n": 2}}


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
