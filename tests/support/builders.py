"""Values of the request walk with every field filled in; a test names only what it is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from policies.types import Arm, ArmId, ClassId, SpecUsage, Status
from router.config.models import Config
from router.fleet.model import RouteFacts, build_routes
from router.intake.parse import parse_request
from router.types import (
    Attempt,
    AttemptEnd,
    Classification,
    Decision,
    Endpoint,
    Outcome,
    ParsedRequest,
    ReplicaId,
    RequestContext,
)

MODEL = "m"
CHAT = ClassId("chat")
PLAIN = ArmId("plain")
FAST = ArmId("fast")
ARMS = (Arm(PLAIN, "none", baseline=True), Arm(FAST, "draft_model", num_speculative_tokens=3))


def request(
    *, endpoint: Endpoint = Endpoint.CHAT, body: bytes | None = None, **fields: Any
) -> ParsedRequest:
    """A parsed request; `fields` go into its body, `body` replaces it."""
    if body is None:
        body = orjson.dumps({"model": MODEL, "messages": [], **fields})
    return parse_request(endpoint, body)


def classification(class_id: str = "chat", confidence: float = 0.75) -> Classification:
    """What a classifier may have said."""
    return Classification(
        class_id=ClassId(class_id),
        confidence=confidence,
        probabilities={ClassId(class_id): confidence, ClassId("other"): 1 - confidence},
        reason="test",
    )


def context(
    parsed: ParsedRequest | None = None, *, request_id: str = "r1", class_id: str = "chat"
) -> RequestContext:
    """A request that has arrived and been classified."""
    return RequestContext(
        request_id=request_id,
        request=parsed or request(),
        classification=classification(class_id),
        arrival_s=1000.0,
        path_qs="/v1/chat/completions",
        headers=(),
    )


def decision(
    arm_id: ArmId = FAST, *, propensity: float = 0.25, excluded: Mapping[ArmId, str] | None = None
) -> Decision:
    """A draw between `PLAIN` and `FAST`."""
    other = PLAIN if arm_id == FAST else FAST
    return Decision(
        arm_id=arm_id,
        propensity=propensity,
        probabilities={arm_id: propensity, other: 1 - propensity},
        excluded=excluded or {},
        policy="thompson",
        snapshot_version=7,
    )


def outcome(status: Status = Status.OK, *, served_by: ArmId | None = FAST, **more: Any) -> Outcome:
    """A streamed answer of 21 tokens that went well, unless told otherwise."""
    fields: dict[str, Any] = {
        "http_status": 200,
        "attempts": (Attempt(FAST, ReplicaId("fast/0"), AttemptEnd.ANSWERED),),
        "e2e_s": 1.25,
        "ttft_s": 0.25,
        "tpot_s": 0.05,
        "tokens": 21,
        "prompt_tokens": 40,
        "load": 3,
        "waiting": 1,
        "cached_tokens": 32,
        "spec": SpecUsage(steps=15, drafted=18, accepted=6),
        "overhead_s": 0.0005,
        **more,
    }
    return Outcome(status=status, served_by=served_by, **fields)


def pool(name: str, *, method: str = "none", replicas: int = 1, **more: Any) -> dict[str, Any]:
    """A pool of a configuration; its servers do not exist."""
    urls = [{"url": f"http://{name}.test:{8000 + index}"} for index in range(replicas)]
    return {"name": name, "method": method, "engine": "llamacpp", "replicas": urls, **more}


def config(*pools: dict[str, Any], route: Mapping[str, Any] | None = None, **top: Any) -> Config:
    """A configuration of one route whose first pool is the baseline."""
    chosen = list(pools) or [
        pool("plain"),
        pool("fast", method="draft_model", num_speculative_tokens=3),
    ]
    return Config.model_validate(
        {
            "routes": [
                {"model": MODEL, "baseline": chosen[0]["name"], "pools": chosen, **(route or {})}
            ],
            **top,
        }
    )


def route_facts(*pools: dict[str, Any], **route: Any) -> RouteFacts:
    """The one route of `config(...)`."""
    return build_routes(config(*pools, route=route))[MODEL]
