"""Tells applications apart by what they send along each time; keeps hashes, never text.

An application is the head of its system prompt, its tools' names and its kind of client. What
changes from request to request inside a system prompt (dates, numbers, addresses) is masked.
"""

from __future__ import annotations

import re
import unicodedata
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b, blake2s
from typing import TYPE_CHECKING, Final

from router.classify.application import client_kind, system_head, tool_names
from router.types import GREEDY, POOLED, SegmentId

if TYPE_CHECKING:
    from router.clock import Clock
    from router.types import ParsedRequest

RAW_CHARS: Final = 560
"""Read of a system prompt, so that enough is left when it has been masked."""
HEAD_CHARS: Final = 400
"""Counts of a masked system prompt: further down stand the particulars of users."""
KEY_BYTES: Final = 32
CACHED: Final = 1024
CANDIDATES: Final = 256
LEAST: Final = 20.0
"""Recent requests from which on an application counts as one."""
HALF_LIFE_S: Final = 3600.0
"""Age at which a request counts half for whether its application is a live one."""
_SUPPLANT: Final = 1.5
"""How much busier a new application must be than the idlest of a full table."""
_MOST_DOUBLINGS: Final = 64.0

_ADDRESS: Final = re.compile(r"(?:[!-9;-?A-~]|:(?!//))*(?:@|://)[!-~]*")
"""URLs, e-mail addresses and whatever hangs on them."""
_UUID: Final = re.compile(r"(?<!\w)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?!\w)")
_NUMBERED: Final = re.compile(r"(?<!\w)[^\W\d]*\d\w*")
"""Words with a digit in them, hexadecimal ones among them."""
_RUN: Final = re.compile(r"#(?:[^\w\s]*#)*")
_MASK: Final = "#"
_DAYS_AND_MONTHS: Final = (
    "monday tuesday wednesday thursday friday saturday sunday january february march april june "
    "july august september october november december am pm a.m p.m"
)
_CALENDAR: Final = frozenset(_DAYS_AND_MONTHS.split())
_POINTS: Final = ".,;:!?()[]{}<>\"'"
_DATE_WORDS: Final = 2
"""Words dropped before a number: names of days and months, in any language."""


def masked(text: str) -> str:
    """Bring the head of a system prompt into the form that stays the same between requests."""
    text = unicodedata.normalize("NFKC", text[:RAW_CHARS])[:RAW_CHARS].casefold()
    kept: list[str] = []
    for word in text.split():
        plain = word if word.isalpha() else _masked_word(word)
        bare = plain.strip(_POINTS)
        if bare in _CALENDAR:
            plain = bare = _MASK
        if _MASK not in plain:
            kept.append(plain)
            continue
        for _ in range(_DATE_WORDS):
            if kept and _MASK not in kept[-1]:
                kept.pop()
        if bare != _MASK or not kept or kept[-1] != _MASK:
            kept.append(_MASK if bare == _MASK else plain)
    return " ".join(kept)[:HEAD_CHARS]


def _masked_word(word: str) -> str:
    if "@" in word or "://" in word:
        word = _ADDRESS.sub(_MASK, word)
    if word.count("-") >= 4:  # noqa: PLR2004 - as many as there are in a UUID
        word = _UUID.sub(_MASK, word)
    return _RUN.sub(_MASK, _NUMBERED.sub(_MASK, word))


class Fingerprints:
    """Hashes applications with a key; without one all are `POOLED`.

    Requests at temperature 0 are told apart from the others of their application.

    The last hashes are kept by a keyed digest of what they were made from.

    Args:
        key: Any bytes; None until it is known.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key: bytes | None = None
        self._cache: OrderedDict[bytes, SegmentId] = OrderedDict()
        if key is not None:
            self.use(key)

    @property
    def ready(self) -> bool:
        """Whether the key is known."""
        return self._key is not None

    def use(self, key: bytes) -> None:
        """Take the key; what was hashed with another is forgotten."""
        self._key = blake2s(key, person=b"segments").digest()
        self._cache.clear()

    def of(self, request: ParsedRequest) -> SegmentId:
        """Return the hash of a request's application, or `POOLED` where nothing tells it.

        At temperature 0 `GREEDY`, and a dash where the hash follows, stand before it.
        """
        if self._key is None:
            return POOLED
        greedy = _greedy(request.fields)
        system = system_head(request.fields, RAW_CHARS)
        tools = sorted(tool_names(request.fields))
        if not tools and (not system or system.isspace()):
            return GREEDY if greedy else POOLED
        client = client_kind(request.headers)
        digest = blake2b(_bytes(client, tools, system), key=self._key, digest_size=16).digest()
        found = self._cache.get(digest)
        if found is not None:
            self._cache.move_to_end(digest)
            return SegmentId(f"{GREEDY}-{found}") if greedy else found
        # The names' digits go as well: tools that are made on the fly are numbered.
        names = [_NUMBERED.sub("#", name) for name in tools]
        made = blake2s(_bytes(client, names, masked(system)), key=self._key, digest_size=5)
        segment = self._cache[digest] = SegmentId(made.hexdigest())
        if len(self._cache) > CACHED:
            self._cache.popitem(last=False)
        return SegmentId(f"{GREEDY}-{segment}") if greedy else segment


def _greedy(fields: Mapping[str, object]) -> bool:
    """Whether the likeliest token is asked for at each place: far more of drafts is accepted."""
    temperature = fields.get("temperature")
    return isinstance(temperature, int | float) and temperature == 0


def _bytes(client: str, tools: Sequence[str], system: str) -> bytes:
    return "\0".join((client, *tools, "", system)).encode("utf-8", "surrogatepass")


class SegmentTable:
    """Decides which applications of a route are busy enough to be told apart.

    Counts decay. Those in the table leave it only when they fall silent or when others are really
    busier; candidates have a list of their own, which forgets the one not seen for longest. So
    any number of applications of one request each changes nothing.

    Args:
        clock: Time.
        live: Most applications told apart at a time.
    """

    def __init__(self, clock: Clock, live: int) -> None:
        self._clock = clock
        self._most = live
        self._live: dict[SegmentId, float] = {}
        self._candidates: OrderedDict[SegmentId, float] = OrderedDict()
        self._start = clock.monotonic()

    def seen(self, fingerprint: SegmentId) -> SegmentId:
        """Count a request; return its application if that is told apart, else `POOLED`."""
        if fingerprint == POOLED or self._most == 0:
            return POOLED
        weight = self._weight()
        count = self._live.pop(fingerprint, None)
        if count is None:
            count = self._candidates.pop(fingerprint, 0.0) + weight
            if count >= LEAST * weight and self._has_room(count):
                self._live[fingerprint] = count
                return fingerprint
        else:
            count += weight
            if count >= 0.5 * LEAST * weight:
                self._live[fingerprint] = count
                return fingerprint
        self._remember(fingerprint, count)
        return POOLED

    def recent(self) -> dict[SegmentId, float]:
        """Return the decayed number of requests of each application told apart."""
        weight = self._weight()
        return {segment: count / weight for segment, count in self._live.items()}

    def _has_room(self, count: float) -> bool:
        """Make room for one that was counted, at the cost of the idlest if it is much busier."""
        if len(self._live) < self._most:
            return True
        idlest = min(self._live, key=self._live.__getitem__)
        if count < _SUPPLANT * self._live[idlest]:
            return False
        self._remember(idlest, self._live.pop(idlest))
        return True

    def _remember(self, fingerprint: SegmentId, count: float) -> None:
        self._candidates[fingerprint] = count
        if len(self._candidates) > CANDIDATES:
            self._candidates.popitem(last=False)

    def _weight(self) -> float:
        """Return what a request counts now: old counts stay, new ones grow."""
        doublings = (self._clock.monotonic() - self._start) / HALF_LIFE_S
        if doublings > _MOST_DOUBLINGS:
            shrink = 2.0**-doublings
            for counts in (self._live, self._candidates):
                for segment in counts:
                    counts[segment] *= shrink
            self._start, doublings = self._clock.monotonic(), 0.0
        return float(2.0**doublings)


class Segments:
    """The segment of each request of one route."""

    def __init__(self, fingerprints: Fingerprints, table: SegmentTable) -> None:
        self._fingerprints = fingerprints
        self._table = table

    def segment(self, request: ParsedRequest) -> SegmentId:
        """Return the application that a request comes from, if it is told apart."""
        return self._table.seen(self._fingerprints.of(request))

    def recent(self) -> dict[SegmentId, float]:
        """Return the decayed number of requests of each application told apart."""
        return self._table.recent()
