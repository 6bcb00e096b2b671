"""The book of experiments in the store, changed by compare-and-set."""

from __future__ import annotations

from collections.abc import Callable

from router.errors import StoreError
from router.experiments.documents import Book, as_document, book_key, of_document
from router.stores.base import DocumentStore

_TRIES = 10


async def change_book(
    store: DocumentStore, prefix: str, change: Callable[[Book], tuple[Book, list[bytes]]]
) -> bool:
    """Changes the book by compare-and-set, as often as others are faster.

    Args:
        store: Where it is kept.
        prefix: First part of its key.
        change: Gives the book after, and the lines of its audit; none means that nothing changes.

    Returns:
        Whether it was changed.

    Raises:
        StoreError: The store did not take it, or others were always faster.
    """
    key = book_key(prefix)
    for _ in range(_TRIES):
        document = await store.get(key)
        book = of_document(document.data) if document else Book()
        after, entries = change(book)
        if not entries:
            return False
        version = document.version if document else 0
        if await store.put(key, as_document(after), expected=version, entries=entries):
            return True
    raise StoreError("experiments are being changed by too many at once; try again")
