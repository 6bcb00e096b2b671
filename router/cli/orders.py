"""`specroute tenant`, `experiment` and `quarantine`: orders to a proxy over its admin port."""

from __future__ import annotations

import getpass
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import orjson
import typer

from router.cli.admin import order
from router.errors import ConfigError
from router.experiments.bodies import read_members
from router.experiments.model import METRIC_WORDS, NO_CONTROL
from router.experiments.report import gain_text, variant_text

_DEFAULT_URL = "http://127.0.0.1:8081"

tenant_app = typer.Typer(help="Tenants of a running proxy.", no_args_is_help=True)
key_app = typer.Typer(help="API keys of tenants; only hashes are kept.", no_args_is_help=True)
experiment_app = typer.Typer(help="Roll speculation out, and stop it.", no_args_is_help=True)
tenant_app.add_typer(key_app, name="key")
quarantine_app = typer.Typer(
    help="Pools that get no requests of a class because they damage its answers."
)

_Url = Annotated[
    str,
    typer.Option("--url", help="Admin port of a running proxy.", envvar="SPECROUTE_ADMIN_URL"),
]
_Why = Annotated[str, typer.Option(help="Stands in the audit.")]
_Name = Annotated[str, typer.Argument(help="Name of the experiment.")]
_Json = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
_File = Annotated[Path, typer.Argument(help="Plan in YAML or JSON; see docs/experiments.md.")]


def _order(**more: Any) -> dict[str, Any]:
    try:
        who = getpass.getuser()
    except (OSError, KeyError):
        who = "command line"
    return {"who": who, **more}


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _dump(value: object) -> None:
    _say(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


# --- Keys -----------------------------------------------------------------------------------------


@key_app.command("create")
def create_key(
    tenant: Annotated[str, typer.Argument(help="A tenant of tenants.known.")],
    url: _Url = _DEFAULT_URL,
) -> None:
    """Make a key. It is printed this once and kept nowhere."""
    made = order(url, "POST", f"/api/tenants/{quote(tenant, safe='')}/keys", {})
    sys.stderr.write(f"{made['key_id']} of tenant {made['tenant']}; it is shown only now:\n")
    _say(made["key"])


@key_app.command("list")
def list_keys(url: _Url = _DEFAULT_URL, *, json_: _Json = False) -> None:
    """Show all keys by their names."""
    keys = order(url, "GET", "/api/tenants/keys")["keys"]
    if json_:
        _dump(keys)
        return
    for key in keys:
        state = "valid" if key["valid"] else "revoked" if key["revoked"] else "expired"
        ending = key["valid"] and key["expires"] is not None
        _say(f"{key['key_id']}  {key['tenant']}  {state}{', expires soon' if ending else ''}")
    if not keys:
        _say("no keys")


@key_app.command("rotate")
def rotate_key(
    key_id: str,
    url: _Url = _DEFAULT_URL,
    grace: Annotated[
        float, typer.Option(help="Seconds for which the old key still holds.", min=0)
    ] = 86_400.0,
) -> None:
    """Make a key in the place of another one."""
    path = f"/api/tenants/keys/{quote(key_id, safe='')}/rotate"
    made = order(url, "POST", path, {"grace_s": grace})
    sys.stderr.write(f"{made['key_id']} of tenant {made['tenant']}; it is shown only now:\n")
    _say(made["key"])


@key_app.command("revoke")
def revoke_key(key_id: str, url: _Url = _DEFAULT_URL) -> None:
    """Revoke a key; processes know within one refresh of the store."""
    gone = order(url, "POST", f"/api/tenants/keys/{quote(key_id, safe='')}/revoke", {})
    _say(f"{gone['key_id']} of tenant {gone['tenant']} is revoked")


# --- Experiments ----------------------------------------------------------------------------------


def _read(file: Path) -> dict[str, Any]:
    try:
        given = read_members(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: {error}") from error
    if not isinstance(given, dict):
        raise ConfigError(f"{file}: must hold the members of a plan; see docs/experiments.md")
    return given


@experiment_app.command("plan")
def plan_command(
    file: _File,
    url: _Url = _DEFAULT_URL,
    effect: Annotated[
        float, typer.Option(help="Smallest gain that matters, as a share of time.")
    ] = 0.05,
    *,
    json_: _Json = False,
) -> None:
    """Tell what an experiment would need; nothing begins."""
    told = order(url, "POST", "/api/experiments/plan", {"plan": _read(file), "effect": effect})
    if json_:
        _dump(told)
        return
    _say("\n".join(plan_lines(told)))


def plan_lines(told: dict[str, Any]) -> list[str]:
    """A forecast in words."""
    plan, expected = told["plan"], told["forecast"]
    rate = expected["requests_per_hour"]
    noise = f"noise of log {expected['metric']} {expected['sd']:.2f}"
    sides = f"{variant_text(plan['treatment'])} against {variant_text(plan['control'])}"
    lines = [
        f"{plan['name']}: {sides}, by {plan['unit']}",
        f"{noise} ({'assumed' if expected['sd_is_assumed'] else 'measured'}), "
        + ("traffic unknown" if rate is None else f"{rate:.0f} requests an hour")
        + ("" if rate is None else f", of which {expected['measured_share']:.0%} bring it"),
        *_alike(expected),
    ]
    for number, stage in enumerate(expected["stages"]):
        smallest = stage["smallest_effect"]
        shows = NO_CONTROL
        if stage["requests_for_effect"] is not None:
            shows = (
                f"a gain of {expected['effect']:.0%} shows after {stage['requests_for_effect']} "
                f"requests{_in_hours(stage['hours_for_effect'])}"
            )
        lines.append(
            f"stage {number}, {stage['share']:.0%}: {shows}; "
            f"lasts {stage['hours_at_least']:.1f} h at least"
            + ("" if smallest is None else f" and then shows gains from {smallest:.1%} on")
        )
    lines += [
        f"stage 0, {harm['ratio']:g} times the control's {METRIC_WORDS[expected['metric']]}: "
        f"found within {harm['requests']} requests{_in_hours(harm['hours'])}"
        for harm in expected["harm"]
    ]
    lines += [
        f"stage 0, {harm['kind']} higher by {harm['excess']:.0%}: found within "
        f"{harm['requests']} of its requests{_in_hours(harm['hours'])}"
        for harm in expected["excesses"]
    ]
    return lines


def _alike(expected: dict[str, Any]) -> list[str]:
    """How much requests of a unit are worth."""
    if expected.get("design_is_assumed"):
        return ["how alike requests of a unit are is not known: it may take many times as long"]
    if expected.get("design", 1.0) > 1.0:
        return [f"requests of a session are alike: {expected['design']:.1f} are worth one"]
    return []


def _in_hours(hours: float | None) -> str:
    return "" if hours is None else f" ({hours:.1f} h)"


@experiment_app.command("start")
def start_command(file: _File, url: _Url = _DEFAULT_URL) -> None:
    """Let an experiment begin with its first stage."""
    shown = order(url, "POST", "/api/experiments", _order(plan=_read(file)))
    _say(f"{shown['plan']['name']} is running; {shown['share']:.0%} are treated")


@experiment_app.command("status")
def status_command(
    name: Annotated[str | None, typer.Argument(help="One experiment; else all.")] = None,
    url: _Url = _DEFAULT_URL,
    *,
    json_: _Json = False,
) -> None:
    """Show where experiments stand."""
    if name is not None:
        told = order(url, "GET", f"/api/experiments/{quote(name, safe='')}")
    else:
        told = order(url, "GET", "/api/experiments")
    if json_:
        _dump(told)
        return
    if name is None and not told["speculation"]:
        _say("speculation is off: all requests decode plainly")
    for shown in [told] if name is not None else told["experiments"]:
        _say(_line(shown))
        for note in shown.get("notes", ()):
            _say(f"  {note}")
    if name is not None and told["look"] is not None:
        evidence = told["look"]["evidence"]
        _say(f"  gain {gain_text(evidence['gain'], told['plan']['primary'])}")
        _say(f"  this stage: control {evidence['control']}, treatment {evidence['treatment']}")
    elif name is None and not told["experiments"]:
        _say("no experiments")


def _line(shown: dict[str, Any]) -> str:
    standing, plan = shown["standing"], shown["plan"]
    return (
        f"{plan['name']}  {standing['status'].replace('_', ' ')}  stage {standing['stage']} of "
        f"{len(plan['stages']) - 1}  {shown['share']:.0%} treated  {standing['why']}"
    )


def _moved(url: str, name: str, action: str, wanted: dict[str, Any]) -> None:
    path = f"/api/experiments/{quote(name, safe='')}/{action}"
    _say(_line(order(url, "POST", path, wanted)))


@experiment_app.command("ramp")
def ramp_command(
    name: _Name,
    url: _Url = _DEFAULT_URL,
    stage: Annotated[int | None, typer.Option(help="Stage, from 0; else the next.")] = None,
) -> None:
    """Move to another stage without waiting for what this one asks."""
    _moved(url, name, "ramp", _order(stage=stage))


@experiment_app.command("pause")
def pause_command(name: _Name, url: _Url = _DEFAULT_URL, why: _Why = "") -> None:
    """Treat nobody for a while; everybody keeps their side."""
    _moved(url, name, "pause", _order(why=why))


@experiment_app.command("resume")
def resume_command(name: _Name, url: _Url = _DEFAULT_URL) -> None:
    """Go on in the same stage."""
    _moved(url, name, "resume", _order())


@experiment_app.command("stop")
def stop_command(
    name: Annotated[str | None, typer.Argument(help="Name of the experiment.")] = None,
    url: _Url = _DEFAULT_URL,
    why: _Why = "",
    *,
    all_: Annotated[
        bool, typer.Option("--all", help="The kill switch: all requests decode plainly.")
    ] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="With --all: allow speculation again.")
    ] = False,
) -> None:
    """End an experiment, or all speculation at once."""
    if all_ == (name is not None) or (undo and not all_):
        raise ConfigError("name one experiment, or write --all, or --all --undo")
    if name is not None:
        _moved(url, name, "stop", _order(why=why))
        return
    order(url, "POST", "/api/speculation", _order(on=undo, why=why))
    _say("speculation is allowed" if undo else "speculation is off: all requests decode plainly")


@experiment_app.command("report")
def report_command(name: _Name, url: _Url = _DEFAULT_URL, *, json_: _Json = False) -> None:
    """Write a report in Markdown, or JSON, for a decision record."""
    path = f"/api/experiments/{quote(name, safe='')}"
    if json_:
        _dump(order(url, "GET", path))
        return
    sys.stdout.write(order(url, "GET", f"{path}/report"))


@experiment_app.command("holdout")
def holdout_command(
    url: _Url = _DEFAULT_URL,
    month: Annotated[str | None, typer.Option(help="YYYY-MM; else this one, by UTC.")] = None,
    *,
    json_: _Json = False,
) -> None:
    """Tell what all speculation together has saved each tenant, against those held out."""
    wanted = month or datetime.now(UTC).strftime("%Y-%m")
    told = order(url, "GET", f"/api/holdout/{quote(wanted, safe='')}")
    if json_:
        _dump(told)
        return
    for model, tenants in told["models"].items():
        for tenant, of in tenants.items():
            _say(
                f"{model}  {tenant}  {gain_text(of['gain'])}; "
                f"{of['held_out']} held out, {of['others']} not"
            )


# --- Quarantines ----------------------------------------------------------------------------------


@quarantine_app.callback(invoke_without_command=True)
def list_quarantines(
    context: typer.Context, url: _Url = _DEFAULT_URL, *, json_: _Json = False
) -> None:
    """Show what is quarantined, and why."""
    if context.invoked_subcommand is not None:
        return
    told = order(url, "GET", "/api/quarantine")
    if json_:
        _dump(told)
        return
    lines = [
        f"{model}  {_quarantine_line(of)}"
        for model, shown in told["models"].items()
        for of in shown["quarantines"]
    ]
    _say("\n".join(lines) or "nothing is quarantined")


def _quarantine_line(of: dict[str, Any]) -> str:
    until = "until it is lifted"
    if of["state"] == "probation":
        until = "serves again"
    elif of["until"] is not None:
        until = f"until {datetime.fromtimestamp(of['until'], UTC):%Y-%m-%d %H:%M} UTC"
    return f"{of['pool']}  {of['class']}  {of['state']}, {until}  {of['why']}"


@quarantine_app.command("lift")
def lift_command(
    model: Annotated[str, typer.Argument(help="The route.")],
    pool: Annotated[str, typer.Argument(help="The pool.")],
    class_: Annotated[str, typer.Argument(metavar="CLASS", help="The class.")],
    url: _Url = _DEFAULT_URL,
    why: _Why = "",
) -> None:
    """Let a pool serve a class again; what was found before does not count any more."""
    cell = {"model": model, "pool": pool, "class": class_}
    order(url, "POST", "/api/quarantine/lift", _order(**cell, why=why))
    _say(f"{pool} serves {class_} of {model} again")
