"""A report for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from router.doctor.findings import Findings, Level, PoolReport, ReplicaReport, Report, RouteReport

_STYLE = {
    Level.OK: "green",
    Level.NOTE: "cyan",
    Level.WARNING: "yellow",
    Level.PROBLEM: "bold red",
}
_LEVEL_WIDTH = len("problem")
_CHECK_WIDTH = len("declaration")


def render(report: Report) -> RenderableType:
    """Route by route, pool by pool, server by server; then a line on the whole."""
    return Group(
        Text(f"store {report.store_url}", "bold"),
        _lines(report.store, 2),
        *(part for route in report.routes for part in _route(route)),
        _summary(report),
    )


def _route(route: RouteReport) -> Iterator[RenderableType]:
    yield Text(f"\n{route.model}", "bold")
    if route.findings:
        yield _lines(route.findings, 2)
    for pool in route.pools:
        yield from _pool(pool)


def _pool(pool: PoolReport) -> Iterator[RenderableType]:
    k = f", k = {pool.num_speculative_tokens}" if pool.num_speculative_tokens else ""
    role = ", the baseline" if pool.baseline else ""
    yield Text(f"\n  {pool.name}: {pool.method}{k} on {pool.engine}, as declared{role}", "bold")
    if pool.findings:
        yield _lines(pool.findings, 4)
    for replica in pool.replicas:
        yield from _replica(replica)


def _replica(replica: ReplicaReport) -> Iterator[RenderableType]:
    yield Text(f"    {replica.replica_id}  {replica.url}")
    yield _lines(replica.findings, 6)


def _lines(findings: Findings, indent: int) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=_LEVEL_WIDTH, no_wrap=True)
    table.add_column(width=_CHECK_WIDTH, no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        text = Text(finding.text)
        if finding.remedy is not None:
            text.append(f"\n→ {finding.remedy}", "italic")
        table.add_row(Text(finding.level.value, _STYLE[finding.level]), finding.check, text)
    return Padding(table, (0, 0, 0, indent))


def _summary(report: Report) -> Text:
    counts = [(report.count(level), level) for level in (Level.PROBLEM, Level.WARNING, Level.NOTE)]
    shown = ", ".join(f"{n} {level.value}{'' if n == 1 else 's'}" for n, level in counts if n)
    text = Text("\n")
    text.append(shown or "nothing to remark", _STYLE[Level.OK if report.healthy else Level.PROBLEM])
    return text
