"""API keys of tenants: made, listed, rotated and revoked; kept as hashes only. Pure.

A key has 256 random bits, so no slow hash is needed; the keyed one makes a stolen document useless
without the secret, and finds a key without comparing it byte by byte.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson

from router.types import TenantId

PREFIX = "srk-"
"""Begins each key, so that it is told from an engine's, and found by scanners of leaked secrets."""

_BYTES = 32
_MOST_KEYS = 10_000
_LONGEST = 128


class KeyOrderError(Exception):
    """An order about keys that cannot be carried out; the message says why."""


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What is kept of a key.

    Attributes:
        key_id: What people call it; tells nothing about the key.
        tenant: Whose it is.
        digest: Keyed hash of the key, in hexadecimal.
        created: Seconds since the epoch.
        expires: From then on it is nobody's; None for never.
        revoked: When somebody revoked it; None while nobody has.
    """

    key_id: str
    tenant: TenantId
    digest: str
    created: float
    expires: float | None = None
    revoked: float | None = None

    def holds(self, now: float) -> bool:
        """Whether it is good."""
        return self.revoked is None and (self.expires is None or now < self.expires)

    def shown(self, now: float) -> dict[str, Any]:
        """What an operator is shown: no hash."""
        shown = asdict(self)
        del shown["digest"]
        return {**shown, "valid": self.holds(now)}


Keys = Mapping[str, KeyRecord]
"""Records by the digest of their key."""


def digest_of(key: str, secret: bytes) -> str:
    """The keyed hash by which a key is known.

    >>> digest_of("srk-a", b"secret") == digest_of("srk-a", b"another secret")
    False
    """
    data = key.encode("utf-8", "surrogatepass")
    return hmac.new(secret, data, hashlib.sha256).hexdigest()


def new_key() -> str:
    """A key that nobody has."""
    return PREFIX + secrets.token_urlsafe(_BYTES)


def found(keys: Keys, key: str, secret: bytes, now: float) -> TenantId | None:
    """Whose a key is; None if it is nobody's."""
    if not key.startswith(PREFIX) or len(key) > _LONGEST:
        return None
    digest = digest_of(key, secret)
    record = keys.get(digest)
    # The dictionary is searched by a keyed hash, of which its time tells nothing about a key; that
    # it is the very same one is compared in constant time.
    if record is None or not hmac.compare_digest(record.digest, digest) or not record.holds(now):
        return None
    return record.tenant


def made(keys: Keys, tenant: TenantId, digest: str, now: float) -> tuple[Keys, KeyRecord]:
    """A key more.

    Raises:
        KeyOrderError: There are too many.
    """
    if len(keys) >= _MOST_KEYS:
        raise KeyOrderError(f"there are {len(keys)} keys; revoke and forget some")
    taken = {record.key_id for record in keys.values()}
    key_id = next(name for name in iter(_new_id, None) if name not in taken)
    record = KeyRecord(key_id, tenant, digest, now)
    return {**keys, digest: record}, record


def revoked(keys: Keys, key_id: str, now: float) -> tuple[Keys, KeyRecord]:
    """A key is nobody's any more.

    Raises:
        KeyOrderError: No key is called so.
    """
    before = _named(keys, key_id)
    after = before if before.revoked is not None else replace(before, revoked=now)
    return {**keys, before.digest: after}, after


def rotated(
    keys: Keys, key_id: str, digest: str, *, now: float, grace_s: float
) -> tuple[Keys, KeyRecord]:
    """A new key of the same tenant; the old one still holds for a while.

    Raises:
        KeyOrderError: No key is called so, or it is nobody's any more.
    """
    before = _named(keys, key_id)
    if not before.holds(now):
        raise KeyOrderError(f"key {key_id} is not valid any more; create a new one")
    keys, record = made(keys, before.tenant, digest, now)
    ends = now + grace_s if before.expires is None else min(before.expires, now + grace_s)
    return {**keys, before.digest: replace(before, expires=ends)}, record


def _named(keys: Keys, key_id: str) -> KeyRecord:
    for record in keys.values():
        if record.key_id == key_id:
            return record
    raise KeyOrderError(f"no key is called {key_id!r}")


def _new_id() -> str:
    return f"k{secrets.token_hex(4)}"


def as_document(keys: Keys) -> bytes:
    """Records as they are kept."""
    return orjson.dumps({"keys": [asdict(record) for record in keys.values()]})


def of_document(data: bytes) -> Keys:
    """Records as they were kept; what nobody understands is left out.

    >>> dict(of_document(b'{"keys": [{"tenant": 3}]}')), dict(of_document(b"x"))
    ({}, {})
    """
    try:
        listed = orjson.loads(data)["keys"]
    except (ValueError, LookupError, TypeError):
        return {}
    known: dict[str, KeyRecord] = {}
    for entry in listed if isinstance(listed, list) else ():
        record = _record(entry)
        if record is not None:
            known[record.digest] = record
    return known


def _record(entry: Any) -> KeyRecord | None:
    try:
        texts = [entry[name] for name in ("key_id", "tenant", "digest")]
        times = [entry["created"], entry.get("expires"), entry.get("revoked")]
    except (LookupError, TypeError, AttributeError):
        return None
    numbers = all(time is None or isinstance(time, int | float) for time in times)
    if not all(isinstance(text, str) for text in texts) or not numbers or times[0] is None:
        return None
    return KeyRecord(texts[0], TenantId(texts[1]), texts[2], *times)
