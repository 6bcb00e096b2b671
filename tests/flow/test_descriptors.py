"""The limit of file descriptors that a real process sets itself."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from router.processes.descriptors import needed
from tests.support.flow_backend import ScriptedBackend
from tests.support.flow_process import serving, write
from tests.support.flow_world import config_of, pool


@contextmanager
def few_descriptors() -> Iterator[None]:
    """What starts meanwhile may open few files, and may change that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def soft_limit(pid: int) -> int:
    """Of a process."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    [line] = [line for line in lines if line.startswith("Max open files")]
    return int(line.split()[3])


@pytest.mark.skipif(sys.platform != "linux", reason="limits are looked up in /proc")
@pytest.mark.parametrize("workers", [1, 2])
async def test_every_process_that_serves_raises_its_limit(
    plain: ScriptedBackend, tmp_path: Path, workers: int
) -> None:
    """As far as what it may serve at a time needs."""
    made = config_of(
        pool("plain", plain),
        folder=tmp_path,
        listen={"workers": workers},
        store={"url": "embedded:" if workers > 1 else "memory:"},
        admission={"max_concurrent": 100, "max_concurrent_per_tenant": 50, "max_waiting": 10},
    )
    with few_descriptors():
        async with serving(write(made, tmp_path / "c.yaml")) as proxy:
            pids = [worker["pid"] for worker in (await proxy.state())["workers"]]
            assert [soft_limit(pid) for pid in pids] == [needed(made)] * workers
