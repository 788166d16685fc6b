"""Prometheus metrics from status documents: of one server, or of all studies that a service runs.

Statuses (parties/README.md, Status) are the only input, so that a service can produce the metrics of other processes
from theirs. Counters begin anew with each process, as Prometheus expects. All values here are public. Source:
https://prometheus.io/docs/practices/naming/.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from parties.observability.status import ParticipantState, Phase
from parties.service.events import EventName
from parties.service.study_record import ENDED, StudyState

Status = Mapping[str, Any]
_BASE = ("study", "party")
_WEEK_S = 7 * 86_400.0
"""Time for which a study that has ended is visible: long enough for any alert, in seconds."""


def render(
    statuses: Sequence[Status], accept: str = "", *, own: Status | None = None
) -> tuple[bytes, str]:
    """Returns the metrics of all ``statuses`` and their content type, in a format that the header ``accept`` allows.

    ``own`` is the status of the service, if a service runs the studies.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_StatusCollector(statuses, own))
    if own is not None:
        registry.register(_ServiceCollector(own))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def families() -> Sequence[Metric]:
    """Returns all metrics of a service, with their names, kinds, texts and labels, and of no study."""
    nothing = {
        "service": "",
        "states": {},
        "peers": [],
        "folder": {"free_bytes": None, "total_bytes": None, "backup_age_s": None},
        "clock": {"known": False},
        "studies": [],
        "process": {"memory_bytes": None, "cpu_s": 0.0},
        "event_counts": {},
        "notify": [],
        "refused_connections": {},
        "certificates": [],
    }
    collectors = (_StatusCollector([], nothing), _ServiceCollector(nothing))
    return [family for collector in collectors for family in collector.collect()]


class _StatusCollector(Collector):
    """Collector of all metric families, with samples of every status."""

    def __init__(self, statuses: Sequence[Status], own: Status | None) -> None:
        self._statuses = statuses
        self._own = own

    def collect(self) -> Iterator[Metric]:
        """See ``Collector``."""
        families = _families()
        for status in self._statuses:
            base = [status["study"]["id"], status["party"]["name"]]
            for name, labels, value in _samples(status):
                if value is not None:
                    families[name].add_metric([*base, *labels], float(value))
        yield from families.values()
        yield _studies(self._statuses)
        yield _certificates(self._statuses, self._own)


def _studies(statuses: Sequence[Status]) -> Metric:
    family = GaugeMetricFamily("syncret_studies", "Studies by phase.", labels=["phase"])
    counts = Counter(status["phase"] for status in statuses)
    for phase in Phase:
        family.add_metric([phase.value], counts[phase.value])
    return family


class _ServiceCollector(Collector):
    """Collector for a service: its studies by state and their restarts, the two others, its ports."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """See ``Collector``."""
        status, base = self._status, ["party"]
        name = status["service"]

        def gauge(key: str, text: str, label: str, values: Mapping[str, float | None]) -> Metric:
            family = GaugeMetricFamily(f"syncret_service_{key}", text, labels=[*base, label])
            for value, number in values.items():
                if number is not None:
                    family.add_metric([name, value], float(number))
            return family

        states = {state.value: status["states"].get(state.value, 0) for state in StudyState}
        yield gauge("studies", "Studies by state.", "state", states)
        peers = {peer["name"]: peer for peer in status["peers"]}
        there = {key: float(peer["there"]) for key, peer in peers.items()}
        yield gauge("peer_there", "1 while the other service answers.", "peer", there)
        trips = {key: peer["round_trip_s"] for key, peer in peers.items()}
        yield gauge(
            "peer_round_trip_seconds",
            "Seconds to the other service and back, by HTTPS.",
            "peer",
            trips,
        )
        yield from _folder(status)
        yield from _clocks(status)
        yield _waits(status)
        yield from _ended(status)
        memory = GaugeMetricFamily(
            "syncret_service_memory_bytes", "Resident memory of its own process.", labels=base
        )
        if (resident := status["process"]["memory_bytes"]) is not None:
            memory.add_metric([name], float(resident))
        yield memory
        text = "Processor time of its own process."
        cpu = CounterMetricFamily("syncret_service_cpu_seconds", text, labels=base)
        cpu.add_metric([name], float(status["process"]["cpu_s"]))
        yield cpu
        yield from _events(status)
        yield from _notifications(status)
        refused = CounterMetricFamily(
            "syncret_service_refused_connections",
            "Connections that named no study here.",
            labels=[*base, "port"],
        )
        for port, count in status["refused_connections"].items():
            refused.add_metric([name, port], count)
        yield refused
        yield _restarts(status)


def _certificates(statuses: Sequence[Status], own: Status | None) -> Metric:
    """Returns the seconds until each certificate ends, by study; of the service itself without one."""
    text = "Seconds until a certificate ends; negative once it has."
    family = GaugeMetricFamily(
        "syncret_certificate_expiry_seconds", text, labels=[*_BASE, "kind", "name"]
    )
    found = [(status["study"]["id"], status["party"]["name"], status) for status in statuses]
    if own is not None:
        found.append(("", own["service"], own))
    for study, party, status in found:
        for end in status["certificates"]:
            family.add_metric([study, party, end["kind"], end["name"]], float(end["left_s"]))
    return family


def _folder(status: Status) -> Iterator[Metric]:
    """Yields the free disk of the service's folder, and the age of its last backup: infinite where there is none."""
    folder, label = status["folder"], [status["service"]]
    text = "Bytes that are free on the disk of the service's folder."
    free = GaugeMetricFamily("syncret_service_disk_free_bytes", text, labels=["party"])
    text = "Part of the disk of the service's folder that is free."
    part = GaugeMetricFamily("syncret_service_disk_free_ratio", text, labels=["party"])
    if folder["free_bytes"] is not None and folder["total_bytes"]:
        free.add_metric(label, float(folder["free_bytes"]))
        part.add_metric(label, folder["free_bytes"] / folder["total_bytes"])
    text = "Seconds since the folder's last `syncret backup`; infinite if there was none."
    age = GaugeMetricFamily("syncret_service_backup_age_seconds", text, labels=["party"])
    age.add_metric(label, math.inf if folder["backup_age_s"] is None else folder["backup_age_s"])
    yield from (free, part, age)


def _clocks(status: Status) -> Iterator[Metric]:
    """Yields the offsets of the others' clocks from this one, and of this one from the median of three."""
    text = "Seconds by which the other server's clock is ahead of this one's."
    offsets = GaugeMetricFamily(
        "syncret_service_peer_clock_offset_seconds", text, labels=["party", "peer"]
    )
    for peer in status["peers"]:
        if (clock := peer["clock"]) is not None:
            offsets.add_metric([status["service"], peer["name"]], clock["offset_s"])
    yield offsets
    text = "Seconds by which this server's clock is off by the two others'; 0 where it is not."
    own = GaugeMetricFamily("syncret_service_clock_off_seconds", text, labels=["party"])
    if status["clock"]["known"]:
        own.add_metric([status["service"]], status["clock"]["off_s"] or 0.0)
    yield own


def _waits(status: Status) -> Metric:
    """Returns the conditions that studies wait for, by server."""
    text = "1 for a cause that a study waits for at a server, by that server's own account."
    labels = [*_BASE, "server", "cause"]
    family = GaugeMetricFamily("syncret_study_waits", text, labels=labels)
    waits = {
        (s["run"], wait["name"], wait["cause"]) for s in status["studies"] for wait in s["waits"]
    }
    for run, name, cause in sorted(waits):
        family.add_metric([run, status["service"], name, cause], 1)
    return family


def _ended(status: Status) -> Iterator[Metric]:
    """Yields the time since each study's end, and which have failed, for a week after it."""
    text = "Seconds since the end of a study, for a week."
    labels = [*_BASE, "state"]
    ended = GaugeMetricFamily("syncret_study_ended_seconds", text, labels=labels)
    text = "1 for a study that has failed, until it is approved again or for a week."
    failed = GaugeMetricFamily("syncret_study_failed", text, labels=_BASE)
    latest: dict[str, tuple[float, str]] = {}
    # Of several studies of a name it is the one that has ended last: a series has one value.
    for study in status["studies"]:
        age = study["ended_s"]
        if age is not None and age < _WEEK_S and study["state"] in ENDED:
            latest[study["run"]] = min(
                latest.get(study["run"], (math.inf, "")), (age, study["state"])
            )
    for run, (age, state) in latest.items():
        ended.add_metric([run, status["service"], state], age)
        if state == StudyState.FAILED:
            failed.add_metric([run, status["service"]], 1)
    yield from (ended, failed)


def _events(status: Status) -> Iterator[Metric]:
    """Yields the number of events by name: of all names, so that the first of one is a change."""
    family = CounterMetricFamily(
        "syncret_service_events", "Events of the service.", labels=["party", "event"]
    )
    for name in EventName:
        family.add_metric([status["service"], name.value], status["event_counts"].get(name, 0))
    yield family


def _notifications(status: Status) -> Iterator[Metric]:
    """Yields the notifications of each target: that wait, that were taken, and attempts that failed."""
    labels = ["party", "target"]
    text = "Notices that hold and that the target has not taken."
    pending = GaugeMetricFamily("syncret_service_notices_pending", text, labels=labels)
    text = "Attempts to notify the target, by outcome."
    attempts = CounterMetricFamily("syncret_service_notices", text, labels=[*labels, "outcome"])
    for target in status["notify"]:
        base = [status["service"], target["target"]]
        pending.add_metric(base, target["pending"])
        for outcome in ("delivered", "failed"):
            attempts.add_metric([*base, outcome], target[outcome])
    yield from (pending, attempts)


def _restarts(status: Status) -> Metric:
    """Returns the number of restarts of each study that runs."""
    text = "Restarts of the study's process by the service."
    family = CounterMetricFamily("syncret_study_restarts", text, labels=_BASE)
    counts: Counter[str] = Counter()
    for study in status["studies"]:
        if study["process"] is not None:
            counts[study["run"]] += study["process"]["restarts"]
    for run, count in counts.items():
        family.add_metric([run, status["service"]], count)
    return family


def _samples(status: Status) -> Iterator[tuple[str, Sequence[str], float | None]]:
    versions = status["versions"]
    yield "syncret", (status["kind"], str(versions["syncret"]), str(versions["wire"])), 1
    for phase in Phase:
        yield "syncret_phase", (phase.value,), status["phase"] == phase.value
    yield from _progress(status)
    yield from _owners(status["owners"])
    for reason, count in status["rejections"].items():
        yield "syncret_rejections", (reason,), count
    for name, step in status["steps"].items():
        yield "syncret_step_runs", (name,), step["count"]
        yield "syncret_step_seconds", (name,), step["seconds"]
        yield "syncret_step_sent_bytes", (name,), step["sent_bytes"]
        yield "syncret_step_received_bytes", (name,), step["received_bytes"]
        yield "syncret_step_messages", (name,), step["messages"]
    for peer in status["peers"]:
        yield "syncret_peer_connected", (peer["name"],), peer["connected"]
        yield "syncret_peer_round_trip_seconds", (peer["name"],), peer["round_trip_s"]


def _progress(status: Status) -> Iterator[tuple[str, Sequence[str], float | None]]:
    rounds, budget, time = status["rounds"], status["budget"], status["time"]
    process = status.get("process", {})
    yield "syncret_round_done", (), rounds["done"]
    yield "syncret_rounds_planned", (), rounds["of"]
    yield "syncret_budget_epsilon", (), budget["epsilon"]
    yield "syncret_budget_rho", (), budget["rho"]
    yield "syncret_budget_spent_rho", (), budget["spent"]
    yield "syncret_charges", (), budget["charges"]
    yield "syncret_elapsed_seconds", (), time["elapsed_s"]
    yield "syncret_left_seconds", (), time["left_s"]
    yield "syncret_closing_seconds", (), time["closing_s"]
    yield "syncret_cpu_seconds", (), process.get("cpu_s")
    yield "syncret_memory_bytes", (), process.get("memory_bytes")
    yield "syncret_memory_peak_bytes", (), process.get("peak_bytes")


def _owners(owners: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[str], float | None]]:
    yield "syncret_owners_expected", (), owners["expected"]
    yield "syncret_owners_minimum", (), owners["minimum"]
    yield "syncret_owners_here", (), owners["here"]
    for state in ParticipantState:
        yield "syncret_owners", (state.value,), owners["states"].get(state.value, 0)


def _families() -> dict[str, GaugeMetricFamily | CounterMetricFamily]:
    """Returns empty families by name; counter names are without the suffix _total."""
    gauges = {
        "syncret_phase": ("1 for the phase that the server is in.", ("phase",)),
        "syncret_round_done": ("The last round that is over; the first measurements are 0.", ()),
        "syncret_rounds_planned": ("Rounds, at most.", ()),
        "syncret_owners": ("Data owners by state.", ("state",)),
        "syncret_owners_expected": ("Data owners at most.", ()),
        "syncret_owners_minimum": ("Data owners at least.", ()),
        "syncret_owners_here": ("Data owners with a submission here that may count.", ()),
        "syncret_budget_epsilon": ("The privacy budget, epsilon.", ()),
        "syncret_budget_rho": ("The privacy budget, rho of zCDP.", ()),
        "syncret_budget_spent_rho": ("Charged part of the privacy budget, rho of zCDP.", ()),
        "syncret_charges": ("Charges in the ledger.", ()),
        "syncret_elapsed_seconds": ("Seconds since the process began.", ()),
        "syncret_left_seconds": ("Estimated seconds until the run ends.", ()),
        "syncret_closing_seconds": ("Seconds until no more data owners are taken.", ()),
        "syncret_peer_connected": ("1 while the other server is connected.", ("peer",)),
        "syncret_peer_round_trip_seconds": (
            "Seconds to the other server and back, by TCP.",
            ("peer",),
        ),
        "syncret_memory_bytes": ("Resident memory of the process.", ()),
        "syncret_memory_peak_bytes": ("Largest resident memory of the process.", ()),
    }
    counters = {
        "syncret_rejections": ("Refused inputs, by reason.", ("reason",)),
        "syncret_cpu_seconds": ("Processor time of the process.", ()),
        "syncret_step_runs": ("Starts of a step.", ("step",)),
        "syncret_step_seconds": ("Seconds of finished steps.", ("step",)),
        "syncret_step_sent_bytes": ("Payload bytes sent, by step.", ("step",)),
        "syncret_step_received_bytes": ("Payload bytes received, by step.", ("step",)),
        "syncret_step_messages": ("Messages sent, by step.", ("step",)),
    }
    info = "Version of a server in a study."
    named = GaugeMetricFamily("syncret_info", info, labels=[*_BASE, "kind", "version", "wire"])
    return {
        "syncret": named,
        **{
            name: GaugeMetricFamily(name, text, labels=[*_BASE, *labels])
            for name, (text, labels) in gauges.items()
        },
        **{
            name: CounterMetricFamily(name, text, labels=[*_BASE, *labels])
            for name, (text, labels) in counters.items()
        },
    }
