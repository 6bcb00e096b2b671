"""API keys: what is kept of them, and whose they are."""

from __future__ import annotations

import pytest

from router.tenants.keys import (
    PREFIX,
    KeyOrderError,
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

SECRET = b"s" * 32
ACME = TenantId("acme")
NOW = 1000.0


def test_a_key_is_its_tenant_s_until_it_is_revoked() -> None:
    """And nobody else's; revoking twice is the same as once."""
    key = new_key()
    keys, record = made({}, ACME, digest_of(key, SECRET), NOW)
    assert found(keys, key, SECRET, NOW) == ACME
    assert found(keys, new_key(), SECRET, NOW) is None
    assert found(keys, key, b"another secret", NOW) is None
    keys, gone = revoked(keys, record.key_id, NOW + 1)
    assert found(keys, key, SECRET, NOW + 1) is None
    assert revoked(keys, record.key_id, NOW + 9)[1] == gone


def test_a_rotated_key_holds_for_its_grace() -> None:
    """The new one at once; a second rotation does not lengthen the first grace."""
    old, new = new_key(), new_key()
    keys, record = made({}, ACME, digest_of(old, SECRET), NOW)
    keys, fresh = rotated(keys, record.key_id, digest_of(new, SECRET), now=NOW, grace_s=60.0)
    assert fresh.key_id != record.key_id
    for at, expected in ((NOW + 59.0, ACME), (NOW + 60.0, None)):
        assert found(keys, old, SECRET, at) == expected
        assert found(keys, new, SECRET, at) == ACME
    digest = digest_of(new_key(), SECRET)
    keys, _ = rotated(keys, record.key_id, digest, now=NOW + 1, grace_s=600.0)
    assert found(keys, old, SECRET, NOW + 60.0) is None
    with pytest.raises(KeyOrderError, match="not valid any more"):
        rotated(keys, record.key_id, digest, now=NOW + 61.0, grace_s=1.0)


def test_what_is_kept_holds_no_key() -> None:
    """Neither does what an operator is shown, which has no hash either; and it reads back."""
    key = new_key()
    keys, record = made({}, ACME, digest_of(key, SECRET), NOW)
    kept = as_document(keys)
    assert key.encode() not in kept
    assert key.removeprefix(PREFIX).encode() not in kept
    assert of_document(kept) == keys
    shown = str(record.shown(NOW))
    assert record.digest not in shown
    assert key not in shown


@pytest.mark.parametrize("key", ["", PREFIX, "sk-other", PREFIX + "x" * 1000, PREFIX + "\udcff"])
def test_anything_else_is_nobody_s_key(key: str) -> None:
    """However odd."""
    keys, _ = made({}, ACME, digest_of(new_key(), SECRET), NOW)
    assert found(keys, key, SECRET, NOW) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"keys": 3}',
        b'{"keys": [1, {}, {"key_id": "a", "tenant": 1, "digest": "d", "created": 1}]}',
        b'{"keys": [{"key_id": "a", "tenant": "t", "digest": "d", "created": "x"}]}',
    ],
)
def test_a_document_that_cannot_be_understood_holds_no_keys(data: bytes) -> None:
    """So nobody gets in by spoiling it."""
    assert dict(of_document(data)) == {}


def test_a_name_that_is_no_key_s_is_an_error() -> None:
    """Told with the name."""
    with pytest.raises(KeyOrderError, match="'nothing'"):
        revoked({}, "nothing", NOW)
