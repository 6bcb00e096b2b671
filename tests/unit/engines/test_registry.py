"""Names of the configuration find their adapters."""

from __future__ import annotations

from typing import get_args

import pytest

from router.config.base import EngineName
from router.engines.registry import adapter_for


@pytest.mark.parametrize("name", get_args(EngineName))
def test_every_name_has_an_adapter_of_that_name(name: EngineName) -> None:
    """With a path for probes and at least one marker to look for."""
    adapter = adapter_for(name)
    assert adapter.name == name
    assert adapter.health_path.startswith("/")
    assert all(adapter.markers)
