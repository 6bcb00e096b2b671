"""Parameters are decoded strictly."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from policies.parameters import (
    decode,
    integer,
    number,
    parameter,
    suggestion,
    table,
    text,
    weights,
)


@dataclass(frozen=True, slots=True)
class Knobs:
    """Two parameters for the tests."""

    floor: float = parameter(0.1, number(0.0, 1.0))
    draws: int = parameter(8, integer(1, 16))


def test_missing_parameters_take_their_defaults() -> None:
    """Nothing given, everything default; a whole number is a number."""
    assert Knobs(0.1, 8) == decode(Knobs, {}, "toy")
    assert Knobs(1.0, 8) == decode(Knobs, {"floor": 1}, "toy")


def test_an_unknown_name_is_refused_with_a_suggestion() -> None:
    """The message holds the name, what is allowed and what was probably meant."""
    with pytest.raises(
        ValueError,
        match="'toy' has no parameter 'flor'; allowed: draws, floor; did you mean 'floor'",
    ):
        decode(Knobs, {"flor": 0.5}, "toy")


@pytest.mark.parametrize("value", [True, "0.5", None, float("nan"), float("inf"), -0.1, 1.1, [0.1]])
def test_a_bad_number_is_refused_with_its_range(value: object) -> None:
    """Wrong type, not finite and out of range are all refused, never converted."""
    with pytest.raises(ValueError, match=r"policy 'toy': floor must be a number within 0\.\.1"):
        decode(Knobs, {"floor": value}, "toy")


@pytest.mark.parametrize("value", [True, 1.0, "1", None, 0, 17])
def test_a_bad_integer_is_refused_with_its_range(value: object) -> None:
    """A float is no integer, even when it is whole."""
    with pytest.raises(ValueError, match=r"draws must be an integer within 1\.\.16"):
        decode(Knobs, {"draws": value}, "toy")


@pytest.mark.parametrize("value", ["", 3, None])
def test_text_must_not_be_empty(value: object) -> None:
    """A name is a string with something in it."""
    with pytest.raises(ValueError, match="arm must be a string that is not empty"):
        text("arm", value)


@pytest.mark.parametrize("value", [{}, [1], {"a": -1}, {"a": "x"}, {1: 1.0}, {"a": 0.0}])
def test_weights_must_be_non_negative_and_not_all_zero(value: object) -> None:
    """Weights that cannot be normalised are refused with the parameter's name."""
    with pytest.raises(ValueError, match="weights"):
        weights("weights", value)


@pytest.mark.parametrize("value", [[], {"chat": "eagle3"}, {"chat": []}, {"chat": [1]}, {3: ["a"]}])
def test_a_table_maps_names_to_lists_of_names(value: object) -> None:
    """A string is no list of names; the message names the row."""
    with pytest.raises(ValueError, match="table"):
        table("table", value)


def test_suggestion_is_silent_when_nothing_is_close() -> None:
    """A wild guess gets the list and no hint."""
    assert suggestion("zzz", ["fixed"]) == "allowed: fixed"
    assert suggestion("zzz", []) == "allowed: none"
