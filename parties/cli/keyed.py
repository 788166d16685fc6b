"""Tables with keys on the command line: drafts, views for owners, tables of finished runs, more persons."""

import hashlib
import json
import secrets
import shutil
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mechanisms.keyed.drafting import KeyedDraft
from parties.cli.options import NamedPath
from parties.cli.runtime import common_options
from parties.config import Config, load_config
from parties.foundation.errors import ConfigError, StoreError
from parties.foundation.process import require_server_packages
from parties.session.owner import Table
from parties.storage.files import disk_errors, write_atomic

if TYPE_CHECKING:
    from parties.audit.packing import PackedRun
    from parties.local.keyed import KeyedFolder
    from parties.local.publication import PublishersWord

_PATH = click.Path(path_type=Path)
_SEED_BITS = 64


def keys_by_table(said: Iterable[str], tables: Collection[str]) -> dict[str, str]:
    """Returns the key column of each table by ``said``, the values of --key: one of all tables, or NAME=COLUMN."""
    found = dict[str, str]()
    for each in said:
        name, sign, column = each.partition("=")
        if sign and name in tables:
            found[name] = column
        else:
            found = dict.fromkeys(tables, each) | found
    return found


def keyed_draft_document(draft: KeyedDraft) -> dict[str, object]:
    """Returns a draft of tables with keys as JSON has it."""
    return {
        "table": draft.tables.to_dict(),
        "notes": list(draft.notes),
        "left_out": {name: list(each.left_out) for name, each in draft.drafts.items()},
        "questions": {name: list(each.questions) for name, each in draft.drafts.items()},
    }


def summarise_keyed(draft: KeyedDraft) -> None:
    """Prints on standard error what the draft found."""
    for note in draft.notes:
        click.echo(note, err=True)
    for name, each in draft.drafts.items():
        columns = len(each.domain.columns)
        click.echo(f"{name}: {columns} columns drafted, {len(each.left_out)} left out", err=True)
        for reason in each.left_out:
            click.echo(f"  {reason}", err=True)


def print_keyed_result(report: Mapping[str, Any], folder: Path, *, as_json: bool) -> None:
    """Prints the report of tables with keys as JSON, or a summary with the paths of the files."""
    if as_json:
        click.echo(json.dumps(report, indent=2, ensure_ascii=False))
        return
    privacy = report["privacy"]
    click.echo(
        f"{'privacy':<16}epsilon = {privacy['epsilon']:g}, delta = {privacy['delta']:g}, of {privacy['unit']}"
    )
    if server := privacy.get("against the server"):
        click.echo(f"{'against server':<16}{server}")
    for name, rows in report["tables"].items():
        click.echo(f"{name:<16}{rows} synthetic rows")
    real = {each["name"]: each for each in report["figures"]["real"] or ()}
    for each in report["figures"]["synthetic"]:
        other = real.get(each["name"])
        for within in each["columns"]:
            beside = {} if other is None else _column(other, within["column"])
            said = [
                f"{word} {within[of]:.3g}"
                + (f" (real {beside[of]:.3g})" if beside.get(of) is not None else "")
                for of, word in (("spread", "spread within a person"), ("stays", "same as before"))
                if within[of] is not None
            ]
            click.echo(f"{each['name'] + '.' + within['column']:<24}{', '.join(said[:1])}")
    for name, guessed in report["not_measured"].items():
        if guessed:
            click.echo(
                f"{'a guess':<16}{name}, from row to row: {', '.join(guessed)}. Not measured: do not use it"
            )
    click.echo(f"{'time':<16}{report['time']['total_s']:.1f} s")
    for name in (*(f"{table}.csv" for table in report["tables"]), "report.html", "report.json"):
        click.echo(f"{'':<16}{folder / name}")


def _column(figures: Mapping[str, Any], name: str) -> Mapping[str, float]:
    found: Mapping[str, float] = next(c for c in figures["columns"] if c["column"] == name)
    return found


def bundle_keyed(
    run: Path,
    out: Path,
    *,
    said: "PublishersWord",
    tables: Mapping[str, Table],
    terms: Path | None,
    real_figures: bool,
    overwrite: bool,
) -> "PackedRun":
    """Makes a bundle of the run of tables with keys in ``run``; see `parties.audit.keyed_bundle`."""
    require_server_packages("syncret bundle of tables with keys")
    from parties.audit.keyed_bundle import KeyedWord, pack_keyed

    return pack_keyed(
        run,
        out,
        word=KeyedWord(tables, said),
        terms=terms,
        real_figures=real_figures,
        overwrite=overwrite,
    )


def sample_keyed(
    folder: "KeyedFolder",
    rows: int | None,
    out: Path,
    *,
    where: str | None,
    seed: int | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Draws more persons from the run of tables with keys in ``folder``, into the folder ``out``."""
    from mechanisms.keyed.conditions import PersonsWanted
    from parties.local.keyed import write_tables
    from parties.session.model_files import MOST_ROWS

    if rows is None:
        raise click.UsageError("give -n, the number of persons")
    if rows > MOST_ROWS:
        raise click.UsageError(f"-n {rows} is too much; expected at most {MOST_ROWS:,} at a time")
    chosen = secrets.randbits(_SEED_BITS) if seed is None else seed
    drawn = folder.draw(PersonsWanted(rows, where, chosen))
    texts = write_tables(out, folder.study.tables, drawn, overwrite=overwrite)
    numbers = {name: len(text) for name, text in texts.items()}
    if as_json:
        click.echo(json.dumps({"out": str(out), "rows": numbers, "seed": chosen}))
        return
    shown = ", ".join(f"{number} rows of {name}" for name, number in numbers.items())
    click.echo(f"{rows} persons with {shown} are in {out} (seed {chosen})")


@click.command(
    "tables",
    short_help="Tables with keys: views for a study, tables of its runs.",
    epilog="Example: syncret data tables study.toml --table patients=patients.csv --table stays=stays.csv --out views",
)
@click.argument("config", type=_PATH)
@click.option(
    "--table",
    "tables",
    type=NamedPath("registry=deaths.csv"),
    metavar="NAME=TABLE",
    multiple=True,
    help="A data owner's table; once for each. Without any, configs alone are written.",
)
@click.option(
    "--view",
    "views",
    type=NamedPath("patients=runs/patients", "RUN"),
    metavar="NAME=RUN",
    multiple=True,
    help="The finished run of a view, or its bundle, once for each: tables with keys are drawn from them.",
)
@click.option("-n", "--persons", type=click.IntRange(1), help="With --view: how many persons.")
@click.option("--out", type=_PATH, required=True, help="The folder to make.")
@common_options
def tables(
    config: Path,
    tables: tuple[tuple[str, str], ...],
    views: tuple[tuple[str, str], ...],
    *,
    persons: int | None,
    out: Path,
    as_json: bool,
) -> None:
    """Take tables with keys through studies on hosts of their own: views before, tables after.

    A study of the configuration CONFIG, which has [[table]] tables, is one study for each view: flat tables with a
    bounded number of rows of a person. Without --view this writes the configuration of each view, NAME.toml, and of an
    owner's tables the rows to take part with, NAME.csv. With --view for each it draws tables with keys from the
    finished runs.
    """
    from mechanisms.source import TableSource
    from parties.local.keyed import keyed_rows
    from parties.methods.keyed_study import load_keyed_study

    if views and tables:
        raise click.UsageError("--table goes before the runs, --view after them; give one of both")
    study = load_keyed_study(config)
    if out.exists() and any(out.iterdir()):
        raise StoreError(out, "is not empty; expected a new folder")
    if views:
        _draw_from(
            config, {name: Path(run) for name, run in views}, persons, out=out, as_json=as_json
        )
        return
    read = {name: Table(TableSource(path), True) for name, path in tables}
    rows = keyed_rows(study, read)[0] if read else {}
    with disk_errors(out, "made"):
        out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, flat in study.configs.items():
        write_atomic(out / f"{name}.toml", flat.resolved_toml())
        written.append(f"{name}.toml")
        own = rows.get(name, {})
        parts = (
            {name: own} if isinstance(own, Table) else {f"{name}-{s}": t for s, t in own.items()}
        )
        for file, table in parts.items():
            text = table.as_written().frame().to_csv(index=False)
            write_atomic(out / f"{file}.csv", text, secret=True)
            written.append(f"{file}.csv")
    if as_json:
        click.echo(json.dumps({"out": str(out), "files": written}))
        return
    click.echo(
        f"{', '.join(written)} are in {out}: one study for each view; epsilon is divided among them"
    )


def _draw_from(
    config: Path, views: Mapping[str, Path], persons: int | None, *, out: Path, as_json: bool
) -> None:
    require_server_packages("syncret data tables --view")
    from parties.local.keyed import KeyedFolder, assemble
    from parties.local.keyed_run import OF_VIEWS
    from parties.methods.keyed_study import load_keyed_study

    started = time.monotonic()
    study = load_keyed_study(config, method=_method_of_run(next(iter(views.values()))))
    if (names := set(study.configs)) != set(views):
        raise click.UsageError(
            f"--view is for each of {', '.join(sorted(names))}; expected them all"
        )
    folder = KeyedFolder.made(
        out, study, hashlib.sha256(json.dumps(sorted(map(str, views))).encode())
    )
    _collect_views(folder, views)
    document = assemble(folder, method=OF_VIEWS, real=None, started=started, persons=persons)
    print_keyed_result(document, out, as_json=as_json)


def _method_of_run(run: Path) -> str | None:
    """Returns FLAIM if a finished run is of it, else None: the configuration says how the views were divided."""
    from parties.audit.bundle import unpacked_run
    from parties.methods.keyed_study import FLAIM
    from parties.methods.registry import method_of

    with unpacked_run(run) as unpacked:
        return FLAIM if method_of(load_config(unpacked.folder / "config.toml")) == FLAIM else None


def _collect_views(folder: "KeyedFolder", runs: Mapping[str, Path]) -> None:
    """Copies what is public of finished runs of the views, by name, into the folder, so that it can be audited.

    Raises StoreError where there is none, ConfigError for a run of another configuration.
    """
    from parties.audit.bundle import public_files, unpacked_run

    for name, run in runs.items():
        with unpacked_run(run) as unpacked:
            _check_run(folder.study.configs[name], unpacked.folder, run)
            target = folder.view(name)
            with disk_errors(target, "copied"):
                for file, source in public_files(unpacked.folder).items():
                    (target / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, target / file)


def _check_run(config: Config, folder: Path, run: Path) -> None:
    """Raises ConfigError if the finished run in ``folder`` had another budget or unit than ``config``.

    Servers and owners may differ; the model's columns are checked where it is loaded.
    """
    found = load_config(folder / "config.toml").run
    for key in ("epsilon", "delta", "unit", "rows_per_person"):
        if getattr(found, key) != getattr(config.run, key):
            raise ConfigError(
                str(run),
                f"run.{key}",
                f"is {getattr(found, key)!r}; expected {getattr(config.run, key)!r}, as the view has it",
            )
