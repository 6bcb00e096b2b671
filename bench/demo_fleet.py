"""Measure what each pool of the demo's fleet gains on each class of the demo's prompts.

Every prompt goes to every pool, one request at a time, the pools in rotating order, so that
drifts of the machine meet all pools alike. Times are the engine's own, of decoding only.

    python bench/demo_fleet.py --classes code_edit,structured --rounds 2
"""

from __future__ import annotations

import argparse
import http.client
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from router.demo.fleet import DEFAULT_POOLS, MEMORY_POOL, MODEL, Fleet, RunningPool
from router.demo.prompts import DemoPrompt, load_prompts

_TIMEOUT_S = 300
_MIN_TOKENS = 8
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer: its tokens, those that a draft had right, milliseconds per token, its text."""

    tokens: int
    accepted: int
    tpot_ms: float
    text: str


def ask(
    pool: RunningPool, prompt: DemoPrompt, seed: int, least: int = _MIN_TOKENS
) -> Sample | None:
    """Send one prompt to one pool; None if there is no answer of at least so many tokens."""
    address = pool.url.removeprefix("http://")
    connection = http.client.HTTPConnection(address, timeout=_TIMEOUT_S)
    body = json.dumps({**prompt.body, "model": MODEL, "seed": seed})
    headers = {"Content-Type": "application/json"}
    try:
        connection.request("POST", "/v1/chat/completions", body, headers)
        answer = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    if "timings" not in answer:
        return None  # the prompt did not fit the model's context
    timings = answer["timings"]
    tokens = int(timings["predicted_n"])
    if tokens < least:
        return None
    # The engine counts the first token in the prompt's time.
    tpot_ms = float(timings["predicted_ms"]) / max(tokens - 1, 1)
    text = str(answer["choices"][0]["message"]["content"])
    return Sample(tokens, int(timings.get("draft_n_accepted", 0)), tpot_ms, text)


def measure(
    pools: Sequence[RunningPool], prompts: Sequence[DemoPrompt], rounds: int
) -> Iterator[tuple[str, Mapping[str, Sample]]]:
    """Give, for each prompt and round, the label and each pool's sample."""
    for turn in range(rounds):
        for index, prompt in enumerate(prompts):
            shift = (turn + index) % len(pools)
            order = [*pools[shift:], *pools[:shift]]
            samples = {pool.name: ask(pool, prompt, seed=turn) for pool in order}
            whole = {name: sample for name, sample in samples.items() if sample is not None}
            if len(whole) == len(pools):
                print(f"  {prompt.id}: " + _speeds(whole), flush=True)
                yield prompt.label, whole


def _speeds(samples: Mapping[str, Sample]) -> str:
    return ", ".join(f"{name} {sample.tpot_ms:.1f} ms" for name, sample in samples.items())


def speedup(plain: Sequence[float], other: Sequence[float], seed: int = 0) -> list[float]:
    """Give plain's mean TPOT over the other's, with the ends of a 90 % bootstrap interval."""
    base, values = np.asarray(plain), np.asarray(other)
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(base), (_RESAMPLES, len(base)))
    ratios = base[picks].mean(axis=1) / values[picks].mean(axis=1)
    low, high = np.quantile(ratios, [0.05, 0.95])
    return [float(base.mean() / values.mean()), float(low), float(high)]


def table(results: Mapping[str, Sequence[Mapping[str, Sample]]], plain: str) -> str:
    """Lay out tokens per step and speed-up for each class and pool."""
    lines = [f"{'class':11s} {'pool':8s} {'n':>3s} {'tok/step':>8s} {'ms/token':>8s} speed-up"]
    for label, rows in results.items():
        base = [row[plain].tpot_ms for row in rows]
        for pool in sorted(rows[0], key=lambda name: (name != plain, name)):
            samples = [row[pool] for row in rows]
            steps = sum(sample.tokens - sample.accepted for sample in samples)
            per_step = sum(sample.tokens for sample in samples) / steps
            times = [sample.tpot_ms for sample in samples]
            ratio, low, high = speedup(base, times)
            lines.append(
                f"{label:11s} {pool:8s} {len(rows):3d} {per_step:8.2f} {np.mean(times):8.1f} "
                f"{ratio:.2f} [{low:.2f}, {high:.2f}]"
            )
    return "\n".join(lines)


def choose(classes: Sequence[str], per_class: int) -> list[DemoPrompt]:
    """Give the first prompts of each wanted class; no class wanted means all."""
    chosen: defaultdict[str, list[DemoPrompt]] = defaultdict(list)
    for prompt in load_prompts():
        if not classes or prompt.label in classes:
            chosen[prompt.label].append(prompt)
    return [prompt for prompts in chosen.values() for prompt in prompts[:per_class]]


def main() -> None:
    """Start the demo's fleet, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--classes", default="", help="comma-separated; default all")
    parser.add_argument("--per-class", type=int, default=100, help="prompts of each class")
    parser.add_argument("--rounds", type=int, default=1, help="times each prompt is sent")
    parser.add_argument("--memory", action="store_true", help="add the pool that remembers")
    parser.add_argument("--cache", type=Path, help="folder of engine and models")
    arguments = parser.parse_args()
    classes = [name for name in arguments.classes.split(",") if name]
    results: defaultdict[str, list[Mapping[str, Sample]]] = defaultdict(list)
    pools = (*DEFAULT_POOLS, MEMORY_POOL) if arguments.memory else DEFAULT_POOLS
    with Fleet(pools=pools, cache=arguments.cache, progress=print) as fleet:
        plain = next(pool.name for pool in fleet.pools if pool.method == "none")
        prompts = choose(classes, arguments.per_class)
        for label, samples in measure(fleet.pools, prompts, arguments.rounds):
            results[label].append(samples)
        for pool in fleet.pools:
            print(f"{pool.name}: {pool.method}, draft {pool.draft_format or 'none'}")
    print(table(results, plain))


if __name__ == "__main__":
    main()
