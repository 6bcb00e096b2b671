"""What a user is told once everything listens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Started:
    """A proxy that serves."""

    data_url: str
    admin_url: str
    models: tuple[str, ...]
    workers: int = 1
