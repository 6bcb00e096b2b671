"""Traces of requests over real sockets: what is in them, what engines are told, where they go."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, format_span_id, format_trace_id

from router.app import Application
from router.clock import Clock
from router.config.keeping import Tracing
from router.config.models import Config
from router.errors import ConfigError
from router.tracing.open import Traces, open_tracing
from router.tracing.parts import traced
from router.tracing.spans import Tracing as Spans
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import ScriptedBackend, close, send, until_gone
from tests.support.flow_client import ask, raw_client, request_bytes
from tests.support.flow_world import always, config_of, only_decision, pool
from tests.support.simfleet_world import until

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
PARENT = f"traceparent: 00-{TRACE_ID}-{CALLER}-01"
SECRET = "what-the-user-wrote"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Where spans of proxies started from now on go."""
    kept = InMemorySpanExporter()

    def opened(_: Tracing, clock: Clock) -> Traces:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(kept))
        spans = Spans(provider)
        return Traces(traced(spans, clock), spans.close)

    monkeypatch.setattr("router.app.open_tracing", opened)
    return kept


@pytest.fixture
def config(plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path) -> Config:
    """Two pools; everything is drawn for `fast`."""
    for backend in (plain, fast):
        backend.always(wire.stream(wire.llama_events(accepted=3)))
    pools = pool("plain", plain), pool("fast", fast, method="draft_model")
    return config_of(*pools, folder=tmp_path, policy=always("fast"))


def chat(*headers: str, stream: bool = True) -> bytes:
    """A request that says something secret."""
    body = wire.chat(stream=stream, messages=[{"role": "user", "content": SECRET}])
    return request_bytes(body, headers=headers)


async def finished(exporter: InMemorySpanExporter) -> tuple[ReadableSpan, ...]:
    """Spans of one request, once all is over: its client has the last byte a little earlier."""
    await until(lambda: any(of.kind is SpanKind.SERVER for of in exporter.get_finished_spans()))
    return exporter.get_finished_spans()


async def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    """The same by name; fails where two have one."""
    spans = await finished(exporter)
    found = {span.name: span for span in spans}
    assert len(found) == len(spans)
    return found


def told(span: ReadableSpan) -> dict[str, Any]:
    """Its attributes."""
    return dict(span.attributes or {})


def child_of(span: ReadableSpan, parent: ReadableSpan) -> bool:
    """Whether one is the other's child, and inside it."""
    assert span.start_time is not None
    assert span.end_time is not None
    assert parent.start_time is not None
    assert parent.end_time is not None
    inside = parent.start_time <= span.start_time <= span.end_time <= parent.end_time
    return span.parent is not None and span.parent.span_id == parent.context.span_id and inside


async def test_a_request_is_one_trace_from_its_caller_to_its_engine(
    start: Start, config: Config, exporter: InMemorySpanExporter, fast: ScriptedBackend
) -> None:
    """Each step is a span inside the one before; the engine's parent is the try."""
    app = await start(config)
    reply = await ask(app.data_url, chat(PARENT))
    assert reply.status == 200
    spans = await by_name(exporter)
    root, model = spans["POST /v1/chat/completions"], spans[f"chat {wire.MODEL}"]
    assert {format_trace_id(span.context.trace_id) for span in spans.values()} == {TRACE_ID}
    assert root.parent is not None
    assert format_span_id(root.parent.span_id) == CALLER
    assert (root.kind, model.kind) == (SpanKind.SERVER, SpanKind.CLIENT)
    for name in ("classify", "choose", model.name):
        assert child_of(spans[name], root), name
    for name in ("connect", "first content", "stream"):
        assert child_of(spans[name], model), name
    assert spans["first content"].end_time == spans["stream"].start_time
    [received] = fast.requests
    expected = f"00-{TRACE_ID}-{format_span_id(model.context.span_id)}-01"
    assert received.header("traceparent") == [expected]


async def test_attributes_say_who_what_and_how_much(
    start: Start, config: Config, exporter: InMemorySpanExporter, fast: ScriptedBackend
) -> None:
    """By the conventions for generative AI; the request id is that of the header and the log."""
    app = await start(config)
    reply = await ask(app.data_url, chat())
    spans = await by_name(exporter)
    root, model = told(spans["POST /v1/chat/completions"]), told(spans[f"chat {wire.MODEL}"])
    line = await only_decision(app)
    request_id = reply.head.one("x-specroute-request-id")
    assert {root["specroute.request_id"], model["specroute.request_id"]} == {request_id}
    assert line["request_id"] == request_id
    assert root["http.response.status_code"] == 200
    assert (root["specroute.pool"], root["specroute.status"]) == ("fast", "ok")
    assert root["specroute.class"] == line["class"] == told(spans["classify"])["specroute.class"]
    assert told(spans["choose"])["specroute.propensity"] == line["propensity"]
    host, port = fast.url.removeprefix("http://").split(":")
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "llamacpp",
        "gen_ai.request.model": wire.MODEL,
        "gen_ai.request.stream": True,
        "gen_ai.usage.output_tokens": line["tokens"],
        "gen_ai.usage.input_tokens": line["prompt_tokens"],
        "gen_ai.response.time_to_first_chunk": line["ttft_s"],
        "server.address": host,
        "server.port": int(port),
        "specroute.accepted_tokens": 3,
    }
    assert {name: model[name] for name in expected} == expected
    shown = repr([(span.name, told(span), span.events) for span in exporter.get_finished_spans()])
    assert SECRET not in shown
    assert "Paris" not in shown


async def test_a_kept_connection_is_not_connected_again(
    start: Start, config: Config, exporter: InMemorySpanExporter
) -> None:
    """Where nothing was dialled there is no such span."""
    app = await start(config)
    await ask(app.data_url, chat())
    await finished(exporter)
    exporter.clear()
    await ask(app.data_url, chat())
    assert "connect" not in await by_name(exporter)


async def test_what_the_caller_does_not_sample_is_passed_on_unsampled(
    start: Start, config: Config, exporter: InMemorySpanExporter, fast: ScriptedBackend
) -> None:
    """The trace goes on to the engine, and nothing is kept of it here."""
    app = await start(config)
    unsampled = f"traceparent: 00-{TRACE_ID}-{CALLER}-00"
    await ask(app.data_url, chat(unsampled, "tracestate: vendor=1"))
    assert exporter.get_finished_spans() == ()
    [received] = fast.requests
    [line] = received.header("traceparent")
    assert line.split("-")[1::2] == [TRACE_ID, "00"]
    assert received.header("tracestate") == ["vendor=1"]


async def test_each_try_is_a_span_and_one_that_failed_says_why(
    start: Start, config: Config, exporter: InMemorySpanExporter, fast: ScriptedBackend
) -> None:
    """Two servers, two spans, each the parent of what its server was asked."""
    fast.then(close())
    app = await start(config)
    reply = await ask(app.data_url, chat())
    assert reply.head.one("x-specroute-pool") == "plain"
    tries = [of for of in await finished(exporter) if of.kind is SpanKind.CLIENT]
    assert [told(of).get("error.type") for of in tries] == ["disconnected", None]
    assert [told(of)["specroute.replica"] for of in tries] == ["fast/0", "plain/0"]
    assert "gen_ai.usage.output_tokens" not in told(tries[0])
    root = await by_root(exporter)
    assert (root["specroute.attempts"], root["specroute.served_by"]) == (2, "plain")


async def test_of_two_tries_at_a_time_the_one_that_answered_has_the_figures(
    start: Start, config: Config, exporter: InMemorySpanExporter, fast: ScriptedBackend
) -> None:
    """A hedge is a try beside the other, and each connects for itself."""
    [route] = config.routes
    hedged = config.model_copy(update={"routes": (route.model_copy(update={"hedge_s": 0.02}),)})
    fast.then(send(b""), until_gone())
    app = await start(hedged)
    reply = await ask(app.data_url, chat())
    assert reply.head.one("x-specroute-pool") == "plain"
    spans = await finished(exporter)
    tries = {told(of)["specroute.replica"]: of for of in spans if of.kind is SpanKind.CLIENT}
    told_tokens = [name for name, of in tries.items() if "gen_ai.usage.output_tokens" in told(of)]
    assert (sorted(tries), told_tokens) == (["fast/0", "plain/0"], ["plain/0"])
    parents = {of.parent.span_id for of in spans if of.name == "connect" and of.parent is not None}
    assert parents == {of.context.span_id for of in tries.values()}


async def by_root(exporter: InMemorySpanExporter) -> dict[str, Any]:
    """Attributes of the one request's span."""
    [root] = [of for of in await finished(exporter) if of.kind is SpanKind.SERVER]
    return told(root)


async def test_a_refused_request_is_traced_without_a_try(
    start: Start, config: Config, exporter: InMemorySpanExporter
) -> None:
    """With the reason that the client is told."""
    app = await start(config)
    body = wire.chat(stream=False, model="nobody")
    reply = await ask(app.data_url, request_bytes(body))
    root = await by_root(exporter)
    assert root["http.response.status_code"] == reply.status == 404
    assert root["error.type"] == reply.head.one("x-specroute-reason")


async def test_a_client_that_leaves_ends_its_trace(
    start: Start, config: Config, exporter: InMemorySpanExporter, fast: ScriptedBackend
) -> None:
    """And the span says so, without being an error of ours."""
    fast.then(send(wire.STREAM_HEAD), until_gone())
    app = await start(config)
    async with raw_client(app.data_url) as client:
        await client.send(chat())
        await until(lambda: bool(fast.requests))
    await fast.requests[0].gone.wait()
    assert (await by_root(exporter))["specroute.status"] == "aborted"


@asynccontextmanager
async def receiver() -> AsyncIterator[tuple[str, list[web.Request], list[Any]]]:
    """A collector: its address, the requests that it got, and the spans in them."""
    asked_for: list[web.Request] = []
    spans: list[Any] = []

    async def traces(request: web.Request) -> web.Response:
        asked_for.append(request)
        message = ExportTraceServiceRequest.FromString(await request.read())
        for resource in message.resource_spans:
            names = {of.key: of.value.string_value for of in resource.resource.attributes}
            for scope in resource.scope_spans:
                spans.extend((names["service.name"], span) for span in scope.spans)
        return web.Response(content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/traces", traces)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"http://127.0.0.1:{port}/v1/traces", asked_for, spans
    finally:
        await runner.cleanup()


async def test_spans_arrive_by_otlp_when_the_proxy_stops_at_the_latest(config: Config) -> None:
    """With the configured name and header lines, all of one trace."""
    async with receiver() as (endpoint, requests, spans):
        tracing = {"endpoint": endpoint, "headers": {"x-key": "k"}, "service_name": "router-1"}
        proxy = Application(config.model_copy(update={"tracing": Tracing.model_validate(tracing)}))
        async with proxy.running():
            await ask(proxy.data_url, chat(PARENT))
    assert {name for name, _ in spans} == {"router-1"}
    assert {span.trace_id.hex() for _, span in spans} == {TRACE_ID}
    assert "chat " + wire.MODEL in {span.name for _, span in spans}
    assert requests[0].headers["x-key"] == "k"


async def test_a_collector_that_is_away_delays_nobody(config: Config) -> None:
    """Requests are served as ever, and the proxy stops."""
    tracing = Tracing(endpoint="http://127.0.0.1:9/v1/traces")
    proxy = Application(config.model_copy(update={"tracing": tracing}))
    async with proxy.running():
        assert (await ask(proxy.data_url, chat())).status == 200


async def test_without_tracing_a_parent_passes_untouched(
    start: Start, config: Config, fast: ScriptedBackend
) -> None:
    """As any other header line does."""
    app = await start(config)
    await ask(app.data_url, chat(PARENT))
    assert fast.requests[0].header("traceparent") == [PARENT.partition(": ")[2]]


def test_without_tracing_nothing_of_it_is_loaded() -> None:
    """Neither the SDK nor what stands in for parts of the walk."""
    code = (
        "import sys, router.app; "
        "print({'opentelemetry.sdk.trace', 'router.tracing.spans'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what installs it."""
    without: Callable[[str], None] = lambda name: monkeypatch.setitem(sys.modules, name, None)  # noqa: E731
    monkeypatch.delitem(sys.modules, "router.tracing.otlp", raising=False)
    without("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    with pytest.raises(ConfigError, match=r"pip install 'specroute\[otel\]'"):
        open_tracing(Tracing(endpoint="http://127.0.0.1:4318/v1/traces"), clock=None)  # type: ignore[arg-type]
