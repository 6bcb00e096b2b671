"""Header lines → Tenant: by a key of ours, by a trusted gateway's word, else as a stranger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import orjson

from policies.types import ArmId, ClassId
from router.admission.tenants import CredentialTenants
from router.clock import Clock
from router.config.tenants import Tenant as TenantConfig
from router.config.tenants import Tenants as TenantsConfig
from router.errors import Reason, RequestError
from router.tenants.keyring import KeyRing
from router.tenants.keys import PREFIX
from router.tenants.model import NO_WISH, Rights, Tenant, Wish
from router.types import ANONYMOUS, Headers, TenantId

_CREDENTIALS = ("authorization", "x-api-key")
_BEARER = "bearer "
_OWN = "x-specroute-"
_MOST_STRANGERS = 4096


class Tenants(Protocol):
    """Tells tenants apart."""

    def tenant(self, headers: Headers) -> Tenant:
        """Whose request this is; must not wait.

        Raises:
            RequestError: It is nobody's who is served.
        """

    def passed_on(self, headers: Headers) -> Headers:
        """What engines may see of the lines."""


def plan_key(name: str, parameters: Mapping[str, object]) -> str:
    """Names a policy with its parameters, the same for the same.

    >>> plan_key("fixed", {"arm": "a"})
    'fixed{"arm":"a"}'
    """
    return name + orjson.dumps(dict(parameters), option=orjson.OPT_SORT_KEYS).decode()


class TenantBook:
    """All tenants of one configuration."""

    def __init__(self, config: TenantsConfig, keys: KeyRing, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock
        self._credentials = keys.interim
        self._shared = False
        self._refuse = config.unknown == "refuse"
        self._header = config.header.lower() if config.header else None
        self._sizes = frozenset(map(len, (*_CREDENTIALS, self._header or _CREDENTIALS[0])))
        self._known = {TenantId(entry.id): _tenant(entry, config.holdout) for entry in config.known}
        self._strangers: dict[TenantId, Tenant] = {}
        """Those who came, so that they need not be made anew."""
        self._stranger = replace(
            self._known.get(ANONYMOUS, Tenant(holdout=config.holdout)), known=False
        )

    def tenant(self, headers: Headers) -> Tenant:
        """Whose request this is: a key of ours comes before a gateway's word.

        Raises:
            RequestError: Nobody vouches for it, and strangers are not served.
        """
        key, given = self._looked_at(headers)
        if key is not None:
            found = self._keys.tenant(key, self._clock.wall())
            tenant = None if found is None else self._known.get(found)
            if tenant is not None:
                return tenant
        elif given is not None:
            tenant = self._known.get(TenantId(given))
            if tenant is not None:
                return tenant
        if self._refuse:
            raise self._refusal(key)
        return self._stranger_of(headers)

    def passed_on(self, headers: Headers) -> Headers:
        """All lines but keys of ours and the gateway's word: neither is any engine's business."""
        # A list: a generator would be resumed for each line.
        kept = [line for line in headers if not self._ours(*line)]
        return headers if len(kept) == len(headers) else tuple(kept)

    def _ours(self, name: str, line: str) -> bool:
        # Most names differ in length already; lowering costs more than looking.
        if len(name) not in self._sizes:
            return False
        name = name.lower()
        if name in _CREDENTIALS:
            return _bare(line).startswith(PREFIX)
        return name == self._header

    def _looked_at(self, headers: Headers) -> tuple[str | None, str | None]:
        """The first key of ours, and what the gateway says if it says one thing."""
        key, said = None, set()
        sizes = self._sizes
        for name, line in headers:
            if len(name) not in sizes:
                continue
            lower = name.lower()
            if key is None and lower in _CREDENTIALS and PREFIX in line:
                bare = _bare(line)
                key = bare if bare.startswith(PREFIX) else None
            elif lower == self._header:
                said.add(line.strip())
        # A client may have added a line of its own to the gateway's: then nobody knows whose is
        # whose.
        return key, said.pop() if len(said) == 1 else None

    def _refusal(self, key: str | None) -> RequestError:
        if key is not None and not self._keys.ready:
            return RequestError(
                Reason.KEYS_UNREAD, "API keys cannot be checked yet. Try again soon."
            )
        return RequestError(
            Reason.UNAUTHENTICATED,
            "No valid API key was given; send one as `Authorization: Bearer …` or `x-api-key`."
            if key is None
            else "The API key is not valid: unknown, revoked or expired.",
        )

    def _stranger_of(self, headers: Headers) -> Tenant:
        secret = self._keys.secret
        if secret is not None and not self._shared:
            # From now on the same credential is the same tenant in every process.
            self._credentials, self._shared = CredentialTenants(secret), True
        tenant_id = self._credentials.tenant(headers)
        if tenant_id == ANONYMOUS:
            return self._stranger
        stranger = self._strangers.get(tenant_id)
        if stranger is None:
            if len(self._strangers) >= _MOST_STRANGERS:
                self._strangers.clear()
            stranger = self._strangers[tenant_id] = replace(self._stranger, id=tenant_id)
        return stranger


def wish(tenant: Tenant, headers: Headers) -> Wish:
    """What a request asks of the router, if its tenant may ask."""
    if not tenant.rights.may_choose:
        return NO_WISH
    class_id = pool = None
    for name, line in headers:
        if name[: len(_OWN)].lower() == _OWN and line.strip():
            match name.lower():
                case "x-specroute-class":
                    class_id = ClassId(line.strip())
                case "x-specroute-pool":
                    pool = ArmId(line.strip())
                case _:
                    pass
    return Wish(class_id, pool) if class_id or pool else NO_WISH


def _bare(line: str) -> str:
    bare = line.strip()
    return bare[len(_BEARER) :].strip() if bare[: len(_BEARER)].lower() == _BEARER else bare


def _tenant(entry: TenantConfig, holdout: float) -> Tenant:
    policy = entry.policy
    return Tenant(
        id=TenantId(entry.id),
        group=entry.group,
        known=True,
        rights=Rights(
            pools=frozenset(map(ArmId, entry.pools)) or None,
            methods=frozenset(entry.methods) or None,
            lossless_only=entry.lossless_only,
            explore=entry.explore,
            policy=plan_key(policy.name, policy.parameters) if policy else None,
            pool=ArmId(entry.pool) if entry.pool else None,
            may_choose=entry.may_choose,
        ),
        holdout=holdout if entry.holdout is None else entry.holdout,
        sentinel=entry.sentinel,
        # Limits of `anonymous` are those of all strangers together: whoever makes up another
        # credential for each request would have no limit otherwise.
        limited_as=TenantId(entry.id) if entry.max_concurrent or entry.tokens_per_minute else None,
    )
