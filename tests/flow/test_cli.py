"""The command line, as a user meets it: what is printed, and how it exits."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from router import __version__
from router.cli.admin import fetch_state
from router.cli.main import main
from router.errors import ConfigError
from tests.flow.conftest import Start
from tests.support import flow_wire as wire
from tests.support.flow_backend import Gate, ScriptedBackend, close, send, until_gone, wait
from tests.support.flow_client import ask, raw_client, request_bytes
from tests.support.flow_process import command, outcome, serving, write
from tests.support.flow_world import config_of, pool


def run(
    *arguments: str | Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Runs a command in this process: its exit code, and both outputs."""
    monkeypatch.setattr(sys, "argv", ["specroute", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    code = caught.value.code
    output = capsys.readouterr()
    return int(code or 0), output.out, output.err


def test_names_are_shown_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Brackets and colons in a model's name are neither markup nor an error."""
    file = tmp_path / "specroute.yaml"
    file.write_text(GOOD.replace("model: tiny", 'model: "[/x]:smile:[awq]"'))
    code, out, _ = run("check", file, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, out.splitlines()[0]) == (0, "[/x]:smile:[awq]: policy net_gain, baseline fast")


GOOD = """
routes:
  - model: tiny
    baseline: fast
    pools:
      - name: fast
        method: ngram
        engine: vllm
        replicas: [{url: "http://10.0.0.1:8000"}]
store: {url: "memory:"}
"""

SECOND = """      - name: plain
        method: none
        replicas: [{url: "http://10.0.0.2:8000"}]
"""

BAD = {
    "not there": (None, "no such file"),
    "no YAML": ("routes: [", "not valid YAML"),
    "no mapping": ("[]", "must be a mapping"),
    "nothing in it": ("{}", "routes: is required and missing"),
    "unknown key": (
        GOOD.replace("baseline", "basline"),
        "routes[0].basline: unknown key; did you mean `baseline`?",
    ),
    "wrong value": (
        GOOD.replace("vllm", "vlllm"),
        "routes[0].pools[0].engine: ",
    ),
    "no URL": (GOOD.replace("http://", "htp://"), "routes[0].pools[0].replicas[0].url: must begin"),
    "variable": (GOOD.replace("10.0.0.1", "${NOT_SET_ANYWHERE}"), "NOT_SET_ANYWHERE is not set"),
    "baseline": (
        GOOD.replace("baseline: fast", "baseline: plain"),
        "routes[0].baseline: must name one of",
    ),
}


def test_check_of_a_good_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A good file: what it means, a note on what may surprise, exit code 0."""
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    code, out, err = run("check", file, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (0, "")
    assert "fast: ngram on vllm, http://10.0.0.1:8000" in out
    assert "note: the baseline speculates (ngram)" in out.replace("\n", " ")
    assert "ok" in out.splitlines()[-1]
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("method", "note"),
    [("ngramm", "no known method is called ngramm; is it ngram?"), ("my_own", None)],
)
def test_check_of_an_unknown_method(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    method: str,
    note: str | None,
) -> None:
    """A name of one's own is good; one that looks like a slip is told of."""
    file = tmp_path / "good.yaml"
    file.write_text(GOOD.replace("ngram", method))
    code, out, _ = run("check", file, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0
    assert ("no known method" in out) is (note is not None)
    assert note is None or note in out


@pytest.mark.parametrize(
    ("limits", "notes"),
    [
        ("{}", []),
        ("{total_s: 60, first_content_s: 30}", []),
        ("{total_s: 60, header_s: 90}", ["header_s (90 s) can never matter: total_s is 60 s"]),
        ("{total_s: 60, idle_s: 60}", ["idle_s (60 s) can never matter"]),
        ("{total_s: 9, first_content_s: 10}", ["first_content_s (10 s) can never matter"]),
        ("{total_s: 3600}", ["total_s (3600 s) matters for streams only", "which is 600 s"]),
        ("{first_content_s: 900}", ["first_content_s (900 s) matters only where the head"]),
    ],
)
def test_check_of_limits_that_leave_nothing_to_others(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    limits: str,
    notes: list[str],
) -> None:
    """Each is good by itself, so it is a note."""
    file = tmp_path / "good.yaml"
    file.write_text(GOOD.replace("engine: vllm", f"engine: vllm\n        timeouts: {limits}"))
    code, out, err = run("check", file, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (0, "")
    said = " ".join(out.split())
    assert [note for note in notes if note not in said] == []
    assert ("matter" in said) is bool(notes)


@pytest.mark.parametrize("name", BAD)
def test_check_of_a_bad_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    """A bad file: the path of the key and the remedy, no traceback, exit code 2."""
    text, words = BAD[name]
    file = tmp_path / "bad.yaml"
    if text is not None:
        file.write_text(text)
    code, out, err = run("check", file, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("policy", "key", "words"),
    [
        ("{name: thomson}", "name", "thompson"),
        ("{name: thompson, parameters: {flor: 0.1}}", "parameters.flor", "floor"),
        ("{name: thompson, parameters: {floor: 2}}", "parameters.floor", "within 0..1"),
        ("{name: ucb, parameters: {floor: 0.9}}", "parameters.floor", "within 0..0.5"),
        ("{name: fixed, parameters: {arm: fasst}}", "parameters.arm", "fast"),
        ("{name: rules, parameters: {table: {chat: [x]}}}", "parameters.table", "table.chat"),
    ],
)
def test_check_of_a_bad_policy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    policy: str,
    key: str,
    words: str,
) -> None:
    """A policy's name and parameters are checked too: file, key, and a suggestion."""
    two = GOOD.replace("    pools:", "    pools:\n" + SECOND)
    routes = tmp_path / "bad.yaml"
    routes.write_text(two.replace("    pools:", f"    policy: {policy}\n    pools:"))
    tenants = tmp_path / "worse.yaml"
    tenants.write_text(two + f"tenants: {{known: [{{id: a, policy: {policy}}}]}}\n")
    for file, path in ((routes, "routes[0]"), (tenants, "tenants.known[0]")):
        code, _, err = run("check", file, monkeypatch=monkeypatch, capsys=capsys)
        assert code == 2
        assert err.startswith(f"error: {file}: {path}.policy.{key}: ")
        assert words in err


def test_check_of_rights_to_what_no_route_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A slip there takes away more than was meant, and nothing else would tell."""
    file = tmp_path / "good.yaml"
    file.write_text(
        GOOD
        + "tenants: {known: [{id: a, pools: [fast, fasst], methods: [ngrm]}, {id: b, pool: zzz}]}"
    )
    code, out, _ = run("check", file, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0
    assert [line for line in out.splitlines() if "tenants" in line] == [
        "  note: tenants.known[0].pools: no route has the pool fasst; is it fast?",
        "  note: tenants.known[0].methods: no route has the method ngrm; is it ngram?",
        "  note: tenants.known[1].pool: no route has the pool zzz; there are: fast",
    ]


def test_check_takes_its_file_as_other_commands_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`-c FILE`, or the environment's; a FILE that is typed goes before the environment's."""
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(GOOD)
    for arguments in (("-c", good), ("--config", good)):
        code, out, _ = run("check", *arguments, monkeypatch=monkeypatch, capsys=capsys)
        assert code == 0
        assert "ok" in out.splitlines()[-1]
    code, _, err = run("check", good, "-c", good, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err.startswith("error: name one file")) == (2, True)
    monkeypatch.setenv("SPECROUTE_CONFIG", str(bad))
    assert run("check", good, monkeypatch=monkeypatch, capsys=capsys)[0] == 0
    code, _, err = run("check", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err.startswith(f"error: {bad}: no such file")) == (2, True)


def test_check_of_weights_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line: the file, the key, and what makes weights."""
    file = tmp_path / "bad.yaml"
    file.write_text(GOOD + "classify: {weights: /no/such/weights.npz}\n")
    code, _, err = run("check", file, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert err.startswith(f"error: {file}: classify.weights: /no/such/weights.npz: no such file; ")
    assert "specroute classify train" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("path", "words"),
    [("folder", "it is a folder"), ("file/under/it", "file is no folder")],
)
def test_check_of_a_decision_log_that_cannot_be_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    path: str,
    words: str,
) -> None:
    """Lines that would all be lost are an error before anything starts."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    file = tmp_path / "bad.yaml"
    file.write_text(GOOD + f"\ndecision_log: {{path: {tmp_path / path}}}\n")
    code, _, err = run("check", file, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 2
    assert err.startswith(f"error: {file}: decision_log.path: ")
    assert words in err


def test_usage_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is mistyped on the command line is said in words, with exit code 2."""
    file = tmp_path / "good.yaml"
    file.write_text(GOOD)
    bad_level = ("serve", "-c", file, "--log-level", "loud")
    for arguments in (bad_level, ("serve",), ("no-such-command",), ("check",)):
        code, _, err = run(*arguments, monkeypatch=monkeypatch, capsys=capsys)
        assert code == 2
        assert "Traceback" not in err
        assert err
    code, out, _ = run("version", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, out.split()[0]) == (0, __version__)  # and whether it is compiled


async def test_serve_and_drain(plain: ScriptedBackend, tmp_path: Path) -> None:
    """It prints where it listens; SIGTERM finishes a running stream, then it exits with 0."""
    go_on = Gate()
    first, *rest = wire.llama_events()
    plain.then(
        send(wire.STREAM_HEAD + wire.chunk(first)),
        wait(go_on),
        send(b"".join(wire.chunk(event) for event in rest) + wire.END),
    )
    config = config_of(pool("plain", plain), folder=tmp_path, store={"url": "embedded:"})
    file = write(config, tmp_path / "config.yaml")
    async with serving(file) as proxy, raw_client(proxy.url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await client.head()
        assert await client.piece() == first
        proxy.process.send_signal(signal.SIGTERM)
        await proxy.until(lambda state: state["not_ready"] == "draining")
        go_on.open()
        assert first + await client.rest() == b"".join([first, *rest])
        code, out, err = await outcome(proxy.process)
    assert (code, out) == (0, "")
    assert "Traceback" not in err
    assert '"message":"stopping; running answers are finished first","signal":"SIGTERM"' in err
    assert (tmp_path / "decisions.jsonl").read_text().count('"status":"ok"') == 1


async def test_second_signal_waits_no_longer(plain: ScriptedBackend, tmp_path: Path) -> None:
    """Ctrl-C twice ends running answers at once, each with an error, and still exits with 0."""
    plain.then(send(wire.STREAM_HEAD + wire.chunk(wire.llama_events()[0])), until_gone())
    config = config_of(pool("plain", plain), folder=tmp_path, listen={"drain_s": 300})
    file = write(config, tmp_path / "config.yaml")
    async with serving(file) as proxy, raw_client(proxy.url) as client:
        await client.send(request_bytes(wire.chat(stream=True)))
        await client.head()
        await client.piece()
        proxy.process.send_signal(signal.SIGINT)
        await proxy.until(lambda state: state["not_ready"] == "draining")
        proxy.process.send_signal(signal.SIGINT)
        assert b'"code":"draining"' in await client.rest()
        assert (await outcome(proxy.process))[0] == 0


async def test_busy_port(plain: ScriptedBackend, tmp_path: Path) -> None:
    """A port that is taken: one sentence with the key and the remedy, exit code 2."""
    config = config_of(pool("plain", plain), folder=tmp_path, listen={"port": plain.port})
    file = write(config, tmp_path / "config.yaml")
    code, out, err = await outcome(await command("serve", "-c", file))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith(f"error: listen.port: cannot listen on 127.0.0.1:{plain.port}: ")
    assert err.count("in use") == 1
    assert "Errno" not in err


async def test_status(  # noqa: PLR0917 - fixtures
    start: Start,
    plain: ScriptedBackend,
    fast: ScriptedBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It shows pools, shares and the store of a running proxy; a proxy in the environment is none."""
    plain.always(wire.llama_chat())
    await fast.stop()
    pools = (pool("plain", plain), pool("fast", fast, method="mtp"))
    app = await start(config_of(*pools, folder=tmp_path))
    await ask(app.data_url, request_bytes(wire.chat()))
    await app.flush()
    await app.refresh()
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("COLUMNS", "140")

    def status() -> tuple[int, str, str]:
        arguments = ("status", "--url", app.admin_url)
        return run(*arguments, monkeypatch=monkeypatch, capsys=capsys)

    code, out, err = await asyncio.to_thread(status)
    assert (code, err) == (0, "")
    assert f"specroute {__version__}  {app.data_url}  ready  store memory: up" in out
    assert "tiny  policy fixed  baseline plain  servers up 1/2  down: fast/0" in out
    [row] = [line for line in out.splitlines() if " plain " in line and "baseline" in line[40:]]
    assert "100%" in row


async def test_report(
    start: Start,
    plain: ScriptedBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Markdown or JSON, of a running proxy; what is not known yet is said to be so."""
    plain.always(wire.llama_chat())
    app = await start(config_of(pool("plain", plain), folder=tmp_path))
    await ask(app.data_url, request_bytes(wire.chat()))
    await app.flush()
    await app.refresh()

    def made(*more: str) -> tuple[int, str, str]:
        arguments = ("report", "--url", app.admin_url, *more)
        return run(*arguments, monkeypatch=monkeypatch, capsys=capsys)

    code, out, err = await asyncio.to_thread(made)
    assert (code, err) == (0, "")
    assert out.startswith("# Which distinctions earn their keep")
    assert "## tiny" in out
    code, out, err = await asyncio.to_thread(made, "--json")
    assert (code, err) == (0, "")
    assert [route["model"] for route in json.loads(out)["routes"]] == ["tiny"]


NOWHERE = {
    "nothing there": ("http://127.0.0.1:1", "no proxy answers at http://127.0.0.1:1/api/state"),
    "no URL": ("127.0.0.1:8081", "must begin with http:// or https://"),
    "no port": ("http://127.0.0.1:port", "no proxy answers at"),
    "no host": ("http://[::1", "no proxy answers at"),
}


@pytest.mark.parametrize("name", NOWHERE)
def test_status_against_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Where no proxy answers it says so, with what to look at, and exits with 2."""
    url, words = NOWHERE[name]
    code, out, err = run("status", "--url", url, monkeypatch=monkeypatch, capsys=capsys)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH\r\n", wire.whole(b"<html>"), wire.whole(b"[]"), b""]
)
async def test_status_against_something_else(plain: ScriptedBackend, answer: bytes) -> None:
    """Whatever else listens there is told apart from a proxy."""
    plain.always(lambda _: [send(answer), close()])
    with pytest.raises(ConfigError, match=r"no proxy answers at|is not the admin port"):
        await asyncio.to_thread(fetch_state, plain.url)
