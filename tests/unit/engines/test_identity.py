"""Engines by their pages: recorded ones, those of their source, and hostile ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.engines.identity import (
    Engine,
    EngineIdentity,
    Pages,
    ToldPage,
    further_pages,
    identify,
)
from router.engines.pages import MOST_BYTES
from tests.support.recorded_pages import pages_in
from tests.support.recordings import OWN, shared_folder

SHARED = shared_folder()


def page(value: Any, **more: Any) -> ToldPage:
    """A page of JSON."""
    return ToldPage(200, orjson.dumps(value), **more)


def models(owner: str, name: str = "m", **more: Any) -> ToldPage:
    """A list of one model."""
    return page({"object": "list", "data": [{"id": name, "owned_by": owner, **more}]})


def text(*lines: str) -> ToldPage:
    """A page of metrics."""
    return ToldPage(200, "\n".join(lines).encode() + b"\n")


def recorded(folder: str) -> EngineIdentity:
    """What is made of recorded pages that are in the repository."""
    return identify(pages_in(OWN / folder))


def test_vllm_that_speculates() -> None:
    """Its counters tell that it does, and how long its drafts are; not by which method."""
    found = recorded("vllm-0.32.0/ngram")
    assert (found.label, found.models) == ("vllm 0.32.0", ("smollm2-135m-instruct",))
    assert (found.speculates, found.num_speculative_tokens, found.method) == (True, 5, None)
    assert (found.metrics, found.spec_counters, found.per_request) == (True, True, None)
    assert (found.context_tokens, found.root) == (2048, "models/smollm2-hf")
    assert found.evidence == ("/v1/models: owned_by vllm", "/metrics: vllm:*")


def test_vllm_that_does_not() -> None:
    """It has metrics, and no counters of drafts among them."""
    found = recorded("vllm-0.32.0/none")
    assert (found.engine, found.speculates, found.spec_counters) == (Engine.VLLM, False, False)
    assert found.speculation == "no speculation"


def test_sglang() -> None:
    """Its settings tell everything; of six tokens to verify one is no draft."""
    found = recorded("sglang-0.5.23/ngram")
    assert (found.label, found.speculation) == ("sglang 0.5.23", "NGRAM, k = 5")
    assert (found.methods, found.most_running) == (frozenset(("ngram",)), 4)
    assert (found.per_request, found.context_tokens) == (True, 2048)
    assert recorded("sglang-0.5.23/none").speculation == "no speculation"


def test_llamacpp() -> None:
    """Its slots tell whether it drafts and, once used, how."""
    found = recorded("llamacpp-b10434/ngram-simple")
    assert (found.label, found.speculation) == ("llamacpp b1-7e4c0a9", "ngram-simple")
    assert (found.methods, found.most_running) == (frozenset(("ngram",)), 2)
    assert (found.metrics, found.per_request, found.context_tokens) == (True, True, 2048)
    assert recorded("llamacpp-b10434/none").speculation == "no speculation"


def test_unused_slots_tell_no_method() -> None:
    """Only that they draft."""
    slots = page([{"id": 0, "speculative": True}])
    found = identify({"/v1/models": models("llamacpp"), "/slots": slots})
    assert (found.speculation, found.most_running) == ("speculation", 1)


def test_tensorrt_llm() -> None:
    """By the labels of its configuration metric (read in its source)."""
    metrics = text(
        'trtllm_speculative_config_info{spec_enabled="true",spec_method="Eagle3",'
        'spec_num_tokens="4",spec_draft_model="d"} 1.0',
        'trtllm_spec_decode_num_draft_tokens_total{model_name="m"} 7.0',
    )
    found = identify(
        {
            "/v1/models": models("tensorrt_llm"),
            "/version": page({"version": "1.2.1"}),
            "/prometheus/metrics": metrics,
        }
    )
    assert (found.label, found.speculation) == ("tensorrt_llm 1.2.1", "Eagle3, k = 4")
    assert (found.methods, found.spec_counters) == (frozenset(("eagle3",)), True)
    plain = text('trtllm_speculative_config_info{spec_enabled="false"} 1.0')
    assert identify({"/prometheus/metrics": plain}).speculates is False


def test_lmdeploy() -> None:
    """Its counters stand at 0 without speculation too, so only what was drafted tells."""
    drafts = 'lmdeploy:spec_decode_num_drafts_total{{engine="0"}} {}'
    idle = identify({"/v1/models": models("lmdeploy"), "/metrics": text(drafts.format(0.0))})
    assert (idle.engine, idle.speculates, idle.spec_counters) == (Engine.LMDEPLOY, None, True)
    assert identify({"/metrics": text(drafts.format(3.0))}).speculates is True


def test_servers_without_figures() -> None:
    """TGI, Ollama and LM Studio by pages that only they have."""
    info = {
        "model_id": "o/m",
        "max_concurrent_requests": 128,
        "max_total_tokens": 4096,
        "version": "3.3.7",
    }
    tgi = identify({"/v1/models": models("o/m"), "/info": page(info)})
    assert (tgi.label, tgi.most_running, tgi.context_tokens) == ("tgi 3.3.7", 128, 4096)
    ollama = {"/": ToldPage(200, b"Ollama is running"), "/api/version": page({"version": "0.33.0"})}
    assert identify(ollama).label == "ollama 0.33.0"
    entry = {
        "id": "m",
        "publisher": "p",
        "compatibility_type": "gguf",
        "loaded_context_length": 4096,
    }
    studio = {"/v1/models": models("organization_owner"), "/api/v0/models": page({"data": [entry]})}
    found = identify(studio)
    assert (found.engine, found.context_tokens) == (Engine.LMSTUDIO, 4096)


def test_an_old_vllm_has_no_records_of_requests() -> None:
    """They came with 0.29; one built by hand may be of any age."""
    for version, expected in (("0.28.1", False), ("0.29.0", None), ("0.1.dev7+g1", None)):
        pages = {"/v1/models": models("vllm"), "/version": page({"version": version})}
        assert identify(pages).per_request is expected


def test_a_version_alone_names_nobody() -> None:
    """Several engines have such a page."""
    found = identify({"/version": page({"version": "0.32.0"})})
    assert (found.engine, found.version) == (Engine.UNKNOWN, None)


def test_pages_that_contradict_each_other_name_nobody() -> None:
    """What they said is kept for whoever wonders."""
    found = identify({"/v1/models": models("sglang"), "/metrics": text("vllm:x 1")})
    assert found.engine is Engine.UNKNOWN
    assert len(found.evidence) == 2


def test_prefixes_count_only_at_the_head_of_a_sample() -> None:
    """Not in comments, labels or pages of prose."""
    for body in (b"# HELP vllm:x y\n", b'other{a="\nvllm:"} 1\n', b"see vllm: it is fast\n"):
        assert identify({"/metrics": ToldPage(200, body)}).engine is Engine.UNKNOWN


def test_a_closed_page_tells_nothing() -> None:
    """Whatever stands in an error's body."""
    closed = ToldPage(401, models("vllm").body)
    assert identify({"/v1/models": closed}) == EngineIdentity()


JUNK: list[Any] = [
    None,
    True,
    -1,
    2**63,
    1e300,
    "x",
    "\x1b[31m",
    "x" * 5000,
    [],
    [None],
    [[]],
    {},
    {"data": 1},
    {"data": [1, None, []]},
]
NAMES = (
    *("data", "id", "owned_by", "meta", "n_ctx_train", "n_ctx", "root", "max_model_len"),
    *("version", "default_generation_settings", "total_slots", "endpoint_metrics", "build_info"),
    *("speculative_algorithm", "model_path", "internal_states", "max_running_requests"),
    *("speculative_num_steps", "speculative_num_draft_tokens", "speculative", "params"),
    *("speculative.types", "model_id", "max_concurrent_requests", "compatibility_type"),
    *("publisher", "loaded_context_length", "context_length"),
)
LEAVES = st.one_of(
    st.sampled_from(JUNK),
    st.sampled_from(("vllm", "sglang", "llamacpp", "tensorrt_llm", "lmdeploy", "NGRAM")),
    st.integers(-5, 10),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=6)
    ),
    max_leaves=12,
)
ASKED = ("/v1/models", "/version", "/props", "/slots", "/server_info", "/info", "/api/v0/models")


@given(st.dictionaries(st.sampled_from(ASKED), VALUES, max_size=len(ASKED)))
def test_json_of_any_shape_is_survived(values: dict[str, Any]) -> None:
    """Whatever is shown of it is short and printable."""
    found = identify({path: ToldPage(200, orjson.dumps(v)) for path, v in values.items()})
    shown = [found.label, found.speculation or "", found.root or "", *found.models]
    assert all(word.isprintable() and len(word) < 300 for word in shown)


BODIES: dict[str, Callable[[], bytes]] = {
    "binary": lambda: bytes(range(256)) * 100,
    "HTML": lambda: b"<!doctype html><title>vllm:</title><p>owned_by vllm",
    "deep": lambda: b"[" * 100_000,
    "huge": lambda: b"{" + b'"a":1,' * 700_000,
    "long line": lambda: b"vllm:" + b"a}" * 2_000_000,
    "cut off": lambda: b'{"data":[{"owned_by":"vllm"',
    "no text": lambda: b"\xff\xfe",
    "empty": lambda: b"",
}


@pytest.mark.parametrize("name", BODIES)
def test_hostile_pages_are_of_an_unknown_engine(name: str) -> None:
    """Nothing is raised, and nothing taken for what it is not."""
    body = BODIES[name]()
    everywhere = dict.fromkeys(
        (*ASKED, "/metrics", "/prometheus/metrics", "/"), ToldPage(200, body)
    )
    assert identify(everywhere) == EngineIdentity()


def test_a_page_that_was_cut_tells_nothing() -> None:
    """What is absent from it may have been in the rest."""
    lines = b"vllm:num_requests_running 0\n" * 200_000
    pages = {"/v1/models": models("vllm"), "/metrics": ToldPage(200, lines[:MOST_BYTES])}
    found = identify(pages)
    assert (found.engine, found.speculates, found.metrics) == (Engine.VLLM, None, None)


def test_redirects_and_errors_are_of_an_unknown_engine() -> None:
    """They are answers, but no pages."""
    for status in (0, 301, 404, 500):
        assert identify({"/v1/models": ToldPage(status, models("vllm").body)}) == EngineIdentity()


def asked_of(server: Pages) -> list[tuple[str, ...]]:
    """What is asked of a server, stage by stage."""
    pages: dict[str, ToldPage] = {}
    stages = []
    while wanted := further_pages(pages):
        stages.append(wanted)
        pages |= {path: server.get(path, ToldPage(404)) for path in wanted}
    return stages


def test_only_pages_that_tell_more_are_asked() -> None:
    """llama.cpp's metrics never, since reading them changes them; SGLang's older name if needed."""
    first = ("/v1/models", "/version")
    assert asked_of({"/v1/models": models("vllm")}) == [first, ("/metrics",)]
    assert asked_of({"/v1/models": models("llamacpp")}) == [first, ("/props", "/slots")]
    sglang = {"/v1/models": models("sglang")}
    assert asked_of(sglang)[1:] == [("/server_info", "/metrics"), ("/get_server_info",)]
    info = page({"speculative_algorithm": None, "model_path": "m"})
    assert asked_of(sglang | {"/server_info": info})[1:] == [("/server_info", "/metrics")]
    assert asked_of({})[-1] == ("/metrics",)


RECORDED = sorted(SHARED.glob("*/*/models.http")) if SHARED else []


@pytest.mark.shared
@pytest.mark.parametrize(
    "path",
    RECORDED
    or [
        pytest.param(None, marks=pytest.mark.skip("no recordings in ../shared or SPECROUTE_SHARED"))
    ],
    ids=lambda path: "/".join(path.parts[-3:-1]) if path else "absent",
)
def test_every_recorded_server_is_known(path: Path) -> None:
    """By its folder's name; and whether it speculates, by its method's."""
    found = identify(pages_in(path.parent))
    engine, version = path.parts[-3].split("-", 1)
    assert found.engine.value == engine
    assert found.version in {version, None, "b1-7e4c0a9"}
    assert found.speculates is (path.parts[-2] != "none")
