"""Every Prometheus metric, in one table: name, what it is of, labels. It counts nothing."""

from __future__ import annotations

_LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_TPOT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1)
_OVERHEAD_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1)
_LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_QUEUE_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
CELL = ("model", "pool", "class")
REPLICA = ("model", "pool", "replica")

LabelNames = tuple[str, ...]

COUNTERS: dict[str, tuple[str, LabelNames]] = {
    "specroute_requests": (
        "Requests decided, by the arm chosen and how they ended.",
        (*CELL, "status"),
    ),
    "specroute_balanced_requests": (
        "Requests that generate no text, by endpoint and how they ended.",
        ("model", "endpoint", "status"),
    ),
    "specroute_refused_requests": (
        "Requests answered by an error of the proxy itself.",
        ("reason",),
    ),
    "specroute_admission_refused": (
        "Requests that were given no place, by why they could not wait for one any longer.",
        ("reason",),
    ),
    "specroute_admission_left": (
        "Requests whose client left while they waited for a place.",
        (),
    ),
    "specroute_structured_answers": (
        "Answers that had to have a structure: valid, invalid, truncated, or unknown.",
        (*CELL, "result"),
    ),
    "specroute_repeats": (
        "Answers drawn to be compared with the baseline's, by what became of it.",
        ("model", "pool", "result"),
    ),
    "specroute_fallbacks": (
        "Requests served by the baseline because the chosen pool did not answer.",
        ("model", "pool"),
    ),
    "specroute_excluded_arms": (
        "Arms left out of a decision, by reason.",
        ("model", "pool", "reason"),
    ),
    "specroute_unread_fields": (
        "Fields of engines' answers that were missing or not understood.",
        ("model", "pool", "field"),
    ),
    "specroute_recorder_errors": (
        "Outcomes that were not recorded.",
        (),
    ),
    "specroute_config_reloads": (
        "Reloads of the configuration, by what came of them: applied, refused.",
        ("result",),
    ),
    "specroute_worker_restarts": (
        "Workers that ended and were started again.",
        (),
    ),
}
"""Exposed as `NAME_total`."""

HISTOGRAMS: dict[str, tuple[str, LabelNames, tuple[float, ...]]] = {
    "specroute_queue_seconds": (
        "Wait for a place, of requests that had to wait, however that ended.",
        (),
        _QUEUE_BUCKETS,
    ),
    "specroute_ttft_seconds": (
        "Time to first token.",
        CELL,
        _LATENCY_BUCKETS,
    ),
    "specroute_tpot_seconds": (
        "Time per output token.",
        CELL,
        _TPOT_BUCKETS,
    ),
    "specroute_e2e_seconds": (
        "Whole request.",
        CELL,
        _LATENCY_BUCKETS,
    ),
    "specroute_overhead_seconds": (
        "Arrival until the request was handed to an upstream connection, less waits.",
        (),
        _OVERHEAD_BUCKETS,
    ),
    "specroute_loop_lag_seconds": (
        "How late the loop ran what was due: nobody is served meanwhile.",
        (),
        _LAG_BUCKETS,
    ),
}
"""Exposed as `NAME_bucket`, `NAME_sum` and `NAME_count`."""

GAUGES: dict[str, tuple[str, LabelNames]] = {
    "specroute_speculation_off": (
        "1 while the kill switch is thrown: all requests decode plainly.",
        (),
    ),
    "specroute_quarantined": (
        "1 for a pool that gets no requests of a class because its answers are damaged.",
        CELL,
    ),
    "specroute_experiment_share": (
        "Share of an experiment's units that is treated; 0 where this process left the treatment.",
        ("experiment",),
    ),
    "specroute_experiment_missing_units": (
        "Requests that named no unit of the kind that is assigned.",
        ("experiment",),
    ),
    "specroute_admission_in_flight": ("Requests being served by this process.", ()),
    "specroute_admission_waiting": ("Requests waiting for a place in this process.", ()),
    "specroute_in_flight_requests": (
        "Requests now at a server, counted by this process.",
        REPLICA,
    ),
    "specroute_replica_up": ("1 when a server answers probes and connections.", REPLICA),
    "specroute_replica_breaker": (
        "Breaker of a server: 0 closed, 1 half open, 2 open.",
        REPLICA,
    ),
    "specroute_replica_cooling_seconds": (
        "Until a server that said it was busy may get requests again.",
        REPLICA,
    ),
    "specroute_replica_suspect": ("1 when a server stopped working on what it has.", REPLICA),
    "specroute_replica_draining": ("1 when an operator took a server out.", REPLICA),
    "specroute_replica_share_ratio": ("How far the slow start of a server is.", REPLICA),
    "specroute_replica_line_seconds": (
        "How long the first stream in line at a server has waited for its answer to begin.",
        REPLICA,
    ),
    "specroute_replica_running_requests": (
        "Requests that an engine works on, by its own account.",
        REPLICA,
    ),
    "specroute_replica_waiting_requests": (
        "Requests that wait at an engine, by its own account.",
        REPLICA,
    ),
    "specroute_replica_kv_usage_ratio": (
        "Share of an engine's key-value cache that is in use, by its own account.",
        REPLICA,
    ),
    "specroute_probability": ("Probability with which the policy now picks a pool.", CELL),
    "specroute_policy_failed_classes": (
        "Classes that get the baseline because the policy failed for them.",
        ("model",),
    ),
    "specroute_tokens_per_step": ("Tokens per decode step over the window.", CELL),
    "specroute_acceptance_rate": ("Probability that a drafted token is accepted.", CELL),
    "specroute_gain_ratio": (
        "Share of time saved against the concurrent baseline over the window.",
        CELL,
    ),
    "specroute_buffered_bytes": ("Bytes of request bodies held in memory.", ()),
    "specroute_workers": ("Processes that serve and answer.", ()),
    "specroute_store_up": ("1 when the store answered the last refresh.", ()),
    "specroute_snapshot_age_seconds": ("Age of what the policies know.", ()),
    "specroute_store_dropped_increments": ("Increments that found no room in memory.", ()),
    "specroute_store_refused_increments": (
        "Increments that the store refused because of what it held.",
        (),
    ),
    "specroute_store_waiting_increments": ("Increments that the store has not confirmed.", ()),
    "specroute_store_late_made_tokens": (
        "Tokens whose making was told too late to be attributed to their class.",
        (),
    ),
    "specroute_store_clock_skew_seconds": (
        "How far the store's clock is ahead of this host's.",
        (),
    ),
    "specroute_background_errors": (
        "Rounds of background work that failed in a way nobody had foreseen.",
        (),
    ),
    "specroute_decision_log_dropped_lines": ("Decision lines that were not written.", ()),
}


def exposed_names() -> frozenset[str]:
    """Names of all series that can be scraped."""
    counters = {f"{name}_total" for name in COUNTERS}
    histograms = {f"{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "sum", "count")}
    return frozenset({*GAUGES, *counters, *histograms})
