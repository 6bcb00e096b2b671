"""The table of paths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.endpoints.table import (
    ANTHROPIC,
    FACTS,
    OPENAI,
    OTHER,
    RESPONSES,
    TABLE,
    MethodNotAllowedError,
    ModelIn,
    ServedBy,
    dialect_of,
    look_up,
    part_of,
)
from router.errors import Reason, RequestError
from router.types import Endpoint


def test_every_endpoint_has_one_row() -> None:
    """The label in metrics and the facts belong together."""
    assert set(FACTS) == set(Endpoint)
    assert len(TABLE) == len({facts.endpoint for facts in TABLE})


def test_no_path_stands_in_two_rows() -> None:
    """Whoever comes first would win silently."""
    paths = [path for facts in TABLE for path in facts.paths]
    assert sorted(paths) == sorted(set(paths))


def test_a_label_is_the_main_path() -> None:
    """Rules and dashboards name it as clients do."""
    for facts in TABLE:
        assert facts.endpoint.value in facts.paths or facts.endpoint is Endpoint.IMAGES


@pytest.mark.parametrize(
    ("method", "path", "endpoint", "served_by"),
    [
        ("POST", "/v1/chat/completions", Endpoint.CHAT, ServedBy.POLICY),
        ("POST", "/v1/completions", Endpoint.COMPLETIONS, ServedBy.POLICY),
        ("POST", "/v1/responses", Endpoint.RESPONSES, ServedBy.POLICY),
        ("POST", "/v1/messages", Endpoint.MESSAGES, ServedBy.POLICY),
        ("POST", "/completion", Endpoint.LLAMA_COMPLETION, ServedBy.POLICY),
        ("POST", "/infill", Endpoint.LLAMA_INFILL, ServedBy.POLICY),
        ("POST", "/v1/messages/count_tokens", Endpoint.COUNT_TOKENS, ServedBy.BALANCER),
        ("GET", "/v1/responses/resp_1", Endpoint.STORED_RESPONSE, ServedBy.BALANCER),
        ("DELETE", "/v1/responses/resp_1", Endpoint.STORED_RESPONSE, ServedBy.BALANCER),
        ("POST", "/v1/responses/resp_1/cancel", Endpoint.STORED_RESPONSE, ServedBy.BALANCER),
        ("GET", "/v1/responses/resp_1/input_items", Endpoint.STORED_RESPONSE, ServedBy.BALANCER),
        ("POST", "/v1/embeddings", Endpoint.EMBEDDINGS, ServedBy.BALANCER),
        ("POST", "/v2/rerank", Endpoint.RERANK, ServedBy.BALANCER),
        ("POST", "/rerank", Endpoint.RERANK, ServedBy.BALANCER),
        ("POST", "/score", Endpoint.SCORE, ServedBy.BALANCER),
        ("POST", "/pooling", Endpoint.POOLING, ServedBy.BALANCER),
        ("POST", "/classify", Endpoint.CLASSIFY, ServedBy.BALANCER),
        ("POST", "/tokenize", Endpoint.TOKENIZE, ServedBy.BALANCER),
        ("POST", "/v1/detokenize", Endpoint.DETOKENIZE, ServedBy.BALANCER),
        ("POST", "/v1/audio/transcriptions", Endpoint.TRANSCRIPTIONS, ServedBy.BALANCER),
        ("POST", "/v1/audio/translations", Endpoint.TRANSLATIONS, ServedBy.BALANCER),
        ("POST", "/v1/audio/speech", Endpoint.SPEECH, ServedBy.BALANCER),
        ("POST", "/v1/images/edits", Endpoint.IMAGES, ServedBy.BALANCER),
        ("POST", "/v1/moderations", Endpoint.MODERATIONS, ServedBy.BALANCER),
        ("GET", "/v1/models", Endpoint.MODELS, ServedBy.HERE),
        ("HEAD", "/v1/models", Endpoint.MODELS, ServedBy.HERE),
        ("GET", "/v1/models/org/model:7b", Endpoint.MODEL, ServedBy.HERE),
        ("GET", "/health", Endpoint.HEALTH, ServedBy.HERE),
        ("GET", "/v1/files", Endpoint.OTHER, ServedBy.BALANCER),
        ("PATCH", "/v1/some/thing/new", Endpoint.OTHER, ServedBy.BALANCER),
        ("POST", "/v1/chat/completions/", Endpoint.OTHER, ServedBy.BALANCER),
        ("GET", "/v1/responses/a/b", Endpoint.OTHER, ServedBy.BALANCER),
        ("POST", "/v1/chat%2Fcompletions", Endpoint.CHAT, ServedBy.POLICY),
    ],
)
def test_what_a_path_is(method: str, path: str, endpoint: Endpoint, served_by: ServedBy) -> None:
    """What generates text goes by the policy, what lies under /v1/ reaches a server in any case."""
    facts = look_up(method, path)
    assert (facts.endpoint, facts.served_by) == (endpoint, served_by)
    assert facts.speculates is (served_by is ServedBy.POLICY)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/v1",
        "/v1/",
        "/v2/models",
        "/metrics",
        "/slots",
        "/sleep",
        "/v1/../metrics",
        "/v1/%2e%2e/metrics",
        "/v1/..%2fmetrics",
        "/v1/x/../../metrics",
        "/v1/./x",
        "/v1//x",
        "/v1/..\\metrics",
        "/v1/models/..",
        "/v1/responses/..",
        "/v1/load_lora_adapter",
        "/v1/load_lora_adapter/",
        "/v1/%6coad_lora_adapter",
        "/v1//load_lora_adapter",
        "/v1/load_lora_adapter#x",
        "/v1/load_lora_adapter%0a",
        "/v1/load_lora_adapter%00",
        "/v1/x#y",
        "*",
        "http://other/v1/models",
    ],
)
def test_what_is_no_business_of_clients_is_unknown(path: str) -> None:
    """Servers have doors for those who run them; no spelling of a path leads there."""
    with pytest.raises(RequestError) as caught:
        look_up("POST", path)
    assert caught.value.reason is Reason.UNKNOWN_PATH


def test_a_quoted_hash_is_a_part_of_a_name() -> None:
    """Only one that stands as it is would be cut off by a server."""
    assert look_up("POST", "/v1/things/c%23").endpoint is Endpoint.OTHER


@given(st.text(max_size=40))
def test_no_path_leaves_the_api(path: str) -> None:
    """Whatever is passed on without being known lies under /v1/ and has no step upwards."""
    try:
        facts = look_up("POST", f"/v1/{path}")
    except RequestError:
        return
    if facts.endpoint is Endpoint.OTHER:
        assert not {"..", ".", ""} & set(path.removesuffix("/").split("/"))


def test_a_path_without_the_method_says_which_it_has() -> None:
    """As the header `Allow` does."""
    with pytest.raises(MethodNotAllowedError) as caught:
        look_up("DELETE", "/v1/models")
    assert caught.value.allowed == "GET, HEAD"
    assert caught.value.http_status == 405
    assert caught.value.message == "DELETE is not allowed on /v1/models; allowed: GET, HEAD."


def test_long_paths_and_methods_are_not_repeated_whole() -> None:
    """Nor is anything that could break a line."""
    for method, path in (
        ("GET", "/" + "x" * 10_000),
        ("X" * 10_000, "/health"),
        ("GET", "/a\r\nb"),
    ):
        with pytest.raises(RequestError) as caught:
            look_up(method, path)
        assert len(caught.value.message) < 400
        assert "\n" not in caught.value.message


def test_the_part_of_a_path() -> None:
    """Decoded, because names of models hold slashes."""
    assert part_of(FACTS[Endpoint.MODEL], "/v1/models/org/m") == "org/m"
    assert part_of(FACTS[Endpoint.STORED_RESPONSE], "/v1/responses/r1/input_items") == "r1"
    assert part_of(FACTS[Endpoint.STORED_RESPONSE], "/v1/responses/r1") == "r1"
    assert part_of(FACTS[Endpoint.CHAT], "/v1/chat/completions") == ""


def test_errors_are_written_in_the_dialect_of_the_path() -> None:
    """Of an unknown path, in the one that the client's headers tell."""
    version = (("Anthropic-Version", "2023-06-01"),)
    assert dialect_of("/v1/chat/completions", version) is OPENAI
    assert dialect_of("/v1/messages/count_tokens", ()) is ANTHROPIC
    assert dialect_of("/v1/responses/x", ()) is RESPONSES
    assert dialect_of("/v1/models", version) is ANTHROPIC
    assert dialect_of("/nowhere", version) is ANTHROPIC
    assert dialect_of("/nowhere", ()) is OTHER


def test_only_what_must_name_a_model_is_refused_without_one() -> None:
    """A tokenizer is asked without a name by many; generation never is, but by llama.cpp's own."""
    required = {facts.endpoint for facts in TABLE if facts.model_in is ModelIn.BODY}
    assert required == {
        Endpoint.CHAT,
        Endpoint.COMPLETIONS,
        Endpoint.RESPONSES,
        Endpoint.MESSAGES,
        Endpoint.COUNT_TOKENS,
        Endpoint.EMBEDDINGS,
    }
