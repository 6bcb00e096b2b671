from __future__ import annotations

from router.classify.base import CLASSES
from router.classify.written import compose


def test_same_seed_gives_the_same_requests() -> None:
    """Training can be repeated, since what is composed can."""
    assert compose(3) == compose(3)
    assert compose(3) != compose(4)


def test_every_class_is_written_for() -> None:
    """No class rests on collected data alone."""
    assert {class_id for class_id, _ in compose()} == set(CLASSES)


def test_placeholders_are_filled() -> None:
    """No request goes out with a gap."""
    assert [body for _, body in compose() if "{x}" in str(body) or "{q}" in str(body)] == []
