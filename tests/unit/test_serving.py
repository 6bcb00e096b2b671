"""What a new configuration takes over from the one before."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from router.admission.admission import Admission
from router.admission.queue import Limits
from router.config.load import parse_config
from router.config.models import Config
from router.errors import ConfigError
from router.estimates.writer import Writer
from router.experiments.service import Trials
from router.fleet.fetch import AiohttpFetch
from router.observe.metrics import Metrics
from router.sentinel.repeats import Sentinel
from router.sentinel.service import Quality
from router.serving import Generation, Ground, ServedRoute
from router.stores.memory import MemoryStore
from router.tenants.keyring import KeyRing
from router.tenants.quotas import Quotas
from tests.support.clock import ManualClock

TEXT = """
store: {url: "memory:"}
routes:
  - model: m
    baseline: a
    pools:
      - {name: a, method: none, replicas: [{url: "http://h:1"}]}
      - {name: b, method: mtp, replicas: [{url: "http://h:2"}]}
  - {model: n, baseline: a, pools: [{name: a, method: none, replicas: [{url: "http://h:3"}]}]}
"""


@pytest.fixture
def ground() -> Ground:
    """A process."""
    clock = ManualClock()
    store = MemoryStore(clock)
    writer = Writer(store, clock, prefix="p", ttl_s=60)
    metrics = Metrics()
    limits = Limits(max_concurrent=1, max_concurrent_per_tenant=1, max_waiting=0, max_wait_s=0.0)
    return Ground(
        clock,
        np.random.default_rng(1),
        store,
        writer,
        metrics,
        AiohttpFetch(),
        Admission(limits, clock, metrics),
        "p",
        KeyRing(),
        Trials(store, "p", writer.slots.wall),
        Quotas(clock),
        Quality(store, "p", writer.slots.wall),
        Sentinel(writer, clock, uniform=lambda: 1.0, counted=metrics.repeated),
    )


def config(change: Callable[[str], str] = str) -> Config:
    """The configuration, changed."""
    return parse_config(change(TEXT), {})


KEPT: dict[str, tuple[Callable[[str], str], set[str]]] = {
    "nothing changed": (str, {"servers", "segments", "reader", "builder", "classifier", "log"}),
    "policy": (
        lambda text: text.replace("model: m\n", "model: m\n    policy: {name: fixed}\n"),
        {"servers", "segments", "reader", "builder", "classifier", "log"},
    ),
    "sentinel": (
        lambda text: text.replace("model: m\n", "model: m\n    sentinel: {share: 0.5}\n"),
        {"servers", "segments", "reader", "builder", "classifier", "log"},
    ),
    "another server": (
        lambda text: text.replace("h:2", "h:4"),
        {"segments", "reader", "builder", "classifier", "log"},
    ),
    "another arm": (
        lambda text: text.replace("mtp", "eagle3"),
        {"segments", "reader", "classifier", "log"},
    ),
    "window": (
        lambda text: text + "estimates: {window_s: 60}",
        {"servers", "segments", "classifier", "log"},
    ),
    "half-life": (
        lambda text: text + "estimates: {half_life_s: 60}",
        {"servers", "segments", "reader", "classifier", "log"},
    ),
    "sessions": (
        lambda text: text + "classify: {sessions: 5}",
        {"servers", "segments", "reader", "builder", "log"},
    ),
    "segments": (
        lambda text: text + "classify: {segments: 5}",
        {"servers", "reader", "builder", "log"},
    ),
    "segment key": (
        lambda text: text + "classify: {segment_key: 0123456789abcdef}",
        {"servers", "reader", "builder", "log"},
    ),
    "decision log": (
        lambda text: text + "decision_log: {path: x}",
        {"servers", "segments", "reader", "builder", "classifier"},
    ),
}


def parts(generation: Generation, model: str) -> dict[str, Any]:
    """All that may be taken over."""
    route: ServedRoute = generation.routes[model]
    return {
        "servers": route.servers,
        "segments": route.segments,
        "reader": route.reader,
        "builder": route.builder,
        "classifier": generation.classifier,
        "log": generation.decision_log,
    }


@pytest.mark.parametrize("name", KEPT)
def test_what_is_taken_over(ground: Ground, name: str) -> None:
    """As far as the configuration of a part is the same, what it knows goes on."""
    change, expected = KEPT[name]
    before = Generation(config(), ground)
    after = Generation(config(change), ground, before)
    old, new = parts(before, "m"), parts(after, "m")
    assert {part for part in old if new[part] is old[part]} == expected
    # Requests go to the servers that are shown, and count where they are shown.
    route = after.routes["m"]
    assert route.parts.relay is route.servers.relay
    assert route.parts.segments is route.segments
    assert route.servers.facts.pools.keys() == {"a", "b"}


def test_other_routes_are_untouched(ground: Ground) -> None:
    """A change of one route's servers leaves the other's alone; a route that is new is new."""
    before = Generation(config(), ground)
    after = Generation(config(lambda text: text.replace("h:2", "h:4")), ground, before)
    assert after.routes["n"].servers is before.routes["n"].servers
    renamed = Generation(config(lambda text: text.replace("model: n", "model: o")), ground, before)
    assert renamed.routes.keys() == {"m", "o"}
    assert renamed.routes["o"].servers is not before.routes["n"].servers


def test_weights_under_the_same_name(ground: Ground, tmp_path: Path) -> None:
    """Weights that were trained anew are loaded anew, even where the configuration is the same."""
    weights = tmp_path / "weights.npz"
    weights.write_bytes(files("router.classify").joinpath("weights.npz").read_bytes())
    made = config(lambda text: text + f"classify: {{weights: {weights}}}")
    before = Generation(made, ground)
    assert Generation(made, ground, before).classifier is before.classifier
    os.utime(weights, (1, 1))
    assert Generation(made, ground, before).classifier is not before.classifier


def test_wrong_policy_names_its_route(ground: Ground) -> None:
    """By its place in the file."""
    wrong = config(lambda text: text.replace("{model: n,", "{model: n, policy: {name: x},"))
    with pytest.raises(ConfigError, match=r"^routes\[1\]\.policy\.name: "):
        Generation(wrong, ground)


def test_tenants_keep_their_names(ground: Ground) -> None:
    """Or each would have its places twice, and be several in the ledger of a month."""
    before = Generation(config(), ground)
    after = Generation(config(lambda text: text.replace("h:2", "h:4")), ground, before)
    headers = (("Authorization", "Bearer k"),)
    assert after.tenants.tenant(headers) == before.tenants.tenant(headers)
