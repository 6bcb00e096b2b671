"""Lines of a decision log, read back."""

from __future__ import annotations

import gzip
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from policies.knowledge import Moment
from policies.types import Arm, Source, SpecUsage, Status
from router.errors import ConfigError
from router.observe.decision_log import decision_record
from router.observe.recorder import trial_of
from router.replay.lines import entry_of, read_log
from router.types import Attempt, AttemptEnd, Decision, Outcome, ReplicaId, SegmentId
from tests.support.builders import CHAT, FAST, PLAIN, context, decision, outcome, request

ARMS = (Arm(PLAIN, "none", baseline=True), Arm(FAST, "eagle3", 3))


def line(
    made: Outcome | None = None, *, drawn: Decision | None = None, wall: float = 100.0, **more: Any
) -> dict[str, Any]:
    """A line as it comes out of a file."""
    ctx = replace(context(request(stream=True)), **more)
    record = decision_record(
        ctx, drawn or decision(), made or outcome(), wall=wall, arms=ARMS
    ).as_json()
    read: dict[str, Any] = orjson.loads(orjson.dumps(record))
    return read


OUTCOMES = {
    "ok": outcome(),
    "held": outcome(held=True),
    "not what was demanded": outcome(valid=False, truncated=False),
    "cut": outcome(truncated=True),
    "counted in the stream": outcome(
        spec=SpecUsage(steps=15, drafted=45, accepted=6, source=Source.STREAM, exact_drafted=False)
    ),
    "no record": outcome(spec=None),
    "whole": outcome(ttft_s=None, tpot_s=None),
    "failed": outcome(Status.FAILED, served_by=None, error="upstream_unavailable"),
    "aborted": outcome(Status.ABORTED),
    "fell back": outcome(
        served_by=PLAIN,
        attempts=(
            Attempt(FAST, ReplicaId("fast/0"), AttemptEnd.SERVER_ERROR),
            Attempt(PLAIN, ReplicaId("plain/1"), AttemptEnd.ANSWERED),
        ),
    ),
    "was full": outcome(
        served_by=PLAIN,
        attempts=(
            Attempt(FAST, ReplicaId("fast/0"), AttemptEnd.BUSY),
            Attempt(PLAIN, ReplicaId("plain/1"), AttemptEnd.ANSWERED),
        ),
    ),
    "second try": outcome(
        attempts=(
            Attempt(FAST, ReplicaId("fast/0"), AttemptEnd.STALE),
            Attempt(FAST, ReplicaId("fast/1"), AttemptEnd.ANSWERED),
        ),
    ),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_line_teaches_what_its_request_taught(name: str) -> None:
    """The estimates of a replay are those of the proxy, to the last figure."""
    made = OUTCOMES[name]
    ctx = replace(context(request(stream=True)), queue_s=0.125)
    entry = entry_of(line(made, queue_s=0.125))
    assert entry.trial == trial_of(ctx, decision(), made)


def test_the_decision_was_when_the_wait_was_over() -> None:
    """Its end less what it took, but for the wait and the router's own time before."""
    entry = entry_of(line(outcome(e2e_s=2.0, overhead_s=0.25), queue_s=0.5))
    assert (entry.decided, entry.ended) == (98.75, 100.0)


def test_the_part_is_the_proxy_s() -> None:
    """Segment and copy band."""
    classification = replace(context().classification, copy_ratio=0.9)
    entry = entry_of(line(segment=SegmentId("a1"), classification=classification))
    assert entry.part == "a1+"


def test_a_moment_is_read_back() -> None:
    """Loads, prompt, cache and limit; the part by the name policies know."""
    moment = Moment(CHAT, "", (3, 1), 120, (64, 0), 400)
    drawn = replace(decision(), loads=moment.load, moment=moment)
    assert entry_of(line(drawn=drawn)).moment == moment
    assert entry_of(line()).moment is None


def test_a_line_without_a_propensity_has_none() -> None:
    """It is not taken for 1."""
    assert math.isnan(entry_of(line() | {"propensity": None}).propensity)


def write(path: Path, lines: list[dict[str, Any]]) -> Path:
    """A file of them."""
    data = b"".join(orjson.dumps(one) + b"\n" for one in lines)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_rotated_files_are_read_together_and_in_order(tmp_path: Path) -> None:
    """Compressed or not; a line that stands in two of them counts once."""
    lines = [line(wall=float(100 + i)) | {"request_id": f"r{i}"} for i in range(6)]
    old = write(tmp_path / "d.jsonl.1.gz", lines[:4])
    new = write(tmp_path / "d.jsonl", lines[3:])
    log = read_log([new, old])
    assert [entry.ended for entry in log.entries] == [100.0 + i for i in range(6)]
    assert (log.model, log.arms, log.unreadable) == ("m", ARMS, 0)


def test_lines_that_make_no_sense_are_counted(tmp_path: Path) -> None:
    """Half a line, another log's, a status nobody knows."""
    path = write(tmp_path / "d.jsonl", [line(), line() | {"status": "fine"}, {"level": "info"}])
    path.write_bytes(path.read_bytes() + b'{"time": 1, "req\n[]\n\n')
    log = read_log([path])
    assert (len(log.entries), log.unreadable) == (1, 4)


def test_several_routes_are_told_apart(tmp_path: Path) -> None:
    """One of them has to be named."""
    path = write(tmp_path / "d.jsonl", [line(), line(wall=101.0) | {"model": "other"}])
    with pytest.raises(ConfigError, match="--model one of: m, other"):
        read_log([path])
    assert len(read_log([path], model="other").entries) == 1
    with pytest.raises(ConfigError, match="no route 'x'"):
        read_log([path], model="x")


def test_lines_that_do_not_tell_the_baseline_need_it_named(tmp_path: Path) -> None:
    """As those of earlier versions."""
    old = {name: value for name, value in line().items() if name not in ("arms", "baseline")}
    path = write(tmp_path / "d.jsonl", [old])
    with pytest.raises(ConfigError, match="--baseline one of: fast, plain"):
        read_log([path])
    arms = read_log([path], baseline="plain").arms
    assert [(arm.arm_id, arm.method, arm.baseline) for arm in arms] == [
        ("fast", "unknown", False),
        ("plain", "unknown", True),
    ]


@pytest.mark.parametrize("content", [b"", b"no json\n"])
def test_a_file_without_decisions_is_an_error(tmp_path: Path, content: bytes) -> None:
    """With the option that makes one."""
    path = tmp_path / "d.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"decision_log\.path"):
        read_log([path])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_log([tmp_path / "missing.jsonl"])
