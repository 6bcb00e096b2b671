"""Bytes of request bodies, all together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.admission.memory import BodyMemory
from router.errors import Reason, RequestError
from tests.support.clock import ManualClock


def refusal(memory: BodyMemory, size: int) -> RequestError:
    """What a body of this size is answered."""
    with pytest.raises(RequestError) as caught:
        memory.check(size)
    return caught.value


def test_a_body_is_counted_as_it_comes_and_given_back_at_the_end() -> None:
    """Piece by piece."""
    memory = BodyMemory(100, ManualClock())
    with memory.body() as body:
        body.grow(30)
        body.grow(50)
        assert (memory.used_bytes, body.size) == (80, 80)
    assert memory.used_bytes == 0


def test_a_body_whose_request_fails_is_given_back_too() -> None:
    """Whatever it fails of."""
    memory = BodyMemory(100, ManualClock())

    def fail() -> None:
        with memory.body() as body:
            body.grow(30)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert memory.used_bytes == 0


def test_a_body_without_room_is_refused_with_advice() -> None:
    """503, and what the others hold stays counted."""
    memory = BodyMemory(100, ManualClock())
    with memory.body() as first, memory.body() as second:
        first.grow(60)
        second.grow(30)
        with pytest.raises(RequestError) as caught:
            second.grow(11)
        second.grow(10)
        assert memory.used_bytes == 100
    error = caught.value
    assert (error.reason, error.http_status) == (Reason.BUFFERS_FULL, 503)
    assert error.retry_after_s is not None
    assert 1 <= error.retry_after_s <= 60
    assert memory.used_bytes == 0


def test_a_declared_length_is_asked_for_and_takes_nothing() -> None:
    """Who announces much and sends nothing keeps nobody out."""
    memory = BodyMemory(100, ManualClock())
    memory.check(100)
    assert refusal(memory, 101).reason is Reason.BUFFERS_FULL
    assert memory.used_bytes == 0


def test_a_body_may_be_given_back_before_its_request_ends() -> None:
    """Once an answer has begun no other server needs it; twice is the same as once."""
    memory = BodyMemory(100, ManualClock())
    with memory.body() as body:
        body.grow(40)
        body.release()
        assert memory.used_bytes == 0
        body.release()
    assert memory.used_bytes == 0


def test_advice_follows_how_long_bodies_are_held() -> None:
    """What is missing, as a share of what is held, times the mean time that it is held."""
    clock = ManualClock()
    memory = BodyMemory(1000, clock)
    with memory.body() as other:
        other.grow(10)
        clock.advance(40.0)
    with memory.body() as body:
        body.grow(1000)
        assert refusal(memory, 100).retry_after_s == 4
        assert refusal(memory, 1000).retry_after_s == 40
        clock.advance(50.0)
        assert refusal(memory, 1000).retry_after_s == 50


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 60)), max_size=60))
def test_the_count_is_what_bodies_hold_and_never_above_the_limit(
    steps: list[tuple[int, int]],
) -> None:
    """Whatever they do, in any order; -1 gives a body back."""
    memory = BodyMemory(100, ManualClock())
    bodies = [memory.body() for _ in range(6)]
    for index, size in steps:
        if size < 0:
            bodies[index].release()
        elif memory.used_bytes + size <= 100:
            bodies[index].grow(size)
        else:
            with pytest.raises(RequestError):
                bodies[index].grow(size)
        assert memory.used_bytes == sum(body.size for body in bodies) <= 100
