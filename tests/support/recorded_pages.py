"""Pages recorded from real engines, as `router.engines.identity` takes them."""

from __future__ import annotations

from pathlib import Path

from router.engines.identity import ToldPage
from tests.support.recordings import Recording

PATHS = {
    "models": "/v1/models",
    "version": "/version",
    "props": "/props",
    "slots": "/slots",
    "metrics": "/metrics",
    "server_info": "/server_info",
}
"""By the name of the recording."""


def told(recording: Path) -> ToldPage:
    """One page."""
    made = Recording(recording)
    return ToldPage(made.status, made.body, made.headers.get("server", ""))


def pages_in(folder: Path) -> dict[str, ToldPage]:
    """The pages of one server; those that were not recorded are not found."""
    missing = ToldPage(404)
    return {
        path: told(folder / f"{name}.http") if (folder / f"{name}.http").exists() else missing
        for name, path in PATHS.items()
    }
