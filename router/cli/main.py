"""The command line: what there is, and how errors are shown. Work is done elsewhere."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import orjson
import typer

from router import __version__
from router.cli.admin import ask_reload, fetch_decision, fetch_state
from router.cli.drain import drain_server
from router.cli.explain import explanation
from router.cli.lazy import LazyGroup
from router.cli.report import markdown, report
from router.cli.report_html import html
from router.cli.status import render_state, watch
from router.cli.terminal import err, out
from router.errors import ConfigError, StartError

app = typer.Typer(
    name="specroute",
    cls=LazyGroup,
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
CONFIG_EXIT = 2
"""Exit code for a configuration that cannot be used."""


AdminUrl = Annotated[
    str,
    typer.Option("--url", help="Admin port of a running proxy.", envvar="SPECROUTE_ADMIN_URL"),
]


@app.command()
def reload(url: AdminUrl = "http://127.0.0.1:8081") -> None:
    """Have a running proxy read its configuration again; tell whether it could be used."""
    out.print(f"applied: configuration {ask_reload(url)['hash']}")


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
    out.print(drain_server(url, replica, undo=undo, model=model))


@app.command()
def status(
    url: AdminUrl = "http://127.0.0.1:8081",
    *,
    watch_: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
) -> None:
    """Show classes and pools of a running proxy: acceptance, latency, share, verdict."""
    if watch_:
        watch(url, out)
        return
    out.print(render_state(fetch_state(url)))


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
        run_demo(options, out)
    except DemoError as error:
        err.print(f"error: {error}")
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        out.print("ended; nothing is left running")


def _version() -> str:
    # A wheel may have machine code of some modules (`make wheel`).
    found = find_spec("router.classify.trained")
    compiled = found is not None and not str(found.origin).endswith(".py")
    return f"{__version__} (compiled)" if compiled else __version__


def _print_version(asked: bool) -> None:  # noqa: FBT001 - called by typer
    if asked:
        out.print(_version())
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
    out.print(_version())


def main() -> None:
    """Entry point: errors become one clear message and an exit code."""
    try:
        app()
    except ConfigError as error:
        err.print(f"error: {error}")
        sys.exit(CONFIG_EXIT)
    except StartError as error:
        err.print(f"error: {error}")
        sys.exit(1)
