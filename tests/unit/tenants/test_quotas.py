"""Tokens per minute: the rate over minutes, and what who is refused is told."""

from __future__ import annotations

import numpy as np
import pytest

from router.errors import Reason, RequestError
from router.tenants.quotas import Bill, Quotas
from router.types import TenantId
from tests.support.clock import ManualClock

ACME = TenantId("acme")


def quotas(clock: ManualClock, per_minute: int = 6000, processes: int = 1) -> Quotas:
    """Of one tenant."""
    made = Quotas(clock)
    made.change({ACME: per_minute}, processes)
    return made


def test_who_has_no_limit_pays_nothing() -> None:
    """However much it takes."""
    made = quotas(ManualClock())
    for _ in range(100):
        made.take(TenantId("other")).settle(10**9)


def test_under_overload_the_rate_holds_within_two_percent_over_processes() -> None:
    """Four of them, ten minutes, answers of very different lengths known only at their end."""
    clock, rng = ManualClock(), np.random.default_rng(3)
    processes = [quotas(clock, 120_000, 4) for _ in range(4)]
    running: list[tuple[float, Bill, int]] = []
    spent = 0
    for tick in range(6000):
        clock.advance(0.1)
        now = tick * 0.1
        for ends, bill, tokens in running:
            if ends <= now:
                bill.settle(tokens)
        running = [entry for entry in running if entry[0] > now]
        for process in processes:
            for _ in range(20):
                try:
                    bill = process.take(ACME)
                except RequestError:
                    break
                tokens = int(rng.lognormal(5.0, 1.0))
                spent += tokens
                running.append((now + rng.uniform(0.5, 8.0), bill, tokens))
    assert spent == pytest.approx(120_000 * 10, rel=0.02)


def test_who_comes_when_it_was_told_is_let_in() -> None:
    """The debt is paid by then."""
    clock = ManualClock()
    made = quotas(clock)
    made.take(ACME).settle(2500)
    with pytest.raises(RequestError) as caught:
        made.take(ACME)
    assert caught.value.reason is Reason.TENANT_SATURATED
    assert caught.value.retry_after_s is not None
    clock.advance(caught.value.retry_after_s)
    made.take(ACME)


def test_what_nobody_told_stays_a_guess_and_what_failed_is_free() -> None:
    """A bill is settled once."""
    clock = ManualClock()
    made = quotas(clock, 60_000)
    for _ in range(100):
        made.take(ACME).settle(0)
    bill = made.take(ACME)
    bill.settle_untold()
    bill.settle(0)
    for _ in range(5):
        made.take(ACME)
    with pytest.raises(RequestError):
        made.take(ACME)


def test_a_change_of_limits_forgives_nothing() -> None:
    """And a tenant without a limit any more is free."""
    clock = ManualClock()
    made = quotas(clock)
    made.take(ACME).settle(5000)
    made.change({ACME: 12_000}, 1)
    with pytest.raises(RequestError):
        made.take(ACME)
    made.change({}, 1)
    made.take(ACME)


def test_who_leaves_early_pays_what_was_seen() -> None:
    """The prompt by what those before had for each byte of a body, and the answer so far."""
    clock = ManualClock()
    made = quotas(clock, 60_000)
    made.take(ACME, b"x" * 100).settle(30, of_prompt=20)  # a fifth of a token for each byte
    made.take(ACME, b"x" * 10_000).settle_untold(1500)  # 3,500 tokens, of which a burst pays 3,000
    with pytest.raises(RequestError):
        made.take(ACME)
    clock.advance(1.0)
    made.take(ACME)


def refused(made: Quotas, body: bytes) -> int:
    """What a request that is refused is told."""
    with pytest.raises(RequestError) as caught:
        made.take(ACME, body)
    assert caught.value.retry_after_s is not None
    return caught.value.retry_after_s


def test_who_comes_back_as_told_is_let_in_whoever_else_comes() -> None:
    """Each is told a time of its own, and newcomers do not take what is kept for it."""
    clock = ManualClock()
    made = quotas(clock, 60_000)
    for _ in range(40):
        made.take(ACME).settle(500)
        clock.advance(0.5)
    made.take(ACME).settle(5000)
    told = {number: refused(made, b"request %d" % number) for number in range(20)}
    assert sorted(told.values()) == list(told.values())
    assert len(set(told.values())) > 5
    newcomers = served = 0
    for tenth in range(1, 10 * max(told.values()) + 1):
        clock.advance(0.1)
        try:
            made.take(ACME, b"newcomer %d" % tenth).settle(500)
            newcomers += 1
        except RequestError:
            pass
        for number in [n for n, wait_s in told.items() if 10 * wait_s == tenth]:
            made.take(ACME, b"request %d" % number).settle(500)
            served += 1
    assert served == len(told)
    assert newcomers < served


def test_a_promise_holds_once_and_not_before_its_time() -> None:
    """Who hammers with one body gets no more than others."""
    clock = ManualClock()
    made = quotas(clock, 6000)
    made.take(ACME).settle(2000)
    wait_s = refused(made, b"mine")
    for _ in range(100):
        refused(made, b"hammer")
    clock.advance(wait_s - 1.5)
    refused(made, b"mine")
    clock.advance(1.5)
    made.take(ACME, b"mine").settle(500)
    refused(made, b"mine")
