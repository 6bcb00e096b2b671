"""Options: each declared once, with what it means."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from router.config.base import Model
from router.config.keeping import Store
from router.config.models import Config
from router.config.ports import Admission, Listen
from router.config.routes import Pool
from router.config.servers import Breaker, Discover, DnsDiscovery, Replica
from tests.support.builders import config, pool


def models(of: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A model and all models inside it."""
    yield of
    for field in of.model_fields.values():
        stack = [field.annotation]
        while stack:
            annotation = stack.pop()
            if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                yield from models(annotation)
            stack += getattr(annotation, "__args__", ())


ALL_MODELS = sorted(set(models(Config)), key=lambda model: model.__name__)
ALL_FIELDS = [(model, name) for model in ALL_MODELS for name in model.model_fields]


def test_the_walk_over_the_models_finds_them_all() -> None:
    """Otherwise the tests below would test nothing."""
    assert {"Config", "Listen", "Pool", "Replica", "Timeouts", "Policy"} <= {
        model.__name__ for model in ALL_MODELS
    }


@pytest.mark.parametrize(("model", "name"), ALL_FIELDS)
def test_every_option_says_what_it_means(model: type[BaseModel], name: str) -> None:
    """The reference page and the editors' hints are made of it; durations name their unit."""
    description = model.model_fields[name].description or ""
    assert description.endswith(".")
    if name.endswith("_s"):
        assert "second" in description + (model.__doc__ or "")


@pytest.mark.parametrize("model", ALL_MODELS)
def test_every_model_is_strict_and_immutable(model: type[BaseModel]) -> None:
    """A key nobody knows is an error, and nothing changes behind anybody's back."""
    assert issubclass(model, Model)
    assert (model.model_config["extra"], model.model_config["frozen"]) == ("forbid", True)


def test_all_but_routes_may_be_left_out() -> None:
    """What is needed is what nobody can guess."""
    made = config()
    assert made == Config.model_validate({"routes": made.model_dump()["routes"]})
    assert [name for name, field in Config.model_fields.items() if field.is_required()] == [
        "routes"
    ]


def test_a_configuration_cannot_be_changed() -> None:
    """A new one is loaded instead."""
    made = config()
    with pytest.raises(ValidationError, match="frozen"):
        made.listen.port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (Listen, {"port": 65536}),
        (Listen, {"port": -1}),
        (Listen, {"max_body_bytes": 10}),
        (Store, {"url": "http://x"}),
        (Store, {"prefix": "a b"}),
        (Store, {"prefix": "{a}"}),
        (Store, {"timeout_s": 0}),
        (Replica, {"url": "10.0.0.1:8000"}),
        (Replica, {"url": "http://h/v1"}),
        (Replica, {"url": "http://h/v1/"}),
        (Replica, {"url": "http://"}),
        (Replica, {"url": "http://:8000"}),
        (Replica, {"url": "http://h:99999"}),
        (Replica, {"url": "http://h:0"}),
        (Replica, {"url": "http://user:pw@h"}),
        (Replica, {"url": "http://h?x=1"}),
        (Pool, pool("a|b")),
        (Pool, pool("")),
        (Pool, pool("a", replicas=0)),
        (Pool, pool("a", engine="ollama")),
        (Pool, pool("a", num_speculative_tokens=0)),
        (Pool, pool("a", api_key="")),
        (Pool, pool("a", api_key="key\n")),
        (Pool, pool("a", api_key=" key")),
        (Pool, pool("a", api_key="kéy")),
        (Pool, pool("a", discover={"file": "servers.yaml"})),
        (Pool, pool("a", replicas=0, discover={})),
        (Pool, {**pool("a"), "replicas": [{"url": "http://h:1"}, {"url": "http://h:1/"}]}),
        (Discover, {"file": "f", "dns": {"name": "n", "port": 1}}),
        (Discover, {"file": ""}),
        (DnsDiscovery, {"name": "n"}),
        (DnsDiscovery, {"name": "n", "type": "SRV", "port": 1}),
        (DnsDiscovery, {"name": "n", "port": 1, "scheme": "https"}),
        (Replica, {"url": "http://h:1", "weight": 0}),
        (Breaker, {"open_s": math.nan}),
    ],
)
def test_values_that_cannot_work_are_refused(
    model: type[BaseModel], values: dict[str, Any]
) -> None:
    """At the start, not at the first request."""
    with pytest.raises(ValidationError):
        model.model_validate(values)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("http://h:8000/", "http://h:8000"),
        ("https://h", "https://h"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("http://gateway/team-a/", "http://gateway/team-a"),
    ],
)
def test_a_server_s_url_has_no_slash_at_its_end(given: str, expected: str) -> None:
    """The path of the request is added to it."""
    assert Replica(url=given).url == expected


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("embedded:", "embedded:"),
        ("memory:", "memory:"),
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("redis://user:pw@h:6379/1", "redis://h:6379/1"),
        ("rediss://:p%40w@h/0?password=pw", "rediss://h/0"),
        ("unix:///run/valkey.sock?password=pw", "unix:///run/valkey.sock"),
    ],
)
def test_a_store_is_shown_without_its_password(url: str, shown: str) -> None:
    """Nor in its representation."""
    store = Store(url=url)
    assert store.shown_url == shown
    assert "pw" not in repr(store)
    assert "p%40w" not in repr(store)


def test_servers_are_found_instead_of_listed() -> None:
    """By DNS or in a file; SRV records tell their own ports."""
    for discover in (
        {"file": "servers.yaml"},
        {"dns": {"name": "llm.test", "port": 8000}},
        {"dns": {"name": "_http._tcp.llm.test", "type": "SRV", "scheme": "https"}},
    ):
        made = Pool.model_validate({"name": "a", "method": "none", "discover": discover})
        assert made.replicas == ()


@pytest.mark.parametrize("method", ["none", "ngram", "eagle3", "my-own.2"])
def test_a_method_may_be_one_of_your_own(method: str) -> None:
    """New ones appear faster than releases of this program."""
    assert Pool.model_validate(pool("a", method=method)).method == method


@pytest.mark.parametrize(
    "where",
    [
        lambda endless: config(listen={"drain_s": endless}),
        lambda endless: config(pool("plain", timeouts={"connect_s": endless})),
        lambda endless: config(pool("plain", timeouts={"idle_s": endless})),
    ],
    ids=["drain_s", "connect_s", "idle_s"],
)
def test_no_timer_can_be_set_to_for_ever(where: Callable[[float], Config]) -> None:
    """An endless drain would make the stop fail before the last sums are stored."""
    where(86_400.0)
    with pytest.raises(ValidationError, match="finite"):
        where(math.inf)


def test_the_largest_body_fits_into_the_memory_for_bodies() -> None:
    """Or it could never be read."""
    assert Listen(max_body_bytes=4096, max_buffered_bytes=4096).max_buffered_bytes == 4096
    with pytest.raises(
        ValidationError, match="max_buffered_bytes: must be at least max_body_bytes"
    ):
        Listen(max_body_bytes=4096, max_buffered_bytes=4095)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_concurrent": 0},
        {"max_concurrent_per_tenant": 0},
        {"max_waiting": -1},
        {"max_wait_s": -0.1},
        {"max_wait_s": math.inf},
    ],
)
def test_places_are_bounded(wrong: dict[str, float]) -> None:
    """At least one, and no wait without an end."""
    with pytest.raises(ValidationError):
        Admission.model_validate(wrong)
