"""What can be chosen about one simulated engine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Whose wire format an engine speaks."""

    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"


class Record(StrEnum):
    """vLLM's `--per-request-spec-decode-metrics`."""

    NONE = "none"
    SUMMARY = "summary"
    DETAILED = "detailed"


DEFAULT_VERSIONS = {Kind.VLLM: "0.33.0", Kind.SGLANG: "0.5.23", Kind.LLAMACPP: "b11434"}
"""The newest one of each that its wire format is known of."""

_FINGERPRINTS = {Kind.VLLM: "vllm-{version}-51f1ee70", Kind.LLAMACPP: "{version}-51f1ee7"}


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """One engine.

    Attributes:
        kind: Whose wire format it speaks.
        model: Name it serves its model under.
        version: Of the engine; "" for the newest one known.
        method: How it speculates, in the engine's words; "none" for not at all.
        num_speculative_tokens: Drafted tokens per step at most, where it speculates.
        context: Most tokens of prompt and answer together.
        slots: Requests it runs at once, as llama.cpp tells them.
        max_waiting: Requests that may wait; beyond it new ones get 503. None for no limit.
        api_key: What clients must send; None for anybody.
        record: vLLM's records of each request; they exist since 0.29.
        timing: vLLM's `--enable-per-request-metrics`.
        fingerprint: Told as `system_fingerprint`; "" for one made of the version.
        root: Path of the model that vLLM tells.
    """

    kind: Kind
    model: str
    version: str = ""
    method: str = "none"
    num_speculative_tokens: int | None = None
    context: int = 32_768
    slots: int = 4
    max_waiting: int | None = None
    api_key: str | None = None
    record: Record = Record.SUMMARY
    timing: bool = False
    fingerprint: str = ""
    root: str = "models/simulated"

    def __post_init__(self) -> None:
        """Fills in what follows from the rest."""
        version = self.version or DEFAULT_VERSIONS[self.kind]
        made = _FINGERPRINTS.get(self.kind, "").format(version=version)
        object.__setattr__(self, "version", version)
        object.__setattr__(self, "fingerprint", self.fingerprint or made)

    @property
    def speculates(self) -> bool:
        """Whether there is a drafter at all."""
        return self.method != "none" and bool(self.num_speculative_tokens)

    @property
    def release(self) -> tuple[int, ...]:
        """The version in numbers, to be compared."""
        digits = self.version.lstrip("bv").split(".")
        return tuple(int(part) for part in digits if part.isdigit())
