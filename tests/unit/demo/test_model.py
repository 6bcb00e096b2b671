"""The demo's model files: draft formats, exactness of the rewriting, atomic writing."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from router.demo import model
from router.demo.errors import DemoError
from router.demo.model import DraftFormat, ModelFiles

gguf: Any = pytest.importorskip("gguf", reason="the demo's extra is not installed")
quants: Any = pytest.importorskip("gguf.quants")

Q4_1 = gguf.GGMLQuantizationType.Q4_1
Q4_K = gguf.GGMLQuantizationType.Q4_K


@pytest.fixture
def files(tmp_path: Path) -> ModelFiles:
    """A model file with one tensor of each kind, as wide as the real one."""
    rng = np.random.default_rng(0)
    path = tmp_path / "published.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_embedding_length(576)
    writer.add_head_count(9)
    writer.add_head_count_kv(3)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(3)
    writer.add_token_list(["a", "b"])
    matrix = rng.normal(size=(192, 576)).astype(np.float32)
    writer.add_tensor("blk.0.attn_k.weight", quants.quantize(matrix, Q4_1), raw_dtype=Q4_1)
    vocabulary = rng.normal(size=(40, 576)).astype(np.float32)
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("token_embd.weight", quants.quantize(vocabulary, kind), raw_dtype=kind)
    writer.add_tensor("output_norm.weight", np.ones(576, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return ModelFiles(path, tmp_path / "models")


def tensors(path: Path) -> dict[str, Any]:
    """Give each tensor's values as floats."""
    return {
        tensor.name: quants.dequantize(tensor.data, tensor.tensor_type)
        for tensor in gguf.GGUFReader(path).tensors
    }


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (set(), ["q4_k", "f16"]),
        ({"avx512_bf16"}, ["q4_k", "bf16", "f16"]),
        ({"avx_vnni", "avx512_bf16", "amx_int8"}, ["q4_1", "q4_k", "bf16", "f16"]),
    ],
)
def test_draft_formats_follow_the_processor(flags: set[str], expected: list[str]) -> None:
    """What the processor cannot run is not offered; the cheapest comes first."""
    assert list(model.draft_formats(frozenset(flags))) == expected


def test_target_has_the_published_values(files: ModelFiles) -> None:
    """The F32 target holds exactly what the 4-bit file stands for."""
    path = model.prepare_target(files)
    for name, values in tensors(files.published).items():
        np.testing.assert_array_equal(tensors(path)[name], values)


def test_files_are_written_once(files: ModelFiles) -> None:
    """A second call leaves the file alone and says nothing."""
    said: list[str] = []
    first = model.prepare_target(files, said.append)
    before = first.stat().st_mtime_ns
    assert model.prepare_target(files, said.append).stat().st_mtime_ns == before
    assert len(said) == 1
    assert [path.name for path in files.folder.iterdir()] == [first.name]


def test_published_file_serves_as_q4_1_draft(files: ModelFiles) -> None:
    """No copy is made where the published format runs."""
    assert model.prepare_draft(files, DraftFormat.Q4_1) == files.published


@pytest.mark.parametrize("draft_format", [DraftFormat.BF16, DraftFormat.F16])
def test_half_precision_drafts_are_close(files: ModelFiles, draft_format: DraftFormat) -> None:
    """A draft in 16 bits differs by its rounding only; vectors stay exact."""
    path = model.prepare_draft(files, draft_format)
    for name, values in tensors(files.published).items():
        np.testing.assert_allclose(tensors(path)[name], values, rtol=2**-7)


def test_q4_k_keeps_the_values_and_rounds_the_scales() -> None:
    """Blocks with scales that six bits can hold come through unchanged."""
    rng = np.random.default_rng(1)
    levels = rng.integers(0, 16, size=(4, 8, 32)).astype(np.float32)
    levels[..., 0], levels[..., 1] = 0, 15
    scale = rng.integers(1, 64, size=(4, 8, 1)).astype(np.float32)
    scale[:, 0] = 63
    low = rng.integers(0, 64, size=(4, 8, 1)).astype(np.float32)
    low[:, 1] = 63
    values = (levels * scale - low).reshape(4, 256) / 64
    packed = model.q4_k_from_q4_1(quants.quantize(values.astype(np.float32), Q4_1))
    np.testing.assert_allclose(quants.dequantize(packed, Q4_K), values, atol=2e-2)


def test_q4_k_draft_is_the_widened_model(files: ModelFiles) -> None:
    """The draft is 768 wide with zeros beside nearly the published values; the norm makes up."""
    path = model.prepare_draft(files, DraftFormat.Q4_K)
    wide, narrow = tensors(path), tensors(files.published)
    key = wide["blk.0.attn_k.weight"]
    assert key.shape == (256, 768)
    assert not key[:, 576:].any()
    assert not key[192:].any()
    error = np.abs(key[:192, :576] - narrow["blk.0.attn_k.weight"])
    assert error.max() < 0.1
    assert wide["token_embd.weight"].shape == (40, 768)
    np.testing.assert_allclose(wide["output_norm.weight"][:576], np.sqrt(576 / 768))


def test_widened_norm_computes_the_same(files: ModelFiles) -> None:
    """RMSNorm over 768 values with the corrected weights and epsilon equals that over 576."""
    fields = gguf.GGUFReader(model.prepare_draft(files, DraftFormat.Q4_K)).fields
    epsilon = fields["llama.attention.layer_norm_rms_epsilon"].contents()
    assert fields["llama.attention.head_count"].contents() == 12
    assert fields["llama.attention.head_count_kv"].contents() == 4
    hidden = np.random.default_rng(2).normal(scale=1e-3, size=576)
    padded = np.pad(hidden, (0, 192))
    narrow = hidden / np.sqrt((hidden**2).mean() + 1e-5)
    wide = padded / np.sqrt((padded**2).mean() + epsilon) * np.sqrt(576 / 768)
    np.testing.assert_allclose(wide[:576], narrow, rtol=1e-6)


def test_failed_writing_leaves_nothing(files: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is a sentence with the remedy, and no half-written file stays."""

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model, "_rewrite", full)
    with pytest.raises(DemoError, match=r"No space left on device.*free some disk space"):
        model.prepare_target(files)
    assert list(files.folder.iterdir()) == []


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the demo's extra the user is told what to install."""

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(DemoError, match=r"specroute\[demo\]"):
        model._gguf()
