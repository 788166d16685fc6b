"""Traces of a run's steps by OpenTelemetry: one trace a process, a span a step, sent by OTLP over HTTP.

Provides ``trace_steps``. Off unless settings.toml of the server has [traces] with an endpoint; the standard variables
of the exporter (OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_CERTIFICATE) count then. A collector that is away costs
the run nothing: spans are sent from a thread, and dropped where there are too many. Secret: nothing is in spans that
is; attributes are names, rounds, sizes and numbers, and of an error its class. Source: OpenTelemetry's specification of
traces; https://opentelemetry.io/docs/specs/otlp/.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

from parties.foundation.errors import ExtraMissing
from parties.foundation.version import version
from parties.observability.status import RunInfo, RunStatus

EXTRA = "traces"
_TIMEOUT_S = 5.0
"""For the collector to take a batch, and at the end for all that is left."""
_MAX_WAITING = 1 << 14
_PREFIX = "syncret."


def trace_steps(board: RunStatus, endpoint: str | None) -> AbstractContextManager[None]:
    """While the block runs, steps that the board is told of are traced at ``endpoint``; nothing where there is none.

    Raises ExtraMissing where OpenTelemetry is not installed.
    """
    return contextlib.nullcontext() if endpoint is None else _tracing(board, endpoint)


@contextlib.contextmanager
def _tracing(board: RunStatus, endpoint: str) -> Iterator[None]:
    try:
        # An extra, and slow to import.
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise ExtraMissing("traces.endpoint", str(error.name), extra=EXTRA) from error

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

    board.tracing = follow
    try:
        yield
    finally:
        run.set_attribute(f"{_PREFIX}phase", board.phase.value)
        run.end()
        # A collector that is away is not waited for: the process ends without its thread.
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
