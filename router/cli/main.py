"""The command line: what there is, and how errors are shown. Work is done elsewhere."""

from __future__ import annotations

import difflib
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console

from router import __version__
from router.app import Application
from router.cli.admin import ask_reload, fetch_decision, fetch_state
from router.cli.classify import app as classify_app
from router.cli.doctor import doctor
from router.cli.drain import drain_server
from router.cli.explain import explanation
from router.cli.orders import experiment_app, quarantine_app, tenant_app
from router.cli.recommend import recommend_command
from router.cli.replay import replay_command
from router.cli.report import markdown, report
from router.cli.report_html import html
from router.cli.simfleet import simfleet
from router.cli.simulate import DEFAULT_POLICIES, simulate
from router.cli.status import render_state, watch
from router.config.load import load_config
from router.config.routes import KNOWN_METHODS, Pool
from router.errors import ConfigError, StartError
from router.observe.log import configure_logging
from router.processes.reload import ConfigFile, Loaded
from router.processes.single import serve
from router.processes.started import Started
from router.processes.supervisor import supervise
from router.processes.worker import work

app = typer.Typer(
    name="specroute",
    help=(
        "Adaptive routing proxy for LLM serving: sends each request to the pool whose speculative "
        "decoding is measurably faster for it.\n\n"
        "First steps: `specroute demo` shows it on real engines; `specroute check FILE` tells what "
        "is wrong with a configuration, `specroute doctor -c FILE` with the servers behind it; "
        "`specroute serve -c FILE` runs it."
    ),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(classify_app, name="classify")
app.add_typer(tenant_app, name="tenant")
app.add_typer(experiment_app, name="experiment")
app.add_typer(quarantine_app, name="quarantine")
app.command("simfleet")(simfleet)
app.command()(doctor)
app.command("recommend")(recommend_command)
app.command("replay")(replay_command)

_PIPE_WIDTH = 110
"""Width of tables where standard output is no terminal that has one."""

# Names of models may hold brackets and colons, which are no markup and no emoji here.
_out = Console(
    markup=False,
    emoji=False,
    highlight=False,
    width=None if sys.stdout.isatty() else _PIPE_WIDTH,
)
_err = Console(stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False)

CONFIG_EXIT = 2
"""Exit code for a configuration that cannot be used."""


class LogLevel(StrEnum):
    """The least important lines that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


AdminUrl = Annotated[
    str,
    typer.Option("--url", help="Admin port of a running proxy.", envvar="SPECROUTE_ADMIN_URL"),
]


@app.command("serve")
def serve_command(
    config: Annotated[
        Path, typer.Option("-c", "--config", help="Configuration file.", envvar="SPECROUTE_CONFIG")
    ],
    workers: Annotated[
        int | None,
        typer.Option(
            help="Processes that share the port; instead of listen.workers.", min=1, max=64
        ),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option(help="Log lines are JSON on standard error.")
    ] = LogLevel.INFO,
) -> None:
    """Run the proxy until SIGTERM or Ctrl-C; running answers are finished first.

    SIGHUP reads the configuration again.
    """
    configure_logging(log_level)
    file = ConfigFile(config, workers)
    _run(file, file.parse(file.read()), log_level)


def _run(file: ConfigFile, loaded: Loaded, log_level: LogLevel) -> None:
    import uvloop  # noqa: PLC0415 - only needed here, and not there on every platform

    if loaded.config.listen.workers == 1:
        uvloop.run(serve(file, loaded, _announce))
    else:
        uvloop.run(supervise(file, loaded, _announce, log_level=log_level))


def _announce(started: Started) -> None:
    more = f"   workers: {started.workers}" if started.workers > 1 else ""
    _out.print(f"clients  {started.data_url}/v1   models: {', '.join(started.models)}{more}")
    admin = started.admin_url
    _out.print(f"status   {admin}/   or: specroute status --watch --url {admin}")
    sys.stdout.flush()


@app.command("worker", hidden=True)
def worker_command(channel: int, log_level: LogLevel = LogLevel.INFO) -> None:
    """One of several workers; started by `serve`, never by hand."""
    import uvloop  # noqa: PLC0415 - only needed here, and not there on every platform

    configure_logging(log_level, pid=os.getpid())  # to tell the lines of several apart
    uvloop.run(work(channel))


@app.command()
def reload(url: AdminUrl = "http://127.0.0.1:8081") -> None:
    """Have a running proxy read its configuration again; tell whether it could be used."""
    _out.print(f"applied: configuration {ask_reload(url)['hash']}")


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="Configuration file.")],
) -> None:
    """Tell what is wrong with a configuration file; nothing is started."""
    config = load_config(file)
    Application(config)
    for route in config.routes:
        _out.print(f"{route.model}: policy {route.policy.name}, baseline {route.baseline}")
        for pool in route.pools:
            servers = ", ".join(_servers(pool))
            _out.print(f"  {pool.name}: {pool.method} on {pool.engine}, {servers}")
            close = difflib.get_close_matches(pool.method, KNOWN_METHODS, n=1, cutoff=0.8)
            if close and pool.method not in KNOWN_METHODS:
                _out.print(f"  note: no known method is called {pool.method}; is it {close[0]}?")
        methods = {pool.name: pool.method for pool in route.pools}
        if methods[route.baseline] != "none":
            _out.print(
                f"  note: the baseline speculates ({methods[route.baseline]}), so gains are those "
                "over it, not over plain decoding"
            )
    _out.print(f"{file}: ok")


def _servers(pool: Pool) -> list[str]:
    found = pool.discover
    if found is None:
        return [replica.url for replica in pool.replicas]
    if found.dns is not None:
        return [f"those of {found.dns.name} in DNS ({found.dns.type})"]
    return [f"those listed in {found.file}"]


@app.command()
def drain(
    replica: Annotated[str, typer.Argument(help="POOL/N: servers of a pool are counted from 0.")],
    url: AdminUrl = "http://127.0.0.1:8081",
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Give it requests again.")] = False,
    model: Annotated[
        str | None, typer.Option(help="Its route, where pools of several have that name.")
    ] = None,
) -> None:
    """Take one server out: what it works on is finished, and it gets nothing new."""
    _out.print(drain_server(url, replica, undo=undo, model=model))


@app.command()
def status(
    url: AdminUrl = "http://127.0.0.1:8081",
    *,
    watch_: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
) -> None:
    """Show classes and pools of a running proxy: acceptance, latency, share, verdict."""
    if watch_:
        watch(url, _out)
        return
    _out.print(render_state(fetch_state(url)))


@app.command()
def explain(
    request_id: Annotated[
        str, typer.Argument(help="Of a reply's x-specroute-request-id, or of the decision log.")
    ],
    url: AdminUrl = "http://127.0.0.1:8081",
    *,
    json_: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False,
) -> None:
    """Tell why a request went where it went, and what came of it."""
    told = fetch_decision(url, request_id)
    sys.stdout.write((orjson.dumps(told).decode() if json_ else explanation(told)) + "\n")


@app.command("report")
def report_command(
    url: AdminUrl = "http://127.0.0.1:8081",
    *,
    json_: Annotated[bool, typer.Option("--json", help="JSON instead of Markdown.")] = False,
    html_: Annotated[
        bool, typer.Option("--html", help="One HTML file with pictures, to send or print.")
    ] = False,
) -> None:
    """Tell which distinctions between requests earn their keep: classes, segments, copying."""
    if json_ and html_:
        raise ConfigError("--json and --html are two forms; ask for one")
    state = fetch_state(url)
    made = report(state)
    if html_:
        sys.stdout.write(html(state, made))
    else:
        sys.stdout.write(orjson.dumps(made).decode() + "\n" if json_ else markdown(made))


@app.command("simulate")
def simulate_command(
    worlds: Annotated[
        list[str] | None,
        typer.Argument(help="Worlds by name, or files of worlds; all that ship if none."),
    ] = None,
    *,
    policies: Annotated[
        str,
        typer.Option(
            help="Comma-separated; `NAME-` is told no published numbers, `NAME:key=1;other=2` has "
            "parameters of its own."
        ),
    ] = ",".join(DEFAULT_POLICIES),
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each.")] = 3,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Requests of a run; those of the world if left out.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Worlds that run at once; as many as there are cores.")
    ] = None,
    holdout: Annotated[
        float,
        typer.Option(min=0.0, max=0.5, help="Share held out for the baseline, counted apart."),
    ] = 0.01,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for report, pictures and results; what is there is not run again."
        ),
    ] = None,
) -> None:
    """Let policies route simulated fleets, and tell what they gain over plain decoding."""
    text = simulate(
        worlds or [],
        entrants=policies.split(","),
        seeds=seeds,
        requests=requests,
        jobs=jobs,
        holdout=holdout,
        out=out,
    )
    _out.print(text, soft_wrap=True)


@app.command()
def demo(
    duration: Annotated[
        float | None,
        typer.Option(
            help="Seconds of traffic, then end. Without it: four minutes, then stay up.", min=1
        ),
    ] = None,
    directory: Annotated[
        Path, typer.Option(help="Folder for configuration, store and logs.")
    ] = Path(".demo"),
    port: Annotated[int, typer.Option(help="Port for clients.")] = 8080,
    admin_port: Annotated[int, typer.Option(help="Port of the dashboard.")] = 8081,
    engine_port: Annotated[
        int, typer.Option(help="First port of the engines; 0 takes free ones.")
    ] = 9200,
    *,
    simulated: Annotated[
        bool,
        typer.Option(
            "--simulated", help="Simulated engines; taken anyway where the real one cannot run."
        ),
    ] = False,
) -> None:
    """Run the main job on real llama.cpp servers with a real small model, all on this machine."""
    try:
        # These need the extra `demo`.
        from router.demo.errors import DemoError  # noqa: PLC0415
        from router.demo.run import DemoOptions, run_demo  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the demo needs the package {error.name}: pip install 'specroute[demo]'"
        ) from error
    options = DemoOptions(duration, directory, port, admin_port, engine_port, simulated=simulated)
    try:
        run_demo(options, _out)
    except DemoError as error:
        _err.print(f"error: {error}")
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        _out.print("ended; nothing is left running")


def _print_version(asked: bool) -> None:  # noqa: FBT001 - called by typer
    if asked:
        _out.print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass


@app.command()
def version() -> None:
    """Print the version."""
    _out.print(__version__)


def main() -> None:
    """Entry point: errors become one clear message and an exit code."""
    try:
        app()
    except ConfigError as error:
        _err.print(f"error: {error}")
        sys.exit(CONFIG_EXIT)
    except StartError as error:
        _err.print(f"error: {error}")
        sys.exit(1)
