"""File and environment → Config. Every complaint names the key path and the remedy."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from router.config.base import KeyedError
from router.config.models import Config
from router.config.yaml_errors import NO_YAML, in_words
from router.errors import ConfigError

_MESSAGES = {
    "model_type": "must be a mapping of keys to values",
    "too_short": "must hold at least one item",
    "tuple_type": "must be a list",
    "invalid_key": "a key must be text; put quotes around numbers and around on, off, yes and no",
}
"""Where pydantic's own words speak of Python."""

_SECRETS = ("api_key", "segment_key", "token", "headers")
"""Keys whose values, and all that stands below them, are never shown."""
_QUOTED = re.compile("'([^']*)'")
_PASSWORD = re.compile(r"//.*@")
_MERGE = "tag:yaml.org,2002:merge"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class _TwiceError(Exception):
    """A key that stands twice in one mapping; the message has a line for each."""


class _Loader(yaml.SafeLoader):
    """Refuses what YAML forbids and PyYAML lets pass: of two equal keys the second would win."""

    def construct_document(self, node: yaml.Node) -> Any:
        """See `yaml.SafeLoader`; by now nothing is merged yet (`<<`)."""
        found = list(_given_twice(node, (), set()))
        if found:
            raise _TwiceError("\n".join(found))
        return super().construct_document(node)


def _given_twice(node: yaml.Node, path: tuple[object, ...], seen: set[int]) -> Iterator[str]:
    if id(node) in seen:
        return  # an alias
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _given_twice(item, (*path, index), seen)
    if not isinstance(node, yaml.MappingNode):
        return
    first: dict[tuple[str, str], int] = {}
    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else "(key that is no text)"
        line = key.start_mark.line + 1
        if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
            earlier = first.get((key.tag, key.value))
            if earlier is not None:
                lines = f"in lines {earlier} and {line}" if earlier != line else f"in line {line}"
                yield (
                    f"  {_dotted((*path, name))}: given twice, {lines}; keep one, or put what both "
                    "hold under one"
                )
            first[key.tag, key.value] = line
        yield from _given_twice(value, (*path, name), seen)


def load_config(path: Path, environment: Mapping[str, str] | None = None) -> Config:
    """Reads and checks a configuration file.

    Raises:
        ConfigError: The file is missing, is no YAML, or breaks a rule; the message holds one line
            per problem, each beginning with the key path.
    """
    text = read_config(path)
    return parse_config(text, os.environ if environment is None else environment, name=str(path))


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Puts the file before complaints that come while something is built of its configuration."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def read_config(path: Path) -> str:
    """The text of a configuration file.

    Raises:
        ConfigError: It is missing or cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file; `specroute demo` writes one, config/examples/ holds others"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error


def parse_config(
    text: str,
    environment: Mapping[str, str],
    *,
    name: str = "config",
    workers: int | None = None,
) -> Config:
    """Turns the text of a configuration file into a checked `Config`.

    Args:
        text: What the file holds.
        environment: For `${NAME}`.
        name: Of the file, for messages.
        workers: Stands in for `listen.workers` of the file.

    Raises:
        ConfigError: As for `load_config`.
    """
    try:
        data = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except _TwiceError as error:
        raise ConfigError(f"{name}:\n{error}") from None
    except NO_YAML as error:
        # Its own text quotes the line, which may hold a key.
        raise ConfigError(f"{name}: not valid YAML{_place_of(error)}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{name}: must be a mapping with at least the key `routes`")
    expanded = _expand(data, environment, ())
    listen = expanded.get("listen") or {}
    if workers is not None and isinstance(listen, dict):
        expanded["listen"] = {**listen, "workers": workers}
    try:
        return Config.model_validate(expanded)
    except ValidationError as error:
        lines = [_explain(detail, data) for detail in _causes(error)]
        # The chain ends here: pydantic's own text quotes what was given, keys too.
        raise ConfigError(f"{name}:\n" + "\n".join(f"  {line}" for line in lines)) from None


def _causes(error: ValidationError) -> list[Any]:
    """The complaints, without those that a list is too short because an item of it was refused."""
    details = error.errors(include_url=False)
    paths = [detail["loc"] for detail in details]
    return [
        detail
        for detail, path in zip(details, paths, strict=True)
        if detail["type"] != "too_short"
        or not any(len(other) > len(path) and other[: len(path)] == path for other in paths)
    ]


def _place_of(error: Exception) -> str:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        words = in_words(error)
        return f": {words}" if words else ""
    mark = error.problem_mark
    return f": {error.problem} (line {mark.line + 1}, column {mark.column + 1})"


def _expand(value: Any, environment: Mapping[str, str], path: tuple[object, ...]) -> Any:
    if isinstance(value, dict):
        return {key: _expand(item, environment, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_expand(item, environment, (*path, index)) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def substitute(match: re.Match[str]) -> str:
        variable = match.group(1)
        if variable not in environment:
            raise ConfigError(
                f"{_dotted(path)}: environment variable {variable} is not set; "
                f"export it or replace ${{{variable}}} by a value"
            )
        return environment[variable]

    return _VARIABLE.sub(substitute, value)


def _dotted(path: tuple[object, ...]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or "(top level)"


def _explain(detail: Any, data: Any) -> str:
    path = tuple(detail["loc"])
    if detail["type"] == "extra_forbidden":
        allowed = _fields_at(path[:-1])
        close = difflib.get_close_matches(str(path[-1]), allowed, n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"known here: {', '.join(allowed)}"
        return f"{_dotted(path)}: unknown key; {hint}"
    if detail["type"] == "missing":
        return f"{_dotted(path)}: is required and missing"
    message = _MESSAGES.get(detail["type"]) or detail["msg"].removeprefix("Value error, ")
    problem = detail.get("ctx", {}).get("error")
    if isinstance(problem, KeyedError):
        path, message = (*path, problem.key), problem.why
    given = _given_at(path, data)
    if detail["type"] == "literal_error":
        message = _one_of(given, _QUOTED.findall(detail["ctx"]["expected"]))
    if detail["type"] == "model_type" and "replicas" in path[-2:] and isinstance(given, str):
        message += '; write {url: "http://…"}'
    if isinstance(given, (str, int, float, bool)) and not set(path) & set(_SECRETS):
        return f"{_dotted(path)}: {message} (given: {_without_password(given)!r})"
    # What concerns several sections names its keys itself.
    return f"{_dotted(path)}: {message}" if path else message


def _one_of(given: object, allowed: list[str]) -> str:
    close = difflib.get_close_matches(str(given), allowed, n=1)
    hint = f"; did you mean `{close[0]}`?" if close else ""
    return f"must be one of {', '.join(allowed)}{hint}"


def _given_at(path: tuple[object, ...], data: Any) -> object:
    """What the file says there: the name of a variable, not what it holds."""
    for part in path:
        try:
            data = data[part]
        except (LookupError, TypeError):
            return None
    return data


def _without_password(given: object) -> object:
    return _PASSWORD.sub("//…@", given) if isinstance(given, str) else given


def _fields_at(path: tuple[object, ...]) -> list[str]:
    model: type[BaseModel] = Config
    for part in path:
        if not isinstance(part, str) or part not in model.model_fields:
            continue
        model = _model_of(model.model_fields[part].annotation) or model
    return sorted(field.alias or name for name, field in model.model_fields.items())


def _model_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_of(argument)
        if found is not None:
            return found
    return None
