"""How many sockets a process may open."""

from __future__ import annotations

import resource

import pytest

from router.config.load import parse_config
from router.config.models import Config
from router.processes.descriptors import allow_descriptors, needed

TEXT = """
store: {url: "memory:"}
admission: {max_concurrent: 1000, max_concurrent_per_tenant: 500, max_waiting: 100}
routes: [{model: m, baseline: a, pools: [{name: a, method: none, replicas: [{url: "http://h:1"}]}]}]
"""
NEEDED = 2000 + 100 + 256 + 512
HEDGED = TEXT.replace("model: m", "model: m, hedge_s: 1")
INFINITE = resource.RLIM_INFINITY


def config(text: str = TEXT) -> Config:
    """A thousand requests at a time."""
    return parse_config(text, {})


class System:
    """Limits of a process."""

    def __init__(self, soft: int, hard: int, most: int = 10**9) -> None:
        self.limits, self.most = (soft, hard), most

    def get(self, _: int) -> tuple[int, int]:
        """As they are."""
        return self.limits

    def set(self, _: int, limits: tuple[int, int]) -> None:
        """Within the system's own bound."""
        if limits[0] > self.most:
            raise ValueError("not allowed to raise maximum limit")
        self.limits = limits


def test_what_is_needed() -> None:
    """Two sockets for a request, three where a second server may be asked; some for the rest."""
    assert needed(config()) == NEEDED
    assert needed(config(HEDGED)) == NEEDED + 1000


@pytest.mark.parametrize(
    ("system", "soft", "fits"),
    [
        (System(4096, 4096), 4096, None),
        (System(INFINITE, INFINITE), INFINITE, None),
        (System(1024, 1_048_576), NEEDED, None),
        (System(256, INFINITE), NEEDED, None),
        (System(1024, 2048), 2048, 590),
        (System(256, INFINITE, most=1000), 256, 1),
    ],
)
def test_the_limit_is_raised_as_far_as_it_goes(
    system: System,
    soft: int,
    fits: int | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Never lowered, and the hard one is left alone; where it does not do, it is said what would."""
    monkeypatch.setattr(resource, "getrlimit", system.get)
    monkeypatch.setattr(resource, "setrlimit", system.set)
    hard = system.limits[1]
    allow_descriptors(config())
    assert system.limits == (soft, hard)
    told = [vars(record) for record in caplog.records]
    assert [(line["limit"], line["needed"]) for line in told] == (
        [] if fits is None else [(soft, NEEDED)]
    )
    for line in told:
        assert f"to {NEEDED}, or set admission.max_concurrent to {fits}" in line["remedy"]
