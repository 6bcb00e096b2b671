"""What a prompt's beginning is, and who has seen it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from router.fleet.affinity import AffinityTable, prefix_of
from router.types import Endpoint
from tests.support.builders import request

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(("role", "content", "text", "type", "image_url", "url")), inner
        )
    ),
    max_leaves=12,
)


def chat(*turns: str, system: str = "You are helpful.") -> tuple[int, ...]:
    """The prefix of a conversation."""
    messages = [{"role": "system", "content": system}]
    for index, turn in enumerate(turns):
        messages.append({"role": "assistant" if index % 2 else "user", "content": turn})
    return prefix_of(request(messages=messages))


def test_a_conversation_that_goes_on_begins_as_it_began() -> None:
    """Each turn ends a block."""
    short, long = chat("Hi", "Hello"), chat("Hi", "Hello", "How are you?")
    assert (len(short), len(long)) == (3, 4)
    assert long[:3] == short


def test_different_beginnings_share_nothing() -> None:
    """However alike the rest is."""
    ours, theirs = chat("Hi", "Hello"), chat("Hi", "Hello", system="You are rude.")
    assert set(ours).isdisjoint(theirs)


def test_who_speaks_makes_a_difference() -> None:
    """The same words of another are another prompt."""
    user = prefix_of(request(messages=[{"role": "user", "content": "Hi"}]))
    system = prefix_of(request(messages=[{"role": "system", "content": "Hi"}]))
    assert user != system


def test_long_messages_have_blocks_of_their_own() -> None:
    """So that a document before different questions is found again."""
    document = "All about llamas. " * 500
    first, second = chat(document + "Tall?"), chat(document + "Old?")
    common = sum(a == b for a, b in zip(first, second, strict=True))
    assert (len(first), common) == (6, 5)


def test_work_is_bounded() -> None:
    """A long prompt, or one of many parts, is known by its first blocks."""
    assert len(chat("x" * 10_000_000)) == 32
    assert len(chat(*("turn",) * 5000)) == 32
    parts = [{"type": "text", "text": "part"}] * 5000
    assert len(prefix_of(request(messages=[{"role": "user", "content": parts}]))) == 32


def test_parts_images_and_other_dialects_count() -> None:
    """Each by what it says or where it points."""
    bodies: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]},
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}
            ]
        },
        {"prompt": "Once"},
        {"prompt": ["Once", "Twice"]},
        {"prompt": [1, 2, 3]},
        {"prompt": [[1, 2, 3], [4]]},
        {"input": "Hi", "instructions": "Be brief."},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]},
        {"system": [{"type": "text", "text": "S"}], "messages": [{"role": "user", "content": "x"}]},
    ]
    prefixes = [prefix_of(request(**{"messages": None, **body})) for body in bodies]
    assert all(prefixes)
    assert len(set(prefixes)) == len(prefixes)


def test_nothing_to_begin_with_is_nothing() -> None:
    """Requests without text share no place."""
    assert prefix_of(request(messages=[])) == ()
    assert prefix_of(request(endpoint=Endpoint.COMPLETIONS, messages=None)) == ()


@given(st.dictionaries(st.sampled_from(("messages", "input", "prompt", "system")), JSON))
def test_any_body_has_a_prefix(fields: dict[str, Any]) -> None:
    """Nothing that a client may send raises."""
    prefix = prefix_of(request(**fields))
    assert len(prefix) <= 32 + 2


LIVING = {1: None, 2: None, 3: None}


def test_the_longest_known_beginning_wins() -> None:
    """Worth as much as it is of the whole."""
    table = AffinityTable(100, 100.0)
    table.keep((1, 2), 1, 0.0)
    table.keep((1, 2, 3, 4), 2, 0.0)
    assert table.match((1, 2, 3, 4, 5), LIVING, 0.0) == ((2,), 0.8)
    assert table.match((1, 2, 9), LIVING, 0.0) == ((2, 1), 2 / 3)
    assert table.match((9,), LIVING, 0.0) == ((), 0.0)
    assert table.match((), LIVING, 0.0) == ((), 0.0)


def test_the_dead_are_passed_over() -> None:
    """A shorter beginning at a living server is worth more than a longer one nowhere."""
    table = AffinityTable(100, 100.0)
    table.keep((1, 2), 1, 0.0)
    table.keep((1, 2, 3, 4), 2, 0.0)
    assert table.match((1, 2, 3, 4), {1: None}, 0.0) == ((1,), 0.5)


def test_worth_falls_with_age() -> None:
    """To nothing."""
    table = AffinityTable(100, 100.0)
    table.keep((1,), 1, 0.0)
    assert [table.match((1,), LIVING, now)[1] for now in (0.0, 25.0, 100.0, 200.0)] == [
        1.0,
        0.75,
        0.0,
        0.0,
    ]


def test_few_servers_are_remembered_by_block() -> None:
    """The latest ones."""
    table = AffinityTable(100, 100.0)
    for life in (1, 2, 3, 4, 5, 6, 4):
        table.keep((7,), life, 0.0)
    assert table.match((7,), dict.fromkeys(range(9)), 0.0)[0] == (4, 6, 5, 3)


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 60), max_size=40), st.integers(1, 5))),
    st.integers(0, 50),
)
def test_memory_is_bounded(kept: list[tuple[list[int], int]], capacity: int) -> None:
    """The oldest blocks go first."""
    table = AffinityTable(capacity, 100.0)
    for prefix, life in kept:
        table.keep(tuple(prefix), life, 0.0)
        assert len(table) <= capacity
        if capacity and prefix:
            assert table.match((prefix[-1],), {life: None}, 0.0) == ((life,), 1.0)
