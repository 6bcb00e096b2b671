"""The main job on one machine: real engines, a real model, embedded store, proxy, traffic.

It starts what is needed, shows what the proxy learns, and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import fcntl
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.live import Live
from rich.text import Text

from router.cli.admin import fetch_state
from router.cli.status import class_table
from router.demo.errors import DemoError, UnsupportedPlatform
from router.demo.fleet import DEFAULT_POOLS, Fleet, RunningPool
from router.demo.prompts import load_prompts
from router.demo.simulated import NOTICE, SimulatedEngines, simulated_engines
from router.demo.simulated import WORKERS as SIMULATED_WORKERS
from router.demo.traffic import Traffic
from router.demo.view import findings, live, next_steps
from router.demo.wheels import Progress
from router.errors import ConfigError
from router.programs import specroute_running

WORKERS = 2
DEFAULT_DURATION_S = 240.0
DEMO_CLASSES = ("code_edit", "structured", "creative")
"""Of the ten classes there are prompts for, the three that differ most: each gets its answers."""
DEMO_MAX_TOKENS = 64
"""Short answers, many of them: a verdict needs answers, and a minute has few on two cores."""
DEMO_FLOOR = 0.2
"""Share that every pool keeps, the baseline included. Ten times the default: verdicts need answers
from both sides, and four minutes are short. `net_gain` spends less on what it does not know."""
DEMO_POLICY = {"name": "thompson", "parameters": {"floor": DEMO_FLOOR}}
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 15.0
_POLL_S = 0.1
_REFRESH_S = 1.0
_LINE_EVERY_S = 15.0
_PATIENCE = 2
"""A demo that stays up goes on this many times as long when nothing was found out yet."""
OWN_PORT_DISTANCE = 100
"""From the demo's ports to those of the configuration that it leaves to play with."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What can be chosen."""

    duration_s: float | None
    """Seconds of traffic, after which the demo ends; None: the default, after which it stays up."""
    directory: Path
    port: int
    admin_port: int
    engine_port: int
    seed: int = 0
    simulated: bool = False
    """Simulated engines, also where the real one could run."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What the demo plays on.

    Attributes:
        model: Name that clients ask for.
        route: Of the configuration, without a policy of the demo's own.
        workers: Clients that send.
        notice: What has to be said of every figure; None on real engines.
    """

    model: str
    route: dict[str, Any]
    workers: int = WORKERS
    notice: str | None = None


def run_demo(options: DemoOptions, console: Console) -> None:
    """Runs the demo until its duration is over or Ctrl-C.

    Raises:
        DemoError: Something that the demo needs cannot be had; one sentence with the remedy.
    """
    began = time.monotonic()

    def say(message: str) -> None:
        console.print(Text(f"{time.monotonic() - began:5.0f} s", "dim"), f" {message}")

    with _interruptible(), _claimed(options.directory):
        _require_free(options)
        with ExitStack() as stack:
            stage = _stage(options, stack, say)
            _serve_and_show(options, stage, console, say)


def _stage(options: DemoOptions, stack: ExitStack, say: Progress) -> Stage:
    """Real engines, or simulated ones where these are asked for or real ones cannot run."""
    if not options.simulated:
        try:
            fleet = stack.enter_context(_fleet(options, say))
        except UnsupportedPlatform as error:
            say(f"the real engine cannot run here: {error}")
        else:
            return Stage(fleet.model, route_config(fleet.model, fleet.pools))
    logs = options.directory / "logs"
    engines = stack.enter_context(simulated_engines(logs, options.engine_port))
    say(NOTICE)
    return _simulated_stage(engines)


def _simulated_stage(engines: SimulatedEngines) -> Stage:
    # A floor of DEMO_FLOOR for each of that many pools would leave nothing to decide.
    floor = DEMO_FLOOR / len(engines.route["pools"])
    policy = {"name": "thompson", "parameters": {"floor": floor}}
    route = engines.route | {"policy": policy}
    return Stage(engines.model, route, SIMULATED_WORKERS, NOTICE)


def _serve_and_show(options: DemoOptions, stage: Stage, console: Console, say: Progress) -> None:
    # What earlier runs learned would stand in the table from its first second.
    shutil.rmtree(options.directory / "store", ignore_errors=True)
    config = _write_config(options, stage.route)
    own = _write_own_config(options, stage.route)
    say(f"starting the embedded store and the proxy; configuration: {config}")
    with _proxy(options, config) as admin_url:
        say(f"clients: http://127.0.0.1:{options.port}/v1   dashboard: {admin_url}/")
        asyncio.run(_traffic_phase(options, admin_url, stage, console, say))
        state = fetch_state(admin_url)
        for route in state["routes"]:
            console.print(class_table(route, "What was measured"))
        console.print(findings(state))
        if stage.notice:
            console.print(Text(stage.notice, "yellow"))
        if options.duration_s is None:
            console.print(next_steps(state, admin_url, str(own)))
            console.print("Ctrl-C ends the demo and everything it started.")
            threading.Event().wait()


def _fleet(options: DemoOptions, say: Progress) -> Fleet:
    return Fleet(base_port=options.engine_port, run_folder=options.directory / "logs", progress=say)


@contextmanager
def _claimed(directory: Path) -> Iterator[None]:
    """Makes sure that no other demo writes into the folder; the kernel frees it when we end."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DemoError(
                f"{directory} is in use by another `specroute demo`; end that one, or choose "
                "another folder with --directory"
            ) from error
        yield


def _require_free(options: DemoOptions) -> None:
    """Says at once, and of all ports, what would come out one by one after preparation."""
    engines = range(options.engine_port, options.engine_port + len(DEFAULT_POOLS))
    wanted = [options.port, options.admin_port, *(engines if options.engine_port else ())]
    taken = [port for port in wanted if not _is_free(port)]
    if taken:
        raise DemoError(
            f"in use on 127.0.0.1: port {', '.join(str(port) for port in taken)}; stop what uses "
            "it, or choose others with --port, --admin-port and --engine-port (through make: "
            'make demo ARGS="--port 8090 --admin-port 8091 --engine-port 0")'
        )


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


async def _traffic_phase(
    options: DemoOptions, admin_url: str, stage: Stage, console: Console, say: Progress
) -> None:
    total_s = options.duration_s or DEFAULT_DURATION_S
    prompts = [
        replace(prompt, body={**prompt.body, "max_tokens": DEMO_MAX_TOKENS})
        for prompt in load_prompts()
        if prompt.label in DEMO_CLASSES
    ]
    url = f"http://127.0.0.1:{options.port}/v1"
    hints = stage.notice is not None
    traffic = Traffic(url, stage.model, prompts, seed=options.seed, hints=hints)
    say("sending prompts of several classes through the official OpenAI client")
    sending = asyncio.ensure_future(traffic.run(stage.workers))
    began = time.monotonic()
    try:
        with Live(console=console, auto_refresh=False, transient=True) as screen:
            last_line = 0.0
            state: dict[str, Any] = {"routes": []}
            while not sending.done():
                elapsed = time.monotonic() - began
                if elapsed >= total_s and (options.duration_s or _settled(state)):
                    break
                if elapsed >= total_s * _PATIENCE:
                    break
                state = await asyncio.to_thread(fetch_state, admin_url)
                if console.is_terminal:
                    picture = live(
                        state, traffic, elapsed_s=elapsed, total_s=total_s, notice=stage.notice
                    )
                    screen.update(picture, refresh=True)
                elif elapsed - last_line >= _LINE_EVERY_S:
                    last_line = elapsed
                    say(f"{traffic.answered} answers, {traffic.failed} failed; {_leaders(state)}")
                await asyncio.sleep(_REFRESH_S)
    finally:
        sending.cancel()
        with suppress(asyncio.CancelledError):
            await sending
    if traffic.answered == 0:
        raise DemoError(f"no request was answered; the last error was: {traffic.last_error}")
    say(f"{traffic.answered} answers, {traffic.failed} failed")


def _settled(state: dict[str, Any]) -> bool:
    """Whether anything was found out: a gain or a loss."""
    return any(
        cell["verdict"] in ("gain", "loss")
        for route in state["routes"]
        for entry in route["classes"]
        for cell in entry["cells"]
    )


def _leaders(state: dict[str, Any]) -> str:
    """For each class, the pool that most of its traffic now goes to."""
    leaders = []
    for route in state["routes"]:
        for entry in route["classes"]:
            cell = max(entry["cells"], key=lambda cell: float(cell["probability"]))
            leaders.append(f"{entry['class']} to {cell['pool']} {cell['probability']:.0%}")
    return f"most likely next: {', '.join(leaders)}" if leaders else "nothing learned yet"


def _write_config(options: DemoOptions, route: dict[str, Any]) -> Path:
    """The file that the demo itself runs."""
    data = {
        "listen": {"port": options.port},
        "admin": {"port": options.admin_port},
        "store": {"url": "embedded:", "directory": str(options.directory / "store")},
        "decision_log": {"path": str(options.directory / "decisions.jsonl")},
        "routes": [route],
    }
    return _write(options.directory / "specroute.yaml", data)


def _write_own_config(options: DemoOptions, route: dict[str, Any]) -> Path:
    """A file to play with: a second proxy beside the demo's, on the same engines."""
    data = {
        "listen": {"port": options.port + OWN_PORT_DISTANCE},
        "admin": {"port": options.admin_port + OWN_PORT_DISTANCE},
        "store": {"url": "memory:"},
        "routes": [route],
    }
    return _write(options.directory / "own.yaml", data)


def route_config(
    model: str, pools: tuple[RunningPool, ...], policy: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The configuration of a route over the fleet's pools."""
    return {
        "model": model,
        "baseline": next(pool.name for pool in pools if pool.method == "none"),
        "policy": policy or DEMO_POLICY,
        "pools": [
            {
                "name": pool.name,
                "method": pool.method,
                "engine": "llamacpp",
                "num_speculative_tokens": pool.num_speculative_tokens,
                "replicas": [{"url": pool.url}],
            }
            for pool in pools
        ],
    }


def _write(path: Path, data: dict[str, Any]) -> Path:
    head = "# Written by `specroute demo`; every key is explained in config/specroute.yaml.\n"
    path.write_text(head + yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return path


@contextmanager
def _proxy(options: DemoOptions, config: Path) -> Iterator[str]:
    """The proxy as a process of its own; yields the URL of its admin port."""
    log = options.directory / "proxy.log"
    with specroute_running(["serve", "-c", str(config)], log, stop_s=_STOP_TIMEOUT_S) as process:
        _wait_until_ready(process, f"http://127.0.0.1:{options.port}/ready", log)
        yield f"http://127.0.0.1:{options.admin_port}"


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    pause = threading.Event()
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            lines = log.read_text(errors="replace").strip().splitlines() or ["(nothing was said)"]
            raise DemoError(f"the proxy did not start: {lines[-1].removeprefix('error: ')}")
        with suppress(OSError, urllib.error.URLError), urllib.request.urlopen(url, timeout=2):  # noqa: S310
            return
        pause.wait(_POLL_S)
    raise DemoError(f"the proxy was not ready within {_START_TIMEOUT_S:.0f} s; see {log}")


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM ends the demo the way Ctrl-C does, so that everything is stopped."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except ConfigError as error:
        raise DemoError(str(error)) from error
    finally:
        signal.signal(signal.SIGTERM, previous)
