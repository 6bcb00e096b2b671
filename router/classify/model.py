"""A linear model over measurements and hashed pieces of words; knows no requests and no training.

The rules' votes are its starting point: what the data do not say, the rules decide.
"""

from __future__ import annotations

import hashlib
import math
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from router.classify.base import CLASSES
from router.classify.grams import BITS, LENGTHS
from router.classify.rules import RULES
from router.classify.vector import FIRST_RULE, NAMES, Doubles

Floats = NDArray[np.float32]

FORMAT: Final = 2
GRAIN: Final = 2.0**-10
"""Weights of pieces are multiples of this, and at most `LARGEST`."""
LARGEST: Final = 8.0
DENSE_GRAIN: Final = 2.0**-16
"""Weights of measurements are multiples of this, and at most `DENSE_LARGEST`."""
DENSE_LARGEST: Final = 64.0


def votes() -> Floats:
    """Return the rules' votes, shape (len(NAMES), classes); other rows are zero."""
    table = np.zeros((len(NAMES), len(CLASSES)), dtype=np.float32)
    for row, rule in enumerate(RULES, start=FIRST_RULE):
        for class_id, vote in rule.votes.items():
            table[row, CLASSES.index(class_id)] = vote
    return table


def layout() -> str:
    """Name the input's layout: weights of another one mean something else."""
    parts = "\n".join((str(FORMAT), *CLASSES, *NAMES, str(BITS), str(LENGTHS)))
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def grained(pieces: Floats) -> Floats:
    """Round weights so that any sum of a few hundred of them is exact."""
    rounded: Floats = np.clip(np.round(pieces / GRAIN) * GRAIN, -LARGEST, LARGEST)
    return rounded.astype(np.float16).astype(np.float32)


def grained_dense(dense: Floats) -> Doubles:
    """Round weights of measurements so that any sum of their products is exact."""
    rounded = np.round(dense.astype(np.float64) / DENSE_GRAIN) * DENSE_GRAIN
    return np.clip(rounded, -DENSE_LARGEST, DENSE_LARGEST)


@dataclass(frozen=True, slots=True)
class Model:
    """Weights, ready to use.

    Attributes:
        bias: Shape (classes,).
        dense: Shape (len(NAMES), classes), the rules' votes included.
        pieces: Shape (classes, 2 ** BITS), so that a class lies in one run of memory.
        temperature: Divides the scores, so that confidence is how often the answer is right.
    """

    bias: Floats
    dense: Doubles
    pieces: Floats
    temperature: float

    def save(self, path: Path) -> None:
        """Write the weights; the same weights give the same bytes."""
        arrays = {
            "layout": np.array(layout()),
            "bias": self.bias,
            "dense": self.dense.astype(np.float32),
            "pieces": self.pieces.astype(np.float16),
            "temperature": np.array(self.temperature, dtype=np.float32),
        }
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, array in arrays.items():
                entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
                entry.compress_type = zipfile.ZIP_DEFLATED
                with archive.open(entry, "w") as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)


class Scorer:
    """A model laid out for judging one request at a time.

    Args:
        model: The weights.
    """

    def __init__(self, model: Model) -> None:
        self._bias: list[float] = model.bias.tolist()
        self._dense = model.dense
        # A row of ones counts the pieces in the same product, and one of zeros makes them a
        # multiple of four, which is a third quicker than one row less.
        counting = np.zeros((2, 2**BITS), dtype=np.float32)
        counting[0] = 1.0
        self._pieces = np.ascontiguousarray(np.vstack([model.pieces, counting]))
        self._cooling = 1.0 / model.temperature

    def wording(self, marks: Floats) -> list[float]:
        """Return what the wording adds to the score of each class.

        Args:
            marks: What `grams.presence` found in the instruction.
        """
        # Multiples of `GRAIN` small enough that sums are exact, in whatever order they are formed.
        *added, found, _ = self._pieces.dot(marks).tolist()
        # Long instructions weigh no more than short ones.
        share = 1.0 / math.sqrt(found)
        return [weight * share for weight in added]

    def probabilities(self, inputs: Doubles, wording: Sequence[float]) -> list[float]:
        """Return calibrated probabilities of `CLASSES`.

        Inputs and weights are multiples of grains small enough that sums are exact, in whatever
        order they are formed: the same request gets the same answer.

        Args:
            inputs: The measurements, see `vector`.
            wording: What the wording adds.
        """
        measured: list[float] = inputs.dot(self._dense).tolist()
        # Ten numbers: plain floats are quicker than arrays.
        return softmax(list(map(add, map(add, measured, self._bias), wording)), self._cooling)


def softmax(scores: Sequence[float], cooling: float) -> list[float]:
    """Turn scores into shares that sum to 1; the larger `cooling`, the more they differ."""
    top = max(scores) * cooling
    weights = list(map(math.exp, [score * cooling - top for score in scores]))
    scale = 1.0 / sum(weights)
    return [weight * scale for weight in weights]


def load(path: Path) -> Model:
    """Read weights.

    Raises:
        OSError: There is no file, or it cannot be read.
        ValueError: The file holds no weights, or those of another layout.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = str(arrays["layout"])
            model = Model(
                bias=arrays["bias"].astype(np.float32),
                dense=arrays["dense"].astype(np.float64),
                pieces=arrays["pieces"].astype(np.float32),
                temperature=float(arrays["temperature"]),
            )
    except (KeyError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} holds no weights of a classifier") from error
    classes = len(CLASSES)
    shapes = (model.bias.shape, model.dense.shape, model.pieces.shape)
    if found != layout() or shapes != ((classes,), (len(NAMES), classes), (classes, 2**BITS)):
        raise ValueError(f"{path} was trained for another layout")
    finite = all(np.isfinite(part).all() for part in (model.bias, model.dense, model.pieces))
    if not (finite and 0.0 < model.temperature < float("inf")):
        raise ValueError(f"{path} holds weights that are no numbers")
    return model
