from __future__ import annotations

import logging
from pathlib import Path

import pytest

from router.classify.load import WEIGHTS_UNUSABLE, default_classifier
from router.classify.rules import RuleClassifier
from router.classify.trained import TrainedClassifier


def test_packaged_weights_are_used() -> None:
    """Without a path the weights of the package are loaded."""
    assert isinstance(default_classifier(), TrainedClassifier)


@pytest.mark.parametrize("content", [None, b"", b"not an archive", b"PK\x05\x06" + bytes(18)])
def test_unusable_weights_leave_the_rules(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    """Missing or corrupt weights are warned about, and the rules answer."""
    path = tmp_path / "weights.npz"
    if content is not None:
        path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert isinstance(default_classifier(path), RuleClassifier)
    assert [record.message for record in caplog.records] == [WEIGHTS_UNUSABLE]
