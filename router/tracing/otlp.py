"""Sends spans by OTLP over HTTP, in batches, from a thread of the SDK's own."""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from router import __version__
from router.config.keeping import Tracing as TracingConfig
from router.tracing.spans import Tracing

_SEND_S = 5.0
"""What an endpoint may take; batches that find no room meanwhile are dropped, requests go on."""


def sending(config: TracingConfig) -> Tracing:
    """Args: `config` names an endpoint."""
    provider = TracerProvider(
        # What a request without a parent is sampled by; with one, the parent has decided.
        sampler=ParentBased(TraceIdRatioBased(config.sample_ratio)),
        resource=Resource.create(
            {"service.name": config.service_name, "service.version": __version__}
        ),
        shutdown_on_exit=False,  # the application does it, and waits no longer than it may
    )
    exporter = OTLPSpanExporter(
        endpoint=config.endpoint,
        headers={name: value.get_secret_value() for name, value in config.headers.items()},
        timeout=_SEND_S,
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider)
