"""Measures the work that this process does around a request, stage by stage, and around a flush.

Usage: python -m bench.path [--requests N] [--light] [--experiment] [--profile STAGE]

Every request walks the stages in their order, as the pipeline has them, so each stage meets the
processor's caches as the one before left them; with --light the classifier costs nothing and leaves
them alone, which shows what it costs the others. It is processor time of the thread, since on a
shared machine the clock shows the neighbours, less what reading that time takes. `record` leaves
sums to be worked out with those of other requests; its mean has that in it. `choose` draws from
shares that a plan holds, `choose by moment` asks the default policy, which has answered most of
what it is asked before. `whole` is
`Pipeline.handle` over an upstream that answers at once, with all that lies between the stages, for
a request that comes alone (`router/cohort.py`);
`store` and `log` are what the loop's thread spends in a flush, and `snapshot` (`bench/snapshot.py`)
is what one of a large route takes.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import uvloop

from bench import snapshot
from bench.conversations import HEADERS, MODEL, SEED, bodies
from policies.cost import typical_tokens
from policies.estimators.increments import increments
from policies.knowledge import Knowledge, Ratios
from policies.net_gain import NetGainPolicy
from policies.types import ArmId, ClassId, Proposal, SpecUsage, Status
from router.admission.admission import Admission
from router.admission.queue import Limits
from router.classify.base import CLASSES, OTHER, Classifier
from router.classify.load import default_classifier
from router.classify.segments import Fingerprints, Segments, SegmentTable
from router.classify.sessions import SessionClassifier, session_name
from router.clock import SystemClock
from router.config.models import Config
from router.config.tenants import Tenants
from router.endpoints.table import FACTS
from router.estimates.layout import part_of
from router.estimates.learned import Learned
from router.estimates.ledger import ledger_counts
from router.estimates.made import Made
from router.estimates.writer import Writer
from router.experiments.cells import HOLDOUT, at_bucket, side_arm
from router.experiments.model import Experiment, ExperimentName, Standing, Treatment, Unit, Variant
from router.experiments.model import Plan as ExperimentPlan
from router.experiments.model import Status as Running
from router.experiments.placing import Rules
from router.experiments.service import Trials
from router.fleet.model import RouteFacts, build_routes
from router.fleet.state import FleetState
from router.intake.parse import parse_request
from router.observe.decision_log import LINES_PER_STEP, DecisionLog
from router.observe.metrics import Metrics
from router.observe.recorder import Recorder, trial_of
from router.pipeline import Pipeline, RawRequest, RouteParts
from router.processes.garbage import spare_what_stays
from router.selection.chooser import Chooser
from router.selection.plans import Plan, context_plan_steps
from router.sentinel.repeats import Sentinel
from router.stores.base import CounterStore
from router.stores.embedded import EmbeddedStore
from router.stores.memory import MemoryStore
from router.tenants.book import TenantBook
from router.tenants.keyring import KeyRing
from router.tenants.quotas import Quotas
from router.types import (
    POOLED,
    Attempt,
    AttemptEnd,
    Classification,
    Decision,
    Endpoint,
    Headers,
    Outcome,
    ParsedRequest,
    ReplicaId,
    RequestContext,
    SegmentId,
    SessionId,
    TenantId,
)

SIZES: Final = {"2 KB": (2_000, 240), "64 KB": (64_000, 40), "1 MB": (1_000_000, 8)}
"""Size of a body and how many different ones there are."""
FEW: Final = 100
"""Bodies so large that fewer are sent."""
FLUSH_EVERY: Final = 25
"""Requests, each sent twice, between two flushes: 200 a second at the default interval."""
_DECISIONS: Final = 250
"""Lines of a flush of the decision log."""
_HELD_IN: Final = (at_bucket(side_arm(HOLDOUT, 0, Variant.TREATMENT), 7, 0.005),)
"""Of a request that is not held out, while others are: as by default."""
BUDGETS: Final = {
    "parse": "10",
    "session, segment": "10, with blend",
    "choose": "30, aim 10",
    "choose by moment": "30",
    "record": "30, aim 15",
}


def route_facts() -> RouteFacts:
    """Three pools of vLLM servers."""
    pools = [
        {
            "name": name,
            "engine": "vllm",
            "replicas": [{"url": f"http://{name}-{n}.test:8000"} for n in range(2)],
        }
        for name in ("plain", "draft", "eagle")
    ]
    more: list[dict[str, Any]] = [
        {"method": "none"},
        {"method": "draft_model", "num_speculative_tokens": 5},
        {"method": "eagle3", "num_speculative_tokens": 3},
    ]
    config = Config.model_validate(
        {
            "routes": [
                {
                    "model": MODEL,
                    "baseline": "plain",
                    "pools": [pool | extra for pool, extra in zip(pools, more, strict=True)],
                }
            ]
        }
    )
    return build_routes(config)[MODEL]


def one_experiment() -> Rules:
    """An experiment that all requests are in."""
    plan = ExperimentPlan(
        ExperimentName("try"), MODEL, "", Treatment(arm=ArmId("draft")), unit=Unit.REQUEST
    )
    return Rules(experiments=(Experiment(plan, Standing(Running.RUNNING, 3, 0.0, "", 1)),))


def plan_of(facts: RouteFacts, segments: Sequence[SegmentId]) -> Plan:
    """Shares for every class, and for every segment of it."""
    rng = np.random.default_rng(SEED)

    def proposal() -> Proposal:
        return Proposal(0.02 + 0.94 * rng.dirichlet(np.ones(3)), np.zeros(3))

    classes = (*CLASSES, OTHER)
    parts = {(class_id, part): proposal() for class_id in classes for part in segments}
    return Plan(
        "thompson", 7, facts.arms, {class_id: proposal() for class_id in classes}, parts=parts
    )


def plan_of_moments(facts: RouteFacts) -> Plan:
    """That of the default policy, which nobody has told anything yet."""
    nothing = Ratios.none(len(facts.arms))
    known = Knowledge(facts.arms, {}, steps=nothing, prefill=nothing)
    classes, rng = (*CLASSES, OTHER), np.random.default_rng(SEED)
    *_, plan = context_plan_steps(NetGainPolicy(), known, classes, version=7, rng=rng)
    if plan is None:
        raise AssertionError("the last step is the plan")
    return plan


def outcome_of(rng: random.Random, arm: ArmId) -> Outcome:
    """A streamed answer of an arm that went well."""
    k = {"draft": 5, "eagle": 3}.get(arm, 0)
    spec = None
    tokens = rng.randrange(40, 600)
    if k:
        steps = [0] * (k + 1)
        for _ in range(tokens // 3):
            steps[rng.randrange(k + 1)] += 1
        accepted = sum(j * n for j, n in enumerate(steps))
        tokens = accepted + sum(steps)
        spec = SpecUsage(sum(steps), k * sum(steps), accepted, tuple(steps), k)
    ttft, tpot = rng.uniform(0.05, 0.6), rng.uniform(0.005, 0.03)
    return Outcome(
        status=Status.OK,
        http_status=200,
        served_by=arm,
        attempts=(Attempt(arm, ReplicaId(f"{arm}/0"), AttemptEnd.ANSWERED),),
        e2e_s=ttft + tpot * tokens,
        ttft_s=ttft,
        tpot_s=tpot,
        tokens=tokens,
        prompt_tokens=rng.randrange(100, 4000),
        spec=spec,
        overhead_s=rng.uniform(0.0001, 0.0006),
        load=rng.choice((1, 2, 3, 6, 10)),
        waiting=0,
    )


class Answering:
    """A relay whose upstream has answered before it was asked."""

    def __init__(self) -> None:
        self.outcomes: Mapping[ArmId, Outcome] = {}

    async def run(
        self,
        ctx: RequestContext,
        decision: Decision,
        sink: object,
        *,
        extra: Callable[..., Headers],
        finish: Callable[[Outcome], None],
        heard: object = None,
    ) -> None:
        """Reports the outcome of the arm that was chosen."""
        del ctx, sink, extra, heard
        finish(self.outcomes[decision.arm_id])


class Known:
    """A classifier that has been asked already."""

    def __init__(self) -> None:
        self.answer = Classification(OTHER, 1.0, {OTHER: 1.0}, "none")

    def classify(self, request: ParsedRequest) -> Classification:  # noqa: ARG002 - a protocol
        """Whatever is asked."""
        return self.answer


@dataclass(slots=True)
class Walk:
    """The objects of one route and the times that its stages took."""

    folder: Path
    store: CounterStore
    inner: Classifier = field(default_factory=default_classifier)
    clock: SystemClock = field(default_factory=SystemClock)
    facts: RouteFacts = field(default_factory=route_facts)
    known: Known = field(default_factory=Known)
    metrics: Metrics = field(default_factory=Metrics)
    taken: dict[str, list[float]] = field(default_factory=dict)
    profile: str = ""
    profiler: cProfile.Profile = field(default_factory=cProfile.Profile)
    rng: random.Random = field(default_factory=lambda: random.Random(SEED))
    rules: Rules = field(default_factory=Rules)
    segments: Segments = field(init=False)
    sessions: SessionClassifier = field(init=False)
    chooser: Chooser = field(init=False)
    by_moment: Chooser = field(init=False)
    writer: Writer = field(init=False)
    log: DecisionLog = field(init=False)
    recorder: Recorder = field(init=False)
    sides: tuple[ArmId, ...] = field(init=False)
    relay: Answering = field(default_factory=Answering)
    pipeline: Pipeline = field(init=False)

    def __post_init__(self) -> None:
        """Wires them as the application does."""
        self.segments = Segments(Fingerprints(b"key"), SegmentTable(self.clock, 64))
        self.sessions = SessionClassifier(self.known, self.clock)
        uniform = np.random.default_rng(SEED).random
        self.chooser = Chooser(
            self.facts, FleetState(self.facts), plan_of(self.facts, ()), uniform=uniform
        )
        self.by_moment = Chooser(
            self.facts, FleetState(self.facts), plan_of_moments(self.facts), uniform=uniform
        )
        self.writer = Writer(self.store, self.clock, prefix="bench", ttl_s=4000)
        self.log = DecisionLog(self.folder / "decisions.jsonl")
        self.sides = (
            *_HELD_IN,
            *(
                at_bucket(side_arm(e.plan.name, e.standing.epoch, Variant.TREATMENT), 7)
                for e in self.rules.experiments
            ),
        )
        trials = Trials(MemoryStore(self.clock), "bench", self.clock.wall)
        self.recorder = Recorder(
            self.writer,
            self.metrics,
            self.log,
            self.clock,
            route=self.facts,
            noted=trials.note,
        )
        parts = RouteParts(self.facts, self.segments, self.chooser, self.relay, self.recorder)  # type: ignore[arg-type]
        self.pipeline = Pipeline(
            {MODEL: parts},
            SessionClassifier(self.inner, self.clock),
            self.clock,
            admission=Admission(Limits(64, 64, 0, 0.0), self.clock, self.metrics),
            tenants=TenantBook(Tenants(), KeyRing(), self.clock),
            quotas=Quotas(self.clock),
            rules=lambda: self.rules,
            sentinel=Sentinel(
                self.writer, self.clock, uniform=uniform, counted=self.metrics.repeated
            ),
            response_headers=True,
        )

    def learn_segments(self, some: Sequence[bytes]) -> None:
        """Lets the applications of these bodies become live, and plans for each of them."""
        for body in islice(cycle(some), 50 * 8):
            self.segments.segment(parse_request(Endpoint.CHAT, body, HEADERS))
        names = [*self.segments.recent(), SegmentId("+")]
        self.chooser.plan = plan_of(self.facts, names)

    def timed(self, stage: str, call: Callable[..., Any], *args: object) -> Any:
        """Runs a stage and keeps what it took."""
        self._watch(stage)
        began = time.thread_time()
        result = call(*args)
        self._note(stage, time.thread_time() - began)
        return result

    def _watch(self, stage: str) -> None:
        if stage == self.profile:
            self.profiler.enable()

    def _note(self, stage: str, took: float) -> None:
        if stage == self.profile:
            self.profiler.disable()
        self.taken.setdefault(stage, []).append(took)

    def apart(self, body: bytes) -> tuple[RequestContext, Decision, Outcome]:
        """One request, stage by stage."""
        request = self.timed("parse", parse_request, Endpoint.CHAT, body, HEADERS)
        session, segment = self.timed("session, segment", self._origin, request)
        self.known.answer = self.timed("classify", self.inner.classify, request)
        classification = self.timed("blend", self.sessions.classify, request, session)
        ctx = RequestContext(
            request_id="0123456789abcdef",
            request=request,
            classification=classification,
            arrival_s=self.clock.monotonic(),
            path_qs="/v1/chat/completions",
            headers=HEADERS,
            segment=segment,
            session=session,
            sides=self.sides,
        )
        decision = self.timed("choose", self.chooser.choose, request, classification, segment)
        self.timed("choose by moment", self.by_moment.choose, request, classification, segment)
        outcome = outcome_of(self.rng, decision.arm_id)
        self.timed("record", self.recorder.record, ctx, decision, outcome)
        return ctx, decision, outcome

    def _origin(self, request: ParsedRequest) -> tuple[SessionId, SegmentId]:
        name = session_name(request)
        return self.sessions.session(request, name), self.segments.segment(request)

    async def together(self, body: bytes) -> None:
        """One request, as the pipeline handles it, and the round of the loop that it waits for."""
        path = Endpoint.CHAT.value
        raw = RawRequest(
            "0" * 16,
            FACTS[Endpoint.CHAT],
            "POST",
            path,
            path,
            HEADERS,
            body,
            self.clock.monotonic(),
        )
        self.relay.outcomes = {
            arm.arm_id: outcome_of(self.rng, arm.arm_id) for arm in self.facts.arms
        }
        self._watch("whole")
        began = time.thread_time()
        await self.pipeline.handle(raw, None)  # type: ignore[arg-type]
        self._note("whole", time.thread_time() - began)


def cuts(taken: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile, in microseconds."""
    quantiles = statistics.quantiles(taken, n=100)
    return (quantiles[49] - _READING_S) * 1e6, (quantiles[98] - _READING_S) * 1e6


def _reading_s() -> float:
    """What it takes to read the processor time twice."""
    taken = []
    for _ in range(1000):
        began = time.thread_time()
        taken.append(time.thread_time() - began)
    return statistics.median(taken)


_READING_S: Final = _reading_s()


async def walk(folder: Path, size: str, options: argparse.Namespace) -> Walk:
    """Sends requests of one size through a route."""
    made = bodies(*SIZES[size])
    requests = options.requests if len(made) > FEW else options.requests // 10
    rules = one_experiment() if options.experiment else Rules()
    walked = Walk(folder, MemoryStore(SystemClock()), profile=options.profile, rules=rules)
    if options.light:
        known = Known()
        known.answer = walked.inner.classify(parse_request(Endpoint.CHAT, made[0], HEADERS))
        walked = Walk(folder, walked.store, inner=known, profile=options.profile, rules=rules)
    walked.learn_segments(made if len(made) >= 8 else bodies(*SIZES["2 KB"]))
    spare_what_stays()
    for number, body in enumerate(islice(cycle(made), requests)):
        if number == requests // 10:
            walked.taken.clear()  # until then everything was done for the first time
        walked.apart(body)
        await walked.together(body)
        if number % FLUSH_EVERY == FLUSH_EVERY - 1:
            walked.timed(DEFERRED, walked.writer.work_out)  # which the flush would do
            await walked.writer.flush()
            await walked.log.flush()
    return walked


def record_mean(walked: Walk) -> float:
    """Microseconds to record a request, with what is worked out of it later."""
    taken = walked.taken["record"]
    # Half of it is of requests that went through the whole pipeline.
    rest = sum(walked.taken.get(DEFERRED, [])) / 2
    return ((sum(taken) + rest) / len(taken) - _READING_S) * 1e6


DEFERRED: Final = "deferred"
STAGES: Final = (
    "parse",
    "session, segment",
    "classify",
    "blend",
    "choose",
    "choose by moment",
    "record",
    "whole",
)


async def stages(folder: Path, options: argparse.Namespace) -> None:
    """Prints the time of each stage for each size of a body."""
    columns: dict[str, dict[str, tuple[float, float]]] = {}
    means: list[str] = []
    for size in SIZES:
        walked = await walk(folder, size, options)
        columns[size] = {
            stage: cuts(taken) for stage, taken in walked.taken.items() if stage != DEFERRED
        }
        means.append(f"{record_mean(walked):.1f}")
        if options.profile:
            print(f"\n{size}: {options.profile}")
            pstats.Stats(walked.profiler).sort_stats("tottime").print_stats(18)
    print("| µs, p50 / p99 | " + " | ".join(columns) + " | budget (2 KB, p50) |")
    print("|---|" + "---:|" * (len(columns) + 1))
    for stage in STAGES:
        cells = [
            f"{figures[stage][0]:.1f} / {figures[stage][1]:.1f}" for figures in columns.values()
        ]
        print(f"| {stage} | " + " | ".join(cells) + f" | {BUDGETS.get(stage, '')} |")
    print("| record, mean | " + " | ".join(means) + " | 30 |")
    rest = [f"{f['whole'][0] - f['classify'][0]:.1f}" for f in columns.values()]
    print("| whole less classify | " + " | ".join(rest) + " | |")


def _cells(walked: Walk, cells: int, *, whole: bool) -> Iterator[tuple[Any, ...]]:
    """Outcomes of so many cells: of whole classes, or of classes and their segments."""
    arms = walked.facts.arms
    for number in range(cells):
        arm = arms[number % len(arms)].arm_id
        decision = Decision(arm, 0.5, {arm: 0.5}, {}, "thompson", 1)
        class_id = ClassId(f"c{number // 3}") if whole else CLASSES[number % 10]
        part = POOLED if whole or number < 30 else SegmentId(f"{number:010x}"[:10])
        yield decision, class_id, part


def _also(walked: Walk, arm: ArmId) -> tuple[Any, ...]:
    """The rest of `Learned`, as for a request of one of a few tenants."""
    outcome = outcome_of(walked.rng, arm)
    tenant = TenantId(f"{walked.rng.randrange(20):016x}")
    end = walked.clock.wall()
    made = Made(outcome.tokens or 0, end - outcome.e2e_s, end)
    return (), tenant, ledger_counts(outcome, walked.facts.baseline), made


async def flushes(folder: Path, rounds: int) -> None:
    """Prints what a flush of sums costs the loop, and what one of decisions does."""
    store = EmbeddedStore(folder / "store", 5.0)
    await store.start()
    try:
        print("\n| flush | fields | loop's thread, ms p50 / p99 | budget |\n|---|---:|---:|---:|")
        await _store_flushes(folder, store, rounds)
        await _log_flushes(folder, rounds)
    finally:
        await store.close()


async def _store_flushes(folder: Path, store: EmbeddedStore, rounds: int) -> None:
    for title, whole in (("classes and segments", False), ("whole classes only", True)):
        walked = Walk(folder, store)
        request = parse_request(Endpoint.CHAT, bodies(2_000, 1)[0], HEADERS)
        taken, sizes = [], []
        for _ in range(rounds):
            for decision, class_id, part in _cells(walked, 200, whole=whole):
                ctx = RequestContext(
                    "r", request, Classification(class_id, 1.0, {}, ""), 0.0, "", (), part
                )
                trial = trial_of(ctx, decision, outcome_of(walked.rng, decision.arm_id))
                sums = increments(trial, typical_tokens(class_id))
                part = part_of(part, 0.0)  # noqa: PLW2901
                walked.writer.add(
                    Learned(
                        MODEL,
                        decision.arm_id,
                        class_id,
                        sums,
                        part,
                        None,
                        *_also(walked, decision.arm_id),
                    )
                )
            sizes.append(sum(map(len, walked.writer.unconfirmed(MODEL).values())))
            began = time.thread_time()
            await walked.writer.flush()
            taken.append(time.thread_time() - began)
        p50, p99 = cuts(taken)
        print(
            f"| store, 200 cells, {title} | {statistics.median(sizes):.0f} | "
            f"{p50 / 1000:.2f} / {p99 / 1000:.2f} | 2 |"
        )


async def _log_flushes(folder: Path, rounds: int) -> None:
    walked = Walk(folder, MemoryStore(SystemClock()))
    made = [walked.apart(body) for body in bodies(2_000, _DECISIONS)]
    taken = []
    for _ in range(rounds):
        for ctx, decision, outcome in made:
            walked.recorder.record(ctx, decision, outcome)
        began = time.thread_time()
        await walked.log.flush()
        taken.append(time.thread_time() - began)
    p50, p99 = cuts(taken)
    title = f"log, {_DECISIONS} decisions, in steps of {LINES_PER_STEP}"
    print(f"| {title} | | {p50 / 1000:.2f} / {p99 / 1000:.2f} | |")


def main() -> None:
    """Prints all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--light", action="store_true")
    parser.add_argument("--experiment", action="store_true", help="all requests are in one")
    parser.add_argument("--profile", choices=STAGES, default="")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-path-"))
    try:
        uvloop.run(stages(folder, arguments))
        if not (arguments.profile or arguments.light or arguments.experiment):
            uvloop.run(flushes(folder, 60))
            print(f"\n{snapshot.table()}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
