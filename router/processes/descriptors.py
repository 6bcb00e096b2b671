"""Sees to it that a process may open as many sockets as its configuration lets in requests."""

from __future__ import annotations

import logging
import resource

from router.config.models import Config
from router.fleet.fetch import PLACES

_OTHERS = 512
"""What else is open: idle connections, listeners, the store, files, look-ups of names."""

_log = logging.getLogger("specroute.process")


def sockets_of_a_request(config: Config) -> int:
    """Of its client, of its server, and of the other one where the baseline may be asked too."""
    return 3 if any(route.hedge_s is not None for route in config.routes) else 2


def needed(config: Config) -> int:
    """File descriptors of a process that serves as much as it may."""
    return sockets_of_a_request(config) * config.admission.max_concurrent + _beside(config)


def allow_descriptors(config: Config) -> None:
    """Raises this process's limit to what is needed, and says what to do where that is forbidden.

    A process that is out of descriptors cannot tell a server that is down from its own trouble.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = needed(config)
    if _suffices(soft, wanted):
        return
    given = wanted if _suffices(hard, wanted) else hard
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (given, hard))
    except (ValueError, OSError):
        given = soft  # the system has a bound of its own
    if given < wanted:
        fits = max((given - _beside(config)) // sockets_of_a_request(config), 1)
        _log.warning(
            "too few file descriptors for what admission lets in",
            extra={
                "limit": given,
                "needed": wanted,
                "remedy": (
                    f"raise the hard limit (ulimit -Hn; LimitNOFILE of systemd; --ulimit nofile of "
                    f"docker) to {wanted}, or set admission.max_concurrent to {fits}"
                ),
            },
        )


def _beside(config: Config) -> int:
    return config.admission.max_waiting + PLACES + _OTHERS


def _suffices(limit: int, wanted: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= wanted
