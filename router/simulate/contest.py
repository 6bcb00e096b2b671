"""Runs policies in worlds, over seeds and in several processes. It draws no tables."""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

import policies
from policies.estimators.knowledge import Expectations
from policies.parameters import suggestion
from policies.registry import POLICY_NAMES, build_context_policy
from policies.sim.compare import Yardstick, yardstick
from policies.sim.learner import Learner, arms_of
from policies.sim.references import FixedPool, LeastLoaded
from policies.sim.spec import WorldSpec
from policies.sim.world import Run
from policies.types import ClassId, FloatArray
from router.simulate.load import load_priors, load_world

BoolArray = NDArray[np.bool_]

LEAST_LOADED: Final = "least_loaded"
UNTOLD: Final = "-"
"""Ends the name of a policy that is told nothing of what is published: `net_gain-`."""

ENTRANTS: Final = (*POLICY_NAMES, *(f"{name}{UNTOLD}" for name in ("net_gain",)), LEAST_LOADED)

WARM: Final = 500
"""Requests after which a policy has had time to learn."""

_POINTS: Final = 100
_ALL = slice(None)
_BACK: Final = 0.8
_WINDOW: Final = 50


@dataclass(frozen=True, slots=True)
class Job:
    """One world and seed, and who runs in it."""

    world: str
    seed: int
    entrants: tuple[str, ...]
    requests: int | None = None
    holdout: float = 0.0


@dataclass(frozen=True, slots=True)
class Scores:
    """What came of one entrant in one world with one seed; times over plain decoding's.

    Attributes:
        world: Its name.
        digest: SHA-256 of the world.
        seed: The seed.
        entrant: Who.
        most: What the oracle saves of plain decoding's time, over all requests.
        most_warm: The same from request `WARM` on.
        gain: What the entrant saves.
        gain_warm: The same from request `WARM` on.
        late: Mean time over that of the best pool for all, from request 2,000 on; None for fewer,
            and where no pool has most of the servers.
        tails: 99th percentiles over plain decoding's: TPOT, TTFT, whole time.
        oracle_tails: The oracle's.
        held_out: Requests that were held out; they count in none of the above.
        held_cost: What they lost, as a share of the time of all requests.
        back: Requests until the share was back above 0.8 after each drift: of the class that
            changed, or of all; None where it was not, within the run.
        shares: By class, share of each pool.
        saved: Cumulative seconds saved against plain decoding, at equally spaced requests.
        could: The same for the oracle.
    """

    world: str
    digest: str
    seed: int
    entrant: str
    most: float
    most_warm: float
    gain: float
    gain_warm: float
    late: float | None
    tails: tuple[float, float, float]
    oracle_tails: tuple[float, float, float]
    held_out: int
    held_cost: float
    back: tuple[int | None, ...]
    shares: Mapping[str, tuple[float, ...]]
    saved: tuple[float, ...]
    could: tuple[float, ...]

    @property
    def key(self) -> tuple[str, int, str]:
        """World, seed, entrant."""
        return self.world, self.seed, self.entrant


def expectations(world: WorldSpec) -> Expectations:
    """What is published of the methods of a world, for its arms."""
    priors = load_priors(world)
    methods = [priors.get(pool.method) if pool.k else None for pool in world.pools]
    ks = [pool.k for pool in world.pools]
    pairs = list(zip(methods, ks, strict=True))
    tau = {
        class_id: np.array([m.tau_at(class_id, k) if m else np.nan for m, k in pairs])
        for class_id in world.traffic.classes
    }
    return Expectations(tau, np.array([m.step_at(k) if m else np.nan for m, k in pairs]))


@dataclass(frozen=True, slots=True)
class Entrant:
    """Who runs, read from its name.

    Attributes:
        policy: Name of the policy.
        parameters: Those that are not its defaults.
        told: Whether it is told what is published.
    """

    policy: str
    parameters: Mapping[str, object]
    told: bool

    @classmethod
    def of(cls, text: str) -> Entrant:
        """Read a name: `net_gain`, `net_gain-`, `net_gain:altruism=0;courtesy=0`.

        Raises:
            ValueError: A parameter has no value, or there is no such policy.

        Example:
            >>> Entrant.of("thompson-:floor=0.05")
            Entrant(policy='thompson', parameters={'floor': 0.05}, told=False)
        """
        name, _, rest = text.partition(":")
        told, name = not name.endswith(UNTOLD), name.removesuffix(UNTOLD)
        if name not in (*POLICY_NAMES, LEAST_LOADED):
            raise ValueError(f"there is no policy {name!r}; {suggestion(name, ENTRANTS)}")
        parameters: dict[str, object] = {}
        for pair in filter(None, rest.split(";")):
            key, found, value = pair.partition("=")
            if not found:
                raise ValueError(f"{text!r}: {key} has no value; write {key}=VALUE")
            parameters[key] = _value(value)
        return cls(name, parameters, told)


def _value(text: str) -> object:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def learner(world: WorldSpec, entrant: str, seed: int, holdout: float = 0.0) -> Learner:
    """The router of a world that a policy makes."""
    who = Entrant.of(entrant)
    parameters = {**parameters_of(who.policy, world), **who.parameters}
    policy = build_context_policy(who.policy, parameters, arms_of(world))
    expected = expectations(world) if who.told else None
    return Learner(world, policy, seed, expected=expected, holdout=holdout)


def parameters_of(name: str, world: WorldSpec) -> dict[str, object]:
    """Parameters of a policy that has no defaults: `fixed` takes the pool with most servers."""
    if name != "fixed":
        return {}
    drafting = [pool for pool in world.pools if pool.k]
    return {"arm": max(drafting, key=lambda pool: pool.replicas).name}


def prepared_world(job: Job) -> WorldSpec:
    """The world of a job, cut to its number of requests."""
    world = load_world(job.world)
    if job.requests is not None:
        world = replace(world, traffic=replace(world.traffic, requests=job.requests))
    return world


def run_job(job: Job) -> Iterator[Scores]:
    """Run every entrant of a job on the same arrivals."""
    world = prepared_world(job)
    stick = yardstick(world, job.seed)
    best_all = _best_for_all(stick)
    for entrant in job.entrants:
        if entrant == LEAST_LOADED:
            run, held = stick.run(LeastLoaded()), frozenset[int]()
        else:
            router = learner(world, entrant, job.seed, job.holdout)
            run = stick.run(router)
            held = frozenset(router.held_out)
        yield scores(stick, entrant, run, held, best_all)


def _best_for_all(stick: Yardstick) -> Run | None:
    """The run of the pool that is best for everything, where most servers are of one pool."""
    pools = stick.world.pools
    if len(stick.known) <= _LATE or 2 * max(p.replicas for p in pools) <= stick.world.replicas:
        return None
    runs = [stick.run(FixedPool(n)) for n, pool in enumerate(pools) if pool.replicas]
    return min(runs, key=lambda run: float(run.e2e_s.mean()))


_LATE: Final = 2000


def scores(
    stick: Yardstick, entrant: str, run: Run, held: frozenset[int], best_all: Run | None
) -> Scores:
    """Sum up one run."""
    count = len(stick.known)
    counted = np.ones(count, dtype=np.bool_)
    counted[list(held)] = False
    warm = counted & (np.arange(count) >= WARM)
    if not warm.any():
        warm = counted
    late = counted & (np.arange(count) >= _LATE)
    plain, most = stick.plain, stick.oracle

    def gain(got: Run, mask: BoolArray) -> float:
        return 1.0 - float(got.e2e_s[mask].mean() / plain.e2e_s[mask].mean())

    lost = float((run.e2e_s - most.e2e_s)[~counted].sum() / run.e2e_s.sum()) if held else 0.0
    classes = np.array(run.classes)
    pools = len(stick.world.pools)
    ends = np.linspace(0, count, _POINTS + 1).astype(int)[1:] - 1
    return Scores(
        world=stick.world.name,
        digest=stick.world.digest,
        seed=stick.seed,
        entrant=entrant,
        most=gain(most, counted),
        most_warm=gain(most, warm),
        gain=gain(run, counted),
        gain_warm=gain(run, warm),
        late=float(run.e2e_s[late].mean() / best_all.e2e_s[late].mean()) if best_all else None,
        tails=_tails(run, plain, counted),
        oracle_tails=_tails(most, plain, counted),
        held_out=len(held),
        held_cost=lost,
        back=tuple(
            _back(stick, run, counted, event.at_request, event.class_id)
            for event in stick.world.events
            if event.kind == "drift"
        ),
        shares={
            str(name): tuple(
                (
                    np.bincount(run.pool[classes == name].astype(int), minlength=pools)
                    / int((classes == name).sum())
                ).tolist()
            )
            for name in sorted(set(run.classes))
        },
        saved=tuple((plain.e2e_s - run.e2e_s).cumsum()[ends].tolist()),
        could=tuple((plain.e2e_s - most.e2e_s).cumsum()[ends].tolist()),
    )


def _tails(run: Run, plain: Run, counted: BoolArray) -> tuple[float, float, float]:
    def ratio(got: FloatArray, of: FloatArray) -> float:
        return float(np.nanquantile(got[counted], 0.99) / np.nanquantile(of[counted], 0.99))

    return (
        ratio(run.tpot_s, plain.tpot_s),
        ratio(run.ttft_s, plain.ttft_s),
        ratio(run.e2e_s, plain.e2e_s),
    )


def _back(stick: Yardstick, run: Run, counted: BoolArray, at: int, class_id: ClassId) -> int | None:
    """Requests after a drift until a window of them has a share above 0.8 again."""
    classes = np.array(run.classes)
    concerned = counted & (np.arange(len(counted)) >= at)
    if class_id != "*":
        concerned &= classes == class_id
    plain, got, best = (each.e2e_s[concerned] for each in (stick.plain, run, stick.oracle))
    for begin in range(max(len(plain) - _WINDOW, 0)):
        window = slice(begin, begin + _WINDOW)
        most = float((plain[window] - best[window]).sum())
        if float((plain[window] - got[window]).sum()) > _BACK * most:
            return begin
    return None


class Contest:
    """All jobs, of which those whose results lie in a folder are not run again."""

    def __init__(self, jobs: Sequence[Job], folder: Path | None = None) -> None:
        self._folder = folder
        self._done: list[Scores] = []
        self._left: list[Job] = []
        for job in jobs:
            found = self._read(job)
            self._done += found
            have = {item.entrant for item in found}
            left = tuple(name for name in job.entrants if name not in have)
            if left:
                self._left.append(replace(job, entrants=left))

    @property
    def done(self) -> list[Scores]:
        """What was in the folder, or has been run since."""
        return sorted(self._done, key=lambda item: item.key)

    @property
    def runs(self) -> int:
        """Runs that are still to do."""
        return sum(len(job.entrants) for job in self._left)

    def results(
        self, processes: int, progress: Callable[[Scores], None] | None = None
    ) -> list[Scores]:
        """Do what is left, and return everything.

        Args:
            processes: Worlds that run at once.
            progress: Called with what has just been finished.
        """
        for batch in self._finished(max(processes, 1)):
            for item in batch:
                self._done.append(item)
                if progress is not None:
                    progress(item)
        return self.done

    def _finished(self, processes: int) -> Iterator[list[Scores]]:
        if processes == 1 or len(self._left) == 1:
            for job in self._left:
                for item in run_job(job):
                    self._write(job, item)
                    yield [item]
            return
        # Threads of numerical libraries would only take the other processes' cores.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        with ProcessPoolExecutor(processes) as pool:
            waiting = {pool.submit(_all_of, job): job for job in self._left}
            while waiting:
                done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    job, batch = waiting.pop(future), future.result()
                    for item in batch:
                        self._write(job, item)
                    yield batch

    def _place(self, job: Job, entrant: str) -> Path | None:
        if self._folder is None:
            return None
        length = job.requests or "all"
        name = f"{Path(job.world).stem}.{job.seed}.{entrant}.{length}.{job.holdout:g}.json"
        return self._folder / fingerprint(job.world) / name

    def _read(self, job: Job) -> list[Scores]:
        places = [self._place(job, entrant) for entrant in job.entrants]
        texts = [place.read_text("utf-8") for place in places if place and place.exists()]
        return [_scores_of(json.loads(text)) for text in texts]

    def _write(self, job: Job, item: Scores) -> None:
        place = self._place(job, item.entrant)
        if place is not None:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps(asdict(item)), "utf-8")


def _all_of(job: Job) -> list[Scores]:
    return list(run_job(job))


def _scores_of(given: dict[str, object]) -> Scores:
    values = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
    }
    shares = given["shares"]
    assert isinstance(shares, dict), "as it was written"
    values["shares"] = {name: tuple(row) for name, row in shares.items()}
    return Scores(**values)  # type: ignore[arg-type]


def _code(path: Path) -> str:
    """What a module does: without comments, layout and docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [item for item in body if not _is_text(item)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


@lru_cache(maxsize=64)
def fingerprint(world: str) -> str:
    """What results depend on: the world, the priors and the code of policies."""
    digest = hashlib.sha256(load_world(world).digest.encode())
    root = Path(str(policies.__file__)).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(_code(path).encode())
    digest.update((files("router.simulate") / "priors.yaml").read_bytes())
    return digest.hexdigest()[:16]
