"""`specroute doctor` against servers that speak recorded bytes, well and ill."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from router.cli.main import main
from router.clock import SystemClock
from router.config.models import Config
from router.doctor import run as doctor_run
from router.doctor.findings import Finding, Level, Report
from router.doctor.run import Doctor, Options
from router.fleet.fetch import AiohttpFetch
from router.relay.wire.upstream import WireUpstream
from tests.support import flow_wire as wire
from tests.support.flow_backend import ScriptedBackend, close, scripted_backend, send, until_gone
from tests.support.flow_process import write
from tests.support.flow_world import config_of, pool
from tests.support.recorded_pages import PATHS
from tests.support.recordings import OWN
from tests.support.valkey import short_folder, tcp_server

MODEL = "smollm2-135m-instruct"
RECORDED_AT = 1795969683.0
_DATE = re.compile(rb"date: [^\r]+")
NGRAM = {"method": "ngram", "engine": "vllm", "num_speculative_tokens": 5}
PROMPT = b"Count from one"


class ThenClock(SystemClock):
    """Says that it is the moment of the recordings."""

    @staticmethod
    def wall() -> float:
        """Seconds since the epoch."""
        return RECORDED_AT


def plays(backend: ScriptedBackend, server: str, stream: str | None = None) -> None:
    """Has an engine answer as a recorded one did; its stream may be another's."""
    folder = OWN / server
    backend.pages = {
        path: file.read_bytes()
        for name, path in PATHS.items()
        if (file := folder / f"{name}.http").exists()
    }
    backend.always(recorded_stream(stream or server))


def recorded_stream(server: str) -> bytes:
    """A recorded answer, as if all had been recorded in one second."""
    return _DATE.sub(
        b"date: Sun, 29 Nov 2026 16:28:03 GMT",
        (OWN / server / "chat_stream.http").read_bytes(),
    )


@pytest.fixture
def engines(
    plain: ScriptedBackend, fast: ScriptedBackend
) -> tuple[ScriptedBackend, ScriptedBackend]:
    """Two servers of vLLM, without speculation and with n-grams; both in good health."""
    plays(plain, "vllm-0.32.0/none")
    plays(fast, "vllm-0.32.0/ngram")
    plain.pages["/version"] = fast.pages["/version"]
    return plain, fast


def two(plain: ScriptedBackend, fast: ScriptedBackend, folder: Path, **ngram: Any) -> Config:
    """A baseline and a pool of n-grams."""
    return config_of(
        pool("plain", plain, engine="vllm"),
        pool("ngram", fast, **{**NGRAM, **ngram}),
        folder=folder,
        model=MODEL,
    )


async def examined(config: Config, **options: Any) -> Report:
    """A report."""
    fetch, upstream = AiohttpFetch(), WireUpstream()
    try:
        doctor = Doctor(config, Options(**options), ThenClock(), fetch, upstream)
        return await doctor.examine()
    finally:
        await upstream.close()
        await fetch.close()


def lines(findings: Sequence[Finding], level: Level | None = None) -> list[tuple[str, str]]:
    """What was looked at and what was found, of one level."""
    return [(item.check, item.text) for item in findings if level in {None, item.level}]


def wrong(report: Report) -> list[tuple[str, str]]:
    """All problems."""
    return lines(list(report.findings()), Level.PROBLEM)


async def test_all_is_well(
    engines: tuple[ScriptedBackend, ScriptedBackend], tmp_path: Path
) -> None:
    """Engines and versions, the source of acceptance, usage, and what pools have in common."""
    report = await examined(two(*engines, tmp_path))
    [route] = report.routes
    plain, ngram = (pool.replicas[0] for pool in route.pools)
    assert (report.healthy, report.count(Level.WARNING)) == (True, 0)
    assert [item.identity.label for item in (plain, ngram)] == ["vllm 0.32.0"] * 2
    assert (plain.acceptance_source, ngram.acceptance_source) == ("stream", "request")
    assert [check for check, _ in lines(ngram.findings, Level.OK)] == [
        *("reachable", "engine", "model", "request", "usage", "acceptance")
    ]
    assert ("usage", "8 tokens counted by the engine") in lines(ngram.findings)
    assert lines(route.findings) == [
        ("greedy", "ngram/0: the same answer to a greedy request as plain/0")
    ]
    [(check, text)] = lines(route.pools[1].findings)
    assert check == "routing"
    assert text.startswith("requests with min_p, logit_bias go to other pools: vllm refuses")


async def test_the_request_is_the_proxys_own(
    engines: tuple[ScriptedBackend, ScriptedBackend], tmp_path: Path
) -> None:
    """With the pool's key, and asked for usage as the adapter asks; one for each server."""
    await examined(two(*engines, tmp_path, api_key="sk-1"))
    [received] = engines[1].requests
    body = json.loads(received.body)
    assert received.target == "/v1/chat/completions"
    assert received.header("authorization") == ["Bearer sk-1"]
    assert (body["stream_options"], body["temperature"]) == ({"include_usage": True}, 0)


async def test_no_requests(
    engines: tuple[ScriptedBackend, ScriptedBackend], tmp_path: Path
) -> None:
    """Pages are asked for only, and what they cannot tell is left open."""
    report = await examined(two(*engines, tmp_path), requests=False)
    assert [backend.requests for backend in engines] == [[], []]
    ngram = report.routes[0].pools[1].replicas[0]
    assert (report.healthy, ngram.acceptance_source) == (True, None)
    assert lines(ngram.findings, Level.NOTE) == [
        ("acceptance", "only a request could show from where it is known")
    ]


async def test_an_engine_that_is_down(
    engines: tuple[ScriptedBackend, ScriptedBackend], tmp_path: Path
) -> None:
    """It says that nothing listens there, and asks it nothing more."""
    await engines[1].stop()
    report = await examined(two(*engines, tmp_path))
    assert wrong(report) == [("reachable", f"nothing listens on 127.0.0.1:{engines[1].port}")]
    assert len(report.routes[0].pools[1].replicas[0].findings) == 1


async def test_a_wrong_engine(
    engines: tuple[ScriptedBackend, ScriptedBackend], tmp_path: Path
) -> None:
    """A wrong declaration is a problem, with the line to write."""
    report = await examined(two(*engines, tmp_path, engine="llamacpp"))
    found = [item for item in report.findings() if item.level is Level.PROBLEM]
    assert lines(found) == [("declaration", "engine llamacpp is declared, but it is vllm 0.32.0")]
    assert found[0].remedy is not None
    assert "write `engine: vllm` for pool ngram" in found[0].remedy


async def test_a_baseline_that_speculates(
    engines: tuple[ScriptedBackend, ScriptedBackend], tmp_path: Path
) -> None:
    """Gains would be those over another method; the other way round is a problem too."""
    report = await examined(two(engines[1], engines[0], tmp_path))
    assert wrong(report) == [
        ("declaration", "method none is declared, but it speculates (speculation, k = 5)"),
        ("declaration", "method ngram is declared, but it drafts nothing"),
    ]


async def test_a_wrong_draft_length(
    engines: tuple[ScriptedBackend, ScriptedBackend], tmp_path: Path
) -> None:
    """It is a warning: the rate would be computed with a wrong k."""
    report = await examined(two(*engines, tmp_path, num_speculative_tokens=3))
    assert report.healthy
    assert (
        "declaration",
        "num_speculative_tokens 3 is declared, but it drafts up to 5 a step",
    ) in (lines(list(report.findings()), Level.WARNING))


@pytest.mark.parametrize(
    ("keys", "source", "level"),
    [
        ({}, "stream", Level.NOTE),
        # Without k, steps cannot be told from merged ones.
        ({"num_speculative_tokens": None}, "counters", Level.NOTE),
        ({"num_speculative_tokens": None, "balance": {"scrape_s": 0}}, "none", Level.WARNING),
    ],
)
async def test_vllm_without_its_flag(
    engines: tuple[ScriptedBackend, ScriptedBackend],
    tmp_path: Path,
    keys: dict[str, Any],
    source: str,
    level: Level,
) -> None:
    """Steps of the stream are left, else counters where they are read; the flag is named."""
    plays(engines[1], "vllm-0.32.0/ngram", stream="vllm-0.32.0/none")
    report = await examined(two(*engines, tmp_path, **keys))
    replica = report.routes[0].pools[1].replicas[0]
    [found] = [item for item in replica.findings if item.check == "acceptance"]
    assert (replica.acceptance_source, found.level, report.healthy) == (source, level, True)
    assert found.remedy is not None
    assert "--per-request-spec-decode-metrics summary" in found.remedy


async def test_sglang(plain: ScriptedBackend, fast: ScriptedBackend, tmp_path: Path) -> None:
    """It is asked for its record; its metrics are not among these pages, which is a note."""
    plays(plain, "sglang-0.5.23/none")
    plays(fast, "sglang-0.5.23/ngram")
    stream = OWN / "sglang-0.5.23/ngram/chat_stream_spec_details.http"
    fast.always(_DATE.sub(b"date: Sun, 29 Nov 2026 16:28:03 GMT", stream.read_bytes()))
    config = config_of(
        pool("plain", plain, engine="sglang"),
        pool("ngram", fast, engine="sglang", method="ngram", num_speculative_tokens=5),
        folder=tmp_path,
        model=MODEL,
    )
    report = await examined(config)
    ngram = report.routes[0].pools[1].replicas[0]
    assert (wrong(report), ngram.acceptance_source) == ([], "request")
    assert ngram.identity.label == "sglang 0.5.23"
    assert json.loads(fast.requests[0].body)["return_spec_tokens_details"] is True
    [load] = [item for item in ngram.findings if item.check == "load"]
    assert load.remedy == "start the server with --enable-metrics"


async def test_another_model(
    engines: tuple[ScriptedBackend, ScriptedBackend], tmp_path: Path
) -> None:
    """The engine would refuse the name, and the pools of a route differ."""
    page = engines[1].pages["/v1/models"]
    engines[1].pages["/v1/models"] = page.replace(MODEL.encode(), b"another-model-of-21ch")
    report = await examined(two(*engines, tmp_path))
    assert ("model", f"serves another-model-of-21ch, not {MODEL}") in wrong(report)
    assert "models" in {check for check, _ in lines(report.routes[0].findings, Level.WARNING)}


async def test_a_pool_that_answers_otherwise(
    engines: tuple[ScriptedBackend, ScriptedBackend], tmp_path: Path
) -> None:
    """It is told where, as a hint: rounding may do that. Answers are not shown."""
    one, other = (wire.stream(events(*texts), wire.VLLM_STREAM_HEAD) for texts in (ONE, OTHER))
    engines[0].always(one)
    engines[1].always(other)
    report = await examined(two(*engines, tmp_path))
    assert lines(report.routes[0].findings) == [
        (
            "greedy",
            "ngram/0 answers a greedy request otherwise than plain/0, after 8 of 15 characters",
        )
    ]
    assert "one, two" not in json.dumps(report.as_json())


ONE, OTHER = ("one, two, ", "three"), ("one, two;", " three")


def events(*texts: str) -> list[bytes]:
    """A stream of vLLM with usage."""
    return [
        *map(wire.vllm_chunk, texts),
        wire.vllm_chunk("", "stop"),
        wire.vllm_usage_event(),
        wire.DONE,
    ]


async def test_a_key_that_is_missing(
    engines: tuple[ScriptedBackend, ScriptedBackend], tmp_path: Path
) -> None:
    """It says which key to set; a key that clients would send can be lent."""
    closed = (OWN / "vllm-0.32.0/auth/models_no_key.http").read_bytes()
    engines[1].pages["/v1/models"] = closed
    engines[1].always(wire.whole(b'{"error":"Unauthorized"}', "401 Unauthorized"))
    report = await examined(two(*engines, tmp_path))
    [found] = [item for item in report.findings() if item.level is Level.PROBLEM]
    assert (found.check, found.text) == ("request", "it answered 401: Unauthorized")
    assert found.remedy is not None
    assert "set api_key of pool ngram" in found.remedy
    # Its metrics are open, and tell which engine it is.
    assert report.routes[0].pools[1].replicas[0].identity.label == "vllm 0.32.0"
    await examined(two(*engines, tmp_path), api_key="lent")
    assert engines[1].requests[-1].header("authorization") == ["Bearer lent"]


async def test_an_engine_of_another_kind(
    engines: tuple[ScriptedBackend, ScriptedBackend], tmp_path: Path
) -> None:
    """Unknown is a note, and a server that counts no tokens a warning."""
    engines[1].pages = {}
    engines[1].always(wire.stream(wire.vllm_events(usage=False), wire.VLLM_STREAM_HEAD))
    report = await examined(two(*engines, tmp_path, engine="generic"))
    replica = report.routes[0].pools[1].replicas[0]
    assert (report.healthy, replica.acceptance_source) == (True, "none")
    assert [check for check, _ in lines(replica.findings, Level.WARNING)] == ["usage", "acceptance"]


QUOTING = {
    "an error": wire.whole(
        b'{"error":{"message":"bad: Count from one to five"}}', "400 Bad Request"
    ),
    "no stream": wire.whole(b"<html>", headers=("Content-Type: text/html",)),
    "broken off": wire.stream(wire.vllm_events(usage=True)[:3], wire.VLLM_STREAM_HEAD),
    "no HTTP": b"Count from one to five\r\n\r\n",
    "an escape": wire.whole(b'{"error":{"message":"\\u001b[31m"}}', "500 Oh"),
}


@pytest.mark.parametrize("name", QUOTING)
async def test_a_bad_answer(
    engines: tuple[ScriptedBackend, ScriptedBackend], tmp_path: Path, name: str
) -> None:
    """It is a problem of that server, and nothing of the prompt is shown."""
    engines[1].always(lambda _: [send(QUOTING[name]), close()])
    report = await examined(two(*engines, tmp_path))
    [(check, _)] = wrong(report)
    shown = json.dumps(report.as_json())
    assert check == "request"
    assert PROMPT.decode() not in shown
    assert "\\u001b" not in shown


async def test_a_server_that_hangs(
    engines: tuple[ScriptedBackend, ScriptedBackend], tmp_path: Path
) -> None:
    """It costs its limit and nothing more."""
    engines[1].then(until_gone())
    report = await examined(two(*engines, tmp_path), answer_s=0.1)
    assert [check for check, _ in wrong(report)] == ["request"]


async def test_idle_connections_and_clocks(
    engines: tuple[ScriptedBackend, ScriptedBackend],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that closes sooner than we do, and one whose clock is wrong, are told of."""
    monkeypatch.setattr(doctor_run, "_WATCHED_S", 0.05)
    monkeypatch.setattr(ThenClock, "wall", staticmethod(lambda: RECORDED_AT - 100))
    engines[1].hangs = True
    engines[1].health = wire.whole(b"{}")
    report = await examined(two(*engines, tmp_path), slow=True)
    plain, fast = (pool.replicas[0] for pool in report.routes[0].pools)
    told = dict(lines(plain.findings, Level.WARNING))
    assert told["keep-alive"].startswith("it closes idle connections after 0.0 s")
    assert "ahead of this machine's" in told["clock"]
    assert dict(lines(fast.findings, Level.OK))["keep-alive"].startswith(
        "keeps idle connections longer"
    )


async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """What a server without TLS says to a handshake."""
    if await reader.read(100):
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    writer.close()


async def test_tls(engines: tuple[ScriptedBackend, ScriptedBackend], tmp_path: Path) -> None:
    """A certificate that nobody vouches for, and a port without TLS, each with its remedy."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(__file__).parents[1] / "support" / "tls" / "localhost.pem")
    async with (
        scripted_backend(tls=context) as secure,
        await asyncio.start_server(refuses, "127.0.0.1", 0) as plainly,
    ):
        port = plainly.sockets[0].getsockname()[1]
        made = two(engines[0], secure, tmp_path).model_dump(mode="json")
        made["routes"][0]["pools"][0]["replicas"][0]["url"] = f"https://127.0.0.1:{port}"
        report = await examined(Config.model_validate(made))
    (_, without), (_, untrusted) = wrong(report)
    assert f"127.0.0.1:{port} does not speak TLS" in without
    assert "is not believed" in untrusted


async def test_a_name_that_nobody_knows(
    engines: tuple[ScriptedBackend, ScriptedBackend],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says so, rather than that there is no connection."""

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    made = two(*engines, tmp_path).model_dump(mode="json")
    made["routes"][0]["pools"][1]["replicas"][0]["url"] = "http://nowhere.invalid:8000"
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *a, **k: unknown() if host == "nowhere.invalid" else resolve(host, *a, **k),
    )
    report = await examined(Config.model_validate(made))
    assert wrong(report) == [
        ("reachable", "the name nowhere.invalid is not known (Name or service not known)")
    ]


async def test_servers_that_are_found(
    engines: tuple[ScriptedBackend, ScriptedBackend], tmp_path: Path
) -> None:
    """Where a pool names a source of addresses, that is asked; one that is not there is a problem."""
    listed = tmp_path / "servers.yaml"
    made = two(*engines, tmp_path).model_dump(mode="json")
    found = made["routes"][0]["pools"][1]
    found["replicas"], found["discover"] = [], {"file": str(listed)}
    config = Config.model_validate(made)
    [(check, _)] = wrong(await examined(config))
    assert check == "discovery"
    listed.write_text(json.dumps([engines[1].url]))
    report = await examined(config)
    assert (report.healthy, report.routes[0].pools[1].replicas[0].replica_id) == (True, "ngram/0")


async def test_a_store_that_is_down(
    engines: tuple[ScriptedBackend, ScriptedBackend], tmp_path: Path
) -> None:
    """A problem, while the servers are examined all the same; its password is not shown."""
    made = two(*engines, tmp_path).model_dump(mode="json")
    made["store"]["url"] = "redis://:hush@127.0.0.1:1/0"
    report = await examined(Config.model_validate(made))
    [(check, text)] = wrong(report)
    assert check == "store"
    assert text.startswith("does not answer: ")
    assert len(report.routes[0].pools) == 2
    assert "hush" not in json.dumps(report.as_json())


async def test_a_store_that_forgets(
    engines: tuple[ScriptedBackend, ScriptedBackend], tmp_path: Path
) -> None:
    """A server that drops keys when memory is short is a warning."""
    with short_folder() as folder, tcp_server(folder) as server:
        made = two(*engines, tmp_path).model_dump(mode="json")
        made["store"]["url"] = server.url
        config = Config.model_validate(made)
        with server.client() as client:
            client.config_set("maxmemory-policy", "noeviction")
            report = await examined(config, requests=False)
            assert lines(report.store)[0][1].startswith("Valkey ")
            client.config_set("maxmemory-policy", "allkeys-lru")
        report = await examined(config, requests=False)
    assert any(
        text.startswith("maxmemory-policy is allkeys-lru (no memory limit is set yet)")
        for _, text in lines(report.store, Level.WARNING)
    )


# --- The command ---------------------------------------------------------------------------------


async def command(
    *arguments: str | Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Runs it beside the servers of this process: exit code and both outputs."""
    monkeypatch.setattr(sys, "argv", ["specroute", "doctor", *map(str, arguments)])

    def run() -> int:
        try:
            main()
        except SystemExit as ended:
            return int(ended.code or 0)
        return 0

    code = await asyncio.to_thread(run)
    output = capsys.readouterr()
    return code, output.out, output.err


async def test_the_command(
    engines: tuple[ScriptedBackend, ScriptedBackend],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Text or JSON; 0 where nothing is a problem, 1 otherwise."""
    file = write(two(*engines, tmp_path), tmp_path / "config.yaml")
    arguments = ("-c", file, "--timeout", "15")
    code, out, err = await command(*arguments, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (0, "")
    assert "  ngram: ngram, k = 5 on vllm, as declared\n" in out
    assert "vllm 0.32.0, speculation, k = 5 (by /v1/models: owned_by vllm)" in out
    assert "acceptance  from the engine's record of each request" in out
    await engines[1].stop()
    code, out, err = await command(*arguments, "--json", monkeypatch=monkeypatch, capsys=capsys)
    made = json.loads(out)
    assert (code, err, made["healthy"], made["problems"]) == (1, "", False, 1)
    replica = made["routes"][0]["pools"][1]["replicas"][0]
    assert (replica["id"], replica["engine"], replica["acceptance_source"]) == (
        "ngram/0",
        "unknown",
        None,
    )
    assert [item["check"] for item in replica["findings"]] == ["reachable"]


async def test_a_configuration_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and the words of `specroute check`."""
    file = tmp_path / "bad.yaml"
    file.write_text("routes: []")
    code, out, err = await command("-c", file, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, out) == (2, "")
    assert "routes: must hold at least one item" in err
