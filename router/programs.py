"""Programs that this one starts, none of which may outlive it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int | None = None, how: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel to end this process when its parent's thread ends, however it ends.

    For use as ``preexec_fn``: one call into the C library, which was loaded beforehand, and no
    locks taken. Elsewhere than on Linux it does nothing.

    Args:
        parent: The parent's process id. If it ended before the kernel was asked, this process
            ends here.
        how: The signal that it gets then.
    """
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, how, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


@contextmanager
def specroute_running(
    arguments: Sequence[str], log: Path, *, stop_s: float
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `specroute ARGUMENTS` beside this program until the end of the block.

    Args:
        arguments: Of the command line.
        log: File that gets what it says.
        stop_s: How long it has to end by itself once it is told to.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - the arguments are all ours
            [sys.executable, "-m", "router", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl call, no locks taken
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(stop_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _libc() -> ctypes.CDLL | None:
    """Load the C library where it has prctl: on Linux."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        _ = library.prctl
        return library
    return None


_LIBC = _libc()
