"""What was saved, as JSON values; null is what was not measured."""

from __future__ import annotations

from typing import Any

from policies.estimators.savings import Range, Saved
from router.account import Account
from router.estimates.day import Today


def account_json(account: Account | None) -> dict[str, Any]:
    """Members `saved_today` and `holdout` of a route."""
    if account is None:
        return {"saved_today": None, "holdout": None}
    held = account.holdout
    return {
        "saved_today": _today_json(account.today),
        "holdout": None if held is None else {"month": account.month, **held},
    }


def _today_json(today: Today | None) -> dict[str, Any] | None:
    if today is None:
        return None
    return {"since": today.since, **_saved_json(today.saved)}


def _saved_json(saved: Saved | None) -> dict[str, Any]:
    if saved is None:
        nothing = dict.fromkeys(("seconds", "gain", "tokens_per_s", "time_s"))
        return {**nothing, "answers": 0, "not_compared": None}
    return {
        "seconds": _range_json(saved.seconds),
        "gain": _range_json(saved.gain),
        "tokens_per_s": _range_json(saved.tokens_per_s),
        "time_s": saved.time_s,
        "answers": saved.answers,
        "not_compared": saved.not_compared,
    }


def _range_json(of: Range | None) -> dict[str, float] | None:
    return None if of is None else {"value": of.value, "low": of.low, "high": of.high}
