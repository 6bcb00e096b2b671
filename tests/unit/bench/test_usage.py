"""What benches say to whoever calls them without what they need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def called(*arguments: str) -> tuple[int, str, str]:
    """Exit code and outputs of a bench."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("bench", "remedy"),
    [("bench.overhead", "name the folder"), ("bench.classifier", "name the folder")],
)
def test_a_folder_that_is_not_there_is_one_line(bench: str, remedy: str, tmp_path: Path) -> None:
    """What is missing, that it is no part of the repository, and what to do."""
    code, out, err = called(bench, str(tmp_path))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(str(tmp_path))
    assert "not part of this repository" in err
    assert remedy in err


def test_the_dashboard_s_bench_says_how_it_is_called() -> None:
    """Without opening anything."""
    code, out, err = called("bench.dashboard", "--help")
    assert (code, err) == (0, "")
    assert out.startswith("usage: ")
