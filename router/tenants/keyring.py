"""The keys of all tenants, as a process knows them: read in the background, asked by requests."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TypeVar

from router.admission.tenants import CredentialTenants
from router.errors import StoreError
from router.stores.base import Document, DocumentStore, SecretStore, SharedStore
from router.tenants.keys import (
    KeyRecord,
    Keys,
    as_document,
    digest_of,
    found,
    made,
    new_key,
    of_document,
    revoked,
    rotated,
)
from router.types import TenantId

T = TypeVar("T")

_SECRET_BYTES = 32
_TRIES = 20
"""Of a change, while others change the document too."""


def keys_key(prefix: str) -> str:
    """Where the document of keys is kept."""
    return f"{{{prefix}:tenants}}:v1:keys"


async def hashing_secret(store: SecretStore, prefix: str) -> bytes:
    """The secret by which keys are hashed; all processes of a store have the same.

    Raises:
        StoreError: The store did not tell.
    """
    key = f"{{{prefix}:tenants}}:v1:secret"
    return await store.get_or_create(key, secrets.token_bytes(_SECRET_BYTES))


class KeyRing:
    """What requests are checked by. While the store is away it stays as it was read last."""

    def __init__(self) -> None:
        self._secret: bytes | None = None
        self._keys: Keys = {}
        self._document: Document | None = None
        self.interim = CredentialTenants()
        """Names strangers until the secret has been read; the same ones for all books."""

    @property
    def ready(self) -> bool:
        """Whether it has ever been read."""
        return self._secret is not None

    @property
    def secret(self) -> bytes | None:
        """What all processes hash by; None until it has been read."""
        return self._secret

    def tenant(self, key: str, now: float) -> TenantId | None:
        """Whose a key is; None if it is nobody's, or the keys have not been read yet."""
        return None if self._secret is None else found(self._keys, key, self._secret, now)

    async def refresh(self, store: SharedStore, prefix: str) -> None:
        """Reads what may have changed.

        Raises:
            StoreError: The store did not answer; what was read before holds.
        """
        document = await store.get(keys_key(prefix))
        # A store that was emptied may have come to the same version by now, so content counts too.
        if self._secret is None or document is None or document != self._document:
            # With the keys the secret is read again: a store that was emptied has another one.
            self._secret = await hashing_secret(store, prefix)
            self._document = document
            self._keys = of_document(document.data) if document else {}


class KeyDesk:
    """Carries out operators' orders about keys, wherever they come in."""

    def __init__(self, store: SharedStore, prefix: str, wall: Callable[[], float]) -> None:
        self._store = store
        self._prefix = prefix
        self._wall = wall

    async def listed(self) -> list[KeyRecord]:
        """All keys, the oldest first.

        Raises:
            StoreError: The store did not answer.
        """
        keys, _ = await _read(self._store, self._prefix)
        return sorted(keys.values(), key=lambda record: (record.created, record.key_id))

    async def create(self, tenant: TenantId) -> tuple[str, KeyRecord]:
        """A new key, which is shown this once and kept nowhere.

        Raises:
            KeyOrderError: There are too many.
            StoreError: The store did not take it.
        """
        key, digest = await self._new()
        record = await self._changed(lambda keys: made(keys, tenant, digest, self._wall()))
        return key, record

    async def rotate(self, key_id: str, grace_s: float) -> tuple[str, KeyRecord]:
        """A new key of the same tenant; the old one holds for `grace_s` more.

        Raises:
            KeyOrderError: No valid key is called so.
            StoreError: The store did not take it.
        """
        key, digest = await self._new()
        record = await self._changed(
            lambda keys: rotated(keys, key_id, digest, now=self._wall(), grace_s=grace_s)
        )
        return key, record

    async def revoke(self, key_id: str) -> KeyRecord:
        """The key is nobody's from now on; processes know within one refresh.

        Raises:
            KeyOrderError: No key is called so.
            StoreError: The store did not take it.
        """
        return await self._changed(lambda keys: revoked(keys, key_id, self._wall()))

    async def _new(self) -> tuple[str, str]:
        key = new_key()
        return key, digest_of(key, await hashing_secret(self._store, self._prefix))

    async def _changed(self, change: Callable[[Keys], tuple[Keys, T]]) -> T:
        for _ in range(_TRIES):
            keys, version = await _read(self._store, self._prefix)
            after, told = change(keys)
            written = await self._store.put(
                keys_key(self._prefix), as_document(after), expected=version
            )
            if written:
                return told
        raise StoreError("the keys are being changed by too many at once; try again")


async def _read(store: DocumentStore, prefix: str) -> tuple[Keys, int]:
    document = await store.get(keys_key(prefix))
    return (of_document(document.data), document.version) if document else ({}, 0)
