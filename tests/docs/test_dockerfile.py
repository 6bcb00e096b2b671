"""The image, as far as its recipe tells: slim, pinned, without root, with a health check."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()


def last(instruction: str) -> str:
    """The argument of the last such instruction."""
    return [line for line in LINES if line.startswith(f"{instruction} ")][-1].split(" ", 1)[1]


def test_runs_without_root() -> None:
    """The last USER is one that the image itself makes."""
    assert last("USER") == "specroute"
    assert any("useradd" in line and "specroute" in line for line in LINES)


def test_says_whether_it_is_healthy() -> None:
    """The health check asks the data port's own path."""
    assert "http://127.0.0.1:8080/health" in last("HEALTHCHECK")


def test_everything_that_is_copied_exists() -> None:
    """No COPY names a file that the repository does not have."""
    copies = [line.split()[1:-1] for line in LINES if line.startswith("COPY ")]
    names = [name for copy in copies for name in copy if not name.startswith(("--", "/"))]
    assert [name for name in names if not (ROOT / name).exists()] == []
    assert names


def test_packages_are_pinned_and_hashed() -> None:
    """Every pip install takes hashes, or a wheel made in the build itself."""
    installs = re.findall(r"pip install [^&]*", "\n".join(LINES))
    assert [
        line for line in installs if "--require-hashes" not in line and "/dist/" not in line
    ] == []
    assert installs


def test_base_image_is_slim_and_supported() -> None:
    """Both stages start from the same slim image of a supported Python."""
    bases = {line.split()[1] for line in LINES if line.startswith("FROM ")}
    assert bases == {"python:3.13-slim"}
