"""What people are shown of one class on one arm. Pure: sums in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from policies.estimators.acceptance import alpha_from_tau
from policies.estimators.cells import CellSums
from policies.estimators.increments import LATENCIES, REPEATS, STEP_FIELDS
from policies.estimators.quantiles import SHOWN, Blocks, Quantile, shown
from policies.estimators.tails import TailRatio, tail_ratio
from policies.estimators.tau import Tau, tau_of
from policies.estimators.verdict import Gain, Verdict
from policies.types import Arm, ArmId, ClassId, Source, Status
from router.estimates.durations import Durations

TAILS = {
    f"{family}_p{round(100 * q)}": (family, q) for family in ("ttft", "tpot") for q in (0.95, 0.99)
}
"""Tails that are compared with the baseline's, by name; any of them can be broken."""

_LOOKING_UP = ("none", "ngram", "suffix")
"""Methods whose steps often draft nothing, or always."""


class CountedTau(Protocol):
    """Tokens per step attributed to a class from the counters of servers, with its interval."""

    @property
    def value(self) -> float:
        """Estimate."""

    @property
    def low(self) -> float:
        """Lower bound."""

    @property
    def high(self) -> float:
        """Upper bound."""

    @property
    def tokens(self) -> float:
        """Tokens behind it."""


Counted = Mapping[tuple[ArmId, ClassId], CountedTau]


@dataclass(frozen=True, slots=True)
class Quantiles:
    """A duration over the window, in seconds, of the answers the arm gave."""

    n: int
    p50: Quantile | None
    p95: Quantile | None
    p99: Quantile | None


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Acceptance of drafts in its forms, by the best source there is; None is not known.

    Attributes:
        source: Where tau comes from.
        requests: Requests behind tau; 0 where it comes from counters.
        tokens: Tokens behind tau.
        tau: Tokens per step of the answers the arm gave.
        tau_of_class: The same weighed by the traffic of the class where parts of it are told apart,
            so that a policy that sends the arm some parts of it does not show; None where they are
            not, since it is then the same.
        taus: Tau by source, for all that there are: unlike figures show that sources were mixed.
        rate: Probability that a drafted token is accepted if all before it were, alpha.
        form: How `rate` is known: `histogram`, measured position by position, or `equal_alpha`.
        equal_alpha: The alpha that would give tau if every step drafted k tokens and every position
            had the same, with the bounds of tau.
        position_rates: Alpha by position of the draft; empty where drafts differ in length.
        draft_rate: Accepted / drafted, as engines print it; never ranks arms.
    """

    source: Source | None
    requests: int
    tokens: int
    tau: Tau | None
    tau_of_class: Tau | None
    taus: Mapping[Source, Tau]
    rate: float | None
    form: str | None
    equal_alpha: Tau | None
    position_rates: tuple[float | None, ...]
    draft_rate: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """An arm against the baseline at the same time.

    Attributes:
        gain: With an interval that holds at all looks together; verdicts rest on it.
        gain_once: With the narrower interval that holds at one look.
        by_load: Gain by load band, from its own data alone; None is not known.
        tails: Ratio of its tails to the baseline's, by the names of `TAILS`.
        alike: Whether both answered the same mix of the parts that are told apart, and hardly
            anything that could have gone to one of them alone. Where they did not, tails may be
            those of the parts, and decide nothing, and no gain is known by load.
        verdict: What is known.
        abandoned_more: Whether its answers are surely abandoned more often than the baseline's of
            the same time, so that its slow ones are missing from all the rest.
    """

    gain: Gain | None
    gain_once: Gain | None
    by_load: Mapping[int, Gain | None]
    tails: Mapping[str, TailRatio | None]
    alike: bool
    verdict: Verdict
    abandoned_more: bool = False


@dataclass(frozen=True, slots=True)
class Structure:
    """Answers that had to have a structure; all None where no request demanded any.

    Attributes:
        checked: Those that could be judged.
        invalid: Of these, those without the structure.
        finished: Those that told how they ended.
        truncated: Of these, those cut at the limit of length.
    """

    checked: int | None
    invalid: int | None
    finished: int | None
    truncated: int | None

    @classmethod
    def of(cls, cell: CellSums) -> Structure:
        """What a cell holds of them."""
        checked, finished = cell.plain.get("checked"), cell.plain.get("finished")
        return cls(
            checked,
            None if checked is None else cell.plain.get("invalid", 0),
            finished,
            None if finished is None else cell.plain.get("truncated", 0),
        )


@dataclass(frozen=True, slots=True)
class CellSummary:
    """One class on one arm over the window, or since it changed; None is what was not measured.

    Attributes:
        arm_id: The arm.
        since: When it changed, so that nothing before tells of it as it is; None where it did not.
        measured_since: When the first of its answers in the window came; None where none did.
        ended: Requests by how they ended; only those that ended well bring durations.
        abandoned: Share of answers whose clients left, or that another server overtook, before they
            were complete; None where there were none.
        held: Answers that ended well and whose durations are censored, because clients held them.
        share: Of the class's requests in the last minutes.
        tokens: Completion tokens; None where no answer told any.
        acceptance: Of drafts.
        sources: Requests with a record of speculation, by where it came from.
        latency: By family (`policies.estimators.increments.LATENCIES`), of streamed answers, and of
            all for waits.
        whole: Durations of whole answers by band of their length.
        comparison: None for the baseline, which everything is compared with.
        structure: Answers that had to have one.
        repeats: Answers that were compared with the baseline's, by finding; empty for none.
    """

    arm_id: ArmId
    since: float | None
    measured_since: float | None
    ended: Mapping[Status, int]
    abandoned: float | None
    held: int
    share: float | None
    tokens: int | None
    acceptance: Acceptance
    sources: Mapping[Source, int]
    latency: Mapping[str, Quantiles]
    whole: Mapping[str, Quantiles]
    comparison: Comparison | None
    structure: Structure
    repeats: Mapping[str, int]

    @property
    def acceptance_length(self) -> float | None:
        """Tokens per step."""
        return self.acceptance.tau.value if self.acceptance.tau else None

    @property
    def acceptance_rate(self) -> float | None:
        """Alpha."""
        return self.acceptance.rate

    @property
    def gain(self) -> Gain | None:
        """Gain, None for the baseline."""
        return self.comparison.gain if self.comparison else None

    @property
    def verdict(self) -> Verdict | None:
        """Verdict, None for the baseline."""
        return self.comparison.verdict if self.comparison else None


def repeats_of(cell: CellSums) -> dict[str, int]:
    """What came of comparisons with the baseline, by name."""
    if not cell.plain.get("repeat.n"):
        return {}
    return {name.removeprefix("repeat."): cell.plain.get(name, 0) for name in REPEATS}


def abandoned_share(cell: CellSums) -> float | None:
    """Abandoned answers among those that were served, failed or were abandoned.

    Example:
        >>> abandoned_share(CellSums({"status.ok": 9, "status.aborted": 1, "abandoned": 1}))
        0.1
    """
    left = cell.plain.get("abandoned", 0)
    n = cell.count(Status.OK) + cell.count(Status.FAILED) + left
    return left / n if n else None


def acceptance_of(
    arm: Arm, cell: CellSums, *, by_parts: tuple[Tau, Tau] | None, counted: CountedTau | None
) -> Acceptance:
    """Acceptance by the best source: the request's own record, the stream, then counters.

    Args:
        arm: The arm.
        cell: Its sums.
        by_parts: Tau of its answers and by the class's traffic, where parts are told apart.
        counted: Tau from counters, if they told any.
    """
    taus = {source: tau for source in STEP_FIELDS if (tau := tau_of(cell.steps(source)))}
    source = next(iter(taus), None)
    if source is not None and by_parts is not None and by_parts[0].low is not None:
        taus[source] = by_parts[0]
    tau = taus[source] if source else None
    sums = cell.steps(source) if source else None
    requests, tokens = (sums.n, sums.tokens) if sums else (0, 0)
    if counted is not None:
        found = Tau(counted.value, counted.low, counted.high)
        taus = {**taus, Source.COUNTERS: found}
        if tau is None:
            source, tau, tokens = Source.COUNTERS, found, round(counted.tokens)
    equal = _equal_alpha(arm, tau)
    rate = cell.acceptance_rate
    form = None if rate is None else "histogram"
    if rate is None and equal is not None:
        rate, form = equal.value, "equal_alpha"
    return Acceptance(
        source=source,
        requests=requests,
        tokens=tokens,
        tau=tau,
        tau_of_class=by_parts[1] if by_parts else None,
        taus=taus,
        rate=rate,
        form=form,
        equal_alpha=equal,
        position_rates=cell.full_position_rates(arm.num_speculative_tokens),
        draft_rate=cell.draft_acceptance_rate,
    )


def _equal_alpha(arm: Arm, tau: Tau | None) -> Tau | None:
    """Solved where every step drafts k tokens.

    Look-up methods often draft nothing; for them it would be a number without a meaning.
    """
    k = arm.num_speculative_tokens
    if tau is None or k is None or arm.method in _LOOKING_UP:
        return None
    value = alpha_from_tau(tau.value, k)
    if value is None:
        return None
    if tau.low is None or tau.high is None:
        return Tau(value)
    return Tau(value, alpha_from_tau(max(tau.low, 1.0), k), alpha_from_tau(min(tau.high, k + 1), k))


def quantiles(blocks: Blocks) -> Quantiles:
    """The quantiles that are shown."""
    return Quantiles(blocks.n, *(shown(blocks, q) for q in SHOWN))


def latencies(durations: Durations, arm: int) -> dict[str, Quantiles]:
    """Durations of an arm by family."""
    return {name: quantiles(durations.histogram(name, arm)) for name in LATENCIES}


def whole_answers(durations: Durations, arm: int) -> dict[str, Quantiles]:
    """Durations of an arm's whole answers by band of their length."""
    return {
        band: quantiles(durations.histogram(family, arm)) for band, family in durations.bands(arm)
    }


def tails(durations: Durations, arm: int, baseline: int) -> dict[str, TailRatio | None]:
    """An arm's tails against the baseline's, over blocks that both have."""
    return {
        name: tail_ratio(durations.histogram(family, arm), durations.histogram(family, baseline), q)
        for name, (family, q) in TAILS.items()
    }
