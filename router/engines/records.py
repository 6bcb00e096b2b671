"""Where engines put the record of a request's speculation, and how each of them is read.

A record is known by its place and by what it is made of, never by the names of its members alone:
some engines share those and mean something else. Each reader returns None where its place is
empty, and a name instead of figures where what stands there cannot be true.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from policies.types import SpecUsage
from policies.values import value
from router.engines.base import Reading, cached_told, choices_asked, count, member, tokens_told
from router.types import ParsedRequest

MOST_WITHOUT_REJECTION = 200
"""Steps with a draft after which one in which everything was accepted is a broken meter."""

_MOST_PER_STEP = 257
_PLACE = re.compile(r"[0-9]{1,3}")


@value
class Found:
    """A record that is there: what it says, or the name of what cannot be believed."""

    spec: SpecUsage | None = None
    unread: tuple[str, ...] = ()


def any_record(answer: Mapping[str, Any], tokens: int | None) -> Found | None:
    """The record of whichever engine wrote the answer.

    Args:
        answer: Members of the answer.
        tokens: Completion tokens, by `usage`.
    """
    for read in (vllm_record, sglang_record, tensorrt_record, _drafted_timings, fastdeploy_record):
        found = read(answer, tokens)
        if found is not None:
            return found
    return None


def vllm_record(answer: Mapping[str, Any], tokens: int | None) -> Found | None:
    """vLLM: root `metrics.speculative_decoding` (0.29 and later).

    A draft of that feature, never released, had it at the choice, with a sparse histogram. What
    `detailed` adds, and histograms by the length of the draft, are passed over.
    """
    name = "metrics.speculative_decoding"
    record = member(answer.get("metrics"), "speculative_decoding")
    if record is None:
        name = "choices.speculative_decoding_stats"
        record = member(_choice(answer), "speculative_decoding_stats")
    if record is None:
        return None
    drafted = count(member(record, "num_draft_tokens"))
    accepted = count(member(record, "num_accepted_draft_tokens"))
    if drafted is None or accepted is None:
        return Found(unread=(name,))
    steps = count(member(record, "num_spec_steps"))
    spec = SpecUsage(
        steps=_all_steps(tokens, accepted, steps),
        drafted=drafted,
        accepted=accepted,
        accepted_per_step=_histogram(member(record, "acceptance_histogram"), steps, accepted),
        num_speculative_tokens=count(member(record, "num_spec_tokens")) or None,
    )
    return _judged(name, spec, steps)


_ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
_DRAFTED = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
_HISTOGRAMS = ("spec_correct_drafts_histogram", "spec_accept_histogram")


def sglang_record(answer: Mapping[str, Any], tokens: int | None) -> Found | None:
    """SGLang: root `sglext.spec_tokens_details`, or `meta_info` at the choice or the root.

    Three generations of names, the newest first. The drafted count is steps times the configured
    length, whatever was drafted. `spec_verify_ct` leaves out the prefill, which gave the first
    token.
    """
    name = "sglext.spec_tokens_details"
    record = _only(member(answer.get("sglext"), "spec_tokens_details"))
    if record is None:
        name = "meta_info.spec_verify_ct"
        places = (member(_choice(answer), "meta_info"), answer.get("meta_info"))
        records = (_only(place) for place in places)
        record = next((r for r in records if member(r, "spec_verify_ct") is not None), None)
    if record is None:
        return None
    steps = count(member(record, "spec_verify_ct"))
    accepted, drafted = _first(record, _ACCEPTED), _first(record, _DRAFTED)
    if steps is None:
        return Found(unread=(name,))
    if accepted is not None and drafted is not None and accepted > drafted > 0:
        drafted = None  # a nominal count that is below the truth
    length = drafted // steps if drafted and drafted % steps == 0 else None
    spec = SpecUsage(
        steps=_all_steps(tokens, accepted, steps),
        drafted=drafted,
        accepted=accepted,
        accepted_per_step=_first_histogram(record, _HISTOGRAMS, steps, accepted),
        num_speculative_tokens=length,
        exact_drafted=False,
    )
    return _judged(name, spec, steps)


def tensorrt_record(answer: Mapping[str, Any], tokens: int | None) -> Found | None:
    """TensorRT-LLM: `choices[].avg_decoded_tokens_per_iter`, and `choices[].speculative_decoding`.

    The first is tokens per step over all steps, without any count. The second (proposed in its
    PR 19311) has names in common with vLLM's record, which stands elsewhere.
    """
    choice = _choice(answer)
    mean, record = (
        member(choice, "avg_decoded_tokens_per_iter"),
        member(choice, "speculative_decoding"),
    )
    if mean is None and record is None:
        return None
    steps = None
    if mean is not None:
        known = isinstance(mean, (int, float)) and not isinstance(mean, bool)
        if not known or not 1 <= mean < _MOST_PER_STEP:
            return Found(unread=("choices.avg_decoded_tokens_per_iter",))
        steps = round(tokens / mean) if tokens else None
    if record is None:
        return Found(None if steps is None else SpecUsage(steps=steps))
    name = "choices.speculative_decoding"
    accepted = count(member(record, "total_accepted_draft_tokens"))
    drafted = count(member(record, "total_draft_tokens"))
    drafting = count(member(record, "num_spec_steps"))
    if accepted is None or drafted is None:
        return Found(unread=(name,))
    spec = SpecUsage(
        steps=_all_steps(tokens, accepted, drafting) if steps is None else steps,
        drafted=drafted,
        accepted=accepted,
        accepted_per_step=_histogram(member(record, "acceptance_histogram"), drafting, accepted),
        num_speculative_tokens=count(member(record, "num_spec_tokens")) or None,
    )
    return _judged(name, spec, drafting)


def llamacpp_record(answer: Mapping[str, Any], tokens: int | None) -> Found | None:
    """llama.cpp and its kin: root `timings`.

    Both counts are absent when nothing was drafted in this request: a measured zero. mlx-vlm adds
    `draft_rounds`, true steps, which leave out the one that gave the first token.
    """
    timings = answer.get("timings")
    if not isinstance(timings, Mapping):
        return None
    drafted = count(timings.get("draft_n", 0))
    accepted = count(timings.get("draft_n_accepted", 0))
    if drafted is None or accepted is None:
        return Found(unread=("timings.draft_n",))
    rounds = count(timings.get("draft_rounds"))
    steps = None if tokens is None else tokens - accepted
    if rounds is not None:
        steps = _all_steps(tokens, accepted, rounds)
    judged = _judged("timings.draft_n", SpecUsage(None, drafted, accepted), rounds or steps)
    if judged.spec is None:
        return judged
    if tokens is None or steps is None or steps < min(tokens, 1):
        # Accepted drafts are counted before a limit cuts the answer, so on a very short one they
        # can outnumber its tokens; and builds from before its PR 26320 counted replayed drafts of
        # hybrid models as accepted. Such a record says nothing about steps.
        return Found(unread=("timings.draft_n_accepted",))
    return Found(SpecUsage(steps=steps, drafted=drafted, accepted=accepted))


def fastdeploy_record(answer: Mapping[str, Any], tokens: int | None) -> Found | None:
    """FastDeploy: `choices[].speculate_metrics`.

    Its accepted tokens are all that were made: `accepted_tokens_per_head` begins with the steps,
    and goes on with those in which at least so many drafted tokens were accepted. What it calls
    rejected is computed from the configured length.
    """
    name = "choices.speculate_metrics"
    record = member(_choice(answer), "speculate_metrics")
    if record is None:
        return None
    made, rejected = (count(member(record, f"{kind}_tokens")) for kind in ("accepted", "rejected"))
    heads = _counts(member(record, "accepted_tokens_per_head"))
    if made is None or rejected is None or not heads:
        return Found(unread=(name,))
    steps = heads[0]
    falls = [*heads, 0]
    histogram = tuple(falls[j] - falls[j + 1] for j in range(len(heads)))
    if made < steps or min(histogram) < 0:
        return Found(unread=(name,))
    spec = SpecUsage(
        steps=steps if tokens is None or steps <= tokens else None,
        drafted=made + rejected - steps,
        accepted=made - steps,
        accepted_per_step=_histogram(histogram, steps, made - steps),
        num_speculative_tokens=(made + rejected) // steps - 1 if steps else None,
        exact_drafted=False,
    )
    return _judged(name, spec, steps)


def prediction_record(answer: Mapping[str, Any], tokens: int | None) -> Found | None:
    """Gateways that put drafts into OpenAI's `usage.completion_tokens_details`.

    OpenAI itself means predicted outputs by them, which a client sends along: only where somebody
    says that a pool is such a gateway do they tell about speculation.
    """
    name = "usage.completion_tokens_details"
    details = member(answer.get("usage"), "completion_tokens_details")
    accepted = member(details, "accepted_prediction_tokens")
    if accepted is None:
        return None
    accepted = count(accepted)
    rejected = count(member(details, "rejected_prediction_tokens"))
    if accepted is None:
        return Found(unread=(name,))
    spec = SpecUsage(
        steps=_all_steps(tokens, accepted, None),
        drafted=None if rejected is None else accepted + rejected,
        accepted=accepted,
    )
    return _judged(name, spec, spec.steps)


def _drafted_timings(answer: Mapping[str, Any], tokens: int | None) -> Found | None:
    """`timings` of a server that may not be llama.cpp: without drafts in them they tell nothing."""
    if member(answer.get("timings"), "draft_n") is None:
        return None
    return llamacpp_record(answer, tokens)


def _judged(name: str, spec: SpecUsage, drafting: int | None) -> Found:
    """The record, unless its figures cannot be those of a meter that works.

    Args:
        name: What to call it.
        spec: What it says.
        drafting: Steps that had a draft, or where that is not told all steps. Each of them drafted
            a token at least, so no more than the drafted tokens count.
    """
    accepted, drafted = spec.accepted, spec.drafted
    if accepted is None or drafted is None:
        return Found(spec)
    if accepted and not drafted:
        return Found(unread=(f"{name}:accepted_undrafted",))
    if accepted > drafted:
        return Found(unread=(name,))
    with_draft = None if drafting is None else min(drafting, drafted)
    if accepted == drafted and with_draft is not None and with_draft > MOST_WITHOUT_REJECTION:
        return Found(unread=(f"{name}:never_rejected",))
    return Found(spec)


def _all_steps(tokens: int | None, accepted: int | None, drafting: int | None) -> int | None:
    """All decode steps of an answer.

    Those with a draft are told, those without one are not, so all of them are tokens less accepted
    ones. But accepted ones are counted before the answer's end cuts the last step, which makes the
    difference too small; it is never below the steps with a draft and the one that gave the first
    token.
    """
    least = drafting + 1 if drafting else None
    if tokens is None:
        return least
    steps = least or 0
    if accepted is not None:
        steps = max(tokens - accepted, steps)
    return steps if 1 <= steps <= tokens else None


def _histogram(told: object, drafting: int | None, accepted: int | None) -> tuple[int, ...] | None:
    """Steps by accepted tokens, from a list or a sparse object; None where it contradicts."""
    counts = _counts(_dense(told) if isinstance(told, Mapping) else told)
    if not counts:
        return None
    total = sum(j * n for j, n in enumerate(counts))
    if (drafting is not None and sum(counts) != drafting) or accepted not in (None, total):
        return None
    return counts


def _dense(sparse: Mapping[object, object]) -> list[object] | None:
    dense: list[object] = []
    for key, number in sparse.items():
        if _PLACE.fullmatch(str(key)) is None:
            return None
        place = int(str(key))
        dense += [0] * (place + 1 - len(dense))
        dense[place] = number
    return dense


def _counts(told: object) -> tuple[int, ...] | None:
    """A list of counts."""
    if not isinstance(told, (list, tuple)):
        return None
    counts = tuple(n for n in map(count, told) if n is not None)
    return counts if len(counts) == len(told) else None


def _first(record: object, names: Sequence[str]) -> int | None:
    return next((n for n in (count(member(record, name)) for name in names) if n is not None), None)


def _first_histogram(
    record: object, names: Sequence[str], drafting: int | None, accepted: int | None
) -> tuple[int, ...] | None:
    told = next((t for t in (member(record, name) for name in names) if t is not None), None)
    return _histogram(told, drafting, accepted)


def _choice(answer: Mapping[str, Any]) -> object:
    """The only choice; several are never read."""
    choices = answer.get("choices")
    return choices[0] if isinstance(choices, list) and len(choices) == 1 else None


def _only(record: object) -> object:
    """A record that may stand in a list of one."""
    if isinstance(record, list):
        return record[0] if len(record) == 1 else None
    return record


def reading_with(
    record: Callable[[Mapping[str, Any], int | None], Found | None],
    request: ParsedRequest,
    answer: Mapping[str, Any],
) -> Reading:
    """Tokens from `usage`, which the engine always owes, and acceptance from one kind of record.

    Of several choices neither can be told apart; what the prompt was still can.
    """
    tokens, prompt_tokens = tokens_told(answer)
    cached = cached_told(answer)
    if choices_asked(request) > 1:
        return Reading(prompt_tokens=prompt_tokens, cached_tokens=cached)
    unread = ("usage.completion_tokens",) if tokens is None else ()
    found = record(answer, tokens) or Found()
    return Reading(tokens, prompt_tokens, found.spec, (*unread, *found.unread), cached)
