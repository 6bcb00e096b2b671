"""What goes wrong when YAML is read."""

from __future__ import annotations

import pytest
import yaml

from router.config.yaml_errors import NO_YAML, in_words

DEEP = "[" * 5000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", None),
        ("- 2024-13-45", "put quotes around it"),
        ("- !!int ''", "put quotes around it"),
        ("- !!timestamp secret", "put quotes around it"),
        ("- !!float secret", "put quotes around it"),
        (DEEP, "nested too deeply"),
    ],
)
def test_whatever_python_says_is_an_error_in_the_text(text: str, words: str | None) -> None:
    """It names the remedy where the library has no words of its own, and quotes nothing."""
    with pytest.raises(NO_YAML) as caught:
        yaml.safe_load(text)
    told = in_words(caught.value)
    assert (told is None) == (words is None)
    assert (words or "") in (told or "")
    assert "secret" not in (told or "")
