"""Real Valkey servers for tests: the program that the embedded store uses, run by itself.

What is waited for is said in the servers' own logs.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from redis import Redis

from router.stores.embedded import server_program

_TRIES = 5
"""A port that was free a moment ago may be taken by now."""
_READY = "ready to accept connections"
_SLOTS = 16_384
MASTER = "main"
"""What sentinels call the server that they watch."""


class ValkeyServer:
    """One server in a folder of its own, without persistence."""

    def __init__(self, url: str, process: subprocess.Popen[str], port: int = 0) -> None:
        self.url = url
        self.port = port
        self._process = process

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def client(self) -> Redis:
        """A client of its own, to look behind the store's back."""
        return Redis.from_url(self.url)

    def until_says(self, words: str) -> str:
        """Reads on in its log until a line has these words; returns the line."""
        line = _until(self._process, words)
        assert line is not None, f"the server ended before it said {words!r}"
        return line

    def kill(self) -> None:
        """Ends it without a word."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()


def tcp_server(folder: Path, *options: str, port: int = 0) -> ValkeyServer:
    """A server on a port of the loopback interface, a free one by default."""
    for _ in range(_TRIES):
        port = port or free_port()
        process = _start(folder, "--port", str(port), "--bind", "127.0.0.1", *options)
        if process is not None:
            return ValkeyServer(f"redis://127.0.0.1:{port}/0", process, port)
        port = 0
    raise AssertionError("no free port")


def unix_server(folder: Path) -> ValkeyServer:
    """A server on a Unix socket."""
    path = folder / "s"
    process = _start(folder, "--port", "0", "--unixsocket", str(path))
    assert process is not None, "valkey did not start"
    return ValkeyServer(f"unix://{path}", process)


@dataclass(frozen=True)
class Watched:
    """A server, its replica, and a sentinel that lets the one take the other's place."""

    url: str
    """For whoever asks the sentinel who is the master."""
    first: ValkeyServer
    second: ValkeyServer
    sentinel: ValkeyServer


@contextmanager
def watched_servers(folder: Path) -> Iterator[Watched]:
    """A master with a replica under a sentinel that knows of both."""
    with ExitStack() as stack:
        first = stack.enter_context(tcp_server(_below(folder, "1")))
        second = stack.enter_context(
            tcp_server(_below(folder, "2"), "--replicaof", "127.0.0.1", str(first.port))
        )
        second.until_says("sync: Finished with success")
        sentinel = stack.enter_context(_sentinel(_below(folder, "3"), first.port))
        sentinel.until_says("+slave ")
        url = f"redis+sentinel://127.0.0.1:{sentinel.port}/{MASTER}/0"
        yield Watched(url, first, second, sentinel)


@dataclass(frozen=True)
class Cluster:
    """Three servers that share the slots."""

    url: str
    nodes: Sequence[ValkeyServer]

    def clear(self) -> None:
        """Forgets everything."""
        for node in self.nodes:
            with node.client() as client:
                client.flushall()


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster that has agreed on who has which slots."""
    with ExitStack() as stack:
        nodes: list[ValkeyServer] = []
        buses = [free_port() for _ in range(3)]
        for number, bus in enumerate(buses):
            options = ("--cluster-enabled", "yes", "--cluster-port", str(bus))
            node = tcp_server(_below(folder, str(number)), *options)
            nodes.append(stack.enter_context(node))
            with node.client() as client:
                low, high = number * _SLOTS // 3, (number + 1) * _SLOTS // 3 - 1
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", low, high)
                meet = ("CLUSTER", "MEET", "127.0.0.1", nodes[0].port, buses[0])
                client.execute_command(*meet)
        for node in nodes:
            node.until_says("Cluster state changed: ok")
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        yield Cluster(f"redis+cluster://{hosts}", nodes)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _below(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def _sentinel(folder: Path, watched: int) -> ValkeyServer:
    for _ in range(_TRIES):
        port = free_port()
        config = folder / "sentinel.conf"
        config.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor {MASTER} 127.0.0.1 {watched} 1\n"
            f"sentinel down-after-milliseconds {MASTER} 200\n"
            f"sentinel failover-timeout {MASTER} 2000\n"
        )
        process = _run("Sentinel ID is", str(config), "--sentinel")
        if process is not None:
            return ValkeyServer(f"redis://127.0.0.1:{port}/0", process, port)
    raise AssertionError("no free port")


def _start(folder: Path, *options: str) -> subprocess.Popen[str] | None:
    common = ("--dir", str(folder), "--save", "", "--appendonly", "no", "--maxmemory", "0")
    return _run(_READY, *common, "--repl-diskless-sync-delay", "0", *options)


def _run(ready: str, *arguments: str) -> subprocess.Popen[str] | None:
    process = subprocess.Popen(
        [str(server_program()), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if _until(process, ready) is not None:
        return process
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
    return None


def _until(process: subprocess.Popen[str], words: str) -> str | None:
    assert process.stdout is not None
    for line in process.stdout:
        if words.lower() in line.lower():
            return line
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
