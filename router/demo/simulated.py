"""The demo's engines where the real one cannot run: simulated ones, in a process of their own.

What they do is published of real methods; no model runs, and every screen says so.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from router.demo.errors import DemoError
from router.programs import specroute_running

WORLD = "spark"
"""It has the classes of the demo's prompts, and a method that wins some and loses others."""
SPEED = 8.0
"""Its steps take some 40 ms; four minutes are short for those."""
WORKERS = 4
MODEL = "simulated"

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
_POLL_S = 0.1

NOTICE = (
    f"SIMULATED: no model runs. The engines play the world {WORLD!r} of published figures, "
    f"{SPEED:.0f} times as fast; their texts are filler words. What the proxy makes of it is real."
)


@dataclass(frozen=True, slots=True)
class SimulatedEngines:
    """Engines that answer."""

    model: str
    route: dict[str, Any]
    """Of a configuration; its policy is for the caller to choose."""


@contextmanager
def simulated_engines(folder: Path, base_port: int) -> Iterator[SimulatedEngines]:
    """Runs them until the end of the block.

    Raises:
        DemoError: They did not start; one sentence with the reason.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config, log = folder / "simulated.yaml", folder / "simulated.log"
    config.unlink(missing_ok=True)
    arguments = ["simfleet", "--world", WORLD, "--speed", str(SPEED), "--model", MODEL]
    arguments += ["--port", str(base_port), "--write-config", str(config)]
    with specroute_running(arguments, log, stop_s=_STOP_TIMEOUT_S) as process:
        yield _started(process, config, log)


def _started(process: subprocess.Popen[bytes], config: Path, log: Path) -> SimulatedEngines:
    pause = threading.Event()
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if config.exists():
            [route] = yaml.safe_load(config.read_text(encoding="utf-8"))["routes"]
            return SimulatedEngines(MODEL, route)
        if process.poll() is not None:
            lines = log.read_text(errors="replace").strip().splitlines() or ["(nothing was said)"]
            reason = lines[-1].removeprefix("error: ")
            raise DemoError(f"the simulated engines did not start: {reason}")
        pause.wait(_POLL_S)
    raise DemoError(f"the simulated engines were not ready within {_START_TIMEOUT_S:.0f} s")
