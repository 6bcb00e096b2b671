"""Turns a view of a request into numbers that drive acceptance; names no class."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from router.classify.lexicon import Cue, Hit, Lexicon
from router.classify.text import normalise

if TYPE_CHECKING:
    from router.classify.view import Excerpt, RequestView

LEAD_CHARS: Final = 360
CLOSE_CHARS: Final = 220
"""Words are looked up in the beginning and the end of a turn: that is where people instruct."""
SYSTEM_CHARS: Final = 400
INSTRUCTION_CHARS: Final = 200
"""Instructions beside a text are rarely longer."""
FORM_CHARS: Final = 1000
EXAMPLES_CHARS: Final = 1200
LABEL_CHARS: Final = 12
"""Words such as "Context:" before a text are no instruction."""
DENSITY: Final = 2.5
"""Letters of an alphabet that say as much as one ideograph."""
WHOLE_CHARS: Final = 250
"""Up to this length a turn without a task at its beginning is all instruction."""
CLOSING_CHARS: Final = 120
"""Read of a last line that is too long to be an instruction as a whole."""
INSTRUCTION_BOUND: Final = 2 * INSTRUCTION_CHARS + 2

_TASKS: Final = frozenset(
    list(Cue).index(cue)
    for cue in (
        Cue.TRANSLATE,
        Cue.SUMMARIZE,
        Cue.POLISH,
        Cue.REWRITE,
        Cue.FIX,
        Cue.CHANGE,
        Cue.MAKE,
        Cue.CALCULATE,
        Cue.EXTRACT,
        Cue.EXPLAIN,
    )
)
_CUES: Final = len(Cue)
_QUESTION: Final = list(Cue).index(Cue.QUESTION)
_GROUNDING: Final = list(Cue).index(Cue.GROUNDING)
_ENGINEER: Final = list(Cue).index(Cue.ENGINEER)
_NUMBER: Final = re.compile("[0-9]+")
_CODING_TOOL: Final = re.compile(
    r"bash|shell|terminal|exec|edit|str_replace|patch|grep|file|repo|code|commit", re.IGNORECASE
)
_DENSE: Final = frozenset({"han", "kana", "hangul"})
"""Scripts that say in one letter what an alphabet says in several."""
_CODE_SIGNS: Final = ("{", "=", ";", "<", "_", "):")
"""Hardly any code is without one of these, most prose is without all: spares the counting."""
_CODE_MARKS: Final = (
    ("=", ("==", "=>", " += ")),
    (")", ("();", "):\n", "){", ") {", "print(")),
    ("\n", (";\n", "{\n", "\n    ")),
    (" ", ("def ", "import ", "return ", "const ", "public ")),
    ("", ("#include", "</", "self.", "[i]")),
)
"""Marks of code, by a letter without which none of them need be counted."""
_LATEX_MARKS: Final = ("\\frac", "\\(", "\\[", "\\sqrt", "\\sum", "\\int", "\\le")
_SUM_MARKS: Final = ("$", "^", " + ", " = ")
_MATHS_SIGNS: Final = "√∫≤≥π"
_PHRASE: Final = math.log(100.0)
_PAGE: Final = math.log(900.0)


class CueStrengths(NamedTuple):
    """How clearly each kind of word stands where an instruction stands, 0 to about 2."""

    translate: float = 0.0
    language: float = 0.0
    summarize: float = 0.0
    polish: float = 0.0
    rewrite: float = 0.0
    fix: float = 0.0
    change: float = 0.0
    make: float = 0.0
    code: float = 0.0
    proglang: float = 0.0
    creative: float = 0.0
    calculate: float = 0.0
    maths: float = 0.0
    format: float = 0.0
    sql: float = 0.0
    extract: float = 0.0
    question: float = 0.0
    explain: float = 0.0
    passage: float = 0.0
    grounding: float = 0.0
    persona: float = 0.0
    smalltalk: float = 0.0
    engineer: float = 0.0


class Features(NamedTuple):
    """Numbers about a request, each in [0, 1] unless said otherwise.

    Attributes:
        asked: Words of the instruction, those of the system prompt included.
        material: Amount of text given in the turn: 0 a phrase, 1 a page.
        long: 1 for a turn longer than people write by hand.
        context: Amount of text given by the system prompt to answer from.
        short: 1 for a turn of a few words, 0 from a few sentences on, and without any text.
        code: Share of what looks like source code in the turn.
        fenced: Whether there is a fenced block.
        keyed: Share of what looks like JSON or another keyed form in the turn.
        prior_code: Whether the answer before holds code.
        prior: Whether there is an answer before that the turn may refer to.
        numbers: Amount of numbers in the beginning of the turn.
        formulas: Amount of mathematical notation.
        examples: Whether examples of input and output are given.
        choices: Whether lettered answers are offered.
        question_mark: Whether the instruction ends in a question mark.
        tools: Whether tools may be called.
        tool_forced: Whether a tool must be called.
        coding_tools: Share of tools that read or change files.
        constrained: Whether the engine will enforce a form.
        agent: Whether a loop of calls and results is running.
        prefilled_form: Whether the answer was begun with a bracket or a fence.
        infill: Whether a gap in a given text is to be filled.
        completion: Whether the prompt is bare.
    """

    asked: CueStrengths
    material: float
    long: float
    context: float
    short: float
    code: float
    fenced: float
    keyed: float
    prior_code: float
    prior: float
    numbers: float
    formulas: float
    examples: float
    choices: float
    question_mark: float
    tools: float
    tool_forced: float
    coding_tools: float
    constrained: float
    agent: float
    prefilled_form: float
    infill: float
    completion: float


class Measured(NamedTuple):
    """What was measured, and the words that are most likely the instruction."""

    features: Features
    instruction: str
    """Normalised; bounded by `INSTRUCTION_BOUND`. It never leaves the classifier."""


def extract_features(view: RequestView, lexicon: Lexicon) -> Features:
    """Measure a view."""
    return measure(view, lexicon).features


def measure(view: RequestView, lexicon: Lexicon) -> Measured:
    """Measure a view, and find its instruction on the way."""
    turn = view.turn
    # Cut again: a character may unfold into eighteen.
    lead = normalise(turn.head[:LEAD_CHARS])[:LEAD_CHARS]
    close = normalise(_close(turn))[-CLOSE_CHARS:]
    size = float(turn.chars)
    if view.script in _DENSE:
        size *= DENSITY
        lead, close = lead[: LEAD_CHARS // 2], close[-CLOSE_CHARS // 2 :]
    code, keyed = _form(turn)
    if view.fences:
        code = max(code, 0.6 * (1.0 - keyed))
    asked, instruction = _asked(lead, close, size, view=view, lexicon=lexicon)
    features = Features(
        asked=asked,
        material=_ramp(math.log(size + 1.0), _PHRASE, _PAGE),
        long=_ramp(size, 500.0, 1300.0),
        context=_ramp(view.system.chars, 120.0, 450.0),
        short=1.0 - _ramp(size, 40.0, 250.0) if size else 0.0,
        code=code,
        fenced=float(view.fences > 0),
        keyed=keyed,
        prior_code=_prior_code(view.prior),
        prior=float(view.prior.chars > 0),
        numbers=_numbers(lead),
        formulas=_formulas(lead),
        examples=_examples(turn.head[:EXAMPLES_CHARS]),
        choices=_choices(lead, close),
        question_mark=_question_mark(lead, close),
        tools=float(view.tool_count > 0),
        tool_forced=float(view.tool_forced),
        coding_tools=_coding(view.tool_names),
        constrained=float(view.constraint != ""),
        agent=float(view.steps_after_turn > 0 or "tool" in view.roles),
        prefilled_form=float(view.prefill.head.lstrip()[:1] in ("{", "[", "`", "<")),
        infill=float(view.infill),
        completion=float(view.completion),
    )
    return Measured(features, instruction)


def _ramp(value: float, low: float, high: float) -> float:
    share = (value - low) / (high - low)
    if share <= 0.0:
        return 0.0
    return min(share, 1.0)


def _numbers(lead: str) -> float:
    # Most text holds no digit, and looking for each takes less than going through the letters.
    if not any(map(lead.__contains__, "0123456789")):
        return 0.0
    return min(1.0, len(_NUMBER.findall(lead)) / 4.0)


def _formulas(lead: str) -> float:
    marks = sum(map(lead.count, _SUM_MARKS))
    if "\\" in lead:
        marks += sum(map(lead.count, _LATEX_MARKS))
    if not lead.isascii():
        marks += sum(map(lead.count, _MATHS_SIGNS))
    return min(1.0, marks / 3.0)


def _examples(opening: str) -> float:
    if ":" not in opening:
        return 0.0
    opening = opening.lower()
    return float("input:" in opening and "output:" in opening)


def _close(turn: Excerpt) -> str:
    if turn.tail:
        return turn.tail[-CLOSE_CHARS:]
    return turn.head[max(LEAD_CHARS, turn.chars - CLOSE_CHARS) :]


def _form(excerpt: Excerpt) -> tuple[float, float]:
    """Measure how much a text looks like code, and like JSON."""
    text = excerpt.head[:FORM_CHARS]
    if not any(map(text.__contains__, _CODE_SIGNS)):
        return 0.0, 0.0
    marks = sum([sum(map(text.count, marks)) for sign, marks in _CODE_MARKS if sign in text])
    keys = text.count('":') + text.count('" :')
    code = max(0.0, marks - 1.5 - keys) / (marks + 3.0)
    return code, keys / (keys + 4.0)


def _prior_code(prior: Excerpt) -> float:
    if not prior.chars:
        return 0.0
    fenced = "```" in prior.head or "```" in prior.tail
    return max(_form(prior)[0], 0.8 * fenced)


def _choices(lead: str, close: str) -> float:
    for text in (lead, close):
        if "a)" in text and "b)" in text and "c)" in text:
            return 1.0
        if "\na." in text and "\nb." in text and "\nc." in text:
            return 1.0
    return 0.0


def _question_mark(lead: str, close: str) -> float:
    asked = lead + close
    if not ("?" in asked or "\u061f" in asked or "\uff1f" in asked):
        return 0.0
    first = lead.partition("\n")[0].rstrip()[-1:]
    last = (close or lead).rstrip()[-1:]
    return 1.0 if first in _QUESTION_MARKS or last in _QUESTION_MARKS else 0.5


_QUESTION_MARKS: Final = frozenset("?\u061f\uff1f")


def _coding(names: tuple[str, ...]) -> float:
    if not names:
        return 0.0
    return sum(_CODING_TOOL.search(name) is not None for name in names) / len(names)


def _asked(
    lead: str, close: str, size: float, *, view: RequestView, lexicon: Lexicon
) -> tuple[CueStrengths, str]:
    """Add up the cues of the turn and of the system prompt; return the instruction as well.

    A turn that holds no task of its own is material for the task of the system prompt, so that
    counts in full; beside a task in the turn it is a side remark.
    """
    strengths = [0.0] * _CUES
    last_line = close.rstrip().rfind("\n") + 1
    closing = last_line if 0 < len(close) - last_line < INSTRUCTION_CHARS else len(close)
    clear = _add(strengths, lexicon.scan(close), close, (0, closing))
    hits = lexicon.scan(lead)
    task = len(lead)
    for cues, start in hits:
        if not _TASKS.isdisjoint(cues):
            task = start
            break
    opening = _opening(lead, task)
    if clear and _is_prose(lead):
        # A long first line with the task after the text is text.
        bounds = (0, len(lead))
    elif task < opening:
        # The task stands first, so what follows its line or colon is material.
        bounds = (opening, len(lead))
    elif size <= WHOLE_CHARS:
        bounds = (len(lead), len(lead))
    else:
        bounds = (opening, _closing(lead, close))
    clear |= _add(strengths, hits, lead, bounds)
    if view.system.chars:
        aside = _aside(view.system.head[:SYSTEM_CHARS], lexicon)
        share = 0.3 if clear else 1.0
        for cue, strength in aside:
            strengths[cue] = max(strengths[cue], share * strength)
            # These say what the application is for, whatever the turn asks.
            if cue in (_GROUNDING, _ENGINEER):
                strengths[cue] = max(strengths[cue], strength)
    return CueStrengths(*strengths), _instruction(lead, close, opening, whole=size <= WHOLE_CHARS)


def _instruction(lead: str, close: str, opening: int, *, whole: bool) -> str:
    """Join what likely instructs: the first line, and the last unless all is one instruction."""
    if whole:
        return lead[:WHOLE_CHARS]
    last = close.rstrip().rpartition("\n")[2]
    if len(last) >= INSTRUCTION_CHARS:
        last = last[-CLOSING_CHARS:]
    return f"{lead[: opening + 1]}\n{last}"


@lru_cache(maxsize=256)
def _aside(system: str, lexicon: Lexicon) -> tuple[tuple[int, float], ...]:
    """Add up the cues that a system prompt has; an application sends the same one each time."""
    strengths = [0.0] * _CUES
    system = normalise(system)[:SYSTEM_CHARS]
    _add(strengths, lexicon.scan(system), system, (len(system), 0))
    return tuple((cue, strength) for cue, strength in enumerate(strengths) if strength)


def _is_prose(lead: str) -> bool:
    return "\n" not in lead[:INSTRUCTION_CHARS]


def _opening(lead: str, task: int) -> int:
    """Find where the instruction at the beginning ends: its line's end or a colon.

    Args:
        lead: The beginning of the turn.
        task: Where the first verb of a task is; labels before it are no end.
    """
    if task >= INSTRUCTION_CHARS:
        task = LABEL_CHARS
    # Up to and including the last place that counts.
    end = lead.find("\n", task, INSTRUCTION_CHARS + 1)
    colon = lead.find(":", task, end if end >= 0 else INSTRUCTION_CHARS + 1)
    if colon >= 0:
        return colon
    return end if end >= 0 else INSTRUCTION_CHARS // 2


def _closing(lead: str, close: str) -> int:
    """Find where the instruction at the end begins, if the beginning is all there is."""
    if close:
        return len(lead)
    return max(lead.rstrip().rfind("\n") + 1, len(lead) - INSTRUCTION_CHARS // 2)


def _add(
    strengths: list[float], hits: Iterable[Hit], text: str, instruction: tuple[int, int]
) -> bool:
    """Add the cues of `hits`; say whether a task was clearly among them.

    Words count in full before the first and after the second position of `instruction`.
    """
    before, after = instruction
    first = True
    clear = False
    for cues, start in hits:
        weight = 1.0 if start < before or start >= after else 0.3
        for cue in cues:
            strength = weight
            if cue == _QUESTION:
                if not _begins_sentence(text, start):
                    strength *= 0.3
            elif cue in _TASKS:
                clear |= weight == 1.0
                if first:
                    # What is named first is the task; later verbs are often part of the text.
                    strength *= 1.4
                    first = False
            known = strengths[cue]
            strengths[cue] = (
                strength + 0.15 * known if strength > known else known + 0.15 * strength
            )
    return clear


def _begins_sentence(text: str, start: int) -> bool:
    return start == 0 or text[max(0, start - 2) : start].strip(" ") in _SENTENCE_ENDS


_SENTENCE_ENDS: Final = frozenset(("", "\n", ".", ":", "?", "!", ",", "\u060c", "\u061f"))
