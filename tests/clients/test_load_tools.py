"""Load tools report of the proxy what they report of the engine behind it."""

from __future__ import annotations

import asyncio

import pytest

from router.demo.errors import DemoError
from tests.clients.harness import MissingError
from tests.clients.load_tools import REQUESTS, TOOLS, LoadRun, LoadTool, run_tool

pytestmark = [pytest.mark.clients, pytest.mark.timeout(400)]

EACH = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name.replace(" ", "_"))
AIPERF, UNASKED = TOOLS[:2]

_made: dict[str, tuple[LoadRun, LoadRun]] = {}


@pytest.fixture
def runs(tool: LoadTool, tmp_path_factory: pytest.TempPathFactory) -> tuple[LoadRun, LoadRun]:
    """A run on the engine and one on the proxy; made once for each tool."""
    if tool.name not in _made:
        try:
            tool.command()
            _made[tool.name] = asyncio.run(run_tool(tool, tmp_path_factory.mktemp("load")))
        except (MissingError, DemoError) as error:
            pytest.skip(str(error))
    return _made[tool.name]


@EACH
def test_reports_agree(tool: LoadTool, runs: tuple[LoadRun, LoadRun]) -> None:
    """Requests, errors, tokens and acceptance are the same, in sum and request by request."""
    direct, proxied = (run.report for run in runs)
    assert (direct.requests, direct.errors, len(direct.rows)) == (REQUESTS, 0, REQUESTS)
    assert proxied == direct


@EACH
def test_same_prompts_arrive(tool: LoadTool, runs: tuple[LoadRun, LoadRun]) -> None:
    """The engine gets each prompt as often as without the proxy."""
    direct, proxied = runs
    assert proxied.asked == direct.asked


@EACH
def test_proxy_has_seen_the_same(tool: LoadTool, runs: tuple[LoadRun, LoadRun]) -> None:
    """The proxy's own log has the tool's requests and, answer by answer, its counts of tokens."""
    _, proxied = runs
    assert {line["status"] for line in proxied.decisions} == {"ok"}
    tokens = sorted(line["tokens"] for line in proxied.decisions)
    output = 3 if tool.name == "guidellm" else 1
    counted = [row[output] for row in proxied.report.rows]
    assert tokens == sorted(count for count in counted if count is not None)


@pytest.mark.parametrize("tool", [AIPERF], ids=["aiperf"])
def test_acceptance_is_reported(tool: LoadTool, runs: tuple[LoadRun, LoadRun]) -> None:
    """What aiperf says of drafts is what the proxy has learned from the same answers."""
    direct, proxied = runs
    assert direct.report.totals["total_accepted_draft_tokens"] > 0
    accepted = sum(line["accepted"] for line in proxied.decisions)
    drafted = sum(line["drafted"] for line in proxied.decisions)
    assert proxied.report.totals["total_accepted_draft_tokens"] == accepted
    assert proxied.report.totals["total_draft_tokens"] == drafted


@pytest.mark.parametrize("tool", [UNASKED], ids=["aiperf_unasked"])
def test_nothing_unasked_is_reported(tool: LoadTool, runs: tuple[LoadRun, LoadRun]) -> None:
    """A tool that asks for no usage is shown none, though the proxy has got it from the engine."""
    _, proxied = runs
    assert proxied.report.totals.keys() == {"total_isl", "total_osl"}
    assert all(line["accepted"] is not None for line in proxied.decisions)
