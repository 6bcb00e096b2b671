"""Whether the store can be used, and is set up so that nothing learned is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from router.config.keeping import Store
from router.doctor.findings import Finding, Findings, Level
from router.errors import ConfigError, StoreError
from router.stores.embedded import server_program
from router.stores.facts import ServerFacts, server_facts

_SLOW_S = 0.010
_CHECK = "store"
_ASKED = ("redis://", "rediss://", "unix://")


async def store_findings(store: Store) -> Findings:
    """Looks at the store of a configuration; an embedded one is not started."""
    url = store.url
    if url.startswith("memory:"):
        return (
            Finding(
                Level.NOTE,
                _CHECK,
                "in this process only: a restart forgets all that was learned",
                "write `store.url: embedded:`, or the URL of a server",
            ),
        )
    if url.startswith("embedded:"):
        found = _embedded(store)
        if found is not None:
            return (found,)
        url = f"unix://{_socket(store)}"
    elif not url.startswith(_ASKED):
        return (Finding(Level.NOTE, _CHECK, "not looked into: another kind of address"),)
    try:
        facts = await server_facts(url, store.timeout_s)
    except ConfigError as error:
        return (Finding(Level.PROBLEM, _CHECK, str(error), "correct store.url"),)
    except StoreError as error:
        return (
            Finding(
                Level.PROBLEM,
                _CHECK,
                f"does not answer: {error}",
                "start it, or correct store.url; meanwhile requests are served, and what is "
                "learned is kept in memory up to a limit",
            ),
        )
    return tuple(_judged(facts))


def _socket(store: Store) -> Path:
    return Path(store.directory).resolve() / "valkey.sock"


def _embedded(store: Store) -> Finding | None:
    """What can be said without starting it; None where it runs and can be asked."""
    try:
        server_program()
    except ConfigError as error:
        return Finding(Level.PROBLEM, _CHECK, str(error))
    if _socket(store).exists():
        return None
    folder = Path(store.directory).resolve()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return Finding(
            Level.PROBLEM,
            _CHECK,
            f"{folder} cannot be written to",
            "let store.directory name a folder that can",
        )
    return Finding(Level.OK, _CHECK, "embedded: its server is here, and starts with the proxy")


def _judged(facts: ServerFacts) -> Iterator[Finding]:
    name = f"{facts.product or 'a server'} {facts.version or ''}".strip()
    yield Finding(
        Level.OK, _CHECK, f"{name} answers, in {facts.latency_s * 1000:.2f} ms on the median"
    )
    if facts.latency_s > _SLOW_S:
        yield Finding(
            Level.WARNING,
            _CHECK,
            f"it takes {facts.latency_s * 1000:.0f} ms to answer: what is learned comes late",
            "put it nearer; requests do not wait for it",
        )
    if facts.role in {"slave", "replica"}:
        yield Finding(
            Level.PROBLEM,
            _CHECK,
            "it is a replica, which takes no writes",
            "let store.url name the primary",
        )
    policy = facts.eviction_policy
    if policy is not None and policy != "noeviction":
        limit = "a memory limit is set" if facts.most_memory_bytes else "no memory limit is set yet"
        yield Finding(
            Level.WARNING,
            _CHECK,
            f"maxmemory-policy is {policy} ({limit}): when memory is short, what was learned is "
            "dropped without a word",
            "set maxmemory-policy noeviction; everything stored expires by itself",
        )
