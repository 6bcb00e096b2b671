"""Times at which requests that were refused may come back, known by their bodies.

A promise is kept by the process that gave it, and told to the others (`router.tenants.board`),
since a client that comes back may reach any of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from router.types import TenantId

KEPT_S = 3.0
"""For how long after its time a promise may still be redeemed: advice is in whole seconds, and the
way back takes its time."""

RESERVED_S = 1.25
"""For how long capacity is set aside for who is due; most come within it. Judgement."""

_PRIOR, _MEMORY = 10.0, 0.98
"""Promises that are taken as kept before any was due, and what the past is worth with each one."""

MOST = 4096
"""Promises of one tenant in one process, and what is read of the others'."""
_MOST_ALIKE = 8
"""Of requests with one body: a client that does not wait gets no more than that."""

_HEAD_BYTES, _TAIL_BYTES = 4096, 1024
Due = tuple[float, str]
"""When, by some clock, and the name of the request."""


def name_of(tenant: TenantId, body: bytes) -> str:
    """What a request is known by: its tenant, and length and ends of its body.

    >>> name_of(TenantId("a"), b"x") == name_of(TenantId("b"), b"x")
    False
    """
    digest = blake2b(body[:_HEAD_BYTES], digest_size=8, salt=len(body).to_bytes(8, "little"))
    digest.update(body[-_TAIL_BYTES:])
    digest.update(tenant.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


class Promises:
    """Of one tenant in one process, the soonest first."""

    __slots__ = ("_by_name", "_came", "_due", "_ended")

    def __init__(self) -> None:
        self._came = self._ended = _PRIOR
        """Who came back, and promises that are over: both fade."""
        self._due: list[Due] = []
        self._by_name: dict[str, list[float]] = {}

    def __len__(self) -> int:
        return len(self._due)

    @property
    def coming(self) -> float:
        """Share of those promised who come back, to whatever process.

        Those who go elsewhere are counted there, and as many come from there.
        """
        return min(self._came / self._ended, 1.0)

    def came(self) -> None:
        """Somebody has come back as told, by whatever process."""
        self._came += 1.0

    @property
    def until_s(self) -> float:
        """When the last of them is due; long ago if there is none."""
        return self._due[-1][0] if self._due else float("-inf")

    def waiting(self, now: float) -> tuple[float, float]:
        """How many are likely to come now, and how many now or later; forgets who did not come."""
        self.forget(now)
        late = at_hand = 0
        for due, _ in self._due:
            if due > now:
                break
            late += due + RESERVED_S < now
            at_hand += 1
        coming = self.coming
        return (at_hand - late) * coming, (len(self._due) - late) * coming

    def forget(self, now: float) -> None:
        """Ends promises to those who did not come."""
        over = bisect_left(self._due, (now - KEPT_S, ""))
        for due, name in self._due[:over]:
            self._drop(due, name)
        del self._due[:over]

    def redeem(self, name: str, now: float) -> bool:
        """Whether a request comes back as it was told; a promise holds once."""
        alike = self._by_name.get(name)
        if not alike or alike[0] > now:
            return False
        due = alike[0]
        self._drop(due, name)
        del self._due[bisect_left(self._due, (due, name))]
        self.came()
        return True

    def give(self, name: str, due: float) -> bool:
        """Promises a time; False where there are too many."""
        alike = self._by_name.get(name, [])
        if len(self._due) >= MOST or len(alike) >= _MOST_ALIKE:
            return False
        self._by_name[name] = sorted((*alike, due))
        insort(self._due, (due, name))
        return True

    def _drop(self, due: float, name: str) -> None:
        self._came *= _MEMORY
        self._ended = self._ended * _MEMORY + 1.0
        alike = self._by_name.get(name, [])
        if due in alike:
            alike.remove(due)
        if alike:
            self._by_name[name] = alike
        else:
            self._by_name.pop(name, None)


class Told:
    """What a process has told those it refused, and what others have."""

    __slots__ = ("_given", "_others")

    def __init__(self) -> None:
        self._given: list[Due] = []
        self._others: Mapping[str, Sequence[float]] = {}

    def note(self, due: float, name: str) -> None:
        """Takes a promise of this process."""
        if len(self._given) < MOST:
            self._given.append((due, name))

    def given(self) -> Sequence[Due]:
        """Promises of this process since this was last asked."""
        given, self._given = self._given, []
        return given

    def learn(self, others: Mapping[str, Sequence[float]]) -> None:
        """Takes promises of other processes, by name of the request."""
        self._others = others

    def elsewhere(self, name: str, now: float) -> bool:
        """Whether another process has promised it for now."""
        return any(due <= now <= due + KEPT_S for due in self._others.get(name, ()))
