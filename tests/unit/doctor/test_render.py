"""A report on the terminal, and as JSON."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from router.doctor.findings import (
    Finding,
    Level,
    PoolReport,
    ReplicaReport,
    Report,
    RouteReport,
)
from router.doctor.render import render
from router.engines.identity import Engine, EngineIdentity


def report(*findings: Finding) -> Report:
    """One server with these findings."""
    replica = ReplicaReport(
        "plain/0", "http://h:1", EngineIdentity(Engine.VLLM, "0.32.0"), "none", findings
    )
    plain = PoolReport(
        "plain", "none", None, "vllm", baseline=True, findings=(), replicas=(replica,)
    )
    return Report("memory:", (), (RouteReport("[m]:smile:", (), (plain,)),))


def shown(made: Report) -> list[str]:
    """Lines on a terminal."""
    console = Console(width=100, record=True, file=StringIO(), markup=False, emoji=False)
    console.print(render(made))
    return [line.rstrip() for line in console.export_text().splitlines()]


GOOD = Finding(Level.OK, "reachable", "connects")
BAD = Finding(Level.PROBLEM, "model", "serves [a], not m", "correct the name")


def test_every_finding_is_a_line_with_its_remedy_below() -> None:
    """Names are shown as they are."""
    lines = shown(report(GOOD, BAD))
    assert "[m]:smile:" in lines
    assert "  plain: none on vllm, as declared, the baseline" in lines
    assert "    plain/0  http://h:1" in lines
    at = lines.index("      problem model       serves [a], not m")
    assert lines[at + 1].strip() == "→ correct the name"
    assert lines[-1] == "1 problem"


def test_nothing_to_remark() -> None:
    """Is said so."""
    assert shown(report(GOOD))[-1] == "nothing to remark"


def test_the_json_has_the_same() -> None:
    """Its shape is what docs/doctor.md describes."""
    made = report(BAD).as_json()
    assert (made["healthy"], made["problems"], made["warnings"]) == (False, 1, 0)
    [replica] = made["routes"][0]["pools"][0]["replicas"]
    assert (replica["engine"], replica["engine_version"]) == ("vllm", "0.32.0")
    assert replica["findings"] == [
        {
            "level": "problem",
            "check": "model",
            "text": "serves [a], not m",
            "remedy": "correct the name",
        }
    ]
