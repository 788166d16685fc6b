"""Commands `data` and `bundle`: drafts of configs, rows from a run's model, and a run's public files.

`data draft` drafts a config from a table, `data sample` draws more rows from a run's model, and `bundle` packs the
public files of a run for users of the table and for an auditor.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import click

from mechanisms.columns import Categorical, private_of
from mechanisms.dialect import Dialect
from mechanisms.draft import Draft, draft_domain
from mechanisms.linked_draft import SourceDraft, TableRead, draft_sources
from mechanisms.origins import counted
from mechanisms.private_draft import draft_with_private_numbers, private_draft
from mechanisms.provenance import TABLE
from mechanisms.reading import read_recognised, read_text
from mechanisms.source import TableSource
from parties.cli.keyed import tables as keyed_tables
from parties.cli.options import (
    NamedPath,
    TablesWithKeys,
    plain_option,
    population_options,
    table_options,
)
from parties.cli.runtime import common_options
from parties.foundation.errors import StoreError
from parties.foundation.process import require_server_packages
from parties.mpc.planning.draft_sizes import draft_text_with_upload_sizes
from parties.mpc.planning.schema_drafts import read_schema_draft
from parties.session.owner import Table, table_name
from parties.storage.populations import owners_word


@click.group()
def data() -> None:
    """Draft a config from a table; draw rows from the model of a finished run, and ask it questions."""


@data.command(
    "draft",
    short_help="Draft a config from a table.",
    epilog="Example: syncret data draft stays.csv > stays.toml",
)
@table_options(argument="table", several=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    help="Write here instead of standard output.",
)
@click.option(
    "--private-bins",
    is_flag=True,
    help="Leave bins and values of their own to the run, which chooses them from noisy counts.",
)
@click.option(
    "--private",
    is_flag=True,
    help="Write no value of the table at all: the run finds bins and bounds of numbers and dates from noisy counts, "
    "and categories are left to be listed.",
)
@click.option(
    "--private-numbers",
    is_flag=True,
    help="Write no number or date of the table: as --private, but categories, whole numbers of few values, and texts "
    "beside numbers are read from the table and marked. For tables of some 10,000 rows or more.",
)
@click.option(
    "--key",
    "keys",
    metavar="[NAME=]COLUMN",
    multiple=True,
    help="With --table: the column by which rows belong to persons, of all tables or of one. By default it is found.",
)
@click.option(
    "--all-columns",
    is_flag=True,
    help="List the table's columns in their order: synthetic tables have the left-out ones too, empty.",
)
@common_options
def domain(
    table: Table | Mapping[str, Table],
    out: Path | None,
    private_bins: bool,
    private: bool,
    private_numbers: bool,
    keys: tuple[str, ...],
    all_columns: bool,
    as_json: bool,
) -> None:
    """Draft a config from a table: columns, kinds, categories, bounds, values with a cell of their own.

    Everything that was read from the data is marked: a domain has to be public knowledge, so replace or confirm each
    of them before a run in earnest. Columns that look like identifiers or free text are left out, with a note.

    With --source NAME=TABLE for each of several tables the draft has [[source]] tables: what all of them have is the
    key by which rows are linked, else what looks like an identifier.

    With --table NAME=TABLE the draft has [[table]] tables: persons, and what belongs to them by a key that repeats,
    such as stays or payments. A single table in which a person's key repeats is one, too.
    """
    sources: tuple[SourceDraft, ...] = ()
    if out is not None and out.exists() and not as_json:
        raise _is_there(out)
    if private + private_numbers + private_bins > 1:
        raise click.UsageError(
            "--private, --private-numbers and --private-bins say three things of the same values; expected one of them"
        )
    if private and isinstance(table, Mapping):
        raise click.UsageError("--private is for one table; draft each source by itself")
    if all_columns and isinstance(table, Mapping):
        raise click.UsageError("--all-columns is for one table; sources have a header each")
    if private_numbers and isinstance(table, TablesWithKeys):
        raise click.UsageError(
            "--private-numbers is for one table; --private-bins is for tables with keys, too"
        )
    if isinstance(table, TablesWithKeys):
        _draft_keyed(table, out, keys=keys, private_bins=private_bins, as_json=as_json)
        return
    if keys:
        raise click.UsageError(
            "--key is for tables with keys; expected --table NAME=TABLE for each"
        )
    if isinstance(table, Mapping):
        draft, sources = draft_sources(_read(table), private_bins=private_bins)
    else:
        draft = draft_domain(table.source, private_bins=private_bins, all_columns=all_columns)
    # Reasons and questions refer to the table: only its owner sees them, and a private draft has none.
    seen = draft
    draft = private_draft(draft) if private else draft
    draft = draft_with_private_numbers(draft) if private_numbers else draft
    text, upload_sizes = draft_text_with_upload_sizes(table_name(table), draft, sources)
    if as_json:
        document = {
            "domain": draft.domain.to_dict(),
            "notes": list(draft.notes),
            "left_out": list(draft.left_out),
            "to_list": list(draft.to_list),
            "questions": list(draft.questions),
            "read_as": draft.read_as,
            "skipped": list(draft.skipped),
            "upload_sizes": [asdict(offer) for offer in upload_sizes],
            "sources": [asdict(source) for source in sources],
            "person": _person(draft),
        }
        click.echo(json.dumps(document, indent=2))
        return
    _summarise(replace(seen, unlisted=draft.unlisted, private=draft.private))
    _write_draft(text, out)
    click.echo(_origin(draft), err=True)


@data.command("schema", epilog="Example: syncret data schema schema.json > stays.toml")
@click.argument("schema", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=None,
    help="Write here instead of standard output.",
)
@common_options
def schema(schema: Path, out: Path | None, as_json: bool) -> None:
    """Draft a config from a Table Schema (Frictionless Data) or the metadata of SDV, without any table.

    Listed values and bounds are those of the schema, and said to be. Numbers and dates get private bins, which a run
    finds from noisy counts; texts without listed values are left to be listed.
    """
    text, draft = read_schema_draft(schema)
    if as_json:
        document = {
            "domain": draft.domain.to_dict(),
            "left_out": list(draft.left_out),
            "to_list": list(draft.to_list),
        }
        click.echo(json.dumps(document, indent=2))
        return
    _summarise(draft)
    _write_draft(text, out)


def _draft_keyed(
    tables: TablesWithKeys,
    out: Path | None,
    *,
    keys: tuple[str, ...],
    private_bins: bool,
    as_json: bool,
) -> None:
    # Imported on demand: a flat draft needs none of it.
    from mechanisms.keyed.drafting import draft_tables
    from parties.cli.keyed import keyed_draft_document, keys_by_table, summarise_keyed
    from parties.methods.keyed_draft import keyed_draft_text

    draft = draft_tables(_read(tables), keys=keys_by_table(keys, tables), private_bins=private_bins)
    if as_json:
        click.echo(json.dumps(keyed_draft_document(draft), indent=2))
        return
    summarise_keyed(draft)
    _write_draft(keyed_draft_text(draft), out)


def _origin(draft: Draft) -> str:
    """Returns where the values of a draft come from, and what that means, in two sentences."""
    counts = counted(draft.domain)
    free = (
        "numbers and dates get their bounds and bins from noisy counts, which the run's epsilon covers. A run finds "
        "them where there are rows enough (syncret plan --rows)."
    )
    if not counts.get(TABLE):
        return f"No value of the table is in this draft: {free}"
    text = (
        f"Values read from the table in the clear: {counts[TABLE]:,}. No epsilon covers what they tell: a trial takes "
        'them, and a study with others refuses each that is still marked from = "table"'
    )
    if any(each is not None and each.free for each in map(private_of, draft.domain.columns)):
        return f"{text}; {free}"
    return f"{text}; --private-numbers and --private draft without."


def _write_draft(text: str, out: Path | None) -> None:
    """Writes a draft to standard output, or to a new file ``out``. Raises StoreError."""
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise _is_there(out) from error
    except OSError as error:
        raise StoreError(
            out,
            f"cannot be written: {error.strerror or error}; expected a new file in a folder that can be written",
        ) from error


def _is_there(out: Path) -> StoreError:
    return StoreError(out, "is there already; expected the name of a new file")


def _person(draft: Draft) -> dict[str, object] | None:
    """Returns the column that identifies persons, with its numbers unless the draft has no values of the table."""
    if draft.person is None or draft.private:
        return None if draft.person is None else {"column": draft.person.column}
    return asdict(draft.person)


def _summarise(draft: Draft) -> None:
    """Prints on standard error the columns left out and the open questions, without any value of the table."""
    for note in draft.skipped:
        click.echo(f"read: {note}", err=True)
    if draft.left_out:
        drafted = len(draft.domain.columns)
        columns = "column" if drafted == 1 else "columns"
        click.echo(f"{drafted} {columns} drafted, {len(draft.left_out)} left out:", err=True)
    for reason in draft.left_out:
        click.echo(f"  {reason}", err=True)
    if draft.to_list:
        click.echo("To be listed from a code book, and ignored until then:", err=True)
    for name in draft.to_list:
        click.echo(f"  {name}", err=True)
    if draft.private and (marked := _marked(draft)):
        click.echo("With texts among numbers or dates, to be listed in marks:", err=True)
        for name in marked:
            click.echo(f"  {name}", err=True)
    if draft.questions:
        click.echo("To be asked, since it can be read in two ways:", err=True)
    for question in draft.questions:
        click.echo(f"  {question}", err=True)
    if count := len(draft.proposals):
        shown = "a constraint" if count == 1 else f"{count} constraints"
        click.echo(
            f"The table shows {shown}; see TO BE ASKED at the end of the draft. Without the signs # there synthetic "
            "rows keep to it, with them they do not.",
            err=True,
        )


def _marked(draft: Draft) -> list[str]:
    """Returns the names of the columns, as tables have them, that have marks."""
    domain = draft.domain
    marked = [c.name for c in domain.columns if not isinstance(c, Categorical) and c.marks]
    whole = {part: split.column for split in domain.splits for part in split.parts}
    return list(dict.fromkeys(whole.get(name, name) for name in marked))


def _read(tables: Mapping[str, Table]) -> dict[str, TableRead]:
    """Returns the tables of several sources, by name. Raises DataError."""
    found = {}
    for name, table in tables.items():
        text, read_as = read_recognised(table.source)
        found[name] = TableRead(text, table.source.shown, read_as)
    return found


_PATH = click.Path(path_type=Path)
_SEED_BITS = 64


@data.command("sample", epilog="Example: syncret data sample runs/stays -n 10000 --out more.csv")
@click.argument("run", type=_PATH)
@click.option("-n", "--rows", type=click.IntRange(1), help="How many rows to draw.")
@click.option(
    "--out",
    type=_PATH,
    required=True,
    help="The file to make: .csv, .tsv (either with .gz), .parquet or .xlsx.",
)
@click.option(
    "--where",
    metavar="CONDITION",
    help='Only rows that satisfy it, as in "age >= 65 and ward in (A, B)".',
)
@click.option(
    "--balance",
    metavar="COLUMN",
    help="Equally many rows for each value of the column.",
)
@click.option(
    "--like",
    type=_PATH,
    metavar="FILE",
    help="A table in which some columns are given: the others, and empty cells, are drawn for each of its rows.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=None,
    help="The same seed draws the same rows; by default another one each time, which is told.",
)
@click.option(
    "--all-columns",
    is_flag=True,
    help="Write left-out columns too, empty: in the order of [format] columns, or behind the others.",
)
@click.option("--overwrite", is_flag=True, help="Replace the file that is there.")
@plain_option
@common_options
def sample(
    run: Path,
    rows: int | None,
    out: Path,
    where: str | None,
    balance: str | None,
    like: Path | None,
    seed: int | None,
    all_columns: bool,
    overwrite: bool,
    plain: bool,
    as_json: bool,
) -> None:
    """Draw more rows from the model of the run RUN, in the columns, types and formats of its synthetic.csv.

    RUN is the folder of a run of DistAIM, central AIM or FLAIM, that of server 0 or of FLAIM's server, or a bundle.
    What is drawn follows from what was released already: it costs no further privacy, however many rows there are.

    Of a run of tables with keys, or its bundle, -n is the number of persons, and --out a folder: whole persons are
    drawn. Conditions name columns by table, as in "patients.age >= 65 and stays.ward = surgery", which holds for one of
    the stays.

    With --where, --balance or --like the rows are drawn from the model given the condition, exactly. The share of the
    people that satisfy it is told: weights, where rows of several conditions are joined.
    """
    from parties.audit.bundle import unpacked_run
    from parties.cli.keyed import sample_keyed

    require_server_packages("syncret data sample")
    from parties.local.keyed import KeyedFolder
    from parties.local.keyed_run import is_keyed_run

    with unpacked_run(run) as unpacked:
        if is_keyed_run(unpacked.folder):
            if balance is not None or like is not None or all_columns or plain:
                raise click.UsageError(
                    "--balance, --like, --all-columns and --plain are for one table"
                )
            sample_keyed(
                KeyedFolder.of(unpacked.folder, named=run),
                rows,
                out,
                where=where,
                seed=seed,
                overwrite=overwrite,
                as_json=as_json,
            )
            return
    from parties.report.knowledge import condition_share, share_text
    from parties.session.model_files import (
        MOST_ROWS,
        SampleOptions,
        load_model,
        with_plain_format,
        write_samples,
    )

    if (rows is None) == (like is None):
        raise click.UsageError("give either -n, the number of rows, or --like, a file with them")
    if rows is not None and rows > MOST_ROWS:
        raise click.UsageError(f"-n {rows} is too much; expected at most {MOST_ROWS:,} at a time")
    given = None if like is None else read_text(like)
    options = SampleOptions(rows, where, balance, given, str(like))
    chosen = secrets.randbits(_SEED_BITS) if seed is None else seed
    with unpacked_run(run) as unpacked:
        model = load_model(unpacked.folder, named=run)
        share = None if where is None else condition_share(model, unpacked.folder, where)
    listed = model.domain.format.columns
    if plain:
        model = with_plain_format(model)
    if all_columns:
        model = replace(model, domain=model.domain.with_all_columns(listed))
    drawn = write_samples(model, options, out, seed=chosen, overwrite=overwrite)
    number = rows if given is None else len(given)
    document: dict[str, object] = {"out": str(out), "rows": number, "seed": chosen}
    if drawn is not None and where is not None:
        document["probability"] = drawn.probability
        if share is not None:
            document["probability_interval"] = share.to_dict()
    if drawn is not None and balance is not None:
        document["shares"] = dict(drawn.shares)
    if as_json:
        click.echo(json.dumps(document))
        return
    click.echo(f"{number} rows drawn from the model of {run} are in {out} (seed {chosen})")
    if "probability" in document and drawn is not None:
        interval = "" if share is None else share_text(share)
        click.echo(
            f"share of the rows that satisfy the condition: {drawn.probability:.4g}{interval}"
        )
    for label, part in (drawn.shares if drawn is not None else {}).items():
        click.echo(f"share of the rows with {balance} {label}: {part:.4g}")


data.add_command(keyed_tables)


@data.command(
    "estimate",
    epilog='Example: syncret data estimate runs/stays "mean(stay_days) by ward where age >= 65"',
)
@click.argument("run", type=_PATH)
@click.argument("question")
@common_options
def estimate(run: Path, question: str, as_json: bool) -> None:
    """Answer QUESTION from the model of the run RUN: figures with intervals, which cost no privacy.

    Figures are count, share(CONDITION), mean(COLUMN), median(COLUMN), quantile(COLUMN, 0.9), difference(FIGURE,
    CONDITION, CONDITION), ratio(FIGURE, CONDITION, CONDITION), odds_ratio(CONDITION, CONDITION, CONDITION) and
    slope(COLUMN, COLUMN, ...), for each value of columns (by COLUMN), of the rows that satisfy a condition (where
    CONDITION). RUN is the folder of a run of DistAIM, central AIM or FLAIM, that of server 0, or a bundle.

    Of a run of tables with keys questions are about persons: their columns, as patients.age, the number of their rows,
    as stays.number, and their first row, as stays.first.ward.
    """
    from parties.audit.bundle import unpacked_run

    require_server_packages("syncret data estimate")
    from mechanisms.estimates import estimates
    from mechanisms.question import parse_question
    from parties.local.keyed import KeyedFolder
    from parties.local.keyed_run import is_keyed_run
    from parties.report.knowledge import run_knowledge
    from parties.session.model_files import load_model

    asked = parse_question(question)
    with unpacked_run(run) as unpacked:
        folder = unpacked.folder
        if is_keyed_run(folder):
            folder = KeyedFolder.of(folder).of_persons
            run = run / folder.relative_to(unpacked.folder)
        model = load_model(folder, named=run)
        knowledge = run_knowledge(folder, named=run)
    answers = estimates(model, knowledge, asked)
    if as_json:
        answered = [answer.to_dict() for answer in answers]
        click.echo(json.dumps({"question": question, "estimates": answered}, indent=2))
        return
    for answer in answers:
        group = ", ".join(f"{name} {value}" for name, value in answer.group.items())
        click.echo(f"{group}: {answer}" if group else str(answer))


@data.command("metadata", epilog="Example: syncret data metadata runs/stays > metadata.json")
@click.argument("run", type=_PATH)
@common_options
def metadata(run: Path, as_json: bool) -> None:
    """Write the metadata of the synthetic table of RUN as SDV has it: the kind of each column, in JSON."""
    from mechanisms.sdv_metadata import sdv_metadata
    from parties.audit.bundle import unpacked_run
    from parties.session.model_files import load_model

    with unpacked_run(run) as unpacked:
        domain = load_model(unpacked.folder, named=run).domain
    click.echo(json.dumps(sdv_metadata(domain), indent=2))


@data.command("evaluate", epilog="Example: syncret data evaluate runs/stays --data stays.csv")
@click.argument("run", type=_PATH)
@table_options(help="The real table")
@common_options
def evaluate(run: Path, table: Table, as_json: bool) -> None:
    """Compare the synthetic table of the run RUN with a real table, for the owner of that table.

    The figures are computed from the real table without noise: they are not private. They are the error of each query
    of the workload, beside that of shuffled columns, and the distance of each column. RUN is a run's folder or a
    bundle.
    """
    from parties.audit.bundle import unpacked_run

    require_server_packages("syncret data evaluate")
    from parties.report.evaluation import evaluate_run

    with unpacked_run(run) as unpacked:
        found = evaluate_run(unpacked.folder, table)
    click.echo(json.dumps(found.to_dict(), indent=2) if as_json else str(found))


@click.command(epilog="Example: syncret bundle runs/stays --data stays.csv --out stays.zip")
@click.argument("run", type=_PATH)
@click.option("--out", type=_PATH, required=True, help="The file to make, a .zip.")
@click.option(
    "--terms",
    type=_PATH,
    default=None,
    help="What the table may be used for, a text file; by default run.terms, else terms of this program's.",
)
@click.option(
    "--config",
    type=_PATH,
    default=None,
    help="The study's configuration; by default RUN/config.toml.",
)
@click.option(
    "--certificates",
    type=_PATH,
    default=None,
    help="Folder with ca.crt and the servers' certificates; by default RUN/certificates.",
)
@click.option(
    "--real-figures",
    is_flag=True,
    help="Leave in what a trial computed from its real table without noise: such a bundle is not private.",
)
@click.option("--overwrite", is_flag=True, help="Replace the file that is there.")
@click.option(
    "--data",
    "location",
    default=None,
    metavar="TABLE",
    help="The table of a run on one machine, whose people are recognised by their rows: their budget pays.",
)
@click.option(
    "--table",
    "tables",
    type=NamedPath("patients=patients.csv"),
    metavar="NAME=TABLE",
    multiple=True,
    help="Instead, the tables with keys of a run on one machine; once for each.",
)
@population_options
@click.option(
    "--uncharged",
    default=None,
    metavar="REASON",
    help="Charge a run on one machine to nobody; the reason is in the bundle and in the budget's file.",
)
@click.option("--not-private", is_flag=True, help="Publish a run without a privacy guarantee.")
@common_options
def bundle(
    run: Path,
    out: Path,
    terms: Path | None,
    config: Path | None,
    certificates: Path | None,
    real_figures: bool,
    overwrite: bool,
    location: str | None,
    tables: tuple[tuple[str, str], ...],
    population: str | None,
    new_population: str | None,
    by: str | None,
    budget: Path | None,
    uncharged: str | None,
    not_private: bool,
    as_json: bool,
) -> None:
    """Put everything public of the run in folder RUN into one file.

    In it are the synthetic table with its schema, a model card, terms of use and a data package that lists it all; the
    model, to draw more rows from (syncret data sample); the report; and what an audit reads (syncret audit):
    transcripts, certificates and configuration. No keys. The servers' transcripts have to be in RUN/transcripts by
    then, as party-0.jsonl to party-2.jsonl; of FLAIM, RUN may be the server's own folder. Central AIM has none. A
    bundle of a run between silos has its results, its report and what an audit reads, without schema, model card, terms
    and data package. Figures that a trial computed from its real table are taken out of the report.

    What leaves this machine of a run on one machine is a release like any other, and is charged to the budget of the
    people in its table, once: give --data, the table of the run, --population or --new-population; or --uncharged with
    the reason.

    A bundle of a run of tables with keys has all of it, each view with what its own bundle would have: the tables, with
    a data package in which keys lead from one to the other. Give --table for each of them in place of --data; all views
    are charged, or none.
    """
    from parties.audit.packing import pack_run
    from parties.cli.keyed import bundle_keyed
    from parties.local.keyed_run import is_keyed_run
    from parties.local.publication import PublishersWord

    if sum(item is not None for item in (population, new_population, uncharged)) > 1:
        raise click.UsageError("give one of --population, --new-population and --uncharged")
    word = owners_word(population, new_population, by)

    def read(path: str) -> Table:
        return Table(TableSource(path, None, Dialect()), True)

    said = PublishersWord(
        None if location is None else read(location), word, uncharged, not_private, by, budget
    )
    if is_keyed_run(run):
        if len(dict(tables)) < len(tables):
            raise click.UsageError("--table: a name stands twice; give each table once")
        if location is not None or config is not None or certificates is not None:
            raise click.UsageError(
                "--data, --config and --certificates are for one table; of tables with keys give --table NAME=TABLE "
                "for each"
            )
        names, entered = bundle_keyed(
            run,
            out,
            said=said,
            tables={name: read(path) for name, path in tables},
            terms=terms,
            real_figures=real_figures,
            overwrite=overwrite,
        )
    else:
        if tables:
            raise click.UsageError("--table is for tables with keys; of one table give --data")
        names, entered = pack_run(
            run,
            out,
            config=config,
            terms=terms,
            certificates=certificates,
            real_figures=real_figures,
            overwrite=overwrite,
            said=said,
        )
    signed = any("transcripts" in name.split("/") for name in names)
    if as_json:
        click.echo(json.dumps({"bundle": str(out), "files": names}))
    else:
        check = f"check it with: syncret audit {out}" if signed else "nothing in it is signed"
        click.echo(f"{len(names)} files are in {out}; {check}")
    if entered:
        click.echo(entered, err=True)
