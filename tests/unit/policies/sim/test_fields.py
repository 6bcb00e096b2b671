"""Plain values become dataclasses, and what is wrong is named by its path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from policies.sim.fields import build


@dataclass(frozen=True)
class Inner:
    """A part."""

    name: str
    pair: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class Outer:
    """A whole."""

    count: int
    many: tuple[float, ...] = ()
    inner: Inner | None = None
    by_name: Mapping[str, Inner] = field(default_factory=dict)


def test_values_are_converted_by_their_types() -> None:
    """Lists become tuples, whole numbers floats, mappings dataclasses."""
    given = {"count": 3, "many": [1, 2.5], "by_name": {"a": {"name": "x", "pair": [1, 2]}}}
    expected = Outer(3, (1.0, 2.5), None, {"a": Inner("x", (1.0, 2.0))})
    assert build(Outer, given, "outer") == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "outer needs count"),
        ({"count": 1, "size": 2}, "outer knows no size"),
        ({"count": 1.5}, r"outer.count must be int, not 1.5"),
        ({"count": True}, r"outer.count must be int, not True"),
        ({"count": 1, "many": [float("nan")]}, r"outer.many\[0\] must be float"),
        ({"count": 1, "many": 3}, r"outer.many must be a list"),
        ({"count": 1, "inner": {"name": 3}}, r"outer.inner.name must be str"),
        ({"count": 1, "by_name": {"a": {"name": "x", "pair": [1]}}}, r"by_name.a.pair must have 2"),
        ({"count": 1, "by_name": []}, r"outer.by_name must be a mapping"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(given: dict[str, object], message: str) -> None:
    """A file is corrected from the message alone."""
    with pytest.raises(ValueError, match=message):
        build(Outer, given, "outer")
