"""From the configuration to parts that trace what they do; OpenTelemetry is loaded here alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from router.clock import Clock
from router.config.keeping import Tracing as TracingConfig
from router.errors import ConfigError
from router.makers import Makers


@dataclass(frozen=True, slots=True)
class Traces:
    """What traces requests.

    Attributes:
        makers: Of parts that do.
        close: Sends what is left; it may take seconds, so not on the event loop.
    """

    makers: Makers
    close: Callable[[], None]


def open_tracing(config: TracingConfig, clock: Clock) -> Traces | None:
    """What traces requests; None where nobody wants traces.

    Raises:
        ConfigError: The packages of the extra are not installed.
    """
    if config.endpoint is None:
        return None
    try:
        from router.tracing.otlp import sending  # noqa: PLC0415 - an extra
        from router.tracing.parts import traced  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f"tracing.endpoint: {error.name} is missing: pip install 'specroute[otel]', or write "
            "null for no traces"
        ) from error
    tracing = sending(config)
    return Traces(traced(tracing, clock), tracing.close)
