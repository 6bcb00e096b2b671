"""What a classifier is, and the classes it answers with; knows nothing of how it decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from policies.types import ClassId

if TYPE_CHECKING:
    from router.types import Classification, ParsedRequest

CODE_EDIT: Final = ClassId("code_edit")
CODE_GEN: Final = ClassId("code_gen")
MATH: Final = ClassId("math")
STRUCTURED: Final = ClassId("structured")
TEXT_EDIT: Final = ClassId("text_edit")
SUMMARIZE: Final = ClassId("summarize")
RAG_QA: Final = ClassId("rag_qa")
TRANSLATE: Final = ClassId("translate")
CHAT: Final = ClassId("chat")
CREATIVE: Final = ClassId("creative")

CLASSES: Final[tuple[ClassId, ...]] = (
    CODE_EDIT,
    CODE_GEN,
    MATH,
    STRUCTURED,
    TEXT_EDIT,
    SUMMARIZE,
    RAG_QA,
    TRANSLATE,
    CHAT,
    CREATIVE,
)
"""Classes of content by how their answers are drafted."""

OTHER: Final = ClassId("other")
"""Nothing was told apart well enough."""


class Classifier(Protocol):
    """Says what a request is about; deterministic, and total over any JSON body."""

    def classify(self, request: ParsedRequest) -> Classification:
        """Return the class of `request`, with a probability for each class and `OTHER`."""
        ...
