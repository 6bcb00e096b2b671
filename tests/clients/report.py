"""Writes docs/clients.md: which clients were tried, in which versions, and what they gave.

`python -m tests.clients.report docs/clients.md`, with the environment of `make test-clients`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from router.demo.errors import DemoError
from router.demo.fleet import DEFAULT_POOLS, Fleet
from tests.clients.cases import Case
from tests.clients.conftest import EMBEDDER
from tests.clients.harness import (
    CLIENTS,
    Client,
    MissingError,
    Pair,
    real_pair,
    scripted_pair,
    version_of,
)
from tests.clients.lasting import lasting
from tests.clients.load_tools import CONCURRENCY, REQUESTS, TOOLS, LoadRun, run_tool

_HEAD = """# Clients

Each client runs the same cases twice: against an engine, and against the proxy in front of it. A case
counts as the same if the client gives its user the same objects, events and errors, in the same order;
where answers are recorded ones, also if status and body are the same byte for byte. Clients for Python
run every case with their synchronous and their asynchronous form. Real answers are compared at
temperature 0, without names, times and cache hits. `make test-clients` checks all of it, and what
reaches the engine besides; `make report-clients` prints this page.
"""

_ENGINES = """
Recorded: a scripted engine that answers with the bytes of llama.cpp b10434 and vLLM 0.32.0, and with
a few written ones (tool calls and errors of `/v1/responses` and `/v1/messages`). Real: llama.cpp
b10434 with SmolLM2-135M, once with n-gram drafts and once for embeddings; cases that it cannot do,
such as pictures, are compared by its refusal.
"""

_LOAD_HEAD = """
## Load tools

{requests} streamed requests, {concurrency} at a time, to an engine whose answers and accepted drafts
follow from the prompts alone. The figures are the tools' own; they agree request by request too. The
tokenizer is the demo model's, written from its GGUF file; no hub is asked.
"""

_STRUCTURED = (
    "json_object",
    "json_schema",
    "json_schema_stream",
    "parse",
    "stream_helper",
    "structured",
)

_FEATURES: tuple[tuple[str, Callable[[Case], bool]], ...] = (
    ("errors", lambda case: case.fails),
    ("pictures", lambda case: "vision" in case.name),
    ("tools", lambda case: "tool" in case.name),
    ("structured output", lambda case: case.name in _STRUCTURED),
    ("log probabilities", lambda case: "logprobs" in case.name),
    ("several answers", lambda case: "n2" in case.name or case.name in ("many", "batch")),
    ("responses", lambda case: case.name.startswith("response")),
    ("completions", lambda case: case.name.startswith("completion")),
    ("embeddings", lambda case: case.name.startswith("embeddings")),
    ("messages", lambda case: case.name.startswith("message")),
    ("counting tokens", lambda case: case.name in ("count_tokens", "tokenize")),
    ("rerank, transcription", lambda case: case.name in ("rerank", "transcription")),
    ("chat, streamed", lambda case: "stream" in case.name),
    ("chat", lambda _: True),
)
"""A case counts for the first that it fits."""


@dataclass(frozen=True, slots=True)
class Found:
    """What one client gave: by case, whether it is the same."""

    recorded: Mapping[str, bool]
    real: Mapping[str, bool]


def _recorded(client: Client, pair: Pair) -> dict[str, bool]:
    def same(name: str) -> bool:
        bodies = [
            [(item.status, item.body) for item in side.exchanges[name]]
            for side in (pair.direct, pair.proxied)
        ]
        results = pair.direct.results[name] == pair.proxied.results[name]
        return results and bodies[0] == bodies[1]

    return {case.name: same(case.name) for case in client.cases}


def _real(client: Client, pair: Pair) -> dict[str, bool]:
    return {
        case.name: lasting(pair.direct.results[case.name])
        == lasting(pair.proxied.results[case.name])
        for case in client.cases
        if case.real
    }


async def _found(client: Client, fleet: Fleet | None, place: Path) -> Found:
    recorded = _recorded(client, await scripted_pair(client, client.cases, place / "recorded"))
    if fleet is None:
        return Found(recorded, {})
    pools = {pool.name: pool for pool in fleet.pools}
    return Found(recorded, _real(client, await real_pair(client, pools, place / "real")))


def _row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _share(same: Sequence[bool]) -> str:
    return f"{sum(same)} of {len(same)}" if same else "–"


def _clients_table(found: Mapping[Client, Found]) -> Iterator[str]:
    yield _row(("client", "version", "recorded answers: the same", "real engine: the same"))
    yield "|---|---|---:|---:|"
    for client, item in found.items():
        shares = (_share(list(part.values())) for part in (item.recorded, item.real))
        yield _row((client.name, client.version(), *shares))


def _feature(case: Case) -> str:
    return next(name for name, fits in _FEATURES if fits(case))


def _features_table(found: Mapping[Client, Found]) -> Iterator[str]:
    yield _row(("", *(client.name for client in found)))
    yield "|---|" + "---:|" * len(found)
    for feature, _ in reversed(_FEATURES):
        cells = []
        for client, item in found.items():
            names = [case.name for case in client.cases if _feature(case) == feature]
            parts = (item.recorded, item.real)
            cells.append(_share([part[name] for part in parts for name in names if name in part]))
        yield _row((feature, *cells))


def _load_table(name: str, version: str, runs: tuple[LoadRun, LoadRun]) -> Iterator[str]:
    reports = [run.report for run in runs]
    yield f"\n### {name} ({version})\n"
    yield _row(("", "directly", "through the proxy"))
    yield "|---|---:|---:|"
    yield _row(("requests", *(report.requests for report in reports)))
    yield _row(("errors", *(report.errors for report in reports)))
    for key in reports[0].totals:
        values = (f"{report.totals.get(key, float('nan')):,.6g}" for report in reports)
        yield _row((f"`{key}`", *values))
    differing = sum(
        one != other for one, other in zip(reports[0].rows, reports[1].rows, strict=False)
    )
    yield f"\nRequests whose figures differ: {differing}."


def _clients(place: Path) -> Iterator[str]:
    fleet: Fleet | None = Fleet(pools=(DEFAULT_POOLS[1], EMBEDDER))
    found: dict[Client, Found] = {}
    missing = []
    try:
        if fleet is not None:
            fleet.start()
    except DemoError as error:
        missing.append(f"Real engines cannot run here: {error}.")
        fleet = None
    try:
        for client in CLIENTS:
            try:
                client.command()
            except MissingError as error:
                missing.append(f"{client.name}: {error}.")
                continue
            found[client] = asyncio.run(_found(client, fleet, place / client.name))
    finally:
        if fleet is not None:
            fleet.stop()
    yield from _clients_table(found)
    yield _ENGINES
    yield from _features_table(found)
    yield from ("", *missing) if missing else ()


def _load_tools(place: Path) -> Iterator[str]:
    yield _LOAD_HEAD.format(requests=REQUESTS, concurrency=CONCURRENCY).rstrip()
    for tool in TOOLS:
        try:
            tool.command()
            runs = asyncio.run(run_tool(tool, place / tool.name.replace(" ", "-")))
        except (MissingError, DemoError) as error:
            yield f"\n{tool.name}: {error}."
            continue
        yield from _load_table(tool.name, version_of(tool.package), runs)


def main() -> None:
    """Runs everything and writes the page."""
    with tempfile.TemporaryDirectory() as name:
        lines = [_HEAD, *_clients(Path(name)), *_load_tools(Path(name))]
    Path(sys.argv[1]).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
