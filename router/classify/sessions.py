"""Lets turns that say little take after their session; in memory only, lost without harm."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from secrets import token_bytes
from typing import TYPE_CHECKING, Final

from policies.types import ClassId, Status
from router.classify.application import header_value, messages_of, system_head, texts_of
from router.classify.base import OTHER
from router.classify.text import normalise
from router.types import NO_SESSION, SessionId

if TYPE_CHECKING:
    from router.classify.base import Classifier
    from router.clock import Clock
    from router.types import Classification, LengthBand, Outcome, ParsedRequest

HEADER: Final = "x-specroute-session"
FORGET_S: Final = 3600.0
"""A session that was silent for this long begins anew."""
CONFIDENCE_FLOOR: Final = 0.25
"""Least probability at which a class is named, as in the classifiers themselves."""
PREFIX_CHARS: Final = 512
KEY_CHARS: Final = 512
MESSAGES_SEEN: Final = 8
SMALLEST: Final = 0.05
"""Classes less likely than this are not remembered."""

BARE: Final = 0.85
"""What a turn that only says to go on takes over."""
RESULT: Final = 0.5
"""What the result of a tool takes over at most: the task is still in the request."""
SHORT: Final = 0.5
SHORT_CHARS: Final = 48
DENSE: Final = 2.5
"""Letters of an alphabet that say as much as one ideograph."""
_FIRST_DENSE: Final = "\u2e80"
LONGEST_BARE: Final = 32

_LASTING_KEYS: Final = ("prompt_cache_key", "user")
_FLEETING_KEY: Final = "previous_response_id"
_KEYS: Final = (*_LASTING_KEYS, _FLEETING_KEY)
_RESULT_ROLES: Final = ("tool", "function")
_RESULT_TYPES: Final = ("function_call_output", "custom_tool_call_output", "tool_result")
_POINTS: Final = " .,;:!?…。、！？،؟۔~\n\"'"
_GO_ON_WORDS: Final = (
    "continue|go on|keep going|carry on|proceed|go ahead|please continue|continue please|"
    "ok|okay|k|yes|yep|yeah|y|no|nope|sure|right|correct|exactly|do it|done|next|more|again|"
    "once more|try again|retry|same again|one more|another|another one|yes please|ok go on|"
    "continúa|continua|sigue|sí|si|vale|otra vez|de nuevo|más|siguiente|otro|"
    "continuez|oui|non|encore|la suite|suite|d'accord|suivant|"
    "weiter|mach weiter|ja|nein|nochmal|noch einmal|fortfahren|mehr|"
    "sim|não|mais|outra vez|prossiga|avanti|ancora|sì|prosegui|"
    "продолжай|продолжи|продолжайте|дальше|да|нет|ещё|еще раз|снова|ок|"
    "devam|devam et|evet|hayır|tekrar|daha|"
    "ادامه بده|ادامه|ادامه بدهید|بله|آره|نه|باشه|دوباره|بیشتر|بعدی|خب|"
    "أكمل|استمر|تابع|نعم|لا|مرة أخرى|المزيد|حسنا|التالي|"
    "जारी रखें|हाँ|नहीं|फिर से|और|"
    "继续|繼續|请继续|好|好的|是|是的|对|嗯|可以|行|不|再来一次|再来一个|下一步|下一个|"
    "続けて|続けてください|続き|はい|いいえ|もう一度|次|もっと|"
    "계속|계속해|계속해줘|네|예|응|아니|다시|다음|더"
)
_GO_ON: Final = frozenset(map(normalise, _GO_ON_WORDS.split("|")))
"""Turns that say no more than to go on."""

_BANDS: Final[tuple[tuple[int, LengthBand], ...]] = ((64, "brief"), (256, "short"), (768, "medium"))


SessionName = tuple[str, str]
"""Where what names a session was found, and that; it may hold text of the prompt."""


@dataclass(slots=True)
class _Memory:
    """What is known of a session."""

    chances: dict[ClassId, float]
    copy_ratio: float
    seen_s: float
    tokens: int | None = None
    """Length of its last answer that went well."""


class SessionClassifier:
    """Blends what a turn says by itself with what its session was about.

    Args:
        inner: Judges a turn by itself.
        clock: Time.
        capacity: Most sessions remembered; 0 for none.
    """

    def __init__(self, inner: Classifier, clock: Clock, capacity: int = 10_000) -> None:
        self._inner = inner
        self._clock = clock
        self._capacity = capacity
        self._key = token_bytes(32)
        self._sessions: OrderedDict[SessionId, _Memory] = OrderedDict()

    def session(self, request: ParsedRequest, name: SessionName | None = None) -> SessionId:
        """Return the session that a request belongs to: what it names, else how it began.

        Args:
            request: The turn, with the conversation before it.
            name: `session_name` of it, where that is known already.
        """
        if not self._capacity:
            return NO_SESSION
        kind, named = name or session_name(request)
        if not named:
            return NO_SESSION
        # The model and the credential keep strangers out of each other's sessions.
        headers = request.headers
        scope = header_value(headers, "authorization") or header_value(headers, "x-api-key")
        text = "\0".join((request.model[:KEY_CHARS], scope, kind, named))
        data = text.encode("utf-8", "surrogatepass")
        return SessionId(blake2b(data, key=self._key, digest_size=8).hexdigest())

    def classify(self, request: ParsedRequest, session: SessionId = NO_SESSION) -> Classification:
        """Return the class of `request`, given what its session was about, and remember it."""
        own = self._inner.classify(request)
        if session == NO_SESSION:
            return own
        now = self._clock.monotonic()
        memory = self._sessions.pop(session, None)
        if memory is None or now - memory.seen_s > FORGET_S:
            blended, tokens = own, None
        else:
            blended, tokens = _blend(own, memory, inherited(request, own)), memory.tokens
        kept = {name: p for name, p in blended.probabilities.items() if p >= SMALLEST}
        self._sessions[session] = _Memory(kept, blended.copy_ratio, now, tokens)
        if len(self._sessions) > self._capacity:
            self._sessions.popitem(last=False)
        return blended

    def learn(self, session: SessionId, outcome: Outcome) -> None:
        """Take what came of a request of a session."""
        memory = self._sessions.get(session)
        if memory is not None and outcome.status is Status.OK and outcome.tokens is not None:
            memory.tokens = outcome.tokens

    def __len__(self) -> int:
        return len(self._sessions)


def session_name(request: ParsedRequest) -> SessionName:
    """Return what names a request's session in this process; empty where nothing does."""
    return _named(request, _KEYS)


def session_key(request: ParsedRequest, name: SessionName | None = None) -> str | None:
    """Return what names a request's session in every process; None where nothing does.

    It may hold text of the prompt, so it is hashed and forgotten. An id of the answer before is
    another one in each turn, so it names none.

    Args:
        request: The turn, with the conversation before it.
        name: `session_name` of it, where that is known already.
    """
    if name is None or name[0] == _FLEETING_KEY:
        name = _named(request, _LASTING_KEYS)
    kind, named = name
    return f"{kind}\0{named}" if named else None


def inherited(request: ParsedRequest, own: Classification) -> float:
    """Return the weight in [0, 1) of the session's past: the more, the less the turn says.

    Args:
        request: The turn, with the conversation before it.
        own: What the turn says by itself; a rule of the operator's is never watered down.
    """
    if own.rule is not None:
        return 0.0
    last = _last(request)
    content = last.get("content")
    if _is_result(last, content):
        return RESULT * _unsure(own)
    return _left_unsaid(content, own) if last.get("role") == "user" else 0.0


def _last(request: ParsedRequest) -> Mapping[str, object]:
    """Return the last message; empty where there is none."""
    turn = request.fields.get("input")
    if isinstance(turn, str):
        return {"role": "user", "content": turn}
    messages = messages_of(request.fields)
    last = messages[-1] if messages else None
    return last if isinstance(last, dict) else {}


def _left_unsaid(content: object, own: Classification) -> float:
    """Return how much of what a user's turn is about it leaves to what went before."""
    size, said = 0, ""
    for text in texts_of(content):
        size += len(text)
        said = said or text[:SHORT_CHARS]
    if size == 0:
        # Images alone, perhaps: only where the turn itself told nothing.
        return RESULT if own.class_id == OTHER else 0.0
    if size <= LONGEST_BARE and normalise(said.strip(_POINTS)) in _GO_ON:
        return BARE
    if size >= SHORT_CHARS:
        return 0.0
    letters = size * (DENSE if said and max(said) >= _FIRST_DENSE else 1.0)
    return SHORT * max(0.0, 1.0 - letters / SHORT_CHARS) * _unsure(own)


def _unsure(own: Classification) -> float:
    return 1.0 - own.confidence if own.class_id != OTHER else 1.0


def _is_result(message: Mapping[str, object], content: object) -> bool:
    """Tell whether a message hands over what a tool returned, in any dialect."""
    if message.get("role") in _RESULT_ROLES or message.get("type") in _RESULT_TYPES:
        return True
    part = content[-1] if isinstance(content, list) and content else None
    return isinstance(part, dict) and part.get("type") == "tool_result"


def _blend(own: Classification, memory: _Memory, weight: float) -> Classification:
    if weight <= 0.0:
        return own
    # What is not remembered of the session, the turn itself decides.
    left = 1.0 - weight * sum(memory.chances.values())
    chances = {name: left * p for name, p in own.probabilities.items()}
    for name, p in memory.chances.items():
        chances[name] = chances.get(name, 0.0) + weight * p
    best = max(chances, key=chances.__getitem__)
    if chances[best] < CONFIDENCE_FLOOR:
        best = OTHER
    band = own.length_band
    if weight >= BARE and memory.tokens is not None:
        band = _band(memory.tokens)
    return replace(
        own,
        class_id=best,
        confidence=chances.get(best, 0.0),
        probabilities=chances,
        reason=own.reason if best == own.class_id else "the turn says little, so its session tells",
        copy_ratio=weight * memory.copy_ratio + (1.0 - weight) * own.copy_ratio,
        length_band=band,
    )


def _band(tokens: int) -> LengthBand:
    return next((band for bound, band in _BANDS if tokens <= bound), "long")


def _named(request: ParsedRequest, keys: tuple[str, ...]) -> SessionName:
    """Return what names the session, and where that was found."""
    fields = request.fields
    given = header_value(request.headers, HEADER)
    if given:
        return HEADER, given
    for name in keys:
        key = fields.get(name)
        if isinstance(key, str) and key:
            return name, f"{len(key)} {key[:KEY_CHARS]}"
    for message in messages_of(fields)[:MESSAGES_SEEN]:
        if isinstance(message, dict) and message.get("role") == "user":
            said = next(iter(texts_of(message.get("content"))), "")
            system = system_head(fields, PREFIX_CHARS)
            return "prefix", f"{system}\0{len(said)} {said[:PREFIX_CHARS]}"
    return "", ""
