"""What the default policy makes of knowledge and of a moment."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.budgets import NetGainParameters
from policies.checks import example_arms
from policies.context_checks import example_knowledge, example_moment
from policies.knowledge import Belief, Knowledge, Moment, Ratios
from policies.net_gain import NetGainPolicy, build_net_gain
from policies.types import ClassId, FloatArray

ARMS = example_arms(3)
CHAT = ClassId("chat")
EFFECTS = [0.0, -0.5, -0.1]


def shares(known: Knowledge, moment: Moment | None = None, **parameters: float) -> FloatArray:
    """Probabilities for a moment."""
    policy = NetGainPolicy(NetGainParameters(**parameters))  # type: ignore[arg-type]
    asked = example_moment(known.arms) if moment is None else moment
    return policy.prepare(known, np.random.default_rng(0)).propose(asked).probabilities


def believing(known: Knowledge, **changes: object) -> Knowledge:
    """The same with another belief about the class."""
    belief: Belief = replace(known.beliefs[CHAT, ""], **changes)  # type: ignore[arg-type]
    return replace(known, beliefs={(CHAT, ""): belief})


def test_the_arm_that_is_best_gets_nearly_all() -> None:
    """With much known only control, floor and doubt are left for the others."""
    p = shares(example_knowledge(ARMS, EFFECTS, n=2000.0))
    assert p[1] > 0.97


def test_a_crowded_server_loses_to_an_idle_one() -> None:
    """The best arm at a load where it is slow is not chosen."""
    known = example_knowledge(ARMS, EFFECTS, n=2000.0)
    p = shares(known, replace(example_moment(ARMS), load=(2, 200, 2)))
    assert p[1] < 0.05


def test_prompts_that_wait_before_it_are_paid_for() -> None:
    """Of two arms that are alike the one gets the request whose server has no prompts to do."""
    known = example_knowledge(ARMS, [0.0, -0.5, -0.5], n=2000.0)
    for ahead, better in (((0, 9000, 0), 2), ((0, 0, 9000), 1)):
        assert shares(known, replace(example_moment(ARMS), ahead_tokens=ahead))[better] > 0.9


def test_nobody_joins_a_line_that_stands_still() -> None:
    """What has filled the server up may never have been seen: how long its first waits tells."""
    known = example_knowledge(ARMS, [0.0, -0.5, -0.2], n=2000.0)
    for waited, chosen in ((5.0, 2), (0.05, 1)):
        asked = replace(example_moment(ARMS), waited_s=(0.0, waited, 0.0))
        assert shares(known, asked)[chosen] > 0.9


def test_some_try_whether_the_line_still_stands() -> None:
    """Its first may wait for something of its own, which only those show that overtake it."""
    known = example_knowledge(ARMS, [0.0, -0.5, -0.2], n=2000.0)
    asked = replace(example_moment(ARMS), waited_s=(0.0, 50.0, 0.0))
    assert 0.002 < shares(known, asked)[1] < 0.02


def test_what_waits_is_counted_once() -> None:
    """Prompts in line explain why the first of it waits."""
    known = example_knowledge(ARMS, EFFECTS, n=2000.0)
    told = replace(example_moment(ARMS), ahead_tokens=(0, 4000, 0))
    plan = NetGainPolicy(NetGainParameters()).prepare(known, np.random.default_rng(0))
    short, long = (
        plan.propose(replace(told, waited_s=(0.0, waited, 0.0))) for waited in (0.0, 0.38)
    )
    assert short.scores[1] == long.scores[1]
    assert short is long  # to the plan it is the same question


def test_a_cached_prefix_is_worth_what_it_saves() -> None:
    """A conversation stays where its prefix is, unless more is gained elsewhere than that costs."""
    known = example_knowledge(ARMS, [0.0, -0.5, -0.45], n=2000.0)
    long = replace(example_moment(ARMS), prompt_tokens=12_000, cached_tokens=(0, 0, 11_900))
    assert shares(known)[1] > 0.9
    assert shares(known, long)[2] > 0.9
    known = example_knowledge(ARMS, [0.0, -1.5, -0.1], n=2000.0)
    assert shares(known, replace(long, cached_tokens=(0, 0, 600), prompt_tokens=800))[1] > 0.9


def test_what_is_not_proven_gets_no_more_than_the_budget() -> None:
    """Arms that are about as good as the baseline share the exploration budget, the floor aside."""
    known = believing(example_knowledge(ARMS, [0.0, 0.02, 0.02], n=60.0), settled=1e6)
    p = shares(known, proof=1.0, budget=0.04, floor=0.0)
    assert p[1:].sum() <= 0.04 + 1e-9


def test_the_budget_shrinks_with_load() -> None:
    """On a crowded fleet less is tried out."""
    known = example_knowledge(ARMS, [0.0, 0.02, 0.02], n=3.0)
    crowded = replace(example_moment(ARMS), load=(64, 64, 64))
    calm = shares(known, None, proof=1.0, floor=0.0, calm=16.0)
    assert shares(known, crowded, proof=1.0, floor=0.0, calm=16.0)[1:].sum() < calm[1:].sum()


def test_the_budget_goes_on_shrinking_with_what_is_known() -> None:
    """Long after a class was settled less is tried out than soon after."""
    known = example_knowledge(ARMS, [0.0, 0.02, 0.02], n=60.0)
    early, late = (
        shares(believing(known, settled=n), None, proof=1.0, floor=0.0, doubt=1.0)[1:].sum()
        for n in (200.0, 3000.0)
    )
    assert 0.0 < late < early / 3.0


def test_the_control_is_larger_while_a_gain_cannot_be_told() -> None:
    """A first verdict needs requests of both sides; once it is there half a per cent is enough."""
    few, many = (shares(example_knowledge(ARMS, EFFECTS, n=n), doubt=0.0) for n in (1.0, 2000.0))
    assert few[0] > 0.1
    assert many[0] == pytest.approx(0.005, rel=0.1)


def test_seconds_before_the_first_token_count_more() -> None:
    """A long prompt stays where it is cached, though decoding elsewhere saves more."""
    known = example_knowledge(ARMS, [0.0, -0.5, -0.4], n=2000.0)
    asked = replace(example_moment(ARMS), prompt_tokens=3000, cached_tokens=(0, 0, 400))
    assert shares(known, asked, patience=0.0)[1] > 0.9
    assert shares(known, asked, patience=10.0)[2] > 0.9


def test_a_queue_of_prompts_is_left_though_the_mean_time_behind_it_is_less() -> None:
    """Who would be in the tail of TTFT begins elsewhere, and nobody else does."""
    known = example_knowledge(ARMS, [0.0, -0.5, -0.2], n=2000.0)
    for ahead, patience, chosen in ((3000, 0.0, 1), (3000, None, 2), (100, None, 1)):
        asked = replace(example_moment(ARMS), ahead_tokens=(0, ahead, 0))
        p = shares(known, asked, **({} if patience is None else {"patience": patience}))
        assert p[chosen] > 0.9


def test_an_early_start_is_not_bought_with_slow_tokens() -> None:
    """Behind a queue of prompts the baseline keeps what another arm would decode more slowly."""
    known = example_knowledge(ARMS, [0.0, 0.25, 0.9], n=2000.0)
    asked = replace(example_moment(ARMS), ahead_tokens=(1200, 0, 0))
    assert shares(known, asked, steadiness=0.0)[1] > 0.9
    assert shares(known, asked)[0] > 0.9


def test_a_prompt_that_is_long_everywhere_goes_where_it_is_done_first() -> None:
    """The price levels off: what cannot be saved is no reason to decode slowly."""
    known = example_knowledge(ARMS, EFFECTS, n=2000.0)
    asked = replace(example_moment(ARMS), prompt_tokens=60_000, ahead_tokens=(0, 100, 0))
    assert shares(known, asked)[1] > 0.9


def test_an_arm_that_is_held_back_is_only_probed() -> None:
    """It keeps the floor, so that it can show that it is well again."""
    known = believing(example_knowledge(ARMS, EFFECTS, n=2000.0), held_back={1: "failures"})
    assert shares(known, floor=0.001)[1] == pytest.approx(0.001, rel=0.01)


def test_an_arm_that_is_held_back_is_better_than_none() -> None:
    """Where no other arm has a server it serves."""
    known = believing(example_knowledge(ARMS, EFFECTS, n=2000.0), held_back={1: "failures"})
    alone = replace(example_moment(ARMS), load=(0, 2, 0))
    assert shares(known, alone).tolist() == [0.0, 1.0, 0.0]


def test_an_arm_whose_requests_fail_is_dear() -> None:
    """Half of the requests failing costs twice the time, and more than the arm gains."""
    known = example_knowledge(ARMS, EFFECTS, n=2000.0)
    view = known.beliefs[CHAT, ""].view
    failed = np.array([0.0, 4000.0, 0.0])
    assert shares(believing(known, view=replace(view, failed=failed)))[1] < 0.05


def test_a_change_opens_the_budget_again() -> None:
    """Right after drafting changed on an arm, more is tried than when the class was settled."""
    known = example_knowledge(ARMS, [0.0, 0.02, 0.02], n=60.0)
    settled, changed = (
        shares(believing(known, settled=n), None, proof=1.0, floor=0.0) for n in (1e6, 2.0)
    )
    assert changed[1:].sum() > 5.0 * settled[1:].sum()


def test_parts_that_differ_from_their_class_are_treated_as_they_are() -> None:
    """An application for which the other arm drafts better is sent there; its class is not."""
    known = example_knowledge(ARMS, EFFECTS, n=2000.0)
    other = example_knowledge(ARMS, [0.0, -0.05, -1.0], n=2000.0).beliefs[CHAT, ""]
    known = replace(known, beliefs={**known.beliefs, (CHAT, "app"): other})
    assert shares(known)[1] > 0.9
    assert shares(known, example_moment(ARMS, part="app"))[2] > 0.9
    assert shares(known, example_moment(ARMS, part="unheard-of"))[1] > 0.9


def test_where_nothing_was_measured_what_is_published_decides() -> None:
    """Cold, with priors: the arm that is said to be better is tried, the baseline is measured."""
    nothing = Ratios.none(3)
    priors = {CHAT: np.array([np.nan, 1.0, 3.0])}
    known = Knowledge(ARMS, {}, nothing, nothing, tau_priors=priors)
    p = shares(known)
    assert p[2] > p[1]
    assert p[0] >= NetGainParameters().control


def test_one_arm_alone_gets_everything() -> None:
    """A fleet with nothing to choose."""
    arms = ARMS[:1]
    assert shares(example_knowledge(arms, [0.0])).tolist() == [1.0]


def test_a_limit_on_the_answer_lowers_what_decoding_counts() -> None:
    """With a one-token answer TTFT decides, and there all arms are alike."""
    known = example_knowledge(ARMS, EFFECTS, n=2000.0)
    plan = NetGainPolicy().prepare(known, np.random.default_rng(0))
    scores = plan.propose(replace(example_moment(ARMS), output_tokens=1)).scores
    assert float(scores.max() / scores.min()) < 1.5


def test_warming_changes_no_answer() -> None:
    """Classes that are made ready before are as those made ready when asked for."""
    known = example_knowledge(ARMS, EFFECTS, n=20.0)
    policy = NetGainPolicy()
    cold, warm = (policy.prepare(known, np.random.default_rng(0)) for _ in range(2))
    warm.warm()
    asked = example_moment(ARMS, part="app")
    assert np.array_equal(cold.propose(asked).probabilities, warm.propose(asked).probabilities)


def test_what_was_asked_before_makes_no_difference() -> None:
    """Prompts of one band get one answer, whichever of them is asked about first."""
    known = example_knowledge(ARMS, EFFECTS, n=20.0)
    short, long = (replace(example_moment(ARMS), prompt_tokens=tokens) for tokens in (1000, 1010))
    one, other = (NetGainPolicy().prepare(known, np.random.default_rng(0)) for _ in range(2))
    first, second = one.propose(short), one.propose(long)
    assert np.array_equal(first.scores, other.propose(long).scores)
    assert np.array_equal(first.scores, second.scores)


@pytest.mark.parametrize("tokens", [3, 57, 411, 2999, 31_000])
def test_prompts_are_told_apart_to_a_twentieth(tokens: int) -> None:
    """Counting as the middle of a band moves an expected time by less than the prompt's 4.5 %."""
    policy = NetGainPolicy(NetGainParameters(patience=0.0))
    plan = policy.prepare(example_knowledge(ARMS, EFFECTS), np.random.default_rng(0))
    rough = plan.propose(replace(example_moment(ARMS), prompt_tokens=tokens)).scores
    more = plan.propose(replace(example_moment(ARMS), prompt_tokens=round(tokens * 2**0.125)))
    assert np.all(np.abs(more.scores / rough - 1.0) < 2 * 0.045 + 0.01)
    assert np.all(more.scores >= rough)


def test_a_floor_that_leaves_nothing_is_refused() -> None:
    """Shares that are promised must fit."""
    with pytest.raises(ValueError, match="floor must be within"):
        build_net_gain(NetGainParameters(floor=0.1, control=0.8), ARMS)
