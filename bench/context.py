"""Measures what telling applications, sessions and rules apart costs beside the classifier.

Usage: python -m bench.context
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import orjson

from router.classify.class_rules import RuledClassifier
from router.classify.load import default_classifier
from router.classify.segments import Fingerprints, Segments, SegmentTable
from router.classify.sessions import SessionClassifier
from router.clock import SystemClock
from router.config.classes import ClassRule
from router.intake.parse import parse_request
from router.types import Classification, Endpoint, Headers, ParsedRequest

COUNT = 2000
HEADERS: Headers = (
    ("Host", "localhost:8080"),
    ("Accept-Encoding", "gzip, deflate"),
    ("Connection", "keep-alive"),
    ("Accept", "application/json"),
    ("Content-Type", "application/json"),
    ("User-Agent", "OpenAI/Python 2.8.1"),
    ("X-Stainless-Lang", "python"),
    ("Authorization", "Bearer sk-0123456789abcdef0123456789abcdef"),
)
SYSTEM = "You are the assistant of the payments team. Answer from the handbook, politely. " * 14
TURN = "Could you tell me how a refund is booked when the invoice was paid in two parts? " * 10
RULES = [
    {"class": "a", "when": {"header": {"X-App": "^billing"}}},
    {"class": "b", "when": {"model": "other-*"}},
    {"class": "c", "when": {"tool": "extract_*"}},
    {"class": "d", "when": {"system_prompt": r"(?i)\byou are a code reviewer\b"}},
    {"class": "e", "when": {"system_prompt": "(?i)translat(e|or)"}},
]


def chat(system: str, turns: Sequence[str], tools: int = 0) -> ParsedRequest:
    """One request of about two kilobytes, parsed as the intake does."""
    names = [
        {"type": "function", "function": {"name": f"tool_{chr(97 + i)}"}} for i in range(tools)
    ]
    messages = [{"role": "system", "content": system}]
    messages += [{"role": "user", "content": turn} for turn in turns]
    body = orjson.dumps({"model": "m", "messages": messages, "tools": names})
    return parse_request(Endpoint.CHAT, body, HEADERS)


def show(name: str, call: Callable[[ParsedRequest], object], requests: list[ParsedRequest]) -> None:
    """Print the processor time of a call."""
    taken = []
    gc.collect()
    gc.freeze()
    for request in requests:
        start = time.thread_time()
        call(request)
        taken.append(time.thread_time() - start)
    cuts = statistics.quantiles(taken, n=100)
    print(f"{name:44} p50 {cuts[49] * 1e6:6.1f} us  p99 {cuts[98] * 1e6:6.1f} us", flush=True)


class Known:
    """Costs nothing."""

    def __init__(self, answer: Classification) -> None:
        self.answer = answer

    def classify(self, request: ParsedRequest) -> Classification:  # noqa: ARG002 - a protocol
        """Whatever is asked."""
        return self.answer


def main() -> None:
    """Print all figures."""
    clock, classifier = SystemClock(), default_classifier()
    known = Known(classifier.classify(chat(SYSTEM, [TURN])))
    typical = [chat(SYSTEM, [TURN]) for _ in range(COUNT)]
    armed = [chat(SYSTEM, [TURN], tools=8) for _ in range(COUNT)]
    dated = [chat(f"Today is 3 May 2026, {i}. {SYSTEM}", [TURN]) for i in range(COUNT)]
    bare = [chat(SYSTEM, [TURN, "continue"]) for _ in range(COUNT)]

    def segments() -> Callable[[ParsedRequest], object]:
        return Segments(Fingerprints(b"key"), SegmentTable(clock, 64)).segment

    def session() -> Callable[[ParsedRequest], object]:
        sessions = SessionClassifier(known, clock)
        return lambda request: sessions.classify(request, sessions.session(request))

    show("segment, 2 KB", segments(), typical)
    show("segment, 2 KB and 8 tools", segments(), armed)
    show("segment, 2 KB, never the same prompt", segments(), dated)
    show("session, 2 KB", session(), typical)
    show("session, 2 KB, a turn that inherits", session(), bare)
    rules = [ClassRule.model_validate(rule) for rule in RULES]
    show("five rules, none holds, 2 KB", RuledClassifier(known, rules).classify, typical)
    everything = SessionClassifier(RuledClassifier(classifier, rules), clock)
    segment = segments()
    show("classifier alone, 2 KB", classifier.classify, typical)
    show(
        "classifier, rules, session and segment, 2 KB",
        lambda request: (
            everything.classify(request, everything.session(request)),
            segment(request),
        ),
        [replace(request) for request in typical],
    )


if __name__ == "__main__":
    main()
