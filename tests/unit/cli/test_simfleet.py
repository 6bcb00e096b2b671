"""`specroute simfleet`: worlds, files of faults, what is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from policies.types import ClassId
from router.cli.main import app
from router.cli.simfleet import read_orders
from router.config.load import load_config
from router.errors import ConfigError, StartError
from router.simfleet.faults import Fault, FaultKind
from router.simulate.load import world_names

runner = CliRunner()


def test_worlds_are_listed() -> None:
    """Each by its name."""
    shown = runner.invoke(app, ["simfleet", "--list"]).output
    assert [name for name in world_names() if name not in shown] == []


def test_a_world_that_is_not_there() -> None:
    """The error names those there are."""
    result = runner.invoke(app, ["simfleet", "--world", "atlantis"])
    assert isinstance(result.exception, ConfigError)
    assert "llama8b-light" in str(result.exception)


def test_a_fleet_says_where_it_is_and_writes_a_configuration(tmp_path: Path) -> None:
    """The file loads, and holds a server for each line of the table."""
    path = tmp_path / "sim.yaml"
    arguments = ["simfleet", "--world", "rtx5090", "--port", "0", "--duration", "0.1"]
    result = runner.invoke(app, [*arguments, "--write-config", str(path)])
    config = load_config(path)
    urls = [replica.url for pool in config.routes[0].pools for replica in pool.replicas]
    assert result.exit_code == 0, result.output
    assert len(urls) == 6
    assert [url for url in urls if url not in result.output] == []


def test_faults_of_a_file(tmp_path: Path) -> None:
    """Pool and server stand beside what goes over HTTP; without them all are meant."""
    path = tmp_path / "faults.yaml"
    path.write_text(
        "- {pool: mtp, replica: 1, kind: drift, value: 0.5, class_id: chat, at_s: 9}\n"
        "- {kind: freeze, for_s: 2}\n",
        encoding="utf-8",
    )
    assert read_orders(path) == [
        ("mtp", 1, Fault(FaultKind.DRIFT, 0.5, at_s=9, class_id=ClassId("chat"))),
        ("*", None, Fault(FaultKind.FREEZE, for_s=2)),
    ]


@pytest.mark.parametrize("text", ["- 5\n", "- {kind: quake}\n", "- {kind: [\n"])
def test_faults_that_are_none(tmp_path: Path, text: str) -> None:
    """The file is named."""
    path = tmp_path / "faults.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"faults\.yaml"):
        read_orders(path)


def test_engines_can_speak_otherwise_than_the_world_says(tmp_path: Path) -> None:
    """The table and the configuration say so."""
    path = tmp_path / "sim.yaml"
    arguments = ["simfleet", "--world", "rtx5090", "--port", "0", "--duration", "0.1"]
    more = ["--engine", "vllm", "--engine-version", "0.28.0", "--write-config", str(path)]
    result = runner.invoke(app, [*arguments, *more])
    assert {pool.engine for pool in load_config(path).routes[0].pools} == {"vllm"}
    assert result.output.count("vllm 0.28.0") == 6


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        (["--traffic", "nonsense"], ConfigError, "--traffic"),
        (
            ["--traffic", "http://127.0.0.1:9", "--rate", "100", "--duration", "0.1"],
            StartError,
            ":9",
        ),
        (["--port", "65535"], StartError, "--port"),
        (["--port", "0", "--write-config", "/dev/null/sim.yaml"], StartError, "/dev/null/sim.yaml"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    arguments: list[str], kind: type[Exception], says: str
) -> None:
    """With an exit code that is not 0; never a traceback."""
    result = runner.invoke(app, ["simfleet", *arguments])
    assert isinstance(result.exception, kind)
    assert says in str(result.exception)
    assert "\n" not in str(result.exception)


def test_a_world_s_file_that_is_no_yaml(tmp_path: Path) -> None:
    """The error names the file, in one line."""
    path = tmp_path / "world.yaml"
    path.write_text("pools: [\n", encoding="utf-8")
    result = runner.invoke(app, ["simfleet", "--world", str(path)])
    assert isinstance(result.exception, ConfigError)
    assert str(path) in str(result.exception)
    assert "\n" not in str(result.exception)
