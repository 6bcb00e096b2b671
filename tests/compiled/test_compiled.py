"""Modules as machine code say what their sources say, and pass the tests of their sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

# Whichever of them is first builds the wheel.
pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]
SOURCES = ("router", "policies", "pyproject.toml", "README.md", "LICENSE")
"""All that a wheel is built of."""
_QUICKLY = """
[tool.hatch.build.targets.wheel.hooks.mypyc.options]
opt_level = "0"
"""
"""The same code, which takes the compiler a fraction of the time and runs slower."""
TESTS = (
    *("classify", "relay", "fleet", "selection", "intake"),
    *("engines", "endpoints", "experiments", "estimates"),
    "policies/test_balance.py",
)
"""Of whose packages modules are compiled."""
SAYS = Path(__file__).with_name("says.py")


def _cannot_compile() -> str:
    """Why no wheel can be built here; empty if one can."""
    compiler = str(sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"no C compiler ({compiler})"
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return "" if headers.is_file() else "no headers of Python"


def run(*command: str, at: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs Python, which finds no other modules than those named by `PYTHONPATH`."""
    environment = {**os.environ, "PYTHONSAFEPATH": "1", **more}
    return subprocess.run(
        [sys.executable, *command],
        cwd=at,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages as a wheel of `make wheel` has them."""
    if reason := _cannot_compile():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / "source" / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / "source" / name)
    with (folder / "source" / "pyproject.toml").open("a", encoding="utf-8") as settings:
        settings.write(_QUICKLY)
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    built = run(
        *("-m", "pip", "wheel", *options, "."),
        at=folder / "source",
        HATCH_BUILD_HOOK_ENABLE_MYPYC="1",
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = folder.glob("*.whl")
    assert "none-any" not in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "packages")
    return folder / "packages"


def test_the_same_is_said_to_the_last_digit(compiled: Path) -> None:
    """Estimates and logs of compiled and other processes may share a store."""
    source = run(str(SAYS), PYTHONPATH=str(ROOT))
    machine = run(str(SAYS), PYTHONPATH=f"{compiled}{os.pathsep}{ROOT}")
    assert (source.stderr.strip(), machine.stderr.strip()) == ("py", "so")
    assert source.stdout.count("\n") > 200
    assert machine.stdout == source.stdout


def test_it_passes_the_tests_of_its_source(compiled: Path) -> None:
    """Odd bodies, hostile text, cut streams; and parts that stand in for others while tracing."""
    options = ("-q", "-o", "pythonpath=", "-p", "no:cacheprovider")
    tests = (*(f"tests/unit/{name}" for name in TESTS), "tests/flow/test_tracing.py")
    tested = run("-m", "pytest", *options, *tests, PYTHONPATH=f"{compiled}{os.pathsep}{ROOT}")
    assert tested.returncode == 0, tested.stdout[-4000:]


def test_the_version_tells(compiled: Path) -> None:
    """An operator sees which of the two runs."""
    said = run("-m", "router", "--version", PYTHONPATH=str(compiled))
    assert said.stdout.rstrip().endswith("(compiled)")
    assert "compiled" not in run("-m", "router", "--version", PYTHONPATH=str(ROOT)).stdout
