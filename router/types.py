"""Values that flow along the request walk; each step takes some and returns one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Any, Literal, NewType

from policies.knowledge import Moment
from policies.types import ArmId, ClassId, SpecUsage, Status
from policies.values import value

ReplicaId = NewType("ReplicaId", str)

SegmentId = NewType("SegmentId", str)
"""Application that a request seems to come from: a short keyed hash, never text."""

POOLED = SegmentId("")
"""Segment of all requests whose application is unknown or too small to be told apart."""

GREEDY = SegmentId("greedy")
"""Of those among them at temperature 0; it also stands before the hash of an application's."""

SessionId = NewType("SessionId", str)
"""Conversation that a request seems to belong to: a hash of this process, never text."""

NO_SESSION = SessionId("")
"""Nothing ties the request to others."""

TenantId = NewType("TenantId", str)
"""Whose request it is: whoever shares places, limits and experiments; never a credential."""

ANONYMOUS = TenantId("anonymous")
"""Everybody without a credential, together."""

Headers = tuple[tuple[str, str], ...]
"""Header lines in their order, duplicates kept."""


class Endpoint(StrEnum):
    """What a request asks for, by its main path; `router.endpoints.table` says the rest."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"
    LLAMA_COMPLETION = "/completion"
    LLAMA_INFILL = "/infill"
    STORED_RESPONSE = "/v1/responses/{id}"
    COUNT_TOKENS = "/v1/messages/count_tokens"
    EMBEDDINGS = "/v1/embeddings"
    RERANK = "/v1/rerank"
    SCORE = "/v1/score"
    POOLING = "/pooling"
    CLASSIFY = "/classify"
    TOKENIZE = "/tokenize"
    DETOKENIZE = "/detokenize"
    TRANSCRIPTIONS = "/v1/audio/transcriptions"
    TRANSLATIONS = "/v1/audio/translations"
    SPEECH = "/v1/audio/speech"
    IMAGES = "/v1/images"
    MODERATIONS = "/v1/moderations"
    MODELS = "/v1/models"
    MODEL = "/v1/models/{model}"
    HEALTH = "/health"
    READY = "/ready"
    OTHER = "/v1/*"
    """Whatever else lies under /v1/."""


@value
class ParsedRequest:
    """A typed view of a request's body; the bytes themselves are what is forwarded."""

    endpoint: Endpoint
    body: bytes
    fields: Mapping[str, Any]
    """The body's top-level object as JSON values; read only, never re-serialised."""
    model: str
    stream: bool
    headers: Headers = ()
    """As the client sent them."""


LengthBand = Literal["brief", "short", "medium", "long"]
"""Up to 64 tokens, up to 256, up to 768, above."""


@value
class Classification:
    """What a request is about, as far as speculation cares."""

    class_id: ClassId
    confidence: float
    """Probability of `class_id` in [0, 1]."""
    probabilities: Mapping[ClassId, float]
    """Over all classes, sums to 1."""
    reason: str
    """Why, in words that quote nothing of the prompt."""
    copy_ratio: float = 0.0
    """Expected share of the answer that repeats the request, in [0, 1]."""
    length_band: LengthBand = "medium"
    """Expected length of the answer."""
    rule: int | None = None
    """Number, from 1, of the operator's rule that settled the class."""


UNCLASSIFIED = Classification(
    ClassId("none"), confidence=0.0, probabilities={}, reason="generates no text"
)
"""Of requests that no policy decides about."""


@value
class RequestContext:
    """Facts about a request, settled before any decision."""

    request_id: str
    request: ParsedRequest
    classification: Classification
    arrival_s: float
    """Monotonic clock."""
    path_qs: str
    headers: Headers
    method: str = "POST"
    segment: SegmentId = POOLED
    session: SessionId = NO_SESSION
    tenant: TenantId = ANONYMOUS
    queue_s: float = 0.0
    """Waited for a place, from arrival on; no pool had a part in it."""
    sides: tuple[ArmId, ...] = ()
    """Sides of experiments that it counts for as well, as `router.experiments.cells` names them."""
    experiment: str = ""
    """The experiment it is in and its side, as the client is told; empty for none."""


@value
class Decision:
    """The choice of an arm and all that is needed to judge it later."""

    arm_id: ArmId
    propensity: float
    probabilities: Mapping[ArmId, float]
    """After mask and renormalisation: what the arm was really drawn from."""
    excluded: Mapping[ArmId, str]
    """Arms that were not eligible, with the reason."""
    policy: str
    snapshot_version: int
    loads: tuple[int, ...] | None = None
    """Requests it would have met on each arm, in the route's order, itself included; None where the
    policy did not ask."""
    prefix: tuple[int, ...] | None = None
    """Hashes of the beginnings of its prompt, where they were worked out for the choice."""
    moment: Moment | None = None
    """What the policy was asked about; None where it does not look at requests one by one."""
    drawn: bool = True
    """False where nothing was left to chance: it was settled before, or the tenant is not explored
    with. Nothing can be said then of how it could have gone otherwise."""
    lean: str = ""
    """Where a policy leaned that looks at the moment; empty where none looked."""


class AttemptEnd(StrEnum):
    """How one try at one replica ended."""

    ANSWERED = "answered"
    UNREACHABLE = "unreachable"
    """No connection."""
    STALE = "stale"
    """A connection kept from before was dead; a fresh one settles it."""
    DISCONNECTED = "disconnected"
    """The connection ended, or held no HTTP, before a byte for the client had come."""
    BUSY = "busy"
    """The server is full, and says so."""
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    OVERTAKEN = "overtaken"
    """Another server, asked meanwhile, was the first to answer."""


@value
class Attempt:
    """One try at one replica."""

    arm_id: ArmId
    replica_id: ReplicaId
    end: AttemptEnd


@value
class Outcome:
    """What happened to a request; exactly one for each decision. Durations in seconds."""

    status: Status
    http_status: int | None
    """Status line sent to the client; None when it left before one was."""
    served_by: ArmId | None
    """The arm that answered; differs from the decision's after a fallback."""
    attempts: tuple[Attempt, ...] = ()
    e2e_s: float = 0.0
    ttft_s: float | None = None
    tpot_s: float | None = None
    tokens: int | None = None
    prompt_tokens: int | None = None
    seen_tokens: int = 0
    """Tokens of the answer that have passed at least, by its events; for who pays by tokens."""
    spec: SpecUsage | None = None
    overhead_s: float | None = None
    """Arrival until the request was first handed to an upstream connection, less `queue_s`."""
    error: str | None = None
    """Reason label of a failure."""
    unread: tuple[str, ...] = field(default=())
    """Names of fields that were expected in the engine's answer and not understood."""
    load: int | None = None
    """Requests at the server that answered when it got this one, which is counted too."""
    waiting: int | None = None
    """Of these, how many the engine last said it had not begun."""
    cached_tokens: int | None = None
    """Of `prompt_tokens`, those that the engine had in its prefix cache."""
    held: bool = False
    """The client took the answer so slowly that its durations say nothing about the arm."""
    valid: bool | None = None
    """Whether the answer has the structure that was demanded (`router.outputs.judge`); None where
    none was, or where nobody can tell."""
    truncated: bool | None = None
    """Whether such an answer was cut at the limit of length."""
