"""Traces of a run's steps by OpenTelemetry: one trace for each process, a span for each step, by OTLP over HTTP.

Tracing is off unless settings.toml of the server, or of its service, has [traces] with an endpoint; the exporter's
standard variables (OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE) then apply. An unreachable collector
costs the run nothing: spans are sent from a thread, and dropped if there are too many. Spans hold no secret: attributes
are names, rounds, sizes and numbers, and the class of an error. Source: OpenTelemetry's specification of traces;
https://opentelemetry.io/docs/specs/otlp/.
"""

import contextlib
import importlib.util
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

from parties.foundation.errors import ExtraMissing
from parties.foundation.version import version
from parties.observability.events import StepTracer, no_tracing
from parties.observability.status import RunInfo, RunStatus

EXTRA, _KEY = "traces", "traces.endpoint"
_TIMEOUT_S = 5.0
"""Timeout in seconds for a batch to the collector, and for all remaining spans at the end."""
_MAX_WAITING = 1 << 14
_PREFIX = "syncret."


def check_tracing(endpoint: str | None) -> None:
    """Raises ExtraMissing if there is an endpoint, and OpenTelemetry is not installed."""
    if endpoint is None:
        return
    for name in ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http"):
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise ExtraMissing(_KEY, name, extra=EXTRA)


def trace_steps(board: RunStatus, endpoint: str | None) -> AbstractContextManager[StepTracer]:
    """Yields the tracer of the run's steps, which sends them to ``endpoint``; one that does nothing for None.

    Raises ExtraMissing if OpenTelemetry is not installed.
    """
    return contextlib.nullcontext(no_tracing) if endpoint is None else _tracing(board, endpoint)


@contextlib.contextmanager
def _tracing(board: RunStatus, endpoint: str) -> Iterator[StepTracer]:
    try:
        # Local import: an extra, and slow to import.
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise ExtraMissing(_KEY, str(error.name), extra=EXTRA) from error

    provider = TracerProvider(
        resource=Resource.create(_resource(board.about)), shutdown_on_exit=False
    )
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_TIMEOUT_S)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=_MAX_WAITING))
    tracer = provider.get_tracer("syncret", version())
    run = tracer.start_span(f"run {board.about.study}")
    within = trace.set_span_in_context(run)

    @contextlib.contextmanager
    def follow(
        step: str, round: int | None, costs: Callable[[], Mapping[str, int]]
    ) -> Iterator[None]:
        # A step within another one is its child: the context is the task's.
        above = None if trace.get_current_span().is_recording() else within
        attributes = {} if round is None else {f"{_PREFIX}round": round}
        with tracer.start_as_current_span(
            step,
            context=above,
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                span.set_status(trace.StatusCode.ERROR, type(error).__name__)
                raise
            finally:
                span.set_attributes({_PREFIX + key: value for key, value in costs().items()})

    try:
        yield follow
    finally:
        run.set_attribute(f"{_PREFIX}phase", board.phase.value)
        run.end()
        # An unreachable collector is not waited for: the process ends without its thread.
        ending = threading.Thread(target=provider.shutdown, name="traces", daemon=True)
        ending.start()
        ending.join(_TIMEOUT_S)


def _resource(about: RunInfo) -> dict[str, str | int]:
    found: dict[str, str | int] = {
        "service.name": "syncret",
        "service.version": version(),
        "service.instance.id": about.name,
        f"{_PREFIX}study": about.study,
        f"{_PREFIX}config": about.config,
        f"{_PREFIX}kind": about.kind,
    }
    return found if about.pid is None else {**found, f"{_PREFIX}pid": about.pid}
