"""A linear model over measurements and hashed pieces of words; knows no requests and no training.

The rules' votes are its starting point: what the data do not say, the rules decide.
"""

from __future__ import annotations

import hashlib
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from router.classify.base import CLASSES
from router.classify.grams import BITS, LONGEST
from router.classify.rules import RULES
from router.classify.vector import FIRST_RULE, NAMES

Floats = NDArray[np.float32]

FORMAT: Final = 1
GRAIN: Final = 2.0**-10
"""Weights of pieces are multiples of this, and at most `LARGEST`."""
LARGEST: Final = 8.0


def votes() -> Floats:
    """Return the rules' votes, shape (len(NAMES), classes); other rows are zero."""
    table = np.zeros((len(NAMES), len(CLASSES)), dtype=np.float32)
    for row, rule in enumerate(RULES, start=FIRST_RULE):
        for class_id, vote in rule.votes.items():
            table[row, CLASSES.index(class_id)] = vote
    return table


def layout() -> str:
    """Name the input's layout: weights of another one mean something else."""
    parts = "\n".join((str(FORMAT), *CLASSES, *NAMES, str(BITS), str(LONGEST)))
    return hashlib.sha256(parts.encode()).hexdigest()[:16]


def grained(pieces: Floats) -> Floats:
    """Round weights so that any sum of a few hundred of them is exact."""
    rounded: Floats = np.clip(np.round(pieces / GRAIN) * GRAIN, -LARGEST, LARGEST)
    return rounded.astype(np.float16).astype(np.float32)


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
    dense: Floats
    pieces: Floats
    temperature: float

    def measured(self, inputs: Floats) -> Floats:
        """Return what the measurements add to the score of each class.

        Row by row: a matrix product would add up in an order that depends on where in memory the
        input happens to lie, and the same request must get the same answer.
        """
        added: Floats = np.add.reduce(self.dense * inputs[:, np.newaxis], axis=0)
        added += self.bias
        return added

    def wording(self, marks: Floats) -> Floats:
        """Return what the wording adds to the score of each class.

        Args:
            marks: What `grams.presence` found in the instruction.
        """
        # Multiples of `GRAIN` small enough that sums are exact, in whatever order they are formed.
        added: Floats = self.pieces @ marks
        # As many as there are distinct pieces: long instructions weigh no more than short ones.
        added /= math.sqrt(float(marks @ marks))
        return added

    def probabilities(self, scores: Floats) -> list[float]:
        """Turn scores into calibrated probabilities of `CLASSES`."""
        # Ten numbers: plain floats are quicker than arrays.
        listed: list[float] = scores.tolist()
        top = max(listed)
        cooling = 1.0 / self.temperature
        weights = [math.exp((score - top) * cooling) for score in listed]
        total = sum(weights)
        return [weight / total for weight in weights]

    def save(self, path: Path) -> None:
        """Write the weights; the same weights give the same bytes."""
        arrays = {
            "layout": np.array(layout()),
            "bias": self.bias,
            "dense": self.dense,
            "pieces": self.pieces.astype(np.float16),
            "temperature": np.array(self.temperature, dtype=np.float32),
        }
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, array in arrays.items():
                entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
                entry.compress_type = zipfile.ZIP_DEFLATED
                with archive.open(entry, "w") as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)


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
                dense=arrays["dense"].astype(np.float32),
                pieces=arrays["pieces"].astype(np.float32),
                temperature=float(arrays["temperature"]),
            )
    except (KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} holds no weights of a classifier") from error
    classes = len(CLASSES)
    shapes = (model.bias.shape, model.dense.shape, model.pieces.shape)
    if found != layout() or shapes != ((classes,), (len(NAMES), classes), (classes, 2**BITS)):
        raise ValueError(f"{path} was trained for another layout; train it anew")
    finite = all(np.isfinite(part).all() for part in (model.bias, model.dense, model.pieces))
    if not (finite and 0.0 < model.temperature < float("inf")):
        raise ValueError(f"{path} holds weights that are no numbers")
    return model
