"""Fits the time of a step to published speed-ups, and prints it beside what a box's file says.

Usage: python -m bench.fit_worlds [BOX ...]

Free are the slopes before and beyond the knee and the knee itself; for each arm and class the
tokens per step that fit best follow from them in closed form. The base, the overhead, the KV term
and the cost of drafting stay as the file has them: they come from elsewhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from policies.sim.acceptance import acceptance_of
from policies.sim.curves import speedup
from policies.sim.spec import EngineSpec
from policies.types import ClassId, FloatArray
from router.simulate.load import Curve, load_curves, load_engines

ROUNDS = 400


@dataclass(frozen=True, slots=True)
class Fit:
    """A fit to the curves of a box.

    Attributes:
        slopes: Slope, knee and slope beyond it.
        taus: Tokens per step of a stream, by arm and class.
        error: Root mean square of the logarithm's error.
    """

    slopes: tuple[float, float, float]
    taus: dict[tuple[str, ClassId], float]
    error: float


def fit(engines: dict[str, EngineSpec], curves: Sequence[Curve], seed: int = 0) -> Fit:
    """Search for the slopes by random steps that shrink."""
    rng = np.random.default_rng(seed)
    cost = engines["plain"].cost
    place = np.log([cost.per_token_s, min(cost.knee_tokens, 250.0), cost.per_token_s * 1.2])
    best, width = _at(place, engines, curves), 0.3
    for number in range(ROUNDS):
        trial = place + width * rng.standard_normal(3)
        found = _at(trial, engines, curves)
        if found.error < best.error:
            place, best = trial, found
        if number % 80 == 79:
            width *= 0.5
    return best


def _at(place: FloatArray, engines: dict[str, EngineSpec], curves: Sequence[Curve]) -> Fit:
    slope, knee, beyond = (float(value) for value in np.exp(place))
    taus, errors = {}, []
    for curve in curves:
        ratio = _steps(slope, knee, beyond, engines, curve)
        left = np.log(curve.speedup) - np.log(ratio)
        taus[curve.arm, curve.class_id] = float(np.exp(left.mean()))
        errors.append(left - left.mean())
    error = float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))
    return Fit((slope, knee, beyond), taus, error)


def _steps(
    slope: float, knee: float, beyond: float, engines: dict[str, EngineSpec], curve: Curve
) -> FloatArray:
    """A plain step over one of the arm, at each batch."""
    spec, batch = engines[curve.arm], np.array(curve.batch)
    cell = spec.cell(curve.class_id)
    assert cell is not None, "curves are of arms that draft"
    acceptance = acceptance_of(cell)
    drafted = acceptance.drafted_per_step((acceptance.mean_tau() - 1.0) / spec.k)
    bent = {"per_token_s": slope, "knee_tokens": knee, "beyond_s": beyond}
    plain = replace(engines["plain"].cost, **bent).seconds(batch, 0.0, batch * curve.context)
    step = replace(spec.cost, **bent).seconds(
        batch * (1.0 + drafted), batch * drafted, batch * curve.context
    )
    ratio: FloatArray = plain / step
    return ratio


def error_of(engines: dict[str, EngineSpec], curves: Sequence[Curve]) -> float:
    """Root mean square of the logarithm's error of a box as its file has it."""
    errors = [np.log(modelled(engines, curve)) - np.log(curve.speedup) for curve in curves]
    return float(np.sqrt(np.mean(np.concatenate(errors) ** 2)))


def modelled(engines: dict[str, EngineSpec], curve: Curve) -> FloatArray:
    """The speed-ups that a box has where a curve was measured."""
    class_id, spec = curve.class_id, engines[curve.arm]
    return np.array(
        [speedup(engines["plain"], spec, class_id, n, curve.context) for n in curve.batch]
    )


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "boxes", nargs="*", default=["llama-8b-h100", "qwen-8b-h100", "llama-70b-h100"]
    )
    for name in parser.parse_args().boxes:
        engines, curves = load_engines(name), load_curves(name)
        cost, found = engines["plain"].cost, fit(engines, curves)
        slope, knee, beyond = found.slopes
        print(
            f"\n{name}: error of the file {error_of(engines, curves):.3f}, "
            f"of a fit {found.error:.3f}"
        )
        print(f"slope {cost.per_token_s:.3g} in the file, {slope:.3g} fitted; ", end="")
        print(f"knee {cost.knee_tokens:.4g}, {knee:.4g}; beyond {cost.beyond_s:.3g}, {beyond:.3g}")
        print("\n| arm | class | published | the box has | tau of the file | tau fitted |")
        print("| --- | --- | --- | --- | --- | --- |")
        for curve in curves:
            cell = engines[curve.arm].cell(curve.class_id)
            assert cell is not None
            told = "/".join(f"{value:.2f}" for value in curve.speedup)
            has = "/".join(f"{value:.2f}" for value in modelled(engines, curve))
            tau, fitted = acceptance_of(cell).mean_tau(), found.taus[curve.arm, curve.class_id]
            print(f"| {curve.arm} | {curve.class_id} | {told} | {has} | {tau:.2f} | {fitted:.2f} |")


if __name__ == "__main__":
    main()
