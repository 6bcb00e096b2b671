"""Names of models, and their list."""

from __future__ import annotations

import json

import pytest

from router.endpoints.names import ModelNames
from router.endpoints.table import ModelIn
from router.errors import Reason, RequestError
from tests.support.official import anthropic_reading, openai_reading

NAMES = ModelNames({"large": ("big", "default"), "small": ()})
ONE = ModelNames({"only": ("alias",)})
VERSION = (("anthropic-version", "2023-06-01"),)


def test_a_name_or_an_alias_means_its_route() -> None:
    """And nothing else does."""
    assert [NAMES.route(name) for name in ("large", "big", "default", "small")] == [
        "large",
        "large",
        "large",
        "small",
    ]
    with pytest.raises(RequestError) as caught:
        NAMES.route("Large")
    assert caught.value.reason is Reason.UNKNOWN_MODEL
    assert caught.value.message == (
        "The model 'Large' is not served here. Served: 'large', 'big', 'default', 'small'."
    )


def test_without_a_name_the_only_route_is_meant() -> None:
    """Of several nobody could tell; where a request has no place for a name, the first will do."""
    assert ONE.meant("", ModelIn.BODY_IF_ANY) == "only"
    assert ONE.meant("alias", ModelIn.BODY_IF_ANY) == "only"
    assert NAMES.meant("", ModelIn.NOWHERE) == "large"
    assert NAMES.meant("small", ModelIn.BODY) == "small"
    with pytest.raises(RequestError, match="`model` must be given") as caught:
        NAMES.meant("", ModelIn.BODY_IF_ANY)
    assert (caught.value.reason, caught.value.param) == (Reason.INVALID_REQUEST, "model")


def test_an_empty_name_is_no_name_where_one_is_due() -> None:
    """Whoever must name a model and writes "" has named one that nobody serves."""
    for call in (ONE.route, lambda name: ONE.meant(name, ModelIn.BODY)):
        with pytest.raises(RequestError) as caught:
            call("")
        assert caught.value.reason is Reason.UNKNOWN_MODEL


def test_a_name_of_a_megabyte_is_not_repeated_whole() -> None:
    """Nor is a list of a thousand models."""
    many = ModelNames({f"model-{index}": () for index in range(1000)})
    with pytest.raises(RequestError) as caught:
        many.route("x" * 1_000_000)
    assert len(caught.value.body()) < 1000


def test_openai_s_client_reads_the_list() -> None:
    """Aliases too, and one of them alone."""
    listed = openai_reading(200, NAMES.list_body(())).models.list()
    assert [(model.id, model.object) for model in listed] == [
        (name, "model") for name in ("large", "big", "default", "small")
    ]
    one = openai_reading(200, NAMES.one_body("big", ())).models.retrieve("big")
    assert one.id == "big"


def test_anthropic_s_client_reads_the_list() -> None:
    """It is told by its header, and gets its own shape."""
    listed = anthropic_reading(200, NAMES.list_body(VERSION)).models.list()
    assert [model.id for model in listed] == ["large", "big", "default", "small"]
    body = json.loads(NAMES.list_body(VERSION))
    assert (body["first_id"], body["last_id"], body["has_more"]) == ("large", "small", False)
    one = anthropic_reading(200, NAMES.one_body("big", VERSION)).models.retrieve("big")
    assert (one.id, one.type, one.display_name) == ("big", "model", "big")


def test_a_model_that_is_not_served_is_not_found() -> None:
    """By its own path either."""
    with pytest.raises(RequestError) as caught:
        NAMES.one_body("gpt-9", ())
    assert caught.value.http_status == 404
