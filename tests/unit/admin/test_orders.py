"""The description of the admin port's orders."""

from __future__ import annotations

import re

import orjson

from router.admin.orders import PATHS, openapi


def test_every_path_is_described_with_what_it_takes() -> None:
    """And every reference leads somewhere."""
    document = openapi()
    for path in PATHS:
        said = document["paths"][path.path][path.method.lower()]
        assert said["summary"] == path.summary
        assert ("requestBody" in said) == (path.body is not None)
        named = [parameter["name"] for parameter in said["parameters"]]
        assert named == re.findall(r"{(\w+)}", path.path)
    text = orjson.dumps(document).decode()
    references = set(re.findall(r'"#/components/schemas/(\w+)"', text))
    assert references <= document["components"]["schemas"].keys()
