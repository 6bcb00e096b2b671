"""Bands of load."""

from __future__ import annotations

from itertools import pairwise

import pytest

from policies.estimators.load import BANDS, MOST, PARTS, by_band, load_band, load_part


def test_bands_are_those_of_the_design() -> None:
    """Alone, 2-4, 5-16, 17-48, 49 and more."""
    assert [load_band(load) for load in (1, 2, 4, 5, 16, 17, 48, 49)] == [0, 1, 1, 2, 2, 3, 3, 4]


@pytest.mark.parametrize(("load", "band"), [(0, 0), (-3, 0), (10**9, BANDS - 1)])
def test_no_load_is_without_a_band(load: int, band: int) -> None:
    """What cannot be falls into the nearest one."""
    assert load_band(load) == band


def test_bands_rise_with_load_by_one_at_a_time() -> None:
    """None is left out."""
    found = [load_band(load) for load in range(1, MOST[-1] + 2)]
    assert all(after - before in (0, 1) for before, after in pairwise(found))
    assert sorted(set(found)) == list(range(BANDS))


def test_a_part_is_named_after_its_band_and_read_back() -> None:
    """`~0` to `~4`; segments and copy bands are no bands."""
    assert [load_part(load) for load in (1, 2, 5, 17, 49)] == list(PARTS)
    cells = {part: {"n": index} for index, part in enumerate(PARTS)}
    assert by_band({**cells, "": {"n": 7}, "+": {"n": 8}, "~5": {"n": 9}}) == {
        index: {"n": index} for index in range(BANDS)
    }
