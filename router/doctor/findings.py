"""What the doctor found: values, in the order in which they are shown. No text of any prompt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from router import __version__
from router.engines.identity import EngineIdentity


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing."""
    WARNING = "warning"
    """It works, but something is lost or misleading."""
    PROBLEM = "problem"
    """Requests fail, or what is measured is wrong."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line."""

    level: Level
    check: str
    """What was looked at, in a word."""
    text: str
    remedy: str | None = None
    """What to do about it."""


Findings = tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """One server."""

    replica_id: str
    url: str
    identity: EngineIdentity
    acceptance_source: str | None
    """request, stream, counters or none; None where it was not found out."""
    findings: Findings


@dataclass(frozen=True, slots=True)
class PoolReport:
    """One pool and its servers."""

    name: str
    method: str
    num_speculative_tokens: int | None
    engine: str
    baseline: bool
    findings: Findings
    replicas: tuple[ReplicaReport, ...]


@dataclass(frozen=True, slots=True)
class RouteReport:
    """One model and its pools."""

    model: str
    findings: Findings
    pools: tuple[PoolReport, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything."""

    store_url: str
    store: Findings
    routes: tuple[RouteReport, ...]

    def findings(self) -> Iterator[Finding]:
        """All of them."""
        yield from self.store
        for route in self.routes:
            yield from route.findings
            for pool in route.pools:
                yield from pool.findings
                for replica in pool.replicas:
                    yield from replica.findings

    def count(self, level: Level) -> int:
        """How many there are of a level."""
        return sum(finding.level is level for finding in self.findings())

    @property
    def healthy(self) -> bool:
        """Whether nothing is a problem."""
        return self.count(Level.PROBLEM) == 0

    def as_json(self) -> dict[str, Any]:
        """As `specroute doctor --json` prints it; docs/doctor.md describes the shape."""
        return {
            "version": __version__,
            "healthy": self.healthy,
            **{f"{level.value}s": self.count(level) for level in (Level.PROBLEM, Level.WARNING)},
            "store": {"url": self.store_url, "findings": _json(self.store)},
            "routes": [
                {
                    "model": route.model,
                    "findings": _json(route.findings),
                    "pools": [_pool_json(pool) for pool in route.pools],
                }
                for route in self.routes
            ],
        }


def _pool_json(pool: PoolReport) -> dict[str, Any]:
    return {
        "name": pool.name,
        "method": pool.method,
        "num_speculative_tokens": pool.num_speculative_tokens,
        "engine": pool.engine,
        "baseline": pool.baseline,
        "findings": _json(pool.findings),
        "replicas": [
            {
                "id": replica.replica_id,
                "url": replica.url,
                "engine": replica.identity.engine.value,
                "engine_version": replica.identity.version,
                "speculation": replica.identity.speculation,
                "acceptance_source": replica.acceptance_source,
                "findings": _json(replica.findings),
            }
            for replica in pool.replicas
        ],
    }


def _json(findings: Findings) -> list[dict[str, Any]]:
    return [
        {
            "level": finding.level.value,
            "check": finding.check,
            "text": finding.text,
            "remedy": finding.remedy,
        }
        for finding in findings
    ]
