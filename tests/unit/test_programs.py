"""What this program starts ends with it."""

from __future__ import annotations

import os
from pathlib import Path

from router.programs import die_with_parent, specroute_running


def test_child_of_a_dead_parent_ends_itself() -> None:
    """If the parent ended before the kernel was asked, the child does not go on."""
    child = os.fork()
    if child == 0:
        die_with_parent(parent=1_000_000_000)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_a_command_runs_until_the_end_of_the_block(tmp_path: Path) -> None:
    """And no longer."""
    serve = ["simfleet", "--world", "spark", "--port", "0"]
    with specroute_running(serve, tmp_path / "log", stop_s=30.0) as process:
        assert process.poll() is None
    assert process.returncode is not None


def test_a_command_that_fails_says_why_in_its_log(tmp_path: Path) -> None:
    """Its end is for whoever waits for it to notice."""
    log = tmp_path / "log"
    with specroute_running(
        ["serve", "-c", str(tmp_path / "none.yaml")], log, stop_s=30.0
    ) as process:
        assert process.wait(30.0) != 0
    assert "none.yaml" in log.read_text()
