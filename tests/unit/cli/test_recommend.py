"""`specroute recommend` on a kept state."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from router.cli.main import app
from router.cli.recommend import read_state
from router.errors import ConfigError
from tests.support.measured_state import cell, pool, route

runner = CliRunner()


def test_a_kept_state_is_enough(tmp_path: Path) -> None:
    """Words, or JSON."""
    pools = [pool("plain", "none", None, baseline=True), pool("draft", "eagle3", 3)]
    made = route(pools, chat={"plain": cell(), "draft": cell(2.0)})
    path = tmp_path / "state.json"
    path.write_bytes(orjson.dumps({"time": 1.0, "window_s": 60, "routes": [made]}))
    said = runner.invoke(app, ["recommend", "--state", str(path)])
    assert said.exit_code == 0
    assert said.stdout.startswith("# m\n")
    told = runner.invoke(app, ["recommend", "--state", str(path), "--json"])
    assert orjson.loads(told.stdout)["routes"][0]["model"] == "m"


@pytest.mark.parametrize(
    ("content", "why"), [(b"{", "no JSON"), (b"[]", "no answer"), (None, "cannot be read")]
)
def test_a_file_that_holds_no_state_is_an_error(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    """With the reason."""
    path = tmp_path / "state.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=why):
        read_state(path)
