"""How a request becomes work for a step machine."""

from __future__ import annotations

from typing import Any

import pytest

from policies.types import ClassId
from router.simfleet.answer import Door
from router.simfleet.asking import asked_of
from router.simfleet.prompts import PrefixCache, Prompt, Prompts, guess_class, prompt_of
from router.simfleet.settings import Kind


def read(prompts: Prompts, body: dict[str, Any], **headers: str) -> Prompt:
    """A chat request of vLLM's."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    asked = asked_of(Door.CHAT, body, Kind.VLLM)
    return prompts.read(asked, body, named, *prompt_of(Door.CHAT, body))


def chat(text: str = "Hello there.", system: str | None = None, **more: Any) -> dict[str, Any]:
    """A body."""
    messages = [{"role": "user", "content": text}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return {"messages": messages, **more}


@pytest.mark.parametrize(
    ("door", "body", "tokens"),
    [
        (Door.CHAT, {"messages": [{"role": "user", "content": "x" * 35}]}, 10),
        (Door.CHAT, {"messages": [{"content": [{"type": "text", "text": "x" * 39}]}]}, 10),
        (Door.COMPLETIONS, {"prompt": "x" * 40}, 10),
        (Door.COMPLETIONS, {"prompt": ["x" * 20, "x" * 19]}, 10),
        (Door.RESPONSES, {"input": "x" * 40}, 10),
        (Door.MESSAGES, {"system": "x" * 19, "messages": [{"content": "x" * 19}]}, 10),
        (Door.CHAT, {"messages": "no list"}, 2),
        (Door.CHAT, {"messages": [5]}, 1),
    ],
)
def test_four_bytes_are_a_token(door: Door, body: dict[str, Any], tokens: int) -> None:
    """Of all texts of the prompt together, whatever its dialect; never none."""
    assert prompt_of(door, body)[0] == tokens


def test_the_hint_decides_the_class_before_the_guess() -> None:
    """Without one tools and formats tell, and else it is `other`."""
    prompts = Prompts(context=1000)
    assert read(prompts, chat(tools=[{}]), x_sim_class="math").class_id == "math"
    assert guess_class(chat(tools=[{}])) == "tool_call"
    assert guess_class(chat(response_format={"type": "json_object"})) == "structured"
    assert guess_class(chat()) == "other"


def test_lengths_are_drawn_by_class_and_cut_by_the_limit() -> None:
    """An answer that is cut does not end by itself."""
    lengths = {ClassId("short"): (5.0, 0.0), ClassId("long"): (500.0, 0.0)}
    prompts = Prompts(context=10_000, lengths=lengths)
    short = read(prompts, chat(max_tokens=50), x_sim_class="short")
    long = read(prompts, chat(max_tokens=50), x_sim_class="long")
    forced = read(prompts, chat(max_tokens=50, ignore_eos=True), x_sim_class="short")
    assert (short.output_tokens, short.ends_by_itself) == (5, True)
    assert (long.output_tokens, long.ends_by_itself) == (50, False)
    assert (forced.output_tokens, forced.ends_by_itself) == (50, False)


def test_an_answer_fits_into_the_context() -> None:
    """With the prompt."""
    prompts = Prompts(context=100)
    made = read(prompts, chat("x" * 355, ignore_eos=True))
    assert made.prompt_tokens + made.output_tokens == 100


def test_applications_are_told_apart_by_their_system_prompts() -> None:
    """Whatever the user asks; a hint goes before."""
    prompts = Prompts(context=1000)
    one, same = (read(prompts, chat(text, "You sum up.")) for text in ("this", "that"))
    other = read(prompts, chat("this", "You translate."))
    assert one.template == same.template != other.template
    assert "sum" not in one.template
    assert read(prompts, chat(), x_sim_template="app-7").template == "app-7"
    assert read(prompts, chat()).template == ""


def test_draws_are_the_seeds() -> None:
    """Two servers of one seed draw the same, of another seed they do not."""
    drawn = [
        [read(prompts, chat()).output_tokens for _ in range(5)]
        for prompts in (Prompts(seed=1, context=9999), Prompts(seed=1, context=9999))
    ]
    assert drawn[0] == drawn[1]
    other = Prompts(seed=2, context=9999)
    assert [read(other, chat()).output_tokens for _ in range(5)] != drawn[0]


def test_temperature_nought_is_greedy() -> None:
    """And nothing else; without one engines sample."""
    prompts = Prompts(context=1000)
    told = [read(prompts, chat(temperature=t)).greedy for t in (0, 0.5, None)]
    assert told == [True, False, False]


def test_the_cache_knows_beginnings() -> None:
    """A prompt is known up to the first block that differs, and old ones are forgotten."""
    cache = PrefixCache(blocks=4)
    assert cache.seen(b"a" * 128) == 0
    assert cache.seen(b"a" * 64 + b"b" * 64) == 16
    assert cache.seen(b"b" * 64 + b"a" * 64) == 0
    assert cache.seen(b"c" * 256) == 0
    assert cache.seen(b"a" * 128) == 0


def test_what_is_greedy_has_one_answer() -> None:
    """On every server, whatever came before; what is drawn has another one each time."""
    one, other = Prompts(seed=1, context=1000), Prompts(seed=2, context=1000)
    read(other, chat("before"))
    alike = [read(of, chat(temperature=0)) for of in (one, other, one)]
    assert len({(prompt.seed, prompt.output_tokens) for prompt in alike}) == 1
    assert read(one, chat("else", temperature=0)).seed != alike[0].seed
    assert read(one, chat()).seed != read(one, chat()).seed
