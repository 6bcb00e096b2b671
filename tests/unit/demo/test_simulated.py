"""The demo where the real engine cannot run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from router.demo import run
from router.demo.errors import DemoError, UnsupportedPlatform
from router.demo.run import DemoOptions, Stage
from router.demo.simulated import NOTICE, SimulatedEngines, simulated_engines
from router.demo.traffic import Traffic
from router.demo.view import live

ROUTE = {"model": "simulated", "baseline": "plain", "pools": [{"name": "plain"}, {"name": "fast"}]}


def options(folder: Path, **more: Any) -> DemoOptions:
    """Those of a demo."""
    return DemoOptions(1.0, folder, 1, 2, 0, **more)


def stage(folder: Path, monkeypatch: pytest.MonkeyPatch, **more: Any) -> tuple[Stage, list[str]]:
    """What the demo would play on, and what it says about it."""

    @contextmanager
    def simulated(logs: Path, port: int) -> Iterator[SimulatedEngines]:
        yield SimulatedEngines("simulated", ROUTE)

    def unsupported(given: DemoOptions, say: object) -> ExitStack:
        raise UnsupportedPlatform("this processor lacks avx512f")

    monkeypatch.setattr(run, "simulated_engines", simulated)
    monkeypatch.setattr(run, "_fleet", unsupported)
    said: list[str] = []
    with ExitStack() as stack:
        return run._stage(options(folder, **more), stack, said.append), said


def test_where_the_engine_cannot_run_simulated_ones_step_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is said, and that everything which follows is simulated."""
    made, said = stage(tmp_path, monkeypatch)
    assert (made.model, made.notice) == ("simulated", NOTICE)
    assert said == ["the real engine cannot run here: this processor lacks avx512f", NOTICE]
    assert made.route["policy"]["parameters"]["floor"] * len(ROUTE["pools"]) < 1


def test_simulated_engines_can_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then nothing else is tried."""
    _, said = stage(tmp_path, monkeypatch, simulated=True)
    assert said == [NOTICE]


def test_the_notice_stands_on_the_screen() -> None:
    """Above everything, as long as traffic flows."""
    traffic = cast("Traffic", SimpleNamespace(answered=1, failed=0, recent=()))
    console = Console(width=200, record=True, file=None)
    with console.capture() as shown:
        console.print(live({"routes": []}, traffic, elapsed_s=1, total_s=2, notice=NOTICE))
    assert shown.get().strip().startswith("SIMULATED")


def test_engines_that_do_not_start_say_why(tmp_path: Path) -> None:
    """In one sentence."""
    with (
        pytest.raises(DemoError, match="the simulated engines did not start"),
        simulated_engines(tmp_path, 70_000),
    ):
        pass
