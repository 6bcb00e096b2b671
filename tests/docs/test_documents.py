"""What the project says about itself is true."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from router.cli.main import app
from router.config.load import load_config
from router.config.models import Config
from router.config.reference import generated
from router.processes import reload
from router.selection import eligibility
from router.tenants.model import ALL

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", sorted(generated()))
def test_generated_files_match_the_models(name: str) -> None:
    """A changed option changes the reference file, the schema and the page; `make reference`."""
    assert (ROOT / name).read_text(encoding="utf-8") == generated()[name]


@pytest.mark.parametrize("path", sorted((ROOT / "config").rglob("*.yaml")), ids=lambda p: p.name)
def test_every_shipped_configuration_loads(path: Path) -> None:
    """Nobody is handed a configuration that does not work."""
    assert load_config(path, environment={}).routes


def test_the_page_about_reloads_names_every_section() -> None:
    """As what a reload applies or as what needs a restart, as the program has it."""
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    applied, restart = text.partition("|---|---|\n| `routes`")[2].splitlines()[0].split(" | ", 1)
    named = {*re.findall(r"`([a-z_]+)`", applied), "routes"}
    assert named == set(reload._APPLIED)
    assert set(re.findall(r"`listen\.([a-z_]+)`", applied)) == set(reload._APPLIED_OF["listen"])
    others = set(Config.model_fields) - named
    assert others <= set(re.findall(r"`([a-z_]+)`", restart))


def test_the_page_about_policies_names_every_reason() -> None:
    """What keeps a pool from a request stands in decisions, so somebody will look it up."""
    text = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    table = text.partition("## Before any policy: eligibility")[2]
    named = set(re.findall(r"`([a-z_]+)`", re.sub(r"\| [^|]*\|$", "", table, flags=re.MULTILINE)))
    reasons = {item for name, item in vars(eligibility).items() if name.isupper() and item != ALL}
    for path in (ROOT / "router" / "engines").glob("*.py"):
        reasons |= set(re.findall(r'"(\w+_under_speculation)"', path.read_text(encoding="utf-8")))
    assert reasons == named


def test_readme_names_only_commands_that_exist() -> None:
    """Every `specroute COMMAND` in the README is a command of the program."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`specroute ([a-z]+)", text)) | set(
        re.findall(r"^specroute ([a-z]+)", text, re.MULTILINE)
    )
    group: Any = get_command(app)
    known = set(group.list_commands(None))
    assert named - known == set()
    assert named


def test_readme_names_only_make_targets_that_exist() -> None:
    """Every `make TARGET` in the README is in the Makefile."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|`)make ([a-z]+)\b", text, re.MULTILINE))
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    assert named - targets == set()
    assert {"demo", "test"} <= named


def test_repository_names_no_machine_and_no_registry() -> None:
    """No path of somebody's machine and no package index stands in a tracked file."""
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\n")
    bad = re.compile(rb"--index-url|--extra-index-url|--find-links|/root/|/home/[a-z]|/work/")
    guilty = [
        name
        for name in names
        if name
        and name != "tests/docs/test_documents.py"
        and (ROOT / name).is_file()
        and "recordings" not in name
        and bad.search((ROOT / name).read_bytes())
    ]
    assert guilty == []
