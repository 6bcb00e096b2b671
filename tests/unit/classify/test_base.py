from __future__ import annotations

from router.classify.base import CLASSES, OTHER


def test_classes_are_the_ten_of_the_product() -> None:
    """The built-in classes are ten distinct ones, and `other` is none of them."""
    assert sorted(CLASSES) == [
        "chat",
        "code_edit",
        "code_gen",
        "creative",
        "math",
        "rag_qa",
        "structured",
        "summarize",
        "text_edit",
        "translate",
    ]
    assert OTHER not in CLASSES
