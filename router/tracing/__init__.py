"""OpenTelemetry traces of requests: an extra, `specroute[otel]`.

What serves without it is not touched: where `tracing.endpoint` is set another pipeline and another
upstream are built, which wrap the steps in spans.
"""
