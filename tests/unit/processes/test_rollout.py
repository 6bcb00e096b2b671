"""All workers or none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from router.config.load import parse_config
from router.errors import ConfigError
from router.processes.channel import NoAnswerError
from router.processes.reload import Loaded
from router.processes.rollout import roll_out

TEXT = """
store: {url: "memory:"}
routes: [{model: m, baseline: a, pools: [{name: a, method: none, replicas: [{url: "http://h:1"}]}]}]
"""
LOADED = Loaded(TEXT, parse_config(TEXT, {}))


@dataclass
class Worker:
    """One that answers by script."""

    number: int = 0
    refusal: str | None = None
    silent_at: str = ""
    gone: bool = False
    asked: list[str] = field(default_factory=list)
    replaced: bool = False

    async def ask(self, question: str, timeout_s: float, **more: Any) -> Any:
        """Answers, and notes what it was asked."""
        self.asked.append(question)
        assert timeout_s > 0
        assert more == {"prepare": {"text": TEXT}, "commit": {"hash": LOADED.digest}}.get(
            question, {}
        )
        if question == self.silent_at:
            raise NoAnswerError("no answer within 1 s")
        return self.refusal if question == "prepare" else None

    def replace(self) -> None:
        """Notes it."""
        self.replaced = True


async def decided(*workers: Worker) -> bool:
    """Rolls out; whether it was decided for all."""
    told: list[Loaded] = []
    try:
        await roll_out(workers, LOADED, told.append)
    finally:
        assert told in ([], [LOADED])
    return bool(told)


async def test_all_take_it() -> None:
    """Each builds it, then each serves by it."""
    workers = Worker(0), Worker(1)
    assert await decided(*workers)
    assert [worker.asked for worker in workers] == [["prepare", "commit"]] * 2
    assert not any(worker.replaced for worker in workers)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Worker(1, refusal="routes[0].policy: no"), r"^routes\[0\]\.policy: no$"),
        (Worker(1, silent_at="prepare"), r"^worker 1: no answer within 1 s$"),
    ],
)
async def test_one_cannot(other: Worker, words: str) -> None:
    """Then nobody serves by it, and everyone forgets it."""
    willing = Worker(0)
    with pytest.raises(ConfigError, match=words):
        await decided(willing, other)
    assert willing.asked == other.asked == ["prepare", "abandon"]


async def test_one_that_has_ended_is_no_obstacle() -> None:
    """Another takes its place, with what holds by then."""
    gone = Worker(1, silent_at="prepare", gone=True)
    assert await decided(Worker(0), gone)
    assert not gone.replaced


async def test_one_that_does_not_follow_is_replaced() -> None:
    """Once it is decided nobody serves by the old one."""
    late = Worker(1, silent_at="commit")
    assert await decided(Worker(0), late)
    assert late.replaced


async def test_nobody_is_there() -> None:
    """What nobody could try is not taken."""
    with pytest.raises(ConfigError, match="no worker is there"):
        await decided()
