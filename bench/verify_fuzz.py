"""Fuzzes the whole proxy over real sockets: no byte, line, slot or socket may be amiss.

Any seed gives the same cases on every machine. A case that fails is made small and printed, with
the command that plays it again.

python -m bench.verify_fuzz --cases 100000
python -m bench.verify_fuzz --seed 7:123           one dialogue, as it was drawn
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

import uvloop

from bench.fuzz.generate import dialogue
from bench.fuzz.model import Dialogue, Exchange
from bench.fuzz.shrink import smallest, written
from bench.fuzz.world import Finding, running

SIDE_BY_SIDE = 8
"""Dialogues in a wave."""
_MOST_SHOWN = 5
_TRIES = 200
_HANG_ALONE_S = 3.0


@dataclass(slots=True)
class Tally:
    """What was played, and what came of it."""

    cases: int = 0
    dialogues: int = 0
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    found: list[Finding] = field(default_factory=list)


def drawn(seed: str) -> Iterator[tuple[str, Dialogue]]:
    """Dialogues without end, each with the seed of its own."""
    return ((f"{seed}:{index}", dialogue(f"{seed}:{index}")) for index in count())


async def fuzz(
    cases: int, seed: str, *, most_found: int = _MOST_SHOWN, told: Callable[[Tally], None]
) -> Tally:
    """Plays cases until there are enough, or enough of them have failed."""
    tally = Tally()
    began = time.monotonic()
    source = drawn(seed)
    async with running() as world:
        while tally.cases < cases and len(tally.found) < most_found:
            wave = list(islice(source, SIDE_BY_SIDE))
            found = await world.wave(wave)
            for one in found:
                if one.seed:
                    tally.found.append(one)
                else:
                    tally.found.append(await _culprit(wave, one))
            for _, played in wave:
                _count(tally, played)
            tally.seconds = time.monotonic() - began
            told(tally)
            if any(not one.seed for one in found):
                break  # what is left would be found after every other wave too
    return tally


async def _culprit(wave: list[tuple[str, Dialogue]], finding: Finding) -> Finding:
    """Which dialogue of a wave left something behind; each is played in a world of its own."""
    for seed, played in wave:
        found = await _alone(played)
        if found:
            return Finding(seed, played, (*finding.faults, *found))
    return Finding(wave[0][0], wave[0][1], (*finding.faults, "only together with the next seven"))


async def _alone(played: Dialogue) -> tuple[str, ...]:
    async with running(_HANG_ALONE_S) as world:
        found = await world.wave([("", played)])
    return tuple(fault for one in found for fault in one.faults)


def _count(tally: Tally, played: Dialogue) -> None:
    tally.dialogues += 1
    for exchange in played.exchanges:
        tally.cases += 1
        for kind in _kinds(played, exchange):
            tally.kinds[kind] += 1


def _kinds(played: Dialogue, exchange: Exchange) -> Iterator[str]:
    request, answer = exchange.request, exchange.answer
    facts: dict[str, Any] = {
        "answer is an event stream": answer.event_stream,
        "usage is asked for and taken out": request.strips,
        "a record is asked for and taken out": request.record,
        "model goes by another name": request.body != request.forwarded
        and not (request.strips or request.record),
        "request in chunks": request.chunking,
        "answer in chunks": answer.framing == "chunked",
        "answer ended by its connection": answer.framing == "close",
        "held answer ended by its connection": request.record
        and answer.framing == "close"
        and not answer.event_stream,
        "1xx before the answer": answer.interim,
        "error in place of a stream": answer.early_error,
        "Expect: 100-continue": request.expects,
        "HTTP/1.0": request.version == "HTTP/1.0",
        "pipelined": played.pipelined,
        "content coding of the request": request.coding,
        "client leaves": exchange.leave,
        "engine breaks off": answer.breaks_at is not None,
        "client is slow": exchange.slow,
        "request is broken HTTP": exchange.request_damage,
        "answer is broken HTTP": exchange.answer_damage,
    }
    return (name for name, fact in facts.items() if fact)


def _kind(fault: str) -> str:
    """The beginning of what is said about a fault, without what differs from case to case."""
    return re.sub(r"[^a-z ]", "", fault.partition("exchange ")[2] or fault)[:30]


async def shown(finding: Finding) -> str:
    """A finding, made as small as it goes."""
    kinds = {_kind(fault) for fault in finding.faults}

    async def fails(candidate: Dialogue) -> bool:
        return not kinds.isdisjoint(map(_kind, await _alone(candidate)))

    small = finding.dialogue
    if await fails(small):
        small = await smallest(small, fails, tries=_TRIES)
    return (
        "\n".join(finding.faults)
        + f"\n\npython -m bench.verify_fuzz --seed {finding.seed}\n\n"
        + written(small)
    )


def tables(cases: int, seed: str = "1") -> str:
    """What was played as a Markdown table.

    Raises:
        SystemExit: Something was amiss; it has been printed.
    """
    reported = [0]

    def told(tally: Tally) -> None:
        if tally.cases >= reported[0]:
            reported[0] += 2_000
            rate = tally.cases / tally.seconds
            print(f"fuzz: {tally.cases:,} of {cases:,}, {rate:.0f}/s", file=sys.stderr)

    print(f"fuzz: seed {seed}", file=sys.stderr)
    tally = uvloop.run(fuzz(cases, seed, told=told))
    for finding in tally.found:
        print(uvloop.run(shown(finding)), file=sys.stderr)
    if tally.found:
        raise SystemExit(1)
    rows = "\n".join(f"| {name} | {number:,} |" for name, number in tally.kinds.most_common())
    return (
        f"{tally.cases:,} requests in {tally.dialogues:,} dialogues, seed {seed}, "
        f"{tally.cases / tally.seconds:.0f} a second: 0 differing bytes or lines, 0 slots, tasks, "
        "sockets or buffered bytes left, 0 unhandled exceptions or errors logged.\n\n"
        f"| of these | requests |\n|---|---:|\n{rows}\n"
    )


def main() -> None:
    """Prints the table, or plays one dialogue."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", default="1", help="of a run, or of one dialogue with a colon")
    arguments = parser.parse_args()
    if ":" not in arguments.seed:
        print(tables(arguments.cases, arguments.seed))
        return
    played = dialogue(arguments.seed)
    faults = uvloop.run(_alone(played))
    if faults:
        print(uvloop.run(shown(Finding(arguments.seed, played, faults))))
    else:
        print("nothing is amiss")


if __name__ == "__main__":
    main()
