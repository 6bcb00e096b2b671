"""Measures what a snapshot of a large route takes: memory, and how long each step holds the loop.

Usage: python -m bench.snapshot

The route has 5 arms and 10 classes, and 200 applications send requests of all of them; for four in
five of a class the policy leans alike, for the others anyhow. A reader keeps the 128 largest of a
block, and of those the 64 largest are told apart (128 pairs of class and segment at most); the
others count in their class. Memory is what the snapshot and its builder hold beside the reader's
sums, by tracemalloc.
"""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from typing import Any, Final

from policies.checks import example_arms
from policies.cost import typical_tokens
from policies.estimators.increments import effect_fields, increments
from policies.types import SpecUsage, Status, Trial
from router.classify.base import CLASSES
from router.estimates.layout import BLOCK_S, Cells, keep_largest, merge_cells
from router.estimates.reader import Past
from router.estimates.snapshot import Snapshot, SnapshotBuilder
from router.types import POOLED, SegmentId

ARMS: Final = 5
SEGMENTS: Final = 200
BLOCKS: Final = 30
"""An hour."""
REQUESTS: Final = 6000
"""In a block: fifty a second."""
MEMORY_MB: Final = 20
_ALIKE: Final = 0.8
STEP_MS: Final = 5
NEWEST: Final = 1_000_000


def block(rng: random.Random) -> Cells:
    """The sums of one block."""
    arms, cells = example_arms(ARMS), Cells()
    segments = [SegmentId(f"seg{number:03}") for number in range(SEGMENTS)]
    for _ in range(REQUESTS):
        arm_id, class_id = rng.choice(arms).arm_id, rng.choice(CLASSES[:10])
        usual = rng.random() < _ALIKE
        lean = f"x{CLASSES.index(class_id) % ARMS if usual else rng.randrange(ARMS):04x}"
        lean += "2" if usual else str(rng.randrange(3))
        trial = Trial(
            class_id, arm_id, Status.OK, rng.random() < 0.9, 0.2, **_answer(rng), lean=lean
        )
        added = increments(trial, typical_tokens(class_id))
        small = effect_fields(added)
        merge_cells(cells, {(arm_id, class_id, POOLED): added})
        for part in (rng.choice(segments), SegmentId(f"~{rng.randrange(5)}")):
            merge_cells(cells, {(arm_id, class_id, part): small})
    keep_largest(cells)
    return cells


def _answer(rng: random.Random) -> dict[str, Any]:
    ttft, tpot, steps = rng.lognormvariate(-1.5, 0.5), rng.lognormvariate(-4, 0.4), 120
    tokens = steps + rng.randrange(4 * steps)
    return {
        "ttft_s": ttft,
        "tpot_s": tpot,
        "e2e_s": ttft + tpot * tokens,
        "tokens": tokens,
        "spec": SpecUsage(steps, 4 * steps, tokens - steps),
        "queue_s": 0.0,
        "overhead_s": rng.lognormvariate(-8, 0.3),
    }


def pieces(builder: SnapshotBuilder, past: Past) -> tuple[Snapshot, list[float]]:
    """Builds a snapshot; the milliseconds of each step, in processor time."""
    taken, steps = [], builder.steps(past, (NEWEST + 0.5) * BLOCK_S)
    while True:
        began = time.thread_time()
        made = next(steps)
        taken.append((time.thread_time() - began) * 1000)
        if made is not None:
            return made, taken


def table() -> str:
    """Measures and says it; Markdown."""
    rng = random.Random(1)
    some = [block(rng) for _ in range(3)]
    blocks = {NEWEST - ago: some[ago % 3] for ago in range(BLOCKS)}
    past = Past(blocks, NEWEST, frozenset(set(blocks) - {NEWEST}))
    builder = SnapshotBuilder(example_arms(ARMS), half_life_s=900.0, tail_limit=1.1)
    gc.collect()
    tracemalloc.start()
    made = builder.build(past, (NEWEST + 0.5) * BLOCK_S)
    gc.collect()
    both = tracemalloc.get_traced_memory()[0] / 1e6
    del made
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    gc.freeze()  # the collector is not what is measured
    fresh = SnapshotBuilder(example_arms(ARMS), half_life_s=900.0, tail_limit=1.1)
    _, first = pieces(fresh, past)
    _, again = pieces(fresh, past)
    memory = f"{both - kept:.1f} / {both:.1f}"
    rows = [
        f"| memory, MB: snapshot / with what its builder keeps | {memory} | {MEMORY_MB} |",
        f"| first: steps, longest ms, together ms | {_steps(first)} | {STEP_MS} a step |",
        f"| the next: steps, longest ms, together ms | {_steps(again)} | {STEP_MS} a step |",
    ]
    return "\n".join(["| snapshot | measured | budget |", "|---|---:|---:|", *rows])


def _steps(taken: list[float]) -> str:
    over = sum(one > STEP_MS for one in taken)
    return f"{len(taken)} / {max(taken):.1f} / {sum(taken):.0f} ({over} over)"


if __name__ == "__main__":
    print(table())
