"""Copies of documents on the disk."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from router.stores.last_known import LastKnown


def test_what_was_kept_last_is_known_to_whoever_comes_next(tmp_path: Path) -> None:
    """In the same folder; nothing half-written is left there."""
    folder = tmp_path / "a" / "b"
    one = LastKnown(folder)
    assert one.read("book") is None
    one.keep("book", b"first")
    one.keep("book", b"second")
    assert LastKnown(folder).read("book") == b"second"
    assert [path.name for path in folder.iterdir()] == ["book"]
    assert folder.stat().st_mode & 0o077 == 0


def test_without_a_folder_nothing_is_kept() -> None:
    """Nor known."""
    nowhere = LastKnown(None)
    nowhere.keep("book", b"data")
    assert nowhere.read("book") is None


def test_a_folder_that_cannot_be_used_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And costs nothing else."""
    (tmp_path / "file").write_text("x")
    broken = LastKnown(tmp_path / "file")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            broken.keep("book", b"data")
            assert broken.read("book") is None
    assert len(caplog.records) == 1
