"""The page of documentation about metrics, written from their table."""

from __future__ import annotations

from collections.abc import Iterable

from router.observe.catalog import COUNTERS, GAUGES, HISTOGRAMS, LabelNames

_HEAD = """# Metrics

<!-- Written by `make reference` from router/observe/catalog.py. -->

`GET /metrics` on the admin port, in Prometheus' text format. With several workers all are added up
by the process that owns the port. Durations are in seconds and sizes in bytes. Labels are bounded:
models, pools, classes and servers come from the configuration, everything else from closed lists.
No label holds text of a request, a credential or a tenant.

`deploy/prometheus/rules.yaml` has recording rules, `deploy/prometheus/alerts.yaml` alerts, and
`deploy/grafana/specroute.json` a dashboard for Grafana. Whoever sets `admin.token` gives it to the
scraper as `authorization: {credentials: …}`.
"""


def metrics_page() -> str:
    """The whole page."""
    counters = ((f"{name}_total", *of) for name, of in COUNTERS.items())
    histograms = ((name, text, labels) for name, (text, labels, _) in HISTOGRAMS.items())
    gauges = ((name, *of) for name, of in GAUGES.items())
    return "\n".join(
        (
            _HEAD,
            *_table("Counters", counters),
            "",
            *_table("Histograms", histograms),
            "",
            *_table("Gauges", gauges),
            "",
        )
    )


def _table(title: str, rows: Iterable[tuple[str, str, LabelNames]]) -> Iterable[str]:
    yield f"## {title}\n"
    yield "| name | of what | labels |"
    yield "|---|---|---|"
    for name, text, labels in rows:
        yield f"| `{name}` | {text} | {', '.join(f'`{label}`' for label in labels) or '–'} |"
