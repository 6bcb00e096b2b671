from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from router.classify.features import CueStrengths, Features, extract_features
from router.classify.lexicon import built_in
from router.classify.view import Excerpt, RequestView

TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=600)
PROSE = "The harbour was quiet that morning and the boats lay still in the grey water. " * 12


def measure(text: str, **others: Any) -> Features:
    return extract_features(
        RequestView(turn=Excerpt(text[:4096], text[4096:], len(text)), **others), built_in()
    )


def test_nothing_measures_nothing() -> None:
    """A request without text or fields has every number at zero."""
    features = extract_features(RequestView(), built_in())
    assert features.asked == CueStrengths()
    assert [name for name in Features._fields if name != "asked" and getattr(features, name)] == []


def test_instruction_counts_more_than_the_text() -> None:
    """A verb in the first line is clear, one deep in pasted text is not."""
    before = measure("Translate this:\n\n" + PROSE)
    inside = measure(PROSE[:300] + "translate" + PROSE)
    assert before.asked.translate > 1.0
    assert inside.asked.translate < 0.5


def test_instruction_after_the_text_is_found() -> None:
    """A task in the last line counts as one in the first does."""
    assert measure(PROSE + "\n\nTranslate this.").asked.translate > 1.0


def test_first_verb_is_the_task() -> None:
    """What is asked first weighs more than what is named after it."""
    asked = measure("Summarize how people translate poems").asked
    assert asked.summarize > asked.translate > 0.0


def test_system_prompt_counts_in_full_only_without_a_task() -> None:
    """A system prompt gives the task of a turn that is only material."""
    system = Excerpt("Translate every message", "", 23)
    alone = measure("The boats lay still in the water.", system=system)
    beside = measure("Summarize: the boats lay still.", system=system)
    assert alone.asked.translate > 1.0 > beside.asked.translate


def test_source_code_and_json_are_told_apart() -> None:
    """Code raises `code`, keyed data raises `keyed`, prose neither."""
    code = measure("def f(x):\n    if x == 1:\n        return f(x - 1)\n    self.x += 1\n")
    data = measure('{"a": {"b": 1, "c": 2}, "d": 3, "e": 4, "f": 5}')
    prose = measure(PROSE)
    assert code.code > 0.4
    assert data.keyed > 0.4 > data.code
    assert (prose.code, prose.keyed) == (0.0, 0.0)


def test_material_grows_with_the_text_and_shortness_falls() -> None:
    """Amounts run from a phrase to a page; an ideograph says more than a letter."""
    assert measure("Hi").short == 1.0
    assert measure(PROSE).short == 0.0
    assert measure("Hi").material == 0.0 < measure(PROSE).material
    han = "\u6e2f" * 100
    assert measure(han, script="han").material > measure("h" * 100).material


def test_marks_of_questions_choices_and_formulas() -> None:
    """Notation is counted in any script."""
    features = measure("What is 3 + 4 = x?\na) 1\nb) 7\nc) 9")
    assert (features.choices, features.question_mark) == (1.0, 1.0)
    assert features.formulas > 0.0 < features.numbers
    assert measure("\u0686\u0631\u0627\u061f").question_mark == 1.0


def test_tools_that_work_on_files() -> None:
    """The share of coding tools is taken from their names."""
    names = ("read_file", "get_weather")
    assert measure("x", tool_names=names, tool_count=2).coding_tools == 0.5


@given(TEXT, TEXT, TEXT)
def test_numbers_stay_in_range(turn: str, system: str, prior: str) -> None:
    """Whatever the text, each number but the strengths is in [0, 1]."""
    features = measure(
        turn, system=Excerpt(system, "", len(system)), prior=Excerpt(prior, "", len(prior))
    )
    numbers = features[1:]
    assert all(0.0 <= number <= 1.0 for number in numbers)
    assert all(strength >= 0.0 for strength in features.asked)
