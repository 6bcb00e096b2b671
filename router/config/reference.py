"""Writes what is generated from tables in the code; a test compares it with the files.

`python -m router.config.reference FOLDER` writes `config/specroute.yaml`,
`config/specroute.schema.json`, `docs/configuration.md` and `docs/metrics.md` below the folder.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import yaml
from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from router.config.models import Config
from router.observe.catalog_page import metrics_page

_WIDTH = 96
_INDENT = 2

_EXAMPLES: dict[str, Any] = {
    "classify.rules.class": "my_class",
    "classify.rules.when.system_prompt": "(?i)you are a reviewer",
    "routes.model": "my-model",
    "tenants.known.id": "my-tenant",
    "routes.baseline": "plain",
    "routes.pools.name": "plain",
    "routes.pools.method": "none",
    "routes.pools.engine": "vllm",
    "routes.pools.replicas.url": "http://127.0.0.1:8000",
    "routes.pools.discover.dns.name": "vllm.default.svc.cluster.local",
}
"""Values of the annotated file for what has no default, and where the default would mislead."""


def annotated_yaml() -> str:
    """The reference file: every key, with its meaning, limits and default."""
    head = (
        "# Every key of a Specroute configuration, with its default.\n"
        "# Generated from router/config/models.py by `make reference`; a test compares them.\n"
        "# Only `routes` is required: config/examples/minimal.yaml shows how little is enough.\n"
        "# ${NAME} anywhere takes a value from the environment.\n"
    )
    return head + "\n".join(_yaml_lines(Config, "", 0)) + "\n"


def json_schema() -> str:
    """JSON Schema of the file, for editors."""
    return json.dumps(Config.model_json_schema(), indent=2, sort_keys=True) + "\n"


def documentation() -> str:
    """The page `docs/configuration.md`."""
    text = (
        "One YAML file. `specroute check FILE` tells what is wrong with it; a key nobody knows is "
        "an error. `${NAME}` takes a value from the environment. Editors complete keys with "
        "[`config/specroute.schema.json`](../config/specroute.schema.json); "
        "[`config/specroute.yaml`](../config/specroute.yaml) is the same table as a file."
    )
    parts = [
        "# Configuration",
        "",
        text,
        "",
        "Generated from `router/config/models.py` by `make reference`.",
        "",
        "| key | type | default | meaning |",
        "|---|---|---|---|",
        *_table_rows(Config, ""),
    ]
    return "\n".join(parts) + "\n"


def generated() -> dict[str, str]:
    """All generated files by their path below the project."""
    return {
        "config/specroute.yaml": annotated_yaml(),
        "config/specroute.schema.json": json_schema(),
        "docs/configuration.md": documentation(),
        "docs/metrics.md": metrics_page(),
    }


def _yaml_lines(model: type[BaseModel], path: str, depth: int) -> Iterator[str]:
    pad = " " * depth
    for attribute, field in model.model_fields.items():
        name = field.alias or attribute
        key = f"{path}.{name}" if path else name
        text = f"{field.description or ''} {_limits_text(field)}".strip()
        for line in textwrap.wrap(text, _WIDTH - depth - 2):
            yield f"{pad}# {line}"
        inner = _model_in(field)
        if inner is None:
            yield f"{pad}{name}: {_scalar(key, field)}"
        elif _is_optional(field):
            yield f"{pad}{name}: null"
            yield f"{pad}# {name}:"
            for line in _yaml_lines(inner, key, _INDENT):
                yield f"{pad}# {line}"
        elif _is_list(field):
            yield f"{pad}{name}:"
            item = list(_yaml_lines(inner, key, depth + 2 * _INDENT))
            first = next(i for i, line in enumerate(item) if not line.lstrip().startswith("#"))
            item[first] = f"{pad}{' ' * _INDENT}- {item[first].lstrip()}"
            yield from item
        else:
            yield f"{pad}{name}:"
            yield from _yaml_lines(inner, key, depth + _INDENT)


def _table_rows(model: type[BaseModel], path: str) -> Iterator[str]:
    for attribute, field in model.model_fields.items():
        name = field.alias or attribute
        inner = _model_in(field)
        key = f"{path}.{name}" if path else name
        if inner is not None:
            yield from _table_rows(inner, f"{key}[]" if _is_list(field) else key)
            continue
        default = "required" if field.is_required() else f"`{_plain(_default(field))}`"
        text = f"{field.description or ''} {_limits_text(field)}".strip().replace("|", "\\|")
        yield f"| `{key}` | {_type_name(field.annotation)} | {default} | {text} |"


def _model_in(field: FieldInfo) -> type[BaseModel] | None:
    candidates = (field.annotation, *get_args(field.annotation))
    for candidate in candidates:
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _is_optional(field: FieldInfo) -> bool:
    return type(None) in get_args(field.annotation)


def _is_list(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is tuple


def _scalar(key: str, field: FieldInfo) -> str:
    return _plain(_EXAMPLES[key] if key in _EXAMPLES else _default(field))


def _default(field: FieldInfo) -> object:
    value = field.get_default(call_default_factory=True, validated_data={})
    return None if value is PydanticUndefined else value


def _plain(value: object) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000)
    return text.removesuffix("...\n").strip()


def _type_name(annotation: Any) -> str:
    names = {
        str: "text",
        SecretStr: "text",
        int: "integer",
        float: "number",
        bool: "true or false",
    }
    if annotation in names:
        return names[annotation]
    arguments = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return _type_name(arguments[0])
    if get_origin(annotation) is tuple:
        return f"list of {_type_name(arguments[0])}"
    if type(None) in arguments:
        return f"{_type_name(arguments[0])} or null"
    if get_origin(annotation) is dict:
        return "mapping"
    return "one of " + ", ".join(f"`{item}`" for item in arguments)


def _limits_text(field: FieldInfo) -> str:
    words = {Ge: ("ge", "at least"), Gt: ("gt", "above"), Le: ("le", "at most")}
    parts = [
        f"{text} {getattr(item, attribute):,}".replace(",", "_").replace("_", " ")
        for item in field.metadata
        for kind, (attribute, text) in words.items()
        if isinstance(item, kind)
    ]
    return f"[{', '.join(parts)}]" if parts else ""


def main() -> None:
    """Writes all files below the folder given as argument."""
    folder = Path(sys.argv[1])
    for name, text in generated().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
