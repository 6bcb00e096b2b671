"""A real Valkey server for tests: the program that the embedded store uses, run by itself."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from redis import Redis

from router.stores.embedded import server_program

_TRIES = 5
"""A port that was free a moment ago may be taken by now."""


class ValkeyServer:
    """One server in a folder of its own, without persistence."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url = url
        self._process = process

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def client(self) -> Redis:
        """A client of its own, to look behind the store's back."""
        return Redis.from_url(self.url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def tcp_server(folder: Path) -> ValkeyServer:
    """A server on a free port of the loopback interface."""
    for _ in range(_TRIES):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        process = _start(folder, "--port", str(port), "--bind", "127.0.0.1")
        if process is not None:
            return ValkeyServer(f"redis://127.0.0.1:{port}/0", process)
    raise AssertionError("no free port")


def unix_server(folder: Path) -> ValkeyServer:
    """A server on a Unix socket."""
    path = folder / "s"
    process = _start(folder, "--port", "0", "--unixsocket", str(path))
    assert process is not None, "valkey did not start"
    return ValkeyServer(f"unix://{path}", process)


def _start(folder: Path, *options: str) -> subprocess.Popen[str] | None:
    common = ("--dir", str(folder), "--save", "", "--appendonly", "no", "--maxmemory", "0")
    process = subprocess.Popen(
        [str(server_program()), *options, *common],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "ready to accept connections" in line.lower():
            return process
    process.wait()
    process.stdout.close()
    return None


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path is short enough for a Unix socket in it."""
    with TemporaryDirectory(prefix="sr-") as name:
        yield Path(name)


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stops a process for as long as the block runs: it accepts connections and never answers."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
