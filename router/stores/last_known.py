"""Copies, on this machine's disk, of small documents that must be known before the store answers.

A process that starts while the store is away would otherwise not know what operators have ordered.
A copy that cannot be written is not worth a request: it is said once.
"""

from __future__ import annotations

import logging
import secrets
from pathlib import Path

_log = logging.getLogger("specroute.store")

_MOST_BYTES = 16 * 1024 * 1024


class LastKnown:
    """Documents by name in a folder; without one it keeps and knows nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._failed = False

    def read(self, name: str) -> bytes | None:
        """What was kept last under a name; None where there is none, or it cannot be read."""
        if self._folder is None:
            return None
        try:
            with (self._folder / name).open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._say("read", error)
            return None
        return data if len(data) <= _MOST_BYTES else None

    def keep(self, name: str, data: bytes) -> None:
        """Keeps a document, whole or not at all; waits for the disk, so not for the loop."""
        if self._folder is None:
            return
        part = self._folder / f".{name}.{secrets.token_hex(4)}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                part.write_bytes(data)
                part.replace(self._folder / name)  # several processes may do the same
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            self._say("written", error)
        else:
            self._failed = False

    def _say(self, what: str, error: OSError) -> None:
        if not self._failed:
            self._failed = True
            _log.warning(
                f"store.last_known cannot be {what}",
                extra={"folder": str(self._folder), "error": str(error)},
            )
