"""Who answers what when something is wrong with a request."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import openai
import pytest

from router.app import Application
from router.observe.log import JsonFormatter
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import Gate, ScriptedBackend, close, send, until_gone, wait
from tests.support.flow_client import ask, get, raw_client, request_bytes
from tests.support.flow_world import config_of, decisions, only_decision, pool

LIMIT = 4096

LLAMA_400 = (
    b'{"error":{"code":400,"message":"request (2631 tokens) exceeds the available context size '
    b'(2048 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":2631,'
    b'"n_ctx":2048}}'
)
VLLM_401 = b'{"error": "Unauthorized"}'
SGLANG_400 = b'{"object":"error","message":"bad","type":"BadRequestError","code":400}'
VLLM_404 = (
    b'{"error":{"message":"The model `x` does not exist.","type":"NotFoundError","param":"model",'
    b'"code":404}}'
)
LLAMA_500 = b'{"error":{"code":500,"message":"[json.exception]","type":"server_error"}}'
LLAMA_503 = b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}'


@pytest.fixture
async def app(start: Start, plain: ScriptedBackend, tmp_path: Path) -> Application:
    plain.always(wire.llama_chat())
    return await start(
        config_of(pool("plain", plain), folder=tmp_path, listen={"max_body_bytes": LIMIT})
    )


@pytest.mark.parametrize(
    ("status", "body", "ended"),
    [
        ("400 Bad Request", LLAMA_400, "rejected"),
        ("400 Bad Request", SGLANG_400, "rejected"),
        ("401 Unauthorized", VLLM_401, "rejected"),
        ("404 Not Found", VLLM_404, "failed"),
        ("422 Unprocessable Entity", b"<html>no JSON \xff</html>", "rejected"),
        ("429 Too Many Requests", b"", "failed"),
        ("500 Internal Server Error", LLAMA_500, "failed"),
        ("503 Service Unavailable", LLAMA_503, "failed"),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
async def test_engine_errors_pass_verbatim(
    app: Application,
    plain: ScriptedBackend,
    status: str,
    body: bytes,
    ended: str,
    *,
    streamed: bool,
) -> None:
    """An engine's error is the client's, status, headers and body, and is not tried again."""
    headers = ("Content-Type: application/json", "Retry-After: 7")
    plain.then(send(wire.whole(body, status, headers)))
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=streamed)))
    assert reply.head.line == f"HTTP/1.1 {status}"
    assert reply.body == body
    assert reply.head.all("retry-after") == ["7"]
    assert reply.head.one("x-specroute-reason") is None
    assert len(plain.requests) == 1
    line = await only_decision(app)
    assert (line["status"], line["http_status"]) == (ended, int(status[:3]))


@pytest.mark.parametrize(
    ("status", "key", "ended"),
    [
        ("401 Unauthorized", "k", "failed"),
        ("401 Unauthorized", None, "rejected"),
        ("403 Forbidden", "k", "failed"),
        ("403 Forbidden", None, "rejected"),
        ("400 Bad Request", "k", "rejected"),
        ("404 Not Found", None, "failed"),
        ("405 Method Not Allowed", None, "failed"),
        ("429 Too Many Requests", None, "failed"),
        ("302 Found", None, "failed"),
    ],
)
async def test_refusals_that_are_the_pools_fault_count_against_it(
    start: Start,
    plain: ScriptedBackend,
    tmp_path: Path,
    *,
    status: str,
    key: str | None,
    ended: str,
) -> None:
    """A pool with a wrong key, path or model must lose its traffic, as one that is down does."""
    app = await start(config_of(pool("plain", plain, api_key=key), folder=tmp_path))
    plain.then(send(wire.whole(LLAMA_400, status)))
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert reply.head.line == f"HTTP/1.1 {status}"
    assert (await only_decision(app))["status"] == ended


async def test_a_switch_of_protocols_never_reaches_a_client(
    app: Application, plain: ScriptedBackend
) -> None:
    """Whoever stands between would take what follows for a tunnel."""
    switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    plain.always(switch)
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert (reply.status, reply.error["code"]) == (502, "upstream_protocol")


ENGINE_ERROR = {
    "error": {
        "message": "EngineCore encountered an issue.",
        "type": "InternalServerError",
        "param": None,
        "code": 500,
    }
}


async def test_error_inside_a_stream_is_the_clients(
    app: Application, plain: ScriptedBackend
) -> None:
    """An error that an engine sends as an event passes once, and the stream counts as failed."""
    events = [wire.llama_events()[0], wire.event(ENGINE_ERROR), wire.DONE]
    plain.then(send(wire.stream(events)))
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert reply.body == b"".join(events)
    assert (await only_decision(app))["status"] == "failed"


@pytest.mark.parametrize(("code", "status"), [(500, "failed"), (400, "rejected"), (429, "failed")])
async def test_error_in_place_of_a_stream_is_answered_with_its_status(
    app: Application, plain: ScriptedBackend, code: int, status: str
) -> None:
    """What an engine says too late to change its own status, the client still gets as an error."""
    error = {"error": {**ENGINE_ERROR["error"], "code": code}}
    for _ in range(2):
        plain.then(send(wire.stream([wire.event(error), wire.DONE])))
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert (reply.status, reply.json) == (code, error)
    assert reply.head.one("content-type") == "application/json"
    assert (reply.head.one("retry-after") is not None) == (code == 429)
    assert (await only_decision(app))["status"] == status


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not valid JSON"),
        (b'{"model":"tiny",', "not valid JSON"),
        (b'{"model":"tiny"} x', "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 2000, "nested too deeply|not valid JSON"),
        (b"[]", "must be a JSON object"),
        (b'"tiny"', "must be a JSON object"),
        (b"null", "must be a JSON object"),
        (b'{"messages":[]}', "`model` must be given"),
        (b'{"model":null}', "`model` must be given"),
        (b'{"model":["tiny"]}', "`model` must be given"),
    ],
)
async def test_bodies_that_cannot_be_routed(
    app: Application, plain: ScriptedBackend, body: bytes, words: str
) -> None:
    """They are refused here, in OpenAI's form, and no engine hears of them."""
    reply = await ask(app.data_url, request_bytes(body))
    assert reply.status == 400
    assert reply.head.one("content-type") == "application/json"
    assert reply.head.one("x-specroute-reason") == "invalid_request"
    assert reply.error["type"] == "invalid_request_error"
    assert any(word in reply.error["message"] for word in words.split("|"))
    assert plain.requests == []
    assert await decisions(app) == []


async def test_what_is_wrong_beside_the_model_is_for_the_engine(
    app: Application, plain: ScriptedBackend
) -> None:
    """Nothing else is judged here: strange values are forwarded as they are."""
    body = b'{"model":"tiny","messages":7,"stream":"yes","n":-1,"stop":{},"stream_options":[]}'
    await ask(app.data_url, request_bytes(body))
    assert plain.requests[0].body == body


async def test_unknown_model(app: Application) -> None:
    """A model of no route: 404 with OpenAI's code and the names that are served."""
    reply = await ask(app.data_url, request_bytes(b'{"model":"gpt-9","messages":[]}'))
    assert reply.status == 404
    assert reply.head.one("x-specroute-reason") == "unknown_model"
    assert reply.error == {
        "message": "The model 'gpt-9' is not served here. Served: 'tiny'.",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    listed = await get(app.data_url, "/v1/models/gpt-9")
    assert (listed.status, listed.error["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize(("size", "status"), [(LIMIT, 200), (LIMIT + 1, 413)])
async def test_size_limit_is_exact(
    app: Application, plain: ScriptedBackend, size: int, status: int, *, chunked: bool
) -> None:
    """A body of the limit passes, one byte more is refused, with a length or in chunks."""
    body = wire.chat()
    body += b" " * (size - len(body))
    request = request_bytes(body)
    if chunked:
        head = (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        request = head + wire.chunk(body[:100]) + wire.chunk(body[100:]) + wire.END
    reply = await ask(app.data_url, request)
    assert reply.status == status
    if status == 200:
        assert plain.requests[0].body == body
    else:
        assert plain.requests == []
        assert reply.head.one("x-specroute-reason") == "body_too_large"
        assert reply.error["type"] == "invalid_request_error"


async def test_too_large_body_is_refused_before_it_is_sent(app: Application) -> None:
    """A length beyond the limit is answered at once, while the client still waits to send."""
    head = request_bytes(b"", headers=("Expect: 100-continue",)).replace(
        b"Content-Length: 0", b"Content-Length: %d" % (LIMIT + 1)
    )
    async with raw_client(app.data_url) as client:
        await client.send(head)
        reply = await client.reply()
    assert reply.status == 413
    assert reply.error["code"] == "body_too_large"


@pytest.mark.parametrize("target", ["/", "/v1", "/v1/", "/v1//chat/completions", "/v2/models"])
async def test_unknown_path(app: Application, target: str) -> None:
    """A path that is not served: 404 in OpenAI's form."""
    reply = await ask(app.data_url, request_bytes(wire.chat(), target))
    assert reply.status == 404
    assert reply.head.one("x-specroute-reason") == "unknown_path"
    assert reply.error["message"] == f"Unknown path: {target}."


async def test_path_without_v1(app: Application) -> None:
    """The commonest mistake, a base URL without `/v1`, is told how to be put right."""
    reply = await ask(app.data_url, request_bytes(wire.chat(), "/chat/completions"))
    assert reply.status == 404
    assert reply.error["message"] == (
        "Unknown path: /chat/completions. Did you mean /v1/chat/completions? Base URLs end in /v1."
    )


async def test_wrong_method(app: Application) -> None:
    """A method that is not served: 405, naming those that are."""
    reply = await get(app.data_url, "/v1/chat/completions")
    assert reply.status == 405
    assert reply.head.one("allow") == "POST"
    assert reply.head.one("x-specroute-reason") == "method_not_allowed"
    assert "allowed: POST" in reply.error["message"]
    assert (
        await ask(app.data_url, request_bytes(b"", "/v1/models", method="DELETE"))
    ).status == 405


async def test_client_that_leaves_while_sending_is_no_error(
    app: Application, plain: ScriptedBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """A body that never comes whole is nobody's failure: no reply, no engine, no error line."""
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat())[:-5])
        client.leave()
    assert (await get(app.data_url, "/health")).status == 200
    assert plain.requests == []
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    assert (
        b'refused_requests_total{reason="internal"}'
        not in (await get(app.admin_url, "/metrics")).body
    )


async def test_refusals_are_counted_by_reason(app: Application) -> None:
    """Every reply of our own shows in the metrics under its reason."""
    await ask(app.data_url, request_bytes(b"{"))
    await ask(app.data_url, request_bytes(b'{"model":"x"}'))
    await get(app.data_url, "/nothing")
    text = (await get(app.admin_url, "/metrics")).body.decode()
    for reason in ("invalid_request", "unknown_model", "unknown_path"):
        assert f'specroute_refused_requests_total{{reason="{reason}"}} 1.0' in text


async def test_official_client_raises_the_right_exceptions(
    app: Application, plain: ScriptedBackend
) -> None:
    """OpenAI's client maps engine errors and ours alike to the classes its users catch."""
    async with openai.AsyncOpenAI(
        base_url=f"{app.data_url}/v1", api_key="sk-x", max_retries=0
    ) as client:

        async def error_of(model: str = "tiny", prompt: str = "") -> openai.APIStatusError:
            with pytest.raises(openai.APIStatusError) as caught:
                await client.chat.completions.create(
                    model=model, messages=[{"role": "user", "content": prompt}]
                )
            return caught.value

        unknown = await error_of(model="gpt-9")
        assert isinstance(unknown, openai.NotFoundError)
        assert (unknown.code, unknown.param) == ("model_not_found", "model")
        large = await error_of(prompt="x" * LIMIT)
        assert (large.status_code, large.code) == (413, "body_too_large")
        plain.then(send(wire.whole(LLAMA_400, "400 Bad Request")))
        context = await error_of()
        assert isinstance(context, openai.BadRequestError)
        assert context.body == json.loads(LLAMA_400)["error"]
        plain.then(send(wire.whole(VLLM_401, "401 Unauthorized")))
        assert isinstance(await error_of(), openai.AuthenticationError)
        plain.then(send(wire.whole(LLAMA_503, "503 Service Unavailable")))
        assert isinstance(await error_of(), openai.InternalServerError)
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("gpt-9")
        with pytest.raises(openai.NotFoundError):
            await client.with_options(base_url=f"{app.data_url}/v9").models.list()


async def test_errors_of_ours_name_the_request(app: Application, plain: ScriptedBackend) -> None:
    """Whoever is refused can quote a request id; where there is a decision it is the same one."""
    refused = await ask(app.data_url, request_bytes(b"{"))
    other = await ask(app.data_url, request_bytes(b"{"))
    ids = [reply.head.one("x-specroute-request-id") for reply in (refused, other)]
    assert all(ids)
    assert ids[0] != ids[1]
    await plain.stop()
    failed = await ask(app.data_url, request_bytes(wire.chat()))
    assert failed.status == 502
    line = await only_decision(app)
    assert failed.head.one("x-specroute-request-id") == line["request_id"]


async def test_errors_name_the_request_in_the_body_where_the_dialect_does(
    app: Application,
) -> None:
    """Anthropic's errors have a place for it."""
    reply = await ask(app.data_url, request_bytes(b"{", "/v1/messages"))
    assert reply.json["request_id"] == reply.head.one("x-specroute-request-id")


async def test_no_server_answers(app: Application, plain: ScriptedBackend) -> None:
    """With every server gone the client gets 502 in OpenAI's form, and readiness says so."""
    await plain.stop()
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert reply.status == 502
    assert reply.head.one("x-specroute-reason") == "upstream_unavailable"
    assert reply.error["type"] == "server_error"
    line = await only_decision(app)
    assert (line["status"], line["http_status"], line["served_by"]) == ("failed", 502, None)
    assert line["error"] == "upstream_unavailable"
    ready = await get(app.data_url, "/ready")
    assert (ready.status, ready.json["status"]) == (503, "not ready")
    assert (await get(app.data_url, "/health")).status == 200


@pytest.mark.parametrize("streamed", [True, False])
async def test_silent_engine(
    start: Start, plain: ScriptedBackend, tmp_path: Path, *, streamed: bool
) -> None:
    """An engine that says nothing within the limit is left; the client gets 504."""
    config = config_of(pool("plain", plain, timeouts={"header_s": 0.1}), folder=tmp_path)
    app = await start(config)
    plain.then(until_gone())
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=streamed)))
    assert reply.status == 504
    assert reply.head.one("x-specroute-reason") == "upstream_timeout"
    assert reply.error["code"] == "upstream_timeout"
    await plain.requests[0].gone.wait()
    assert len(plain.requests) == 1
    line = await only_decision(app)
    assert line["attempts"] == [["plain/0", "timeout"]]


async def test_engine_that_falls_silent_in_mid_stream(
    start: Start, plain: ScriptedBackend, tmp_path: Path
) -> None:
    """A stream that stands still beyond the limit ends with an error, and the engine is left."""
    config = config_of(pool("plain", plain, timeouts={"idle_s": 0.1}), folder=tmp_path)
    app = await start(config)
    first = wire.llama_events()[1]
    plain.then(send(wire.STREAM_HEAD + wire.chunk(first)), until_gone())
    reply = await ask(app.data_url, request_bytes(wire.chat(stream=True)))
    assert reply.body.startswith(first)
    assert b'"code":"upstream_timeout"' in reply.body
    assert reply.body.endswith(wire.DONE)
    await plain.requests[0].gone.wait()
    line = await only_decision(app)
    assert (line["status"], line["error"]) == ("failed", "upstream_timeout")


@pytest.mark.parametrize(
    "answer", [b"not HTTP at all\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]
)
async def test_engine_that_speaks_no_http(
    app: Application, plain: ScriptedBackend, answer: bytes
) -> None:
    """Nonsense instead of HTTP: 502, and nothing of it reaches the client."""
    plain.always(lambda _: [send(answer), close()])
    reply = await ask(app.data_url, request_bytes(wire.chat()))
    assert reply.status == 502
    assert reply.error["code"] == "upstream_protocol"
    assert "not HTTP" not in reply.error["message"]


async def test_flaw_of_ours_does_not_spoil_a_running_answer(
    app: Application, plain: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unforeseen error in mid-stream ends the stream with an error event, never a second head."""
    from router.relay.harvest import StreamHarvest  # noqa: PLC0415 - patched below

    go_on = Gate()
    first, *rest = wire.llama_events()
    plain.then(
        send(wire.STREAM_HEAD + wire.chunk(first)),
        wait(go_on),
        send(b"".join(wire.chunk(event) for event in rest) + wire.END),
    )
    async with raw_client(app.data_url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await client.head()
        assert await client.piece() == first

        def spoiled(*_: object) -> bytes:
            raise LookupError

        monkeypatch.setattr(StreamHarvest, "feed", spoiled)
        go_on.open()
        body = await client.rest()
    assert b"HTTP/1.1" not in body
    assert b'"code":"internal"' in body
    assert body.endswith(wire.DONE)
    assert (await only_decision(app))["status"] == "failed"


SPOILED = {
    "header without colon": b"POST /v1/chat/completions HTTP/1.1\r\nAuthorization CANARY\r\n\r\n",
    "no HTTP": b"POST /v1/chat/completions?CANARY HTTQ/1.1\r\n\r\n",
    "two lengths": request_bytes(b"CANARY", headers=("Content-Length: 3",)),
    "endless target": request_bytes(b"", "/v1/models?" + "CANARY" * 20_000),
    "no gzip": request_bytes(b"CANARY", headers=("Content-Encoding: gzip",)),
    "no chunk": b"POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzCANARY\r\n",
}


@pytest.mark.parametrize("request_data", SPOILED.values(), ids=SPOILED.keys())
async def test_what_is_no_request_is_refused_and_not_logged(
    app: Application, request_data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken HTTP is the client's error: 400, and nothing of it, keys least of all, in the log."""
    caplog.set_level(logging.DEBUG)
    reply = await ask(app.data_url, request_data)
    assert reply.status == 400
    for record in caplog.records:
        assert record.levelname != "ERROR"
        assert "CANARY" not in JsonFormatter().format(record)


async def test_body_that_stops_coming(
    app: Application, plain: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body that stands still, or whose framing breaks in the middle, is given up."""
    monkeypatch.setattr("router.intake.http.STALLED_S", 0.2)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with raw_client(app.data_url) as client:
        await client.send(head + wire.chunk(b'{"model"'))
        reply = await client.reply()
    assert reply.status == 400
    assert "stopped coming" in reply.error["message"]
    assert plain.requests == []


async def test_long_headers_pass(app: Application, plain: ScriptedBackend) -> None:
    """Tokens and cookies of many kilobytes go through in both directions."""
    long = "x" * 40_000
    plain.then(send(wire.whole(b"{}", headers=(f"X-Long: {long}",))))
    reply = await ask(app.data_url, request_bytes(wire.chat(), headers=(f"Cookie: {long}",)))
    assert reply.head.one("x-long") == long
    assert plain.requests[0].header("cookie") == [long]
