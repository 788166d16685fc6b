"""Texts that people and their programs rely on: ``SNAPSHOTS`` has one for each file of this folder."""

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import click
import tomli_w
from click.testing import CliRunner

from parties.cli.main import cli
from parties.config import (
    ClientsSection,
    ComputeSection,
    FlaimSection,
    NetworkSection,
    PartySection,
    RefreshSection,
    RunSection,
    SilosSection,
    SourceSection,
    TimeoutsSection,
    TlsSection,
    WorkloadSection,
    config_from_dict,
)
from parties.foundation.exit_codes import Status, describe
from parties.foundation.version import INGEST_HEADER, INGEST_VERSION, STORE_VERSION, WIRE_VERSION
from parties.methods.mtl import MtlSection
from parties.methods.tda import TdaSection
from parties.service.metrics import render
from parties.service.peer_state import EXCHANGE_VERSION
from parties.service.settings import AdminSection, KeepSection, TracesSection
from tests.golden import sources
from tests.golden.archives import HERE
from tests.parties.test_metrics import SERVICE, document, full_board

WIDTH = 100
SECTIONS: Mapping[str, type[Any]] = {
    "run": RunSection,
    "workload": WorkloadSection,
    "clients": ClientsSection,
    "source": SourceSection,
    "party": PartySection,
    "tls": TlsSection,
    "refresh": RefreshSection,
    "timeouts": TimeoutsSection,
    "compute": ComputeSection,
    "network": NetworkSection,
    "flaim": FlaimSection,
    "silos": SilosSection,
    "tda": TdaSection,
    "mtl": MtlSection,
    "keep": KeepSection,
    "admin": AdminSection,
    "traces": TracesSection,
}
"""Sections of a study's configuration and, the last three, of a service's settings."""
_COLUMNS = [
    {"name": "sex", "kind": "categorical", "categories": ["f", "m"]},
    {"name": "age", "kind": "integer", "low": 0, "high": 99, "bins": 10},
]
_LEAST = {
    "run": {"id": "least", "epsilon": 1.0, "delta": 1e-5},
    "clients": {"expected": 3, "rows_per_client": 100},
    "column": _COLUMNS,
}
_FIXED = {**_LEAST, "run": {"id": "least", "epsilon": 1.0, "delta": 1e-5, "rounds": 3}}
DOCUMENTS: Mapping[str, Mapping[str, object]] = {
    "annealed": _LEAST,
    "fixed": _FIXED,
    "flaim": {**_FIXED, "flaim": {}},
    "tda": {**_FIXED, "tda": {}},
    "mtl": {**_FIXED, "mtl": {"label": "age"}},
}
"""The least that a configuration of each kind has."""
_FIGURE = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? \S+")


def helps() -> str:
    """The snapshot has the --help of every command, also of those that no list shows."""
    return "\n".join(_helps(cli, _context(cli, "syncret", None)))


def _helps(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"$ {context.command_path} --help\n{command.get_help(context)}\n"
    if isinstance(command, click.Group):
        for name in sorted(command.list_commands(context)):
            below = command.get_command(context, name)
            if below is not None:
                yield from _helps(below, _context(below, name, context))


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    return click.Context(
        command, parent, info_name=name, terminal_width=WIDTH, max_content_width=WIDTH
    )


def statuses() -> str:
    """The snapshot has the exit statuses."""
    return "".join(f"{status.value} {status.name}\n" for status in Status)


def metrics() -> str:
    """The snapshot has the metrics of a server and of a service: text, kind and labels, without values."""
    text = render([document(full_board())], own=SERVICE)[0].decode()
    lines = [line if line.startswith("#") else _without_value(line) for line in text.splitlines()]
    return "".join(
        f"{line}\n" for line in sorted({line for line in lines if "_created" not in line})
    )


def _without_value(line: str) -> str:
    found = _SAMPLE.fullmatch(line)
    if found is None:
        raise ValueError(f"no sample of a metric: {line}")
    names = sorted(re.findall(r'(\w+)="', found[2] or ""))
    return f"{found[1]}{{{', '.join(names)}}}"


def keys() -> str:
    """The snapshot has the keys of all sections with their defaults, if they have one."""
    return "\n".join(
        f"[{name}]\n" + "".join(f"{_key(item)}\n" for item in fields(section))
        for name, section in SECTIONS.items()
    )


def _key(item: "Field[Any]") -> str:
    needed = item.default is MISSING and item.default_factory is MISSING
    return item.name if needed else f"{item.name} = {item.default!r}"


def configs() -> str:
    """The snapshot has the least configuration of each kind, as the program writes it in full, and its digest."""
    parts = []
    for name, table in DOCUMENTS.items():
        config = config_from_dict(table, source=f"{name}.toml", base=Path())
        digest, workload = config.digest(), config.build_workload().digest()
        parts.append(f"# {name}\n# {digest}\n# {workload}\n\n{config.resolved_toml()}")
    return "\n".join(parts)


def plans() -> str:
    """The snapshot has what `syncret plan` says of each of these, and the form of its JSON."""
    with tempfile.TemporaryDirectory() as folder:
        return "\n".join(
            f"$ syncret plan {name}.toml{option}\n{_planned(table, Path(folder) / f'{name}.toml', option)}"
            for name, table in DOCUMENTS.items()
            for option in ("", " --json")
        )


def _planned(table: Mapping[str, object], path: Path, option: str) -> str:
    path.write_text(tomli_w.dumps(table))
    result = CliRunner().invoke(cli, ["plan", str(path), *option.split()])
    if result.exception is not None:
        return describe(result.exception).message.replace(str(path), "CONFIG") + "\n"
    said = result.stdout.replace(str(path), "CONFIG")
    return _FIGURE.sub("#", said) if option else said


def versions() -> str:
    """The snapshot has the versions of messages and stores."""
    found = {
        "messages of servers": WIRE_VERSION,
        "messages of owners": INGEST_VERSION,
        "their header": INGEST_HEADER,
        "store": STORE_VERSION,
        "exchange of services": EXCHANGE_VERSION,
    }
    return "".join(f"{name}: {value}\n" for name, value in found.items())


SNAPSHOTS: Mapping[str, Callable[[], str]] = {
    "help.txt": helps,
    "statuses.txt": statuses,
    "metrics.txt": metrics,
    "keys.txt": keys,
    "configs.txt": configs,
    "plans.txt": plans,
    "versions.txt": versions,
    "errors.txt": sources.errors,
    "labels.txt": sources.labels,
    "tables.txt": sources.tables,
}


def path_of(name: str) -> Path:
    """The path leads to a snapshot."""
    return HERE / name
