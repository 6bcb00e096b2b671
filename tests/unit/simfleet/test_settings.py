"""What can be chosen about a simulated engine."""

from __future__ import annotations

import pytest

from router.simfleet.settings import DEFAULT_VERSIONS, EngineSettings, Kind


@pytest.mark.parametrize("kind", list(Kind))
def test_the_newest_version_is_the_default(kind: Kind) -> None:
    """One that its wire format is known of."""
    assert EngineSettings(kind, "m").version == DEFAULT_VERSIONS[kind]


@pytest.mark.parametrize(
    ("version", "release"),
    [("0.33.0", (0, 33, 0)), ("b11434", (11434,)), ("v0.5.23", (0, 5, 23)), ("0.30.rc1", (0, 30))],
)
def test_versions_can_be_compared(version: str, release: tuple[int, ...]) -> None:
    """By their numbers, whatever stands around them."""
    assert EngineSettings(Kind.VLLM, "m", version=version).release == release


@pytest.mark.parametrize(
    ("method", "k", "speculates"), [("ngram", 3, True), ("ngram", None, False), ("none", 3, False)]
)
def test_a_drafter_needs_a_method_and_a_length(
    method: str, k: int | None, *, speculates: bool
) -> None:
    """One without the other drafts nothing."""
    settings = EngineSettings(Kind.VLLM, "m", method=method, num_speculative_tokens=k)
    assert settings.speculates is speculates
