"""`specroute simulate` runs what it is asked for and refuses what there is not."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from router.cli.main import app


def test_it_prints_a_table_and_leaves_a_report(tmp_path: Path) -> None:
    """Markdown on standard output; report, picture and results in the folder."""
    command = [
        "simulate", "rtx5090", "--policies", "rules", "--seeds", "1", "--requests", "60",
        "--jobs", "1", "--out", str(tmp_path),
    ]  # fmt: skip
    found = CliRunner().invoke(app, command)
    assert found.exit_code == 0
    assert "| rtx5090 | rules |" in found.stdout
    assert (tmp_path / "rtx5090.svg").read_text("utf-8").startswith("<svg")
    assert "| rtx5090 | rules |" in (tmp_path / "report.md").read_text("utf-8")


def test_unknown_names_are_refused_with_a_hint() -> None:
    """A policy or world that does not exist ends with a usage error."""
    for command in (["--policies", "net_gian"], ["--policies", "ucb:flor=1"], ["nowhere"]):
        found = CliRunner().invoke(app, ["simulate", *command])
        assert found.exit_code == 2
    assert "net_gain" in CliRunner().invoke(app, ["simulate", "--policies", "net_gian"]).output
