"""What a world is made of: engines, pools, traffic, events. Values only; it reads no file."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from policies.sim.fields import build
from policies.types import ClassId, FloatArray

ANY_CLASS: Final = ClassId("*")
"""The class of an arm's cell for all classes that have none of their own."""


@dataclass(frozen=True, slots=True)
class Cell:
    """How well an arm drafts for a class.

    Attributes:
        tau: Mean over requests of a request's tokens per step, once drafts are learned from
            nothing.
        alphas: Acceptance of each position given the ones before, on average; their level is
            moved to fit `tau`, their shape is kept.
        tau_sd: Sd of tau over requests, as measured on answers of `tau_tokens`: chance included.
        tau_tokens: Length of the answers `tau_sd` was measured on.
        lag1: None: every step drafts and positions are independent. Else drafts come from
            matches, and this is the correlation of accepted counts of one step and the next.
        blind_ratio: With matches: share of the steps without one that draft in vain.
        learned_tau: What tau becomes for texts of which the drafter has seen enough.
        learn_tokens: Tokens of a template after which two thirds of the way are gone.
    """

    tau: float
    alphas: tuple[float, ...]
    tau_sd: float = 0.0
    tau_tokens: float = 300.0
    lag1: float | None = None
    blind_ratio: float = 0.0
    learned_tau: float | None = None
    learn_tokens: float = 20_000.0

    def scaled(self, factor: float) -> Cell:
        """The same drafter with so many times the accepted tokens per step."""
        k = len(self.alphas)
        tau = min(1.0 + (self.tau - 1.0) * factor, 1.0 + 0.98 * k)
        learned = self.learned_tau
        if learned is not None:
            learned = min(1.0 + (learned - 1.0) * factor, 1.0 + 0.98 * k)
        return replace(self, tau=tau, tau_sd=self.tau_sd * factor, learned_tau=learned)


@dataclass(frozen=True, slots=True)
class StepCost:
    """How long a step takes; seconds, and linear between its bends.

    Attributes:
        base_s: Reading the weights.
        per_token_s: Each token verified, up to the knee.
        knee_tokens: Tokens in a step where the slope changes: an accelerator turns from bound by
            memory to bound by compute, or a mixture of experts has all of them loaded.
        beyond_s: Each token verified beyond the knee.
        per_kv_token_s: Each token of context that is attended to.
        overhead_s: Scheduling and sampling.
        draft_s: Drafting, whatever the batch.
        draft_per_token_s: Each token drafted.
        draft_ratio: Drafting as a share of verifying.
        prefill_per_token_s: Each token of a prompt that is not cached.
    """

    base_s: float
    per_token_s: float
    prefill_per_token_s: float
    knee_tokens: float = 1e9
    beyond_s: float = 0.0
    per_kv_token_s: float = 0.0
    overhead_s: float = 0.0
    draft_s: float = 0.0
    draft_per_token_s: float = 0.0
    draft_ratio: float = 0.0

    def seconds(
        self, tokens: FloatArray | float, drafted: FloatArray | float, kv: FloatArray | float
    ) -> FloatArray:
        """Time of steps that verify `tokens`, of which `drafted` were drafted, over `kv` context.

        Example:
            >>> cost = StepCost(0.005, 1e-5, 2e-5, knee_tokens=100, beyond_s=1e-4)
            >>> cost.seconds(np.array([1.0, 100.0, 200.0]), 0.0, 0.0).round(5)
            array([0.00501, 0.006  , 0.016  ])
        """
        beyond = np.maximum(np.asarray(tokens) - self.knee_tokens, 0.0)
        verify = (
            self.base_s
            + self.per_token_s * (tokens - beyond)
            + self.beyond_s * beyond
            + self.per_kv_token_s * np.asarray(kv)
        )
        draft = self.draft_s + self.draft_per_token_s * np.asarray(drafted)
        seconds: FloatArray = verify * (1.0 + self.draft_ratio) + draft + self.overhead_s
        return seconds


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One server with one method.

    Attributes:
        method: As in the configuration of a pool: `none`, `ngram`, `eagle3`, ….
        k: Tokens drafted per step.
        cost: Time of a step.
        cells: Acceptance by class; `ANY_CLASS` stands in for those missing.
        slots: Requests that run at once.
        kv_tokens: Tokens that fit into the KV cache.
        chunk_tokens: Tokens in a step while prompts are prefilled.
        hot_shift: What sampling with a temperature adds to the log odds of acceptance.
        languages: The same by language; one not named adds nothing.
        jitter_sd: Sd of the log time of a step.
        boot_sd: Sd of the log speed from one start to the next.
    """

    method: str
    k: int
    cost: StepCost
    cells: Mapping[ClassId, Cell] = field(default_factory=dict)
    slots: int = 256
    kv_tokens: int = 400_000
    chunk_tokens: int = 8192
    hot_shift: float = 0.0
    languages: Mapping[str, float] = field(default_factory=dict)
    jitter_sd: float = 0.05
    boot_sd: float = 0.0

    def cell(self, class_id: ClassId) -> Cell | None:
        """Acceptance of the class; None where nothing is drafted."""
        return self.cells.get(class_id, self.cells.get(ANY_CLASS)) if self.k else None

    def scaled(self, class_id: ClassId, factor: float) -> EngineSpec:
        """The engine after its drafter became better or worse, for one class or all of them."""
        cells = {
            known: cell.scaled(factor) if class_id in (known, ANY_CLASS) else cell
            for known, cell in self.cells.items()
        }
        if class_id not in cells and ANY_CLASS in cells:
            cells[class_id] = cells[ANY_CLASS].scaled(factor)
        return replace(self, cells=cells)


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """Servers that are alike: one arm.

    Attributes:
        name: The arm.
        method: As in the configuration of a pool.
        engine: Software that it speaks like: `vllm`, `sglang` or `llama.cpp`.
        k: Tokens drafted per step; 0 for plain decoding.
        replicas: Servers.
        spec: Each of them.
    """

    name: str
    method: str
    engine: str
    k: int
    replicas: int
    spec: EngineSpec


@dataclass(frozen=True, slots=True)
class ClassTraffic:
    """Requests of a class.

    Attributes:
        weight: Share of the traffic, up to a factor.
        prompt: Median of the prompt's tokens and sd of their logarithm.
        output: The same for the answer.
        templates: Applications it comes from; the first is the most frequent.
        template_tokens: Beginning of the prompt that all requests of a template share.
        languages: Weight by language; one with no name is that of the measurements.
        hot_ratio: Share of requests that sample with a temperature.
        more_turns: Probability that a request is followed by another of its conversation.
    """

    weight: float
    prompt: tuple[float, float]
    output: tuple[float, float]
    templates: int = 20
    template_tokens: int = 0
    languages: Mapping[str, float] = field(default_factory=dict)
    hot_ratio: float = 0.0
    more_turns: float = 0.0


@dataclass(frozen=True, slots=True)
class TrafficSpec:
    """What arrives.

    Attributes:
        rate: Mean requests per second.
        requests: How many.
        classes: By class.
        swing: Amplitude of the day's wave, as a share of the mean rate.
        day_s: Length of a day of the world; 0 is all of the run.
        burst_ratio: Share of requests that come in bursts.
        burst_requests: Mean requests in a burst.
        think_s: Mean time between turns.
        misread_ratio: Share of requests whose class is told wrongly.
    """

    rate: float
    requests: int
    classes: Mapping[ClassId, ClassTraffic]
    swing: float = 0.0
    day_s: float = 0.0
    burst_ratio: float = 0.0
    burst_requests: float = 10.0
    think_s: float = 60.0
    misread_ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class Event:
    """Something that changes when a request arrives.

    Attributes:
        at_request: Number of that request.
        kind: `drift`: a pool's drafter accepts `factor` times as much from then on, for a class
            or `*`. `fail`: a server is gone for `seconds` and comes back empty. `mix`: `class_id`
            has `factor` times its weight.
        pool: Whose.
        class_id: Which class.
        factor: By how much.
        replica: Which server.
        seconds: For how long.
    """

    at_request: int
    kind: str
    pool: str = ""
    class_id: ClassId = ANY_CLASS
    factor: float = 1.0
    replica: int = 0
    seconds: float = 30.0

    def __post_init__(self) -> None:
        if self.kind not in EVENT_KINDS:
            raise ValueError(f"kind must be one of {', '.join(EVENT_KINDS)}, not {self.kind!r}")


EVENT_KINDS: Final = ("drift", "fail", "mix")


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """A world.

    Attributes:
        name: What it is called.
        about: One sentence for people.
        pools: Exactly one is plain decoding; it is the baseline.
        traffic: What arrives.
        events: What changes.
        trial_priors: Expected tau by method and class that are handed to policies instead of the
            published ones; None: those.
        digest: SHA-256 of all that it was built from.
    """

    name: str
    about: str
    pools: tuple[PoolSpec, ...]
    traffic: TrafficSpec
    events: tuple[Event, ...] = ()
    trial_priors: Mapping[str, Mapping[str, float]] | None = None
    digest: str = ""

    def __post_init__(self) -> None:
        names = [pool.name for pool in self.pools]
        if len(set(names)) != len(names):
            raise ValueError(f"pools of one name in world {self.name!r}: {names}")
        if sum(pool.k == 0 for pool in self.pools) != 1:
            raise ValueError(f"world {self.name!r} needs exactly one pool with k 0")
        for event in self.events:
            if event.kind != "mix" and event.pool not in names:
                raise ValueError(f"event of an unknown pool {event.pool!r} in {self.name!r}")

    @property
    def plain(self) -> PoolSpec:
        """The pool that decodes plainly."""
        return next(pool for pool in self.pools if pool.k == 0)

    @property
    def replicas(self) -> int:
        """Servers of all pools."""
        return sum(pool.replicas for pool in self.pools)

    def merged(self, name: str) -> WorldSpec:
        """The same servers, all of them as in one pool; the plain pool stays, with no server.

        Events of other pools are gone, failures of any stay on the server of that number.
        """
        rest = [replace(pool, replicas=0) for pool in self.pools]
        chosen = [replace(p, replicas=self.replicas) if p.name == name else p for p in rest]
        return replace(self, pools=tuple(chosen), events=self._events_of(name))

    def _events_of(self, name: str) -> tuple[Event, ...]:
        kept = []
        before = {}
        total = 0
        for pool in self.pools:
            before[pool.name] = total
            total += pool.replicas
        for event in self.events:
            if event.kind == "fail":
                number = before[event.pool] + event.replica
                kept.append(replace(event, pool=name, replica=number))
            elif event.kind == "mix" or event.pool == name:
                kept.append(event)
        return tuple(kept)

    @classmethod
    def from_mapping(cls, given: Mapping[str, object]) -> WorldSpec:
        """Build a world from plain values, as they stand in a file.

        Args:
            given: `name`, `about`, `box` (a mapping with `cost`, `arms` and limits of a server),
                `pools` (each names an arm of the box), `traffic`, `events`, `priors`.

        Raises:
            ValueError: The message holds the path of what is wrong.
        """
        known = {"name", "about", "box", "pools", "traffic", "events", "priors"}
        _refuse_unknown(given, known, "world")
        box = _mapping(given.get("box"), "box")
        engines = engines_of(box)
        pools = tuple(_pool(row, box, engines) for row in _rows(given.get("pools"), "pools"))
        priors = given.get("priors")
        return cls(
            name=str(given.get("name", "")),
            about=str(given.get("about", "")),
            pools=pools,
            traffic=build(TrafficSpec, _mapping(given.get("traffic"), "traffic"), "traffic"),
            events=tuple(
                build(Event, row, f"events[{index}]")
                for index, row in enumerate(_rows(given.get("events", ()), "events"))
            ),
            trial_priors=None if priors is None else _priors(_mapping(priors, "priors")),
            digest=fingerprint(given),
        )


def fingerprint(given: object) -> str:
    """SHA-256 of plain values, whatever the order of their keys and however they are laid out.

    Example:
        >>> fingerprint({"a": 1, "b": [2]}) == fingerprint({"b": [2], "a": 1})
        True
    """
    text = json.dumps(given, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def engines_of(box: Mapping[str, object]) -> dict[str, EngineSpec]:
    """Build the engine of every arm of a box.

    An arm holds `method`, `engine`, `k`, what it adds to the cost of a step (`draft`), and
    `classes`; whatever a class does not say, the arm says for all of them in `drafting`.
    """
    _refuse_unknown(box, {"name", "about", "source", "cost", "server", "arms"}, "box")
    cost = dict(_mapping(box.get("cost"), "box.cost"))
    server = _mapping(box.get("server", {}), "box.server")
    engines = {}
    for name, given in _mapping(box.get("arms"), "box.arms").items():
        where = f"box.arms.{name}"
        arm = _mapping(given, where)
        _refuse_unknown(arm, _ARM_KEYS, where)
        drafting = dict(_mapping(arm.get("drafting", {}), f"{where}.drafting"))
        cells = {
            ClassId(class_id): build(
                Cell,
                drafting | dict(_mapping(row, f"{where}.classes.{class_id}")),
                f"{where}.classes.{class_id}",
            )
            for class_id, row in _mapping(arm.get("classes", {}), f"{where}.classes").items()
        }
        values = {"method": arm.get("method", "none"), "k": arm.get("k", 0), **server}
        values |= {key: arm[key] for key in ("hot_shift", "languages") if key in arm}
        draft = _mapping(arm.get("draft", {}), f"{where}.draft")
        step = build(StepCost, cost | dict(draft), f"{where}.draft")
        engine = build(EngineSpec, values, where, cost=step, cells=cells)
        for class_id, cell in cells.items():
            if not 1.0 <= cell.tau < 1.0 + engine.k or len(cell.alphas) != engine.k:
                raise ValueError(f"{where}.classes.{class_id}: tau and alphas do not fit k")
        engines[str(name)] = engine
    return engines


_ARM_KEYS = {
    "method", "engine", "k", "draft", "drafting", "classes", "hot_shift", "languages", "source",
}  # fmt: skip


def _pool(
    row: Mapping[str, object], box: Mapping[str, object], engines: Mapping[str, EngineSpec]
) -> PoolSpec:
    _refuse_unknown(row, {"name", "arm", "replicas"}, "pools")
    arm, name = str(row.get("arm", "")), str(row.get("name", row.get("arm", "")))
    if arm not in engines:
        raise ValueError(f"pools.{name}: the box has no arm {arm!r}, only {sorted(engines)}")
    replicas = row.get("replicas", 1)
    if not isinstance(replicas, int) or replicas < 0:
        raise ValueError(f"pools.{name}.replicas must be a number of servers, not {replicas!r}")
    spec = engines[arm]
    given = _mapping(_mapping(box["arms"], "box.arms")[arm], f"box.arms.{arm}")
    return PoolSpec(name, spec.method, str(given.get("engine", "vllm")), spec.k, replicas, spec)


def _priors(given: Mapping[str, object]) -> dict[str, dict[str, float]]:
    rows = {}
    for method, row in given.items():
        values = _mapping(row, f"priors.{method}").items()
        rows[method] = {str(name): float(str(value)) for name, value in values}
        if not all(math.isfinite(value) for value in rows[method].values()):
            raise ValueError(f"priors.{method} holds a value that is no number")
    return rows


def _mapping(given: object, where: str) -> Mapping[str, object]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{where} must be a mapping, not {given!r}")  # noqa: TRY004
    return given


def _rows(given: object, where: str) -> tuple[Mapping[str, object], ...]:
    if not isinstance(given, list | tuple):
        raise ValueError(f"{where} must be a list, not {given!r}")  # noqa: TRY004
    return tuple(_mapping(row, f"{where}[{index}]") for index, row in enumerate(given))


def _refuse_unknown(given: Mapping[str, object], known: set[str], where: str) -> None:
    extra = sorted(set(given) - known)
    if extra:
        raise ValueError(
            f"{where} knows no {', '.join(extra)}; it knows {', '.join(sorted(known))}"
        )
