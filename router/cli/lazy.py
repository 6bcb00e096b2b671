"""Commands whose modules are imported when somebody asks for them.

A command needs little of the program, and whoever asks for a status should not wait for all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

ELSEWHERE: Final[Mapping[str, tuple[str, str]]] = {
    "serve": ("serve", "serve_command"),
    "worker": ("serve", "worker_command"),
    "check": ("check", "check"),
    "doctor": ("doctor", "doctor"),
    "classify": ("classify", "app"),
    "tenant": ("orders", "tenant_app"),
    "experiment": ("orders", "experiment_app"),
    "quarantine": ("orders", "quarantine_app"),
    "recommend": ("recommend", "recommend_command"),
    "replay": ("replay", "replay_command"),
    "simulate": ("simulate", "simulate_command"),
    "simfleet": ("simfleet", "simfleet"),
}
"""Module of this package and name in it: a function, or an application with commands of its own."""

HIDDEN: Final = frozenset(("worker",))
"""Started by others, never by hand."""


class LazyGroup(TyperGroup):
    """The commands it was given, and those of `ELSEWHERE`; typer keeps its types to itself."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, as help shows them."""
        return [*ELSEWHERE, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name; its module is imported now."""
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        module, name = ELSEWHERE[cmd_name]
        found = getattr(import_module(f"router.cli.{module}"), name)
        if not isinstance(found, typer.Typer):
            alone = typer.Typer(add_completion=False)
            alone.command(cmd_name, hidden=cmd_name in HIDDEN)(found)
            found = alone
        command = get_command(found)
        command.name = cmd_name
        return command
