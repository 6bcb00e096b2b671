"""Whose a request is, by its header lines."""

from __future__ import annotations

from typing import Any

import pytest

from policies.types import ArmId, ClassId
from router.config.tenants import Tenants as TenantsConfig
from router.errors import Reason, RequestError
from router.stores.memory import MemoryStore
from router.tenants.book import TenantBook, wish
from router.tenants.keyring import KeyDesk, KeyRing
from router.tenants.model import NO_WISH, Tenant, Wish
from router.types import ANONYMOUS, TenantId
from tests.support.clock import ManualClock

ACME = TenantId("acme")
KNOWN = {"known": [{"id": "acme", "group": "paying", "may_choose": True}, {"id": "beta"}]}


class World:
    """A book over a store with one key of acme."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.ring = KeyRing()
        self.desk = KeyDesk(self.store, "p", self.clock.wall)

    async def key(self, tenant: str = "acme") -> str:
        """A key that this process knows."""
        key, _ = await self.desk.create(TenantId(tenant))
        await self.ring.refresh(self.store, "p")
        return key

    def book(self, **config: Any) -> TenantBook:
        """The book of a configuration."""
        return TenantBook(TenantsConfig(**{**KNOWN, **config}), self.ring, self.clock)


@pytest.fixture
def world() -> World:
    """Nobody has a key yet."""
    return World()


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("Authorization", "Bearer {}"),
        ("authorization", "bearer  {} "),
        ("AUTHORIZATION", "{}"),
        ("X-Api-Key", "{}"),
    ],
)
async def test_a_key_tells_the_tenant(world: World, name: str, template: str) -> None:
    """In any of the places where clients put keys; engines never see it."""
    key = await world.key()
    book = world.book()
    headers = (("accept", "*/*"), (name, template.format(key)))
    found = book.tenant(headers)
    assert (found.id, found.known, found.group) == (ACME, True, "paying")
    assert book.passed_on(headers) == (("accept", "*/*"),)


async def test_a_credential_of_an_engine_s_is_passed_on(world: World) -> None:
    """Beside a key of ours, and alone."""
    key = await world.key()
    book = world.book()
    engine = ("Authorization", "Bearer sk-engine")
    assert book.tenant((engine, ("x-api-key", key))).id == ACME
    assert book.passed_on((engine, ("x-api-key", key))) == (engine,)
    assert book.passed_on((engine,)) == (engine,)


async def test_strangers_are_told_apart_by_their_credential(world: World) -> None:
    """As hashes; the same in every process once these have read the secret of the store."""
    await world.key()
    other = KeyRing()
    await other.refresh(world.store, "p")
    one, two = world.book(), TenantBook(TenantsConfig(**KNOWN), other, world.clock)
    first, second = (("authorization", "Bearer a"),), (("authorization", "Bearer b"),)
    assert one.tenant(first) == two.tenant(first)
    assert one.tenant(first).id != one.tenant(second).id
    assert not one.tenant(first).known
    assert one.tenant(()) == Tenant(ANONYMOUS, holdout=0.005)


@pytest.mark.parametrize("key", ["srk-forged", "", None])
async def test_who_is_refused(world: World, key: str | None) -> None:
    """With `unknown: refuse`: no key, a forged one, a revoked one; a 401 that says so."""
    await world.key()
    book = world.book(unknown="refuse")
    headers = () if key is None else (("authorization", f"Bearer {key}"),)
    with pytest.raises(RequestError) as caught:
        book.tenant(headers)
    assert (caught.value.reason, caught.value.http_status) == (Reason.UNAUTHENTICATED, 401)
    assert "forged" not in caught.value.message


async def test_a_revoked_key_is_a_stranger_s(world: World) -> None:
    """After the next refresh; so is one whose tenant is not configured any more."""
    key, gone = await world.key(), await world.key("gone")
    book = world.book(unknown="refuse")
    assert book.tenant((("x-api-key", key),)).id == ACME
    [mine] = [record for record in await world.desk.listed() if record.tenant == ACME]
    await world.desk.revoke(mine.key_id)
    await world.ring.refresh(world.store, "p")
    for dead in (key, gone):
        with pytest.raises(RequestError, match="not valid"):
            book.tenant((("x-api-key", dead),))


async def test_keys_that_were_not_read_yet_are_no_reason_to_give_a_key_up(world: World) -> None:
    """503, not 401: the store may be away while a process starts."""
    key, _ = await world.desk.create(ACME)
    with pytest.raises(RequestError) as caught:
        world.book(unknown="refuse").tenant((("x-api-key", key),))
    assert (caught.value.reason, caught.value.http_status) == (Reason.KEYS_UNREAD, 503)


async def test_a_gateway_s_word_counts_only_where_it_is_configured(world: World) -> None:
    """Once: two lines that differ are nobody's word. A key of ours comes before it."""
    key = await world.key()
    line = ("X-Tenant", "beta")
    assert world.book().tenant((line,)).id == ANONYMOUS
    assert world.book().passed_on((line,)) == (line,)
    book = world.book(header="x-tenant")
    assert book.tenant((line,)).id == "beta"
    assert book.tenant((line, line)).id == "beta"
    assert book.tenant((line, ("x-tenant", "acme"))).id == ANONYMOUS
    assert book.tenant((("x-tenant", "nobody"),)).id == ANONYMOUS
    assert book.tenant((line, ("x-api-key", key))).id == ACME
    assert book.passed_on((line, ("a", "b"))) == (("a", "b"),)


async def test_anonymous_can_be_given_rights(world: World) -> None:
    """Which all have who are not known."""
    book = world.book(known=[{"id": "anonymous", "lossless_only": True, "holdout": 0.25}])
    for headers in ((), (("authorization", "Bearer x"),)):
        found = book.tenant(headers)
        assert (found.known, found.rights.lossless_only, found.holdout) == (False, True, 0.25)


async def test_wishes_count_for_who_may_have_them(world: World) -> None:
    """Nobody else's do, however they are written."""
    book = world.book(header="x-tenant")
    headers = (("X-SpecRoute-Class", " chat "), ("x-specroute-pool", "fast"))
    entitled, other = book.tenant((("x-tenant", "acme"),)), book.tenant((("x-tenant", "beta"),))
    assert wish(entitled, headers) == Wish(ClassId("chat"), ArmId("fast"))
    assert wish(entitled, (("x-specroute-pool", ""),)) == NO_WISH
    for tenant in (other, book.tenant(())):
        assert wish(tenant, headers) == NO_WISH


async def test_keys_made_after_the_store_was_emptied_hold(world: World) -> None:
    """Its new secret is read with them; those from before are gone."""
    before = [await world.key(), await world.key()]
    world.store._documents.clear()
    world.store._secrets.clear()
    key = await world.key()
    now = world.clock.wall()
    assert world.ring.tenant(key, now) == ACME
    assert [world.ring.tenant(old, now) for old in before] == [None, None]


async def test_limits_of_strangers_are_those_of_all_together(world: World) -> None:
    """A credential made up for each request is no way around them; without limits each is its own."""
    one, two = (("authorization", "Bearer a"),), (("authorization", "Bearer b"),)
    limited = world.book(known=[{"id": "anonymous", "tokens_per_minute": 60}])
    assert limited.tenant(one).id != limited.tenant(two).id
    assert [limited.tenant(of).limited_as for of in (one, two, ())] == [ANONYMOUS] * 3
    assert world.book().tenant(one).limited_as is None


async def test_an_emptied_store_that_comes_to_the_same_version_is_noticed(world: World) -> None:
    """Its keys are others, under another secret."""
    desk = KeyDesk(world.store, "p", world.clock.wall)
    old = await world.key()
    world.store._documents.clear()
    world.store._secrets.clear()
    new, _ = await desk.create(ACME)
    await world.ring.refresh(world.store, "p")
    now = world.clock.wall()
    assert [world.ring.tenant(key, now) for key in (old, new)] == [None, ACME]
