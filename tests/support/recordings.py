"""Exchanges recorded from real engines: what was asked, and the answer byte by byte.

`<case>.request.json` holds the request, `<case>.http` what came from the socket; see
tests/wire/recordings/README.md.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from router.config.base import EngineName
from router.endpoints.dialect import Dialect
from router.endpoints.table import FACTS, ModelIn
from router.engines.base import EngineAdapter
from router.engines.registry import adapter_for
from router.intake.parse import parse_request
from router.types import Endpoint, ParsedRequest

OWN = Path(__file__).parents[1] / "wire" / "recordings"


_ENGINES: dict[str, EngineName] = {"llamacpp": "llamacpp", "vllm": "vllm", "sglang": "sglang"}
_DRAFT_LENGTHS = {"none": 0, "ngram": 5, "ngram-tools": 5, "suffix": 16, "draft_model": 3}


def shared_folder() -> Path | None:
    """All recordings, where they lie beside the checkout or SPECROUTE_SHARED names their place."""
    given = os.environ.get("SPECROUTE_SHARED")
    shared = Path(given) if given else Path(__file__).parents[3] / "shared"
    folder = shared / "fixtures"
    return folder if folder.is_dir() else None


@dataclass(frozen=True)
class Recording:
    """One exchange."""

    path: Path
    """Of the response."""

    @property
    def name(self) -> str:
        """Engine and version, method, case."""
        return "/".join([*self.path.parts[-3:-1], self.path.stem])

    @property
    def case(self) -> str:
        """What was asked, as the recordings' README names it."""
        return self.path.stem

    @property
    def adapter(self) -> EngineAdapter:
        """The one for the engine."""
        return adapter_for(self.engine)

    @property
    def engine(self) -> EngineName:
        """By its name in the configuration."""
        return _ENGINES[self.path.parts[-3].partition("-")[0]]

    @property
    def draft_length(self) -> int:
        """Most tokens of a draft, by the flags that the recordings' README names."""
        return _DRAFT_LENGTHS[self.path.parts[-2]]

    @cached_property
    def _request(self) -> dict[str, Any]:
        path = self.path.with_name(f"{self.case}.request.json")
        loaded: dict[str, Any] = orjson.loads(path.read_bytes())
        return loaded

    @property
    def endpoint(self) -> Endpoint | None:
        """None where we pass requests through without looking at them."""
        try:
            return Endpoint(self._request["path"])
        except ValueError:
            return None

    @property
    def dialect(self) -> Dialect:
        """In which the answer is written."""
        assert self.endpoint is not None
        return FACTS[self.endpoint].dialect

    @property
    def routed(self) -> bool:
        """Whether the policy chooses the arm for such a request, and its body is JSON."""
        posted = self._request["method"] == "POST" and "raw_body" not in self._request
        if self.endpoint is None or not posted:
            return False
        facts = FACTS[self.endpoint]
        named = "model" in self._request["body"] or facts.model_in is not ModelIn.BODY
        return facts.speculates and named

    def request(self, **change: Any) -> ParsedRequest:
        """What the client asked; members of the body can be changed, None leaves one out."""
        assert self.endpoint is not None
        body = {**self._request["body"], **change}
        kept = {key: value for key, value in body.items() if value is not None}
        return parse_request(self.endpoint, orjson.dumps(kept), model_required=False)

    @cached_property
    def _parts(self) -> tuple[int, dict[str, str], bytes]:
        head, _, rest = self.path.read_bytes().partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        chunked = headers.get("transfer-encoding") == "chunked"
        return int(first.split()[1]), headers, _unchunked(rest) if chunked else rest

    @property
    def status(self) -> int:
        """HTTP status."""
        return self._parts[0]

    @property
    def headers(self) -> dict[str, str]:
        """By name in lower case."""
        return self._parts[1]

    @property
    def streamed(self) -> bool:
        """Whether the answer is a stream of events."""
        return self._parts[1].get("content-type", "").startswith("text/event-stream")

    @property
    def body(self) -> bytes:
        """The answer without HTTP's framing."""
        return self._parts[2]

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Every JSON object of the answer, read by a few lines of their own."""
        if not self.streamed:
            return [orjson.loads(self.body)]
        data = [event.rpartition(b"data: ")[2] for event in self.body.split(b"\n\n")]
        return [
            orjson.loads(item) for item in data if item.startswith(b"{") and item.endswith(b"}")
        ]


def recordings(
    folder: Path, engines: Sequence[str] = ("llamacpp-", "sglang-", "vllm-")
) -> list[Recording]:
    """All recordings of requests that we route."""
    found = [
        Recording(path)
        for engine in sorted(folder.iterdir())
        if engine.name.startswith(tuple(engines))
        for path in sorted(engine.glob("*/*.http"))
    ]
    return [recording for recording in found if recording.routed]


def _unchunked(data: bytes) -> bytes:
    """Takes HTTP/1.1's chunks apart; a recording that was cut off ends where it ends."""
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            break
        body += data[:length]
        data = data[length + 2 :]
    return body
