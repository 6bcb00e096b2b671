"""Whose request it is."""

from __future__ import annotations

import pytest

from router.admission.tenants import CredentialTenants
from router.types import ANONYMOUS, Headers

KEY = "sk-0123456789"


@pytest.mark.parametrize(
    "headers",
    [
        (("Authorization", f"Bearer {KEY}"),),
        (("authorization", f"bearer  {KEY} "),),
        (("AUTHORIZATION", KEY),),
        (("x-api-key", KEY),),
        (("X-API-Key", f" {KEY}"),),
        (("Host", "a"), ("X-Api-Key", "another"), ("Authorization", f"Bearer {KEY}")),
        (("Authorization", ""), ("x-api-key", KEY)),
        (("x-api-key", KEY), ("x-api-key", "another")),
        (("Authorization", f"Bearer {KEY}"), ("Authorization", "Bearer another")),
    ],
)
def test_one_credential_is_one_tenant_in_whatever_dialect(headers: Headers) -> None:
    """OpenAI's clients and Anthropic's with the same key are the same tenant."""
    tenants = CredentialTenants()
    assert tenants.tenant(headers) == tenants.tenant((("Authorization", f"Bearer {KEY}"),))
    assert tenants.tenant(headers) != tenants.tenant((("Authorization", "Bearer another"),))


@pytest.mark.parametrize(
    "headers", [(), (("Host", "a"),), (("Authorization", "Bearer "),), (("x-api-key", "  "),)]
)
def test_without_a_credential_all_are_one(headers: Headers) -> None:
    """An empty credential is none."""
    assert CredentialTenants().tenant(headers) == ANONYMOUS


def test_a_tenant_tells_nothing_of_its_credential() -> None:
    """Its name is a hash, and another one in every process."""
    headers = (("Authorization", f"Bearer {KEY}"),)
    first, second = CredentialTenants().tenant(headers), CredentialTenants().tenant(headers)
    assert len(first) == 16
    assert KEY not in first
    assert first != second


def test_any_bytes_make_a_tenant() -> None:
    """Header lines may hold what no text does."""
    tenants = CredentialTenants()
    odd = ("Bearer \ud800", "Bearer \xff\xfe", "Basic dXNlcjpwYXNz", "Bearer " + "x" * 60_000)
    assert len({tenants.tenant((("Authorization", value),)) for value in odd}) == 4
