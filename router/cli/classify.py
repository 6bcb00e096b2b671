"""`specroute classify`: how requests are told apart, measured and learned; nothing is stored."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from router.classify.application import client_kind, system_head, tool_names
from router.classify.base import CLASSES
from router.classify.configured import configured_classifier
from router.classify.evaluation import (
    Labelled,
    accuracy,
    answers,
    calibration_error,
    macro_f1,
    parsed,
    per_class,
)
from router.classify.segments import Fingerprints
from router.config.classes import Classify
from router.config.load import load_config
from router.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Tell how requests are told apart.")

_PIPE_WIDTH: Final = 110
_SHOWN: Final = 0.005
"""Less likely classes are left out."""
_FEWEST_LANGUAGE: Final = 20
_FEWEST_SOURCES: Final = 3

ConfigFile = Annotated[
    Path | None,
    typer.Option("-c", "--config", help="Configuration whose rules and weights are used."),
]


def _console() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


@app.command()
def explain(
    file: Annotated[
        Path | None, typer.Argument(help="Body of a request as JSON; standard input without it.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", help="What a user says, instead of a body.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", help="Header line, for rules: 'Name: value'."),
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Show the class of one request, and why."""
    settings = _settings(config)
    request = parsed(_body(file, text), _headers(header or []))
    found = configured_classifier(settings).classify(request)
    out = _console()
    out.print(f"class        {found.class_id}  ({found.confidence:.0%} sure)", markup=False)
    out.print(f"reason       {found.reason}", markup=False)
    if found.rule is not None:
        out.print(f"rule         classify.rules[{found.rule - 1}]", markup=False)
    out.print(f"copy ratio   {found.copy_ratio:.2f}   expected share of the answer that repeats")
    out.print(f"length       {found.length_band}")
    names = tool_names(request.fields)
    prompt = "a system prompt" if system_head(request.fields, 1) else "no system prompt"
    marks = f"{prompt}, {len(names)} tools, client {client_kind(request.headers)}"
    key = settings.segment_key
    if not names and prompt == "no system prompt":
        out.print("segment      none: no system prompt and no tools")
    elif key is not None:
        segment = Fingerprints(key.get_secret_value().encode()).of(request)
        out.print(f"segment      {segment or '(pooled)'}   from {marks}", markup=False)
    else:
        out.print(f"segment      hashed with the store's key from {marks}", markup=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("class")
    table.add_column("probability", justify="right")
    for name, p in sorted(found.probabilities.items(), key=lambda item: -item[1]):
        if p >= _SHOWN:
            table.add_row(name, f"{p:.3f}")
    out.print(table)


@app.command("eval")
def evaluate(
    file: Annotated[
        Path,
        typer.Argument(help='JSON lines: {"label": …, "request": {…}}, with "lang" if known.'),
    ],
    weights: Annotated[
        Path | None, typer.Option(help="Weights to measure, whatever the configuration says.")
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Measure the classifier on labelled requests of your own."""
    settings = _settings(config)
    if weights is not None:
        settings = settings.model_copy(update={"weights": str(weights)})
    given = answers(
        configured_classifier(settings),
        (Labelled(line["label"], line["request"], _language(line)) for _, line in _lines(file)),
    )
    if not given:
        raise ConfigError(f"{file}: holds no lines")
    out = _console()
    out.print(
        f"{len(given)} requests   accuracy {accuracy(given):.3f}   "
        f"macro-F1 {macro_f1(given):.3f}   "
        f"expected calibration error {calibration_error(given):.3f}"
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("class", "n", "precision", "recall", "F1"):
        table.add_column(name, justify="left" if name == "class" else "right")
    for name, score in per_class(given).items():
        figures = (score.precision, score.recall, score.f1)
        table.add_row(name, str(score.n), *(f"{figure:.3f}" for figure in figures))
    out.print(table)
    languages = sorted({answer.language for answer in given if answer.language})
    if languages:
        groups = [(name, [a for a in given if a.language == name]) for name in languages]
        out.print(_by_language(groups))


def _by_language(groups: list[tuple[str, list[Any]]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("language", "n", "accuracy", "macro-F1"):
        table.add_column(name, justify="left" if name == "language" else "right")
    for name, given in groups:
        if len(given) >= _FEWEST_LANGUAGE:
            table.add_row(name, str(len(given)), f"{accuracy(given):.3f}", f"{macro_f1(given):.3f}")
        else:
            table.add_row(name, str(len(given)), "too few", "too few")
    return table


@app.command()
def train(
    file: Annotated[
        Path,
        typer.Argument(
            help='JSON lines: {"label": …, "request": {…}}, "source" where lines belong together.'
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Weights, for the option classify.weights.")
    ],
) -> None:
    """Learn from labelled requests of your own; the weights hold no text."""
    from router.classify.train import read, read_written, train  # noqa: PLC0415 - rarely needed

    rows = []
    for number, line in _lines(file):
        if line["label"] not in CLASSES:
            raise ConfigError(
                f"{file}: line {number}: label {line['label']!r} is no built-in class; learned are "
                f"{', '.join(CLASSES)}, and classes of your own come from classify.rules"
            )
        rows.append((line["request"], line["label"], str(line.get("source") or f"line {number}")))
    if len({source for *_, source in rows}) < _FEWEST_SOURCES:
        # Of one source alone nothing could be left out to choose settings by.
        rows = [(body, label, f"line {at}") for at, (body, label, _) in enumerate(rows)]
    if len(rows) < _FEWEST_SOURCES:
        raise ConfigError(f"{file}: {len(rows)} lines are too few to learn from")
    model, _ = train(read(rows), read_written())
    try:
        model.save(output)
    except OSError as error:
        raise ConfigError(f"{output}: cannot be written: {error.strerror}") from error
    out = _console()
    out.print(f"{output}: learned from {len(rows)} requests", markup=False)
    out.print(
        "measure it on requests it has not seen: specroute classify eval OTHER.jsonl --weights "
        f"{output}; then name it in classify.weights",
        markup=False,
    )


def _settings(config: Path | None) -> Classify:
    return load_config(config).classify if config else Classify()


def _body(file: Path | None, text: str | None) -> dict[str, Any]:
    if text is not None:
        return {"messages": [{"role": "user", "content": text}]}
    name = str(file) if file else "standard input"
    try:
        data = file.read_bytes() if file else sys.stdin.buffer.read()
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}") from error
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{name}: not valid JSON: {error.msg}") from None
    if not isinstance(body, dict):
        raise ConfigError(f"{name}: must be the JSON object that a client would send")
    return body


def _headers(lines: list[str]) -> tuple[tuple[str, str], ...]:
    pairs = []
    for line in lines:
        name, found, value = line.partition(":")
        if not found:
            raise ConfigError("--header: must be 'Name: value'")
        pairs.append((name.strip(), value.strip()))
    return tuple(pairs)


def _lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the content of the lines of a file of labelled requests."""
    try:
        with file.open("rb") as lines:
            for number, data in enumerate(lines, start=1):
                if data.strip():
                    yield number, _line(data, f"{file}: line {number}")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error


def _line(data: bytes, place: str) -> dict[str, Any]:
    try:
        line = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{place}: not valid JSON: {error.msg}") from None
    if (
        not isinstance(line, dict)
        or not isinstance(line.get("label"), str)
        or not isinstance(line.get("request"), dict)
    ):
        raise ConfigError(f'{place}: must hold "label", a text, and "request", an object')
    return line


def _language(line: dict[str, Any]) -> str | None:
    language = line.get("lang") or line.get("language")
    return language if isinstance(language, str) else None
