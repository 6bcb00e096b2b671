"""Which prompts get reference answers, and the grammar that makes an engine say one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench import answers
from bench.answers import choose, entries, grammar, literal, plain


def line(
    number: int, label: str = "chat", licence: str = "MIT", content: Any = "Hello", **more: Any
) -> dict[str, Any]:
    """A labelled request body."""
    request = {"messages": [{"role": "user", "content": content}], **more}
    return {"id": f"p-{number}", "label": label, "licence": licence, "request": request}


@pytest.mark.parametrize(
    ("text", "terminal"),
    [
        ("as it is", '"as it is"'),
        ('say "so"', r'"say \"so\""'),
        ("one\ntwo\r\n\tthree", r'"one\ntwo\r\n\tthree"'),
        (r"\n is no line break", r'"\\n is no line break"'),
        ("سلام، 你好 é 🙂", '"سلام، 你好 é 🙂"'),
        ("[a-z]* | (b)", '"[a-z]* | (b)"'),
    ],
)
def test_a_text_is_quoted(text: str, terminal: str) -> None:
    """What means something within quotes is escaped, nothing else."""
    assert literal(text) == terminal


def test_whole_tokens_are_named_by_number() -> None:
    """So the engine cuts the text as its tokenizer does."""
    tokens = [{"id": 7, "piece": "Hel"}, {"id": 9, "piece": 'lo"\n'}]
    assert grammar(tokens) == "root ::= <[7]> <[9]>"


def test_split_characters_are_spelt_out() -> None:
    """Up to the next end of a character, with tokens that stand between."""
    smile = list("🙂".encode())
    tokens = [
        {"id": 1, "piece": "a"},
        {"id": 2, "piece": smile[:1]},
        {"id": 3, "piece": smile[1:]},
        {"id": 4, "piece": "b"},
        {"id": 5, "piece": smile[:3]},
        {"id": 6, "piece": [*smile[3:], *smile[:2]]},
        {"id": 7, "piece": smile[2:]},
    ]
    assert grammar(tokens) == 'root ::= <[1]> "🙂" <[4]> "🙂🙂"'


@pytest.mark.parametrize(
    "entry",
    [
        line(0, content=[{"type": "text", "text": "Hello"}]),
        line(0, content=None),
        line(0, content="x" * 4000),
        line(0, tools=[]),
    ],
)
def test_other_than_plain_short_texts_are_passed_over(entry: dict[str, Any]) -> None:
    """Parts, tools and what is long do not fit a small engine."""
    assert not plain(entry)
    assert choose([entry], 1, seed=0) == []


def test_length_is_counted_in_characters() -> None:
    """Not in bytes or escapes."""
    assert plain(line(0, content="س" * 3000))


def test_each_class_gives_as_many_lines() -> None:
    """Or all it has; the same seed draws the same ones."""
    lines = [line(number, "chat" if number % 2 else "math") for number in range(40)]
    lines.append(line(99, "creative"))
    chosen = choose(lines, 5, seed=1)
    assert Counter(entry["label"] for entry in chosen) == {"chat": 5, "math": 5, "creative": 1}
    assert chosen == choose(lines, 5, seed=1)
    assert chosen != choose(lines, 5, seed=2)


def test_free_licences_come_first() -> None:
    """Others only fill up."""
    lines = [line(number, licence="CC-BY-SA-4.0") for number in range(20)]
    lines += [line(20, licence="CC0-1.0"), line(21, licence="Apache-2.0")]
    licences = Counter(entry["licence"] for entry in choose(lines, 4, seed=0))
    assert licences == {"CC-BY-SA-4.0": 2, "CC0-1.0": 1, "Apache-2.0": 1}


def test_the_answers_are_whole() -> None:
    """Each line names its prompt once, with a licence and an answer, and no prompt's text."""
    lines = list(entries(Path(answers.__file__).with_name("answers.jsonl")))
    assert len({entry["id"] for entry in lines}) == len(lines) == 90
    assert all(set(entry) == {"id", "licence", "answer"} for entry in lines)
    assert all(entry["answer"].strip() for entry in lines)
