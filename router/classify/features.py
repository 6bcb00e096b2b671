"""Turns a view of a request into numbers that drive acceptance; names no class."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ahocorasick_rs import AhoCorasick, Implementation, MatchKind

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
_PURPOSES: Final = frozenset((list(Cue).index(Cue.GROUNDING), list(Cue).index(Cue.ENGINEER)))
_NUMBER: Final = re.compile("[0-9]+")
_CODING_TOOL: Final = re.compile(
    r"bash|shell|terminal|exec|edit|str_replace|patch|grep|file|repo|code|commit", re.IGNORECASE
)
_DENSE: Final = frozenset({"han", "kana", "hangul"})
"""Scripts that say in one letter what an alphabet says in several."""
_CODE_SIGNS: Final = ("{", "=", ";", "<", "_", "):")
"""Hardly any code is without one of these, most prose is without all: spares the counting."""
_CODE_MARKS: Final = (
    "==", "=>", " += ", "();", "):\n", "){", ") {", "print(", ";\n", "{\n", "\n    ",
    "def ", "import ", "return ", "const ", "public ", "#include", "</", "self.", "[i]",
)  # fmt: skip
_KEY_MARKS: Final = ('":', '" :')
_find_form: Final = AhoCorasick(
    [*_CODE_MARKS, *_KEY_MARKS],
    matchkind=MatchKind.LeftmostLongest,
    implementation=Implementation.DFA,
).find_matches_as_indexes
_LATEX_MARKS: Final = ("\\frac", "\\(", "\\[", "\\sqrt", "\\sum", "\\int", "\\le")
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
    turn, system, prior = view.turn, view.system, view.prior
    head, chars = turn.head, turn.chars
    lead, close = _ends(turn, view.script)
    size = float(chars)
    if view.script in _DENSE:
        size *= DENSITY
        lead, close = lead[: LEAD_CHARS // 2], close[-CLOSE_CHARS // 2 :]
    code, keyed = _form(head[:FORM_CHARS])
    if view.fences:
        code = max(code, 0.6 * (1.0 - keyed))
    asked, instruction = _asked(lead, close, size, view=view, lexicon=lexicon)
    numbers, formulas, choices, asking = _marks(lead, close)
    # In the order of the fields: naming each takes a microsecond more.
    features = Features(
        asked,
        _ramp(math.log(size + 1.0), _PHRASE, _PAGE),
        _ramp(size, 500.0, 1300.0),
        _ramp(system.chars, 120.0, 450.0),
        1.0 - _ramp(size, 40.0, 250.0) if chars else 0.0,
        code,
        1.0 if view.fences else 0.0,
        keyed,
        _prior_code(prior) if prior.chars else 0.0,
        1.0 if prior.chars else 0.0,
        numbers,
        formulas,
        _examples(head),
        choices,
        asking,
        1.0 if view.tool_count else 0.0,
        float(view.tool_forced),
        _coding(view.tool_names) if view.tool_names else 0.0,
        1.0 if view.constraint else 0.0,
        1.0 if view.steps_after_turn > 0 or "tool" in view.roles else 0.0,
        float(view.prefill.head.lstrip()[:1] in _FORM_OPENERS) if view.prefill.chars else 0.0,
        float(view.infill),
        float(view.completion),
    )
    return Measured(features, instruction)


_FORM_OPENERS: Final = frozenset("{[`<")


def _ramp(value: float, low: float, high: float) -> float:
    if value <= low:
        return 0.0
    return (value - low) / (high - low) if value < high else 1.0


def _marks(lead: str, close: str) -> tuple[float, float, float, float]:
    """Return the amounts of numbers, formulas, lettered answers and question marks."""
    numbers = formulas = choices = asking = 0.0
    # Most text holds no digit, and looking for each takes less than going through the letters.
    if any(map(lead.__contains__, "1203456789")):
        numbers = sum([1.0 for _ in islice(_NUMBER.finditer(lead), 4)]) / 4.0
    marks = lead.count("$") + lead.count("^") + lead.count(" + ") + lead.count(" = ")
    if "\\" in lead:
        marks += sum(map(lead.count, _LATEX_MARKS))
    if not lead.isascii():
        marks += sum(map(lead.count, _MATHS_SIGNS))
    if marks:
        formulas = min(1.0, marks / 3.0)
    if _lettered(lead) or _lettered(close):
        choices = 1.0
    # Question marks of all scripts have been folded into one.
    if "?" in lead or "?" in close:
        first = lead.partition("\n")[0].rstrip()
        last = (close or lead).rstrip()
        asking = 1.0 if first.endswith("?") or last.endswith("?") else 0.5
    return numbers, formulas, choices, asking


def _lettered(text: str) -> bool:
    if ")" in text and "b)" in text:
        return "a)" in text and "c)" in text
    return "\nb." in text and "\na." in text and "\nc." in text


def _examples(head: str) -> float:
    given = head.find("utput:", 0, EXAMPLES_CHARS) >= 0
    return float(given and head.find("nput:", 0, EXAMPLES_CHARS) >= 0)


def _ends(turn: Excerpt, script: str) -> tuple[str, str]:
    """Return the beginning and the end of a turn, normalised; no end where all is beginning."""
    unspaced = script in _DENSE
    lead = turn.head[:LEAD_CHARS]
    if turn.tail:
        close = turn.tail[-CLOSE_CHARS:]
    elif turn.chars > LEAD_CHARS:
        close = turn.head[max(LEAD_CHARS, turn.chars - CLOSE_CHARS) :]
    else:
        return normalise(lead, unspaced=unspaced)[:LEAD_CHARS], ""
    # Both in one go; what is in between stands in no text that people write.
    lead, _, close = normalise(f"{lead}\1{close}", unspaced=unspaced).partition("\1")
    # Cut again: a character may unfold into eighteen.
    return lead[:LEAD_CHARS], close[-CLOSE_CHARS:]


def _form(text: str) -> tuple[float, float]:
    """Measure how much a text looks like code, and like JSON."""
    if not any(map(text.__contains__, _CODE_SIGNS)):
        return 0.0, 0.0
    try:
        found = _find_form(text)
    except UnicodeEncodeError:
        # Lone surrogates are no code.
        found = _find_form(text.encode("utf-8", "replace").decode())
    keys = sum([number >= len(_CODE_MARKS) for number, _, _ in found])
    marks = len(found) - keys
    code = max(0.0, marks - 1.5 - keys) / (marks + 3.0)
    return code, keys / (keys + 4.0)


def _prior_code(prior: Excerpt) -> float:
    fenced = "```" in prior.head or "```" in prior.tail
    return max(_form(prior.head[:FORM_CHARS])[0], 0.8 * fenced)


def _coding(names: tuple[str, ...]) -> float:
    return sum(_CODING_TOOL.search(name) is not None for name in names) / len(names)


def _asked(
    lead: str, close: str, size: float, *, view: RequestView, lexicon: Lexicon
) -> tuple[CueStrengths, str]:
    """Add up the cues of the turn and of the system prompt; return the instruction as well.

    A turn that holds no task of its own is material for the task of the system prompt, so that
    counts in full; beside a task in the turn it is a side remark.
    """
    strengths = [0.0] * _CUES
    clear = False
    if close:
        # Both in one go: no term reaches over two line breaks.
        text = f"{lead}\n\n{close}"
        begin = len(lead) + 2
        hits = lexicon.scan(text)
        cut = bisect_left(hits, (begin,))
        last = max(begin, text.rstrip().rfind("\n") + 1)
        short = 0 < len(text) - last < INSTRUCTION_CHARS
        clear = _add(strengths, hits[cut:], text, begin, last if short else len(text) + 2)
        hits = hits[:cut]
    else:
        hits = lexicon.scan(lead)
    task = len(lead)
    for start, cues in hits:
        if not _TASKS.isdisjoint(cues):
            task = start
            break
    opening = _opening(lead, task)
    before = after = len(lead) + 2
    if clear and "\n" not in lead[:INSTRUCTION_CHARS]:
        # A long first line with the task after the text is text.
        before = 0
    elif task < opening:
        # The task stands first, so what follows its line or colon is material.
        before = opening
    elif size > WHOLE_CHARS:
        before, after = opening, _closing(lead, close)
    clear |= _add(strengths, hits, lead, before, after)
    if view.system.chars:
        share = 0.3 if clear else 1.0
        for cue, strength in _aside(view.system.head[:SYSTEM_CHARS], lexicon):
            # Some say what the application is for, whatever the turn asks.
            counted = strength if cue in _PURPOSES else share * strength
            strengths[cue] = max(strengths[cue], counted)
    whole = size <= WHOLE_CHARS
    return (
        CueStrengths._make(strengths),
        lead[:WHOLE_CHARS] if whole else _instruction(lead, close, opening),
    )


def _instruction(lead: str, close: str, opening: int) -> str:
    """Join what likely instructs: the first line, and the last."""
    last = close.rstrip().rpartition("\n")[2]
    if len(last) >= INSTRUCTION_CHARS:
        last = last[-CLOSING_CHARS:]
    return f"{lead[: opening + 1]}\n{last}"


@lru_cache(maxsize=256)
def _aside(system: str, lexicon: Lexicon) -> tuple[tuple[int, float], ...]:
    """Add up the cues that a system prompt has; an application sends the same one each time."""
    strengths = [0.0] * _CUES
    system = normalise(system)[:SYSTEM_CHARS]
    end = len(system) + 2
    _add(strengths, lexicon.scan(system), system, end, end)
    return tuple((cue, strength) for cue, strength in enumerate(strengths) if strength)


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


def _add(strengths: list[float], hits: list[Hit], text: str, before: int, after: int) -> bool:
    """Add the cues of `hits`; say whether a task was clearly among them.

    Words count in full before the position `before` and from `after` on.
    """
    first = True
    clear = False
    for start, cues in hits:
        weight = 1.0 if start < before or start >= after else 0.3
        for cue in cues:
            strength = weight
            if cue in _TASKS:
                if weight == 1.0:
                    clear = True
                if first:
                    # What is named first is the task; later verbs are often part of the text.
                    strength *= 1.4
                    first = False
            elif cue == _QUESTION and not _begins_sentence(text, start):
                strength *= 0.3
            known = strengths[cue]
            if not known:
                strengths[cue] = strength
            elif strength > known:
                strengths[cue] = strength + 0.15 * known
            else:
                strengths[cue] = known + 0.15 * strength
    return clear


def _begins_sentence(text: str, start: int) -> bool:
    return start < 2 or text[start - 1] in _SENTENCE_ENDS or text[start - 2] in _SENTENCE_ENDS  # noqa: PLR2004


_SENTENCE_ENDS: Final = "\n.:?!,"
"""A word follows one at once or after a blank."""
