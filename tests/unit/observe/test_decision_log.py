"""One line per decision."""

from __future__ import annotations

import asyncio
import gc
import json
import stat
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from policies.knowledge import Moment
from policies.types import Arm, ClassId, Status
from router.observe import decision_log
from router.observe.decision_log import (
    LINES_PER_STEP,
    DecisionLog,
    DecisionRecord,
    decision_record,
    why_unwritable,
)
from tests.support.builders import FAST, PLAIN, context, decision, outcome, request

SECRET_REQUEST = request(
    messages=[{"role": "user", "content": "secret prompt"}], user="secret user", stream=True
)


def record(**more: Any) -> dict[str, Any]:
    """What is written of a request with secrets in it."""
    made = decision_record(
        context(SECRET_REQUEST), decision(excluded={PLAIN: "why"}), outcome(**more), wall=12.34567
    )
    return made.as_json()


def numbered(number: int, **more: Any) -> DecisionRecord:
    """A record that can be told from others."""
    return decision_record(
        context(request_id=str(number)), decision(), outcome(**more), wall=float(number)
    )


def numbers(path: Path) -> list[int]:
    """Which records were written."""
    return [int(json.loads(line)["request_id"]) for line in path.read_bytes().splitlines()]


def test_a_record_tells_the_decision_and_what_came_of_it() -> None:
    """All that replaying another policy needs."""
    assert record() == {
        "time": 12.346,
        "request_id": "r1",
        "model": "m",
        "endpoint": "/v1/chat/completions",
        "stream": True,
        "class": "chat",
        "confidence": 0.75,
        "class_reason": "test",
        "copy_ratio": 0.0,
        "length_band": "medium",
        "segment": "",
        "tenant": "anonymous",
        "experiment": None,
        "policy": "thompson",
        "snapshot": 7,
        "arm": "fast",
        "propensity": 0.25,
        "drawn": True,
        "probabilities": {"fast": 0.25, "plain": 0.75},
        "excluded": {"plain": "why"},
        "loads": None,
        "moment": None,
        "arms": [],
        "baseline": None,
        "served_by": "fast",
        "attempts": [["fast/0", "answered"]],
        "status": "ok",
        "http_status": 200,
        "error": None,
        "ttft_s": 0.25,
        "tpot_s": 0.05,
        "e2e_s": 1.25,
        "held": False,
        "valid": None,
        "truncated": None,
        "queue_s": 0.0,
        "overhead_s": 0.0005,
        "load": 3,
        "waiting": 1,
        "prompt_tokens": 40,
        "cached_tokens": 32,
        "tokens": 21,
        "steps": 15,
        "drafted": 18,
        "drafted_exact": True,
        "accepted": 6,
        "acceptance_source": "request",
    }


def test_a_record_tells_the_arms_and_the_moment() -> None:
    """So that a policy that looks at requests one by one can be asked again."""
    looked_at = Moment(ClassId("chat"), "", (3, 1), 120, (64, 0), 400)
    made = decision_record(
        context(),
        replace(decision(), loads=looked_at.load, moment=looked_at),
        outcome(),
        wall=1.0,
        arms=(Arm(PLAIN, "none", baseline=True), Arm(FAST, "eagle3", 3)),
    )
    written = json.loads(json.dumps(made.as_json()))
    assert written["loads"] == {"fast": 3, "plain": 1}
    assert written["moment"] == {
        "prompt_tokens": 120,
        "cached_tokens": [64, 0],
        "output_tokens": 400,
        "ahead_tokens": [],
        "waited_s": [],
    }
    assert written["arms"] == [["plain", "none", None], ["fast", "eagle3", 3]]
    assert written["baseline"] == "plain"


def test_nothing_of_the_request_s_text_is_written() -> None:
    """No prompt, no user, no headers."""
    assert "secret" not in json.dumps(record())


def test_unknown_figures_are_null() -> None:
    """Missing is None, never 0."""
    written = record(spec=None, ttft_s=None, tpot_s=None, tokens=None, overhead_s=None)
    names = ("steps", "drafted", "accepted", "acceptance_source", "ttft_s", "tpot_s", "tokens")
    assert [written[name] for name in names] == [None] * len(names)


async def test_lines_are_appended_as_json_to_a_private_file(tmp_path: Path) -> None:
    """The folder is made; what was there stays; only the owner may read it."""
    path = tmp_path / "logs" / "decisions.jsonl"
    for number in (1, 2):
        log = DecisionLog(path)
        log.append(numbered(number, e2e_s=float("nan")))
        await log.flush()
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    expected = [numbered(number, e2e_s=None).as_json() for number in (1, 2)]
    assert lines == expected
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_without_a_path_nothing_is_kept(tmp_path: Path) -> None:
    """The log is off."""
    log = DecisionLog(None)
    log.append(numbered(1))
    await log.flush()
    assert (log.dropped, list(tmp_path.iterdir())) == (0, [])


async def test_a_file_that_cannot_be_written_costs_lines_only(tmp_path: Path) -> None:
    """They are counted, and writing goes on when it can."""
    path = tmp_path / "decisions.jsonl"
    path.mkdir()
    log = DecisionLog(path)
    log.append(numbered(1))
    log.append(numbered(2))
    await log.flush()
    assert log.dropped == 2
    path.rmdir()
    log.append(numbered(3))
    await log.flush()
    assert numbers(path) == [3]


async def test_lines_that_wait_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound new ones are dropped and counted."""
    monkeypatch.setattr(decision_log, "MAX_PENDING_LINES", 2)
    log = DecisionLog(tmp_path / "d.jsonl")
    for number in range(5):
        log.append(numbered(number))
    await log.flush()
    assert (numbers(tmp_path / "d.jsonl"), log.dropped) == ([0, 1], 3)


async def test_lines_that_wait_keep_no_request_alive() -> None:
    """Bodies may be large, and thousands of lines may wait."""
    ctx = context(request(messages=[{"role": "user", "content": "x" * 1000}]))
    body, fields = ctx.request.body, ctx.request.fields
    record = decision_record(ctx, decision(), outcome(), wall=0.0)
    reached: list[object] = [record]
    for item in reached:
        assert item is not body
        assert item is not fields
        reached += [
            found
            for found in gc.get_referents(item)
            if not isinstance(found, (type, ModuleType))
            and not any(found is known for known in reached)
        ]
    assert len(reached) > len(record)


async def test_many_lines_are_made_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests get their turn in between, here after each; the lines keep their order."""
    monkeypatch.setattr("router.breath.STEP_S", 0.0)
    log = DecisionLog(tmp_path / "d.jsonl")
    many = range(10 * LINES_PER_STEP + 1)
    for number in many:
        log.append(numbered(number))
    flush = asyncio.ensure_future(log.flush())
    turns = 0
    while not flush.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
    assert (numbers(tmp_path / "d.jsonl"), log.dropped) == (list(many), 0)


async def test_a_flush_that_is_cut_short_loses_nothing(tmp_path: Path) -> None:
    """As when the proxy stops in the middle of one: the last flush writes all."""
    log = DecisionLog(tmp_path / "d.jsonl")
    many = range(3 * LINES_PER_STEP)
    for number in many:
        log.append(numbered(number))
    flush = asyncio.ensure_future(log.flush())
    await asyncio.sleep(0)
    flush.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flush
    await log.flush()
    assert (numbers(tmp_path / "d.jsonl"), log.dropped) == (list(many), 0)


async def test_a_record_that_cannot_be_told_costs_its_own_line_only(tmp_path: Path) -> None:
    """It is counted, and those beside it are written."""
    log = DecisionLog(tmp_path / "d.jsonl")
    for number, tokens in ((1, 5), (2, 2**80), (3, 5)):
        log.append(numbered(number, tokens=tokens))
    await log.flush()
    assert (numbers(tmp_path / "d.jsonl"), log.dropped) == ([1, 3], 1)


def test_a_fallback_shows_both_arms() -> None:
    """Who was drawn, who served, and that it had failed."""
    made = decision_record(
        context(), decision(FAST), outcome(Status.FAILED, served_by=PLAIN, error="x"), wall=0.0
    )
    written = made.as_json()
    assert (written["arm"], written["served_by"], written["status"], written["error"]) == (
        "fast",
        "plain",
        "failed",
        "x",
    )


def test_what_could_be_written_is_not_complained_of(tmp_path: Path) -> None:
    """A file in folders that do not exist yet is fine, and asking creates nothing."""
    assert why_unwritable(tmp_path / "a" / "b" / "d.jsonl") is None
    assert list(tmp_path.iterdir()) == []


def test_a_relative_path_is_looked_at_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the log itself does."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    assert why_unwritable(Path("d.jsonl")) is None
    assert why_unwritable(Path("folder")) == "it is a folder"
