"""What the demo shows: a live table while traffic flows, verdicts and next steps at its end."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from router.cli.status import class_table
from router.demo.traffic import Traffic

_LEAD = {
    "gain": "saves time",
    "loss": "costs time, hurts the tail, or fails",
    "no difference": "makes no difference",
}


def live(
    state: dict[str, Any],
    traffic: Traffic,
    *,
    elapsed_s: float,
    total_s: float,
    notice: str | None = None,
) -> Group:
    """The screen while traffic flows; a notice stands above everything."""
    head = Text()
    if notice:
        head.append(f" {notice} \n", "black on yellow")
    head.append(f" {elapsed_s:.0f} of {total_s:.0f} s ", "reverse")
    head.append(f"  {traffic.answered} answers through the OpenAI client")
    if traffic.failed:
        head.append(f", {traffic.failed} failed ({traffic.last_error})", "red")
    return Group(head, *(class_table(route, "") for route in state["routes"]), _recent(traffic))


def _recent(traffic: Traffic) -> Text:
    text = Text("last answers\n", "dim")
    for item in reversed(traffic.recent):
        how = f"{item.pieces} events" if item.streamed else "whole"
        text.append(f"  {item.class_id:<11} → {item.pool:<8} {item.seconds:5.1f} s  {how}\n", "dim")
    return text


def findings(state: dict[str, Any]) -> Text:
    """The verdicts in sentences, and what was not settled."""
    text = Text()
    for route in state["routes"]:
        open_questions = []
        for entry in route["classes"]:
            for cell in entry["cells"]:
                if cell["verdict"] in _LEAD:
                    text.append_text(_finding(entry["class"], cell))
                elif cell["verdict"]:
                    open_questions.append(f"{entry['class']} on {cell['pool']}")
        if open_questions:
            text.append(
                f"Not settled yet, which takes more answers: {', '.join(open_questions)}.\n", "dim"
            )
    return text


def _finding(class_id: str, cell: dict[str, Any]) -> Text:
    gain, length = cell["gain"], cell["tokens_per_step"]
    style = {"gain": "green", "loss": "red"}.get(cell["verdict"], "cyan")
    text = Text(f"{class_id} on {cell['pool']} {_LEAD[cell['verdict']]}", style)
    if gain:
        text.append(f": {gain['value']:+.0%} time saved [{gain['low']:+.0%}, {gain['high']:+.0%}]")
    if length is not None:
        text.append(f", {length:.2f} tokens per step")
    if cell["share"] is not None:
        text.append(f", {cell['share']:.0%} of the class's traffic lately")
    text.append(".\n")
    return text


def shown(program: Path) -> str:
    """How to call a program from here: by its path below this folder where it lies there."""
    try:
        return str(program.resolve().relative_to(Path.cwd()))
    except ValueError:
        return program.name


def next_steps(state: dict[str, Any], admin_url: str, config: str) -> RenderableType:
    """How to use what is running, ready to paste."""
    program = shlex.quote(shown(Path(sys.argv[0])))
    base, model = f"{state['data_url']}/v1", state["routes"][0]["model"]
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}'
    lines = [
        f"It is still running. Point any OpenAI client at {base}:",
        "",
        f"  curl -i {base}/chat/completions -H 'Content-Type: application/json' \\",
        f"    -d '{body}'",
        "",
        "  from openai import OpenAI",
        f'  client = OpenAI(base_url="{base}", api_key="any")',
        "  reply = client.chat.completions.create(",
        f'      model="{model}", messages=[{{"role": "user", "content": "Hello"}}])',
        "  print(reply.choices[0].message.content)",
        "",
        f"Status page  {admin_url}/",
        f"Terminal     {program} status --watch --url {admin_url}",
        f"Report       {program} report --url {admin_url}",
        f"A second proxy of your own on the same engines: edit {config}, then",
        f"             {program} check {config} && {program} serve -c {config}",
    ]
    # Wider than the terminal it would be broken inside a command; a panel is only for looks.
    return Panel(Text("\n".join(lines)), title="Next", title_align="left")
