"""Whose request it is, as far as sharing out places goes; checks no credential and keeps none."""

from __future__ import annotations

import secrets
from hashlib import blake2b

from router.types import ANONYMOUS, Headers, TenantId

_BEARER = "bearer "
_DIGEST_BYTES = 8


class CredentialTenants:
    """One tenant for each credential: a hash of it.

    Args:
        key: Of the hash; None for one that lives and dies with the process.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(blake2b.MAX_KEY_SIZE)

    def tenant(self, headers: Headers) -> TenantId:
        """The same for the same credential, whether it comes as `Authorization` or `x-api-key`."""
        credential = _credential(headers)
        if not credential:
            return ANONYMOUS
        # Whatever bytes a header holds: they only have to be told apart.
        data = credential.encode("utf-8", "surrogatepass")
        return TenantId(blake2b(data, digest_size=_DIGEST_BYTES, key=self._key).hexdigest())


def _credential(headers: Headers) -> str:
    api_key = ""
    for name, value in headers:
        # Most names differ in length already; lowering costs more than looking.
        if len(name) == len("authorization") and name.lower() == "authorization":
            if value[: len(_BEARER)].lower() == _BEARER:
                value = value[len(_BEARER) :]  # noqa: PLW2901
            if value := value.strip():
                return value
        elif not api_key and len(name) == len("x-api-key") and name.lower() == "x-api-key":
            api_key = value.strip()
    return api_key
