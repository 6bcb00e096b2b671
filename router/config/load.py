"""File and environment → Config. Every complaint names the key path and the remedy."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from router.config.models import Config
from router.errors import ConfigError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def load_config(path: Path, environment: Mapping[str, str] | None = None) -> Config:
    """Reads and checks a configuration file.

    Raises:
        ConfigError: The file is missing, is no YAML, or breaks a rule; the message holds one line
            per problem, each beginning with the key path.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file; `specroute demo` writes one, config/examples/ holds others"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    return parse_config(text, os.environ if environment is None else environment, name=str(path))


def parse_config(text: str, environment: Mapping[str, str], *, name: str = "config") -> Config:
    """Turns the text of a configuration file into a checked `Config`.

    Raises:
        ConfigError: As for `load_config`.
    """
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not valid YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{name}: must be a mapping with at least the key `routes`")
    expanded = _expand(data, environment, ())
    try:
        return Config.model_validate(expanded)
    except ValidationError as error:
        lines = [_explain(detail) for detail in error.errors(include_url=False)]
        raise ConfigError(f"{name}:\n" + "\n".join(f"  {line}" for line in lines)) from error


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


def _explain(detail: Any) -> str:
    path = tuple(detail["loc"])
    if detail["type"] == "extra_forbidden":
        allowed = _fields_at(path[:-1])
        close = difflib.get_close_matches(str(path[-1]), allowed, n=1)
        hint = f"did you mean `{close[0]}`?" if close else f"known here: {', '.join(allowed)}"
        return f"{_dotted(path)}: unknown key; {hint}"
    if detail["type"] == "missing":
        return f"{_dotted(path)}: is required and missing"
    message = detail["msg"].removeprefix("Value error, ")
    given = detail.get("input")
    if isinstance(given, (str, int, float, bool)) and path[-1:] != ("api_key",):
        return f"{_dotted(path)}: {message} (given: {given!r})"
    return f"{_dotted(path)}: {message}"


def _fields_at(path: tuple[object, ...]) -> list[str]:
    model: type[BaseModel] = Config
    for part in path:
        if not isinstance(part, str) or part not in model.model_fields:
            continue
        model = _model_of(model.model_fields[part].annotation) or model
    return sorted(model.model_fields)


def _model_of(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_of(argument)
        if found is not None:
            return found
    return None
