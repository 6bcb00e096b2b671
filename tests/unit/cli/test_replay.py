"""`specroute replay` on a file."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from bench.verify_replay import logged
from router.cli.main import app
from router.cli.replay import parsed
from router.errors import ConfigError

runner = CliRunner()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hours of decisions."""
    folder = tmp_path_factory.mktemp("log")
    logged(0, folder)
    return folder / "decisions.jsonl"


def test_a_table_by_class_is_printed(log: Path) -> None:
    """With shares, and what was refused."""
    said = runner.invoke(app, ["replay", str(log), "--policy", "fixed", "--parameters", "arm=fast"])
    assert said.exit_code == 0
    assert "fast 100%" in said.stdout
    for name in ("all classes", "chat", "code_edit", "math"):
        assert name in said.stdout


def test_json_holds_every_figure(log: Path) -> None:
    """Estimates with intervals, by class."""
    said = runner.invoke(app, ["replay", str(log), "--policy", "rules", "--json"])
    told = orjson.loads(said.stdout)
    assert told["requests"] == 2400
    assert told["logged_by"] == ["adaptive"]
    assert told["overall"]["dr"]["low"] < told["overall"]["dr"]["value"]
    assert told["classes"]["chat"]["time_saved_against_baseline"]["value"] > 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        ["--policy", "fixde"],
        ["--policy", "fixed", "--parameters", "arm"],
        ["--policy", "fixed", "--parameters", "arm=nobody"],
        ["--policy", "fixed", "--clip", "0.5"],
        ["--policy", "net_gain"],
    ],
)
def test_what_cannot_be_replayed_is_an_error(log: Path, wrong: list[str]) -> None:
    """Unknown names, bad values, and a policy that needs what the log lacks."""
    said = runner.invoke(app, ["replay", str(log), *wrong])
    assert isinstance(said.exception, ConfigError)


def test_parameters_are_values() -> None:
    """JSON where it is JSON, text elsewhere."""
    assert parsed(["a=1", "b=x=y", "c=true", 'd=["e"]']) == {
        "a": 1,
        "b": "x=y",
        "c": True,
        "d": ["e"],
    }
    with pytest.raises(ConfigError, match="name=value"):
        parsed(["=1"])
