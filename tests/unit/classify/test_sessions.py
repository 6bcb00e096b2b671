"""Turns that say little take after their session."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.types import ClassId, Status
from router.classify.base import CHAT, CLASSES, CODE_EDIT, OTHER
from router.classify.sessions import BARE, FORGET_S, RESULT, SessionClassifier, inherited
from router.types import NO_SESSION, Classification, Headers, ParsedRequest, SessionId
from tests.support.builders import outcome, request
from tests.support.clock import ManualClock
from tests.support.held import held_by

S = SessionId("s")


def judged(class_id: ClassId = CHAT, p: float = 0.6, **more: Any) -> Classification:
    """An answer whose remaining probability is spread over the other classes."""
    rest = (1.0 - p) / (len(CLASSES) - 1)
    probabilities = {**dict.fromkeys(CLASSES, rest), class_id: p, OTHER: 0.0}
    return replace(Classification(class_id, p, probabilities, "why"), **more)


class Scripted:
    """Says what it is told to."""

    def __init__(self, answer: Classification) -> None:
        self.answer = answer

    def classify(self, request: ParsedRequest) -> Classification:
        """Whatever is asked."""
        return self.answer


def turn(text: Any, *before: str, role: str = "user", **fields: Any) -> ParsedRequest:
    """A conversation that ends in a turn."""
    told = [{"role": "user", "content": each} for each in before]
    return request(messages=[*told, {"role": role, "content": text}], **fields)


EDIT = judged(CODE_EDIT, 0.9, copy_ratio=0.7, length_band="long")
UNSURE = judged(CHAT, 0.4, copy_ratio=0.1)


def after_edit(text: Any = "continue", own: Classification = UNSURE, **more: Any) -> Classification:
    """What is said of a turn in a session that was about editing code."""
    inner = Scripted(EDIT)
    sessions = SessionClassifier(inner, ManualClock())
    assert sessions.classify(turn("fix this"), S) == EDIT
    inner.answer = own
    return sessions.classify(turn(text, **more), S)


@pytest.mark.parametrize(
    "text",
    ["continue", "Continue.", " OK ", "yes!", "again", "go on…", "ادامه بده", "بله", "أكمل", "继续", "好的。", "続けて", "продолжай", "weiter", "sí", "계속", "devam et"],
)  # fmt: skip
def test_a_bare_turn_inherits(text: str) -> None:
    """In many languages, whatever the case and the points."""
    found = after_edit(text)
    assert (found.class_id, found.length_band) == (CODE_EDIT, "medium")
    assert found.confidence == pytest.approx(BARE * 0.9 + (1 - BARE * 0.9) * 0.6 / 9)
    assert sum(found.probabilities.values()) == pytest.approx(1.0)
    assert found.copy_ratio == pytest.approx(BARE * 0.7 + (1 - BARE) * 0.1)
    assert found.reason == "the turn says little, so its session tells"


def test_a_turn_that_says_much_stands_for_itself() -> None:
    """Long, or short and clear."""
    own = judged(CHAT, 0.6)
    assert after_edit("Please explain to me what the weather in Spain is like in May", own) == own
    sure = after_edit("Write a poem about rain", judged(CHAT, 0.95))
    assert sure.class_id == CHAT
    assert sure.confidence > 0.9


def test_the_shorter_and_the_less_clear_a_turn_the_more_it_inherits() -> None:
    """Ideographs count for more letters."""

    def weight(text: str, p: float = 0.4) -> float:
        return inherited(turn(text), judged(CHAT, p))

    assert (
        weight("shorter!") > weight("make it shorter") > weight("make it a bit shorter please") > 0
    )
    assert weight("shorter!", 0.3) > weight("shorter!", 0.8) > 0
    assert weight("再短一点怎么样") < weight("a bit sh")
    assert weight("x" * 48) == 0.0


@pytest.mark.parametrize(
    "last",
    [
        {"role": "tool", "content": "x" * 5000, "tool_call_id": "1"},
        {"role": "function", "name": "f", "content": "{}"},
        {"role": "user", "content": [{"type": "tool_result", "content": "x"}]},
        {"type": "function_call_output", "output": "x"},
    ],
)
def test_results_of_tools_inherit_where_the_task_is_unclear(last: dict[str, Any]) -> None:
    """In every dialect, by half at most: the task itself is further up in the request."""
    assert inherited(request(messages=[last]), judged(OTHER, 1.0)) == RESULT
    assert inherited(request(messages=[last]), UNSURE) == pytest.approx(RESULT * 0.6)
    assert inherited(request(messages=[], input=[last]), UNSURE) == 0.0
    assert inherited(replace(request(), fields={"input": [last]}), UNSURE) > 0.0


def test_a_turn_without_text_inherits_where_nothing_else_is_known() -> None:
    """Such as an image after an image."""
    image = [{"type": "image_url", "image_url": {"url": "x"}}]
    assert inherited(turn(image), judged(OTHER, 1.0)) == RESULT
    assert inherited(turn(image), judged(CHAT, 0.5)) == 0.0


def test_what_an_operator_s_rule_says_is_not_watered_down() -> None:
    """It is certain, and it is what later turns inherit."""
    own = judged(ClassId("mine"), 1.0, rule=2)
    assert after_edit("continue", own) == own
    inner = Scripted(own)
    sessions = SessionClassifier(inner, ManualClock())
    sessions.classify(turn("x"), S)
    inner.answer = UNSURE
    assert sessions.classify(turn("go on"), S).class_id == "mine"


def test_inheritance_goes_on_from_turn_to_turn() -> None:
    """A chain of bare turns keeps the class, ever less surely."""
    inner = Scripted(EDIT)
    sessions = SessionClassifier(inner, ManualClock())
    sessions.classify(turn("fix this"), S)
    inner.answer = UNSURE
    found = [sessions.classify(turn("ok"), S) for _ in range(3)]
    assert [each.class_id for each in found] == [CODE_EDIT] * 3
    assert found[0].confidence > found[1].confidence > found[2].confidence


def test_what_came_of_a_turn_tells_the_length_of_the_next() -> None:
    """Of answers that went well, and only where the turn inherits."""
    inner = Scripted(EDIT)
    sessions = SessionClassifier(inner, ManualClock())
    sessions.classify(turn("fix this"), S)
    sessions.learn(S, outcome(tokens=20))
    sessions.learn(S, outcome(Status.FAILED, tokens=5000))
    sessions.learn(S, outcome(tokens=None))
    sessions.learn(SessionId("unknown"), outcome(tokens=5000))
    inner.answer = UNSURE
    assert sessions.classify(turn("ok"), S).length_band == "brief"
    assert sessions.classify(turn("x" * 100), S).length_band == "medium"
    sessions.learn(S, outcome(tokens=769))
    assert sessions.classify(turn("ok"), S).length_band == "long"


def test_a_silent_session_begins_anew() -> None:
    """And so does one that was never seen, and none at all."""
    clock, inner = ManualClock(), Scripted(EDIT)
    sessions = SessionClassifier(inner, clock)
    sessions.classify(turn("fix this"), S)
    inner.answer = UNSURE
    assert sessions.classify(turn("ok"), SessionId("t")) == UNSURE
    assert sessions.classify(turn("ok"), NO_SESSION) == UNSURE
    assert sessions.classify(turn("ok")) == UNSURE
    clock.advance(FORGET_S + 1)
    assert sessions.classify(turn("ok"), S) == UNSURE


def test_memory_is_bounded_and_keeps_the_latest() -> None:
    """The session not seen for longest goes first."""
    inner = Scripted(EDIT)
    sessions = SessionClassifier(inner, ManualClock(), capacity=3)
    for name in ("a", "b", "a", "c", "d"):
        sessions.classify(turn("fix this"), SessionId(name))
    assert len(sessions) == 3
    inner.answer = UNSURE
    assert sessions.classify(turn("ok"), SessionId("a")).class_id == CODE_EDIT
    assert sessions.classify(turn("ok"), SessionId("b")).class_id == CHAT


def test_no_class_that_stands_out_is_none() -> None:
    """Below the floor a blend is `other`."""
    flat = judged(CHAT, 0.1)
    inner = Scripted(flat)
    sessions = SessionClassifier(inner, ManualClock())
    sessions.classify(turn("fix this"), S)
    found = sessions.classify(turn("ok"), S)
    assert (found.class_id, found.confidence) == (OTHER, 0.0)


# --- Which session ----------------------------------------------------------------------------


def names(headers: Headers = (), capacity: int = 10, **fields: Any) -> list[SessionId]:
    """The session of a request, twice by one process and once by another."""
    each = replace(request(**fields), headers=headers)
    one, two = (SessionClassifier(Scripted(EDIT), ManualClock(), capacity) for _ in range(2))
    return [one.session(each), one.session(each), two.session(each)]


def test_a_session_is_a_hash_of_this_process() -> None:
    """The same for the same name; another process says something else; never the name."""
    first, again, elsewhere = names(user="alice")
    assert first == again != elsewhere
    assert (len(first), "alice" in first) == (16, False)


def test_what_names_a_session_comes_in_order() -> None:
    """The header, then the fields, then how the conversation began."""
    sessions = SessionClassifier(Scripted(EDIT), ManualClock())
    header: Headers = (("X-Specroute-Session", "1"),)
    told: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}

    def of(headers: Headers = (), **fields: Any) -> SessionId:
        return sessions.session(replace(request(**fields), headers=headers))

    by_header = of(header, user="a", **told)
    assert by_header == of(header, prompt_cache_key="b") != of(user="1")
    by_key = of(prompt_cache_key="p", user="a", **told)
    assert by_key == of(prompt_cache_key="p", user="b") != of(user="p")
    assert of(user="a", **told) == of(user="a", previous_response_id="r") != of(**told)
    assert of(user=5, **told) == of(**told)
    assert of() == NO_SESSION == of(prompt="bare", messages=None)


def test_a_conversation_is_known_by_how_it_began() -> None:
    """Later turns belong to it; other beginnings, system prompts, models and keys do not."""
    sessions = SessionClassifier(Scripted(EDIT), ManualClock())

    def of(*texts: str, system: str = "s", key: str = "k", model: str = "m") -> SessionId:
        told = [{"role": "user", "content": text} for text in texts]
        messages = [{"role": "system", "content": system}, *told]
        headers = (("Authorization", key),)
        return sessions.session(replace(request(messages=messages, model=model), headers=headers))

    first = of("hello")
    assert of("hello", "continue") == first
    others = [of("bye"), of("hello", system="t"), of("hello", key="l"), of("hello", model="n")]
    assert len({first, *others}) == 5


def test_with_no_memory_there_are_no_sessions() -> None:
    """The operator has switched it off."""
    assert names(capacity=0, user="a") == [NO_SESSION] * 3


def test_no_text_is_kept() -> None:
    """What is remembered of a session is what it was about."""
    sessions = SessionClassifier(Scripted(EDIT), ManualClock())
    each = turn("CANARY", user="CANARY", role="user")
    sessions.classify(each, sessions.session(each))
    assert "CANARY" not in repr(held_by(sessions)) + repr(list(sessions._sessions.items()))


VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=10) | st.sampled_from(["user", "tool", "ok", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["role", "content", "type", "text"]), inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["messages", "input", "user", "system", "prompt"]), VALUES))
def test_any_json_is_taken(fields: dict[str, Any]) -> None:
    """Nothing raises; weights and probabilities stay what they are."""
    each = replace(request(), fields=fields)
    assert 0.0 <= inherited(each, UNSURE) < 1.0
    sessions = SessionClassifier(Scripted(UNSURE), ManualClock())
    session = sessions.session(each)
    for _ in range(2):
        found = sessions.classify(each, session)
        assert sum(found.probabilities.values()) == pytest.approx(1.0)


def test_work_is_bounded() -> None:
    """Messages without number, and a turn without end."""
    each = turn("a" * 10**7, *(["x"] * 200_000), user="u" * 10**6)
    sessions = SessionClassifier(Scripted(UNSURE), ManualClock())
    assert sessions.classify(each, sessions.session(each)) == UNSURE
