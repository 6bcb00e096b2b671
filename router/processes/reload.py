"""Reads the configuration again, when asked or when its file has changed; says what came of it.

Who applies it is somebody else's: this process's own application, or a supervisor's workers.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from router.clock import Clock
from router.config.load import parse_config, read_config
from router.config.models import Config
from router.errors import ConfigError

_APPLIED = (
    *("routes", "classify", "estimates", "decision_log", "admission"),
    *("tenants", "speculation"),
)
"""Sections that a reload applies; whatever else differs needs a restart."""
_APPLIED_OF = {"listen": ("drain_delay_s", "response_headers", "max_buffered_bytes")}
_HASH_CHARS = 12

_log = logging.getLogger("specroute.reload")

Apply = Callable[["Loaded"], Awaitable[None]]
"""Lets a configuration serve from now on, or raises `ConfigError` and changes nothing."""


class Trigger(StrEnum):
    """Who asked for a reload."""

    SIGNAL = "SIGHUP"
    FILE = "changed file"
    ADMIN = "admin port"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and the text that it was made from."""

    text: str
    config: Config

    @property
    def digest(self) -> str:
        """Tells texts apart; the text may hold keys, so it is not shown itself."""
        return _digest(self.text)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """Where a configuration is read from."""

    path: Path
    workers: int | None = None
    """Stands in for `listen.workers`."""
    environment: Mapping[str, str] | None = None

    def read(self) -> str:
        """The text as it is now.

        Raises:
            ConfigError: It cannot be read.
        """
        return read_config(self.path)

    def parse(self, text: str) -> Loaded:
        """Checks a text.

        Raises:
            ConfigError: It is no configuration.
        """
        environment = os.environ if self.environment is None else self.environment
        name = str(self.path)
        return Loaded(text, parse_config(text, environment, name=name, workers=self.workers))


@dataclass(frozen=True, slots=True)
class Reload:
    """What came of one reload."""

    result: Literal["applied", "refused"]
    why: str | None
    """Why it was refused."""
    time: float
    """Wall time."""
    trigger: Trigger
    hash: str | None
    """Of what was read; None if it could not be."""


_Stamp = tuple[int, int, int]


class Reloader:
    """Keeps what serves in step with its file.

    Args:
        file: Where the configuration stands.
        loaded: What serves now.
        apply: Lets another one serve.
        clock: Time.
        count: Told the result of every reload.
    """

    def __init__(
        self,
        file: ConfigFile,
        loaded: Loaded,
        apply: Apply,
        *,
        clock: Clock,
        count: Callable[[str], None],
    ) -> None:
        self._file = file
        self.loaded = loaded
        """What serves now."""
        self._apply = apply
        self._clock = clock
        self._count = count
        self._since = clock.wall()
        self._last: Reload | None = None
        self._one_at_a_time = asyncio.Lock()
        self._seen: _Stamp | None = None
        """How the file looked at the last look."""
        self._judged: _Stamp | None = None
        """How it looked when its content was last read and compared."""
        self._read = loaded.digest
        """Of what was last read, whatever came of it: what was refused is not tried again."""

    async def reload(self, trigger: Trigger) -> Reload:
        """Reads the file and lets it serve if it can."""
        async with self._one_at_a_time:
            digest = None
            try:
                text = await asyncio.to_thread(self._file.read)
                digest = self._read = _digest(text)
                loaded = await asyncio.to_thread(self._file.parse, text)
                _require_same(self.loaded.config, loaded.config)
                await self._apply(loaded)
            except ConfigError as error:
                done = self._refused(str(error), trigger, digest)
            except Exception as error:  # noqa: BLE001
                # One of the four places that may catch everything: the old configuration serves on
                # whatever goes wrong, and whoever asked must be told so.
                why = f"it failed: {type(error).__name__}: {error}; the log says where"
                done = self._refused(why, trigger, digest, flaw=error)
            else:
                done = Reload("applied", None, self._clock.wall(), trigger, digest)
                self.loaded, self._since = loaded, done.time
                _log.info("configuration applied", extra={"trigger": trigger, "hash": digest})
            self._last = done
            self._count(done.result)
            return done

    def _refused(
        self, why: str, trigger: Trigger, digest: str | None, flaw: Exception | None = None
    ) -> Reload:
        _log.error(
            "configuration refused; the old one serves on",
            extra={"trigger": trigger, "why": why, "hash": digest},
            exc_info=flaw,
        )
        return Reload("refused", why, self._clock.wall(), trigger, digest)

    async def asked(self) -> dict[str, Any]:
        """A reload that the admin port asked for, as JSON values."""
        return asdict(await self.reload(Trigger.ADMIN))

    async def look(self) -> None:
        """Looks at the file once; reloads it if it has changed and been still since the last look.

        Whoever writes it in pieces is so given time to finish.
        """
        stamp = await asyncio.to_thread(_stamp, self._file.path)
        still, self._seen = stamp == self._seen, stamp
        if not still or stamp is None or stamp == self._judged:
            return
        self._judged = stamp
        try:
            text = await asyncio.to_thread(self._file.read)
        except ConfigError:
            return  # gone again; what comes next has another stamp
        if _digest(text) != self._read:
            await self.reload(Trigger.FILE)

    def state(self) -> dict[str, Any]:
        """What serves, and what came of the last reload, as JSON values."""
        return {
            "path": str(self._file.path),
            "hash": self.loaded.digest,
            "since": self._since,
            "last_reload": asdict(self._last) if self._last else None,
        }


def _require_same(old: Config, new: Config) -> None:
    """Refuses what only a restart can change.

    Raises:
        ConfigError: Names the keys.
    """
    keys = _differences(old, new)
    if keys:
        raise ConfigError(
            f"{', '.join(keys)}: cannot change while the program runs; restart it, or undo the "
            "change"
        )


def _differences(old: Config, new: Config) -> list[str]:
    found: list[str] = []
    for section in type(old).model_fields:
        before, after = getattr(old, section), getattr(new, section)
        if section in _APPLIED or before == after:
            continue
        applied = _APPLIED_OF.get(section, ())
        found += [
            f"{section}.{key}"
            for key in type(before).model_fields
            if key not in applied and getattr(before, key) != getattr(after, key)
        ]
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
