"""The demo's fleet: start, fall-back, failure, and that nothing is left behind."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from router.demo import fleet as module
from router.demo.errors import DemoError, UnsupportedPlatform
from router.demo.fleet import DEFAULT_POOLS, MODEL, Engine, Fleet, PoolSpec
from router.demo.model import DraftFormat
from router.demo.prompts import load_prompts

REPOSITORY = Path(__file__).parents[3]

FAKE_SERVER = """\
    import http.server, os, signal, sys

    arguments = sys.argv[1:]
    value = dict(zip(arguments, arguments[1:]))
    for signal_name in value.get("-md", "").split(".")[1:]:
        os.kill(os.getpid(), getattr(signal, signal_name))
    if "--die" in arguments:
        sys.exit("no model here")
    if "--crash" in arguments:
        os.kill(os.getpid(), signal.SIGILL)
    if "--stubborn" in arguments:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(503 if "--loading" in arguments else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    http.server.HTTPServer((value["--host"], int(value["--port"])), Handler).serve_forever()
"""


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """An engine whose server only answers health checks; drafts in Q4_1 and Q4_K crash it."""
    server = tmp_path / "bin" / "llama-server"
    server.parent.mkdir()
    server.write_text(f"#!{sys.executable} -IS\n" + textwrap.dedent(FAKE_SERVER))
    server.chmod(0o755)
    crashes = {DraftFormat.Q4_1: ".SIGILL", DraftFormat.Q4_K: ".SIGSEGV"}
    return Engine(
        server=server,
        target=tmp_path / "target.gguf",
        draft=lambda draft_format: Path(f"draft-{draft_format}{crashes.get(draft_format, '')}"),
        draft_formats=(DraftFormat.Q4_1, DraftFormat.Q4_K, DraftFormat.F16),
    )


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}


def gone(pid: int) -> bool:
    """Wait until a process of another parent has ended."""
    pause = threading.Event()
    return any(not alive(pid) or pause.wait(0.05) for _ in range(200))


def test_pools_answer_and_are_stopped(engine: Engine, tmp_path: Path) -> None:
    """Inside the context all pools answer on ports of their own; afterwards none is there."""
    said: list[str] = []
    pools = (PoolSpec("plain", "none"), PoolSpec("ngram", "ngram", 10))
    with Fleet(pools=pools, engine=engine, run_folder=tmp_path, progress=said.append) as fleet:
        running = fleet.pools
        assert [pool.name for pool in running] == ["plain", "ngram"]
        assert len({pool.url for pool in running}) == 2
        assert all(alive(pool.pid) for pool in running)
        assert all(pool.draft_format is None for pool in running)
        assert all(pool.log.parent == tmp_path for pool in running)
        assert not any(pool.url.endswith("/v1") for pool in running)
    assert fleet.pools == ()
    assert not any(alive(pool.pid) for pool in running)
    assert "the pool ngram is ready" in said
    fleet.stop()


def test_crash_falls_back_to_the_next_draft(engine: Engine, tmp_path: Path) -> None:
    """A server that dies by SIGILL or SIGSEGV is started anew with the next format."""
    said: list[str] = []
    pools = (PoolSpec("draft", "draft_model", 7, uses_draft=True),)
    with Fleet(pools=pools, engine=engine, run_folder=tmp_path, progress=said.append) as fleet:
        assert fleet.pools[0].draft_format is DraftFormat.F16
    assert "this processor cannot run q4_1 (SIGILL); trying q4_k" in said
    assert "this processor cannot run q4_k (SIGSEGV); trying f16" in said


@pytest.mark.parametrize("uses_draft", [True, False])
def test_crash_without_alternative_is_the_platform(
    engine: Engine, tmp_path: Path, *, uses_draft: bool
) -> None:
    """Where every format, or the target itself, crashes, the processor is unsupported."""
    pools = (PoolSpec("pool", "none", None, ("--crash",), uses_draft=uses_draft),)
    with pytest.raises(UnsupportedPlatform, match=r"on this processor .*SIG"):
        Fleet(pools=pools, engine=engine, run_folder=tmp_path).start()


def test_early_death_shows_the_log(engine: Engine, tmp_path: Path) -> None:
    """A server that ends while starting is reported with its last words; the others go."""
    fleet = Fleet(
        pools=(PoolSpec("good", "none"), PoolSpec("bad", "none", None, ("--die",))),
        engine=engine,
        run_folder=tmp_path,
    )
    with pytest.raises(DemoError, match="the pool bad ended while starting: no model here"):
        fleet.start()
    assert fleet.pools == ()


def test_slow_start_is_given_up(engine: Engine, tmp_path: Path) -> None:
    """A server that keeps loading beyond the limit is reported with its log's place."""
    pools = (PoolSpec("slow", "none", None, ("--loading",)),)
    with pytest.raises(DemoError, match=r"did not answer within .*slow\.log"):
        Fleet(pools=pools, engine=engine, run_folder=tmp_path, start_timeout_s=0.5).start()


def test_busy_port_is_named(engine: Engine, tmp_path: Path) -> None:
    """A fixed port in use is one sentence with its number."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        fleet = Fleet(engine=engine, run_folder=tmp_path, base_port=port)
        with pytest.raises(DemoError, match=f"port {port} .*choose another"):
            fleet.start()


def test_fixed_ports_follow_each_other(engine: Engine, tmp_path: Path) -> None:
    """With a first port given, the pools' ports are known beforehand."""
    port = module._ports(1, 0)[0]
    pools = (PoolSpec("plain", "none"),)
    with Fleet(pools=pools, engine=engine, run_folder=tmp_path, base_port=port) as fleet:
        assert fleet.pools[0].url == f"http://127.0.0.1:{port}"


def test_stubborn_server_is_killed(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that ignores SIGTERM does not outlive stop()."""
    monkeypatch.setattr(module, "_STOP_TIMEOUT_S", 0.2)
    pools = (PoolSpec("stubborn", "none", None, ("--stubborn",)),)
    fleet = Fleet(pools=pools, engine=engine, run_folder=tmp_path)
    with fleet:
        pid = fleet.pools[0].pid
    assert not alive(pid)


def test_default_pools_are_described() -> None:
    """One plain pool, unique names, a draft length wherever a pool speculates."""
    assert len({pool.name for pool in DEFAULT_POOLS}) == len(DEFAULT_POOLS)
    assert [pool.name for pool in DEFAULT_POOLS if pool.method == "none"] == ["plain"]
    for pool in DEFAULT_POOLS:
        assert (pool.num_speculative_tokens is None) == (pool.method == "none")


def test_command_runs_one_thread_on_loopback(engine: Engine) -> None:
    """Servers are reachable from this machine only and do not fight for the cores."""
    command = " ".join(module._command(engine, DEFAULT_POOLS[0], 1234))
    for part in ("--host 127.0.0.1", "--port 1234", "-t 1 -tb 1", "-ngl 0", f"-a {MODEL}"):
        assert part in command


PARENT = """\
    import sys, threading
    from pathlib import Path
    from router.demo.fleet import Engine, Fleet, PoolSpec

    server, folder = map(Path, sys.argv[1:])
    engine = Engine(server=server, target=Path("t"), draft=Path, draft_formats=())
    with Fleet(pools=(PoolSpec("plain", "none"),), engine=engine, run_folder=folder) as fleet:
        print(fleet.pools[0].pid, flush=True)
        threading.Event().wait()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_servers_do_not_outlive_their_parent(
    how: signal.Signals, engine: Engine, tmp_path: Path
) -> None:
    """However the parent ends, by SIGKILL too, its servers end with it."""
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), str(engine.server), str(tmp_path)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.send_signal(how)
        parent.wait()
        assert gone(pid)


@pytest.mark.real_engine
@pytest.mark.timeout(600)
def test_real_fleet_answers() -> None:
    """The default fleet starts from the cache, and each pool completes a prompt."""
    try:
        prepared = module.prepare_engine()
    except DemoError as error:
        pytest.skip(str(error))
    prompt = next(prompt for prompt in load_prompts() if prompt.label == "structured")
    body = json.dumps({**prompt.body, "model": MODEL, "max_tokens": 24})
    with Fleet(engine=prepared) as fleet:
        for pool in fleet.pools:
            connection = http.client.HTTPConnection(pool.url.removeprefix("http://"), timeout=120)
            connection.request(
                "POST", "/v1/chat/completions", body, {"Content-Type": "application/json"}
            )
            answer = json.loads(connection.getresponse().read())
            connection.close()
            assert answer["model"] == MODEL
            assert answer["usage"]["completion_tokens"] == 24
