"""The `syncret` command as an operator and a data owner use it, and what all commands have in common."""

import contextlib
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pandas as pd
import pytest
from click.testing import CliRunner

from parties.api.owner import submit
from parties.cli.main import cli
from parties.cli.runtime import run_command_line
from parties.config import load_config
from parties.foundation.exit_codes import Status
from parties.mpc.session import server_files
from tests.parties.commands import snapshot
from tests.parties.hosts import OWNERS, SERVERS, three_hosts
from tests.parties.small import write_small

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = click.Context(cli)
COMMANDS = {name: cli.get_command(CONTEXT, name) for name in cli.list_commands(CONTEXT)}
PUBLIC = [name for name, command in COMMANDS.items() if command and not command.hidden]


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def leaves(name: str, command: click.Command | None) -> Iterator[str]:
    """Yields the commands of a group and of groups in it, or the one command."""
    if isinstance(command, click.Group):
        for leaf in command.list_commands(CONTEXT):
            yield from leaves(f"{name} {leaf}", command.get_command(CONTEXT, leaf))
    else:
        yield name


@pytest.mark.parametrize(
    "name", [leaf for n in PUBLIC if n != "bench" for leaf in leaves(n, COMMANDS[n])]
)
def test_commands_have_help_with_an_example_and_json(name: str) -> None:
    shown = CliRunner().invoke(cli, [*name.split(), "--help"])
    assert shown.exit_code == 0
    assert f"Example: syncret {name}" in " ".join(shown.output.split())
    assert "--json" in shown.output


def options(name: str, command: click.Command | None) -> Iterator[tuple[str, click.Option]]:
    """Yields the options of a command, and of all below it, that are not hidden."""
    if command is None or command.hidden:
        return
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            yield name, parameter
    if isinstance(command, click.Group):
        for below in command.list_commands(CONTEXT):
            yield from options(f"{name} {below}", command.get_command(CONTEXT, below))


def test_every_option_says_what_it_is() -> None:
    found = [each for name in PUBLIC for each in options(name, COMMANDS[name])]
    assert len(found) > 500
    silent = [f"{name} {option.opts[0]}" for name, option in found if not option.help]
    assert not silent


def ranges(command: click.Command) -> list[click.Parameter]:
    """The parameters of a command, and of all below it, that are ranges of numbers."""
    if isinstance(command, click.Group):
        below = [command.get_command(CONTEXT, name) for name in command.list_commands(CONTEXT)]
        return [parameter for each in below if each is not None for parameter in ranges(each)]
    return [each for each in command.params if isinstance(each.type, click.FloatRange)]


def test_ranges_of_numbers_do_not_take_nan() -> None:
    """With nan no deadline comes: `--wait nan` waited for ever."""
    found = [each for name in PUBLIC if name != "bench" for each in ranges(COMMANDS[name])]
    assert len(found) > 10
    for parameter in found:
        with pytest.raises(click.BadParameter, match=r"nan is no number\."):
            parameter.type.convert("nan", parameter, CONTEXT)


def test_help_lists_the_public_commands() -> None:
    listed = CliRunner().invoke(cli, ["--help"]).output
    for name, command in COMMANDS.items():
        assert command is not None
        assert command.name == name
        assert (f"  {name} " in listed) == (not command.hidden)


@pytest.mark.parametrize("name", ["server", "owners", "flaim-clients", "silos-clients"])
def test_processes_of_a_run_import_neither_tables_nor_pictures(name: str) -> None:
    script = (
        "import sys, click, parties.cli.main as c\n"
        f"assert c.internal.get_command(click.Context(c.internal), {name!r})\n"
        "found = {'pandas', 'matplotlib', 'jax', 'mbi', 'rich'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(found)) or None)\n"
    )
    done = run_script(script)
    assert (done.returncode, done.stderr) == (0, "")


def test_all_commands_together_import_nothing_of_the_bench_extra() -> None:
    script = (
        "import sys, click, parties.cli.main as c\n"
        "context = click.Context(c.cli)\n"
        "assert all(c.cli.get_command(context, n) for n in c.cli.list_commands(context))\n"
        "found = {'sklearn', 'umap', 'joblib', 'dask', 'distributed'} & set(sys.modules)\n"
        "sys.exit(', '.join(found) or None)\n"
    )
    done = run_script(script)
    assert (done.returncode, done.stderr) == (0, "")


def test_main_says_one_line_when_it_is_stopped_while_it_starts() -> None:
    script = (
        "import builtins, parties.cli.main\n"
        "real = builtins.__import__\n"
        "def stopped(name, *rest):\n"
        "    if name == 'parties.cli.runtime':\n"
        "        raise KeyboardInterrupt\n"
        "    return real(name, *rest)\n"
        "builtins.__import__ = stopped\n"
        "parties.cli.main.main()\n"
    )
    done = run_script(script)
    assert done.returncode == Status.INTERRUPTED
    assert done.stderr == "syncret: error: stopped by Ctrl-C\n"


def test_guarded_prints_one_message_when_a_command_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "none.toml"
    assert run_command_line(cli, ["serve", "study", str(missing), "--pid", "0"]) == Status.CONFIG
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith(f"syncret: error: {missing}: cannot be read")


def test_guarded_shows_where_a_failure_came_from_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["data", "draft", str(tmp_path / "none.csv"), "--debug"]
    assert run_command_line(cli, arguments) == Status.DATA
    assert "Traceback" in capsys.readouterr().err


def test_guarded_returns_two_for_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(cli, ["serve", "study"]) == Status.USAGE
    assert "Missing" in capsys.readouterr().err


def test_domain_says_beside_the_draft_what_it_leaves_out_and_asks(tmp_path: Path) -> None:
    table = tmp_path / "stays.csv"
    rows = [f"{i:05d},{i % 12 + 1:02d}/0{i % 9 + 1}/2021,{i % 3}" for i in range(40)]
    table.write_text("\n".join(["case,came,ward", *rows]))
    drafted = CliRunner().invoke(cli, ["data", "draft", str(table)])
    assert drafted.exit_code == 0
    assert drafted.stderr.splitlines()[:2] == [
        "2 columns drafted, 1 left out:",
        "  case: looks like an identifier: 40 different values in 40 rows",
    ]
    assert "came: days, months and years can be read in more than one order" in drafted.stderr
    asked = json.loads(CliRunner().invoke(cli, ["data", "draft", str(table), "--json"]).stdout)
    assert len(asked["questions"]) == 1


def test_domain_drafts_a_config_that_loads_and_marks_what_it_read(tmp_path: Path) -> None:
    table = tmp_path / "stays.csv"
    table.write_text("sex,age,cost\nf,3,1.5\nm,90,\nf,17,2.25\n")
    drafted = CliRunner().invoke(cli, ["data", "draft", str(table)])
    assert drafted.exit_code == 0
    assert drafted.stdout.count("# READ FROM THE DATA") == 1 + 2 + 4 + 1
    assert "WARNING" in drafted.stdout
    path = tmp_path / "stays.toml"
    path.write_text(drafted.stdout)
    config = load_config(path)
    assert config.domain.names == ("sex", "age", "cost")
    out = tmp_path / "other.toml"
    assert run_command_line(cli, ["data", "draft", str(table), "--out", str(out)]) == 0
    assert out.read_text() == drafted.stdout
    assert run_command_line(cli, ["data", "draft", str(table), "--out", str(out)]) == Status.STORAGE
    assert out.read_text() == drafted.stdout


def test_domain_says_what_is_wrong_with_the_place_for_its_draft(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "stays.csv"
    table.write_text("sex\nf\n")
    for out, said in (
        (table, "is there already; expected the name of a new file"),
        (tmp_path / "no" / "x.toml", "No such file or directory; expected a new file in a folder"),
    ):
        assert (
            run_command_line(cli, ["data", "draft", str(table), "--out", str(out)])
            == Status.STORAGE
        )
        shown = capsys.readouterr().err
        assert shown.startswith(f"syncret: error: {out}: ")
        assert said in shown
    assert table.read_text() == "sex\nf\n"


@pytest.mark.parametrize("days", ["nan", "inf", "1e12", "36501", "0", "-1"])
def test_certs_trial_makes_nothing_for_a_number_of_days_that_no_certificate_can_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], days: str
) -> None:
    assert (
        run_command_line(cli, ["certs", "trial", str(tmp_path / "tls"), "--days", days])
        == Status.USAGE
    )
    assert "--days" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_certs_trial_are_valid_for_a_century_at_most(tmp_path: Path) -> None:
    assert (
        run_command_line(cli, ["certs", "trial", str(tmp_path / "tls"), "--days", "36500"])
        == Status.DONE
    )


def test_certs_trial_makes_an_authority_and_adds_to_it(tmp_path: Path) -> None:
    tls = str(tmp_path / "tls")
    runner = CliRunner()
    assert runner.invoke(cli, ["certs", "trial", tls, "--party", "alpha"]).exit_code == 0
    authority = (tmp_path / "tls" / "ca.crt").read_bytes()
    made = runner.invoke(cli, ["certs", "trial", tls, "--client", "north", "--json"])
    assert set(json.loads(made.output)) == {"north"}
    assert (tmp_path / "tls" / "ca.crt").read_bytes() == authority
    assert run_command_line(cli, ["certs", "trial", tls, "--client", "north"]) == Status.CERTIFICATE


def said_by(*arguments: str) -> dict[str, object]:
    """JSON output of a command, here in the current folder."""
    shown = CliRunner().invoke(cli, [*arguments, "--json"])
    assert shown.exit_code == 0, shown.output
    said: dict[str, object] = json.loads(shown.stdout)
    return said


def test_certs_and_fingerprint_show_the_same_words_to_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ceremony as people do it: each in a folder of its own, with files handed over."""
    write_small(tmp_path)
    words = {}
    for number, name in enumerate(SERVERS):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        ends = ("--mesh", f"{name}.example:{7100 + number}", "--ingest", f"{name}.example:7443")
        words[name] = said_by("certs", "card", name, *ends)["words"]
        assert said_by("certs", "card", name)["words"] == words[name]
        shutil.copy(f"{name}.card", tmp_path)
    monkeypatch.chdir(tmp_path)
    issuer = said_by("certs", "authority")
    assert said_by("certs", "authority") == issuer | {"new": False}
    cards = [f"{name}.card" for name in SERVERS]
    made = said_by("certs", "merge", "small.toml", *cards)
    assert made["file"] == "study/small.toml"
    for name in ("north", "south"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        words[name] = said_by("certs", "request", name)["words"]
        assert said_by("certs", "request", name)["words"] == words[name]
        shutil.copy(f"{name}.request", tmp_path)
    monkeypatch.chdir(tmp_path)
    admitted = said_by(
        "certs", "admit", "north.request", "south.request", "--out", "study/certificates"
    )["admitted"]
    assert isinstance(admitted, list)
    assert {owner["name"]: owner["words"] for owner in admitted} == {
        name: words[name] for name in ("north", "south")
    }
    for name in words:
        shutil.copytree("study", tmp_path / name / "study")
        monkeypatch.chdir(tmp_path / name)
        shown = said_by("certs", "fingerprint", "study/small.toml")
        assert shown["digest"] == load_config(Path("study/small.toml")).digest() == made["digest"]
        assert isinstance(shown["servers"], list)
        assert {s["name"]: s["words"] for s in shown["servers"]} == {
            name: words[name] for name in SERVERS
        }
        people = CliRunner().invoke(cli, ["certs", "fingerprint", "study/small.toml"]).output
        flat = " ".join(people.split())
        assert all(str(words[name]) in flat for name in SERVERS)
        assert str(shown["words"]) in flat
        monkeypatch.chdir(tmp_path)
    for pid, name in enumerate(SERVERS):
        server_files(load_config(tmp_path / name / "study" / "small.toml"), pid)


def test_certs_tells_each_what_to_do_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config, _ = write_small(tmp_path)
    config.write_text(config.read_text() + '[flaim]\nclients = ["north", "south", "west"]\n')
    monkeypatch.chdir(tmp_path)
    for arguments, said in (
        (["card", "hub", "--address", "hub.example:7500"], "hub.card: made. Send it to the coord"),
        (["card", "hub"], "hub.card: as it was."),
        (["authority"], "Its key admits data owners"),
        (
            ["merge", "small.toml", "hub.card"],
            "hub: syncret serve study study/small.toml --dir RUN",
        ),
        (["request", "north", "--dir", "own"], "north.request: made."),
        (["admit", "north.request"], "certs/north.crt: give each to its owner"),
    ):
        assert run_command_line(cli, ["certs", *arguments]) == Status.DONE
        shown = capsys.readouterr()
        assert said in shown.err
        assert "in words" in shown.out
    assert run_command_line(cli, ["certs", "fingerprint", "small.toml"]) == Status.DONE
    assert "no servers yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["card", "alpha"], Status.USAGE, "there is no card yet"),
        (["card", "alpha", "--mesh", "a:1"], Status.USAGE, "give --mesh and --ingest"),
        (["card", "alpha", "--mesh", "a", "--ingest", "b:1"], Status.USAGE, "expected host:port"),
        (["card", "../x", "--address", "a:1"], Status.CERTIFICATE, "cannot be a name"),
        (["card", "x", "--address", "a b:1"], Status.CERTIFICATE, "expected host:port"),
        (["card", "x", "--address", "a:1", "--dir", "file/x"], Status.STORAGE, "cannot be made"),
        (["request", "ca"], Status.CERTIFICATE, "cannot be a name"),
        (["admit", "none.request"], Status.CERTIFICATE, "cannot be read"),
        (["admit"], Status.USAGE, "Missing argument"),
        (["merge", "none.toml", "a.card"], Status.CERTIFICATE, "a.card: cannot be read"),
        (["authority", "--dir", "file"], Status.STORAGE, "cannot be made"),
        (["tls"], Status.USAGE, "No such command"),
    ],
)
def test_certs_makes_nothing_of_what_it_cannot_use(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: Status,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    assert run_command_line(cli, ["certs", *arguments]) == status
    assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("flaim-clien", "join or run --method flaim"),
        ("silos-serve", "serve study or serve or join"),
        ("subnit", "join"),
        ("fingerprnt", "certs fingerprint"),
    ],
)
def test_a_name_near_a_former_one_leads_to_what_can_be_typed(
    former: str, now: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(cli, [former]) == Status.USAGE
    said = capsys.readouterr().err
    assert "--only" not in said
    assert now in said


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["run", "config.toml", "table.csv"], True),
        (["demo", "table.csv"], False),
    ],
    ids=["run", "a command without tables"],
)
def test_a_table_behind_no_option_is_told_where_it_stands(
    capsys: pytest.CaptureFixture[str], arguments: list[str], hint: bool
) -> None:
    assert run_command_line(cli, arguments) == Status.USAGE
    said = capsys.readouterr().err
    assert "unexpected extra argument" in said
    assert ("; a table stands behind --data" in said) == hint


def syncret(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    # Everybody has a budget of their own, in their folder.
    own = {"PYTHONPATH": str(ROOT), "SYNCRET_BUDGET": "budget.sqlite"}
    environment = {**os.environ, **own}
    return subprocess.Popen(
        [sys.executable, "-m", "parties", *arguments],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def small_hosts(folder: Path) -> dict[str, Path]:
    """Everybody's copy of the small run's configuration, after the ceremony."""
    return three_hosts(folder, write_small(folder)[0])


def wait_until_all_listen(config: Path) -> None:
    """An owner that finds one server only has its submission kept there for the others, which is another test's."""
    deadline = time.monotonic() + 60
    for party in load_config(config).require_parties():
        while True:
            try:
                socket.create_connection((party.ingest.host, party.ingest.port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)


@pytest.mark.slow
def test_party_and_submit_run_a_deployment(tmp_path: Path) -> None:
    hosts = {name: config.parent.parent for name, config in small_hosts(tmp_path).items()}
    study = "study/small.toml"
    register = ("--register", "register.sqlite")
    servers = [
        syncret(
            "serve", "study", study, "--pid", str(pid), "--dir", "run", *register, cwd=hosts[name]
        )
        for pid, name in enumerate(SERVERS)
    ]
    rows = (tmp_path / "small.csv").read_text().splitlines()
    try:
        wait_until_all_listen(hosts["alpha"] / study)
        # The first owner sends the wrong table, and takes it back.
        (hosts[OWNERS[0]] / "stays.csv").write_text("\n".join(rows[:9]) + "\n")
        for options, text in (
            ([], "at all three servers"),
            (["--withdraw"], "given back to population stays: rho 0 of"),
        ):
            command = ["join", study, "--data", "stays.csv", *options]
            taken_back = syncret(*command, cwd=hosts[OWNERS[0]])
            said, error = taken_back.communicate(timeout=60)
            assert (taken_back.returncode, text in said) == (0, True), error + said
        for number, owner in enumerate(OWNERS):
            table = hosts[owner] / "stays.csv"
            table.write_text("\n".join([rows[0], *rows[1 + number :: 3]]) + "\n")
            if owner == OWNERS[-1]:
                # An owner may as well send it from Python; what is kept is beside nothing then.
                whole = pd.read_csv(table)
                sent_by_program = submit(
                    hosts[owner] / study, whole, dataset="of-west", state=hosts[owner] / "state"
                )
                assert (sent_by_program.client, sent_by_program.complete) == (owner, True)
                continue
            sent = syncret("join", study, "--data", "stays.csv", cwd=hosts[owner])
            said, error = sent.communicate(timeout=60)
            assert sent.returncode == 0, error
            assert f"the submission of {owner} is at all three servers" in said
        ends = [server.communicate(timeout=60) for server in servers]
    finally:
        for server in servers:
            server.kill()
    assert [server.returncode for server in servers] == [0, 0, 0], ends
    lead, other = hosts["alpha"] / "run", hosts["beta"] / "run"
    assert (hosts["beta"] / "register.sqlite").exists()
    report = json.loads((lead / "report.json").read_text())
    assert report["parameters"]["clients"] == 3
    upload = 4 * 56 + 144 + 3 * 1136
    mean = report["communication"]["client_sent_bytes_mean"]
    assert mean == pytest.approx(4 * upload / 3, abs=1)
    assert "utility" in report
    assert report["utility"] == {}
    assert report["quality"]["verdict"]["not_for"]
    assert [column["column"] for column in report["columns"]] == ["sex", "ward", "age"]
    assert "not_private" not in report
    assert (lead / "synthetic.csv").exists()
    assert not (other / "synthetic.csv").exists()
    assert oct(other.stat().st_mode)[-3:] == "700"
    assert load_config(hosts["alpha"] / study).run.id == "small"
    # What the study's folder and the servers publish is all that an audit needs.
    books = tmp_path / "audit" / "transcripts"
    books.mkdir(parents=True)
    for pid, name in enumerate(SERVERS):
        shutil.copy(hosts[name] / "run" / "transcript.jsonl", books / f"party-{pid}.jsonl")
    certificates = str(hosts["north"] / "study" / "certificates")
    given = ["audit", str(tmp_path / "audit"), "--certificates", certificates]
    audited = CliRunner().invoke(cli, given)
    assert audited.exit_code == 0, audited.output
    shown = said_by("certs", "fingerprint", str(hosts["north"] / study))
    told = " ".join(audited.output.split())
    assert f'the digest {shown["digest"]}, in words "{shown["words"]}"' in told


def test_party_makes_no_folder_with_keys_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = small_hosts(tmp_path)
    config = hosts["beta"]
    own, others = config.parent.parent / "tls", hosts["alpha"].parent.parent / "tls"
    certificates = config.parent / "certificates"
    shutil.copy(others / "own.seal", own / "own.seal")
    for said in (
        "own.seal: not the sealing key that the configuration has of party 1",
        "own.key: not the key of",
        "is for 'alpha'; expected the certificate of party 1, 'beta'",
    ):
        before = snapshot(tmp_path)
        assert (
            run_command_line(cli, ["serve", "study", str(config), "--pid", "1"])
            == Status.CERTIFICATE
        )
        assert said in capsys.readouterr().err
        assert snapshot(tmp_path) == before
        if "own.seal" in said:
            shutil.copy(others / "own.key", own / "own.key")
        else:
            shutil.copy(certificates / "alpha.crt", certificates / "beta.crt")


def test_submit_says_which_file_cannot_be_used_and_how_many_rows_are_too_many(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, table = small_hosts(tmp_path)["north"], tmp_path / "north.csv"
    table.write_text("sex,ward,age\nf,x,1\n")
    arguments = ["join", str(config), "--data", str(table)]
    state = str(table / "state")
    assert run_command_line(cli, [*arguments, "--state", state]) == Status.STORAGE
    assert f"{state}: cannot be written: File exists; expected a" in capsys.readouterr().err
    bound = load_config(config).clients.rows_per_client
    table.write_text("sex,ward,age\n" + "f,x,1\n" * (bound + 1))
    assert run_command_line(cli, arguments) == Status.DATA
    assert f"the table has {bound + 1} rows; expected at most {bound}" in capsys.readouterr().err


def test_submit_says_that_nobody_admitted_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, table = small_hosts(tmp_path)["north"], tmp_path / "north.csv"
    table.write_text("sex,ward,age\nf,x,1\n")
    certificates = config.parent / "certificates"
    (certificates / "north.crt").rename(tmp_path / "north.crt")
    (certificates / "damaged.crt").write_text("no certificate")
    arguments = ["join", str(config), "--data", str(table)]
    assert run_command_line(cli, arguments) == Status.CERTIFICATE
    assert "has no certificate for the key" in capsys.readouterr().err
    for name in ("first.crt", "second.crt"):
        shutil.copy(tmp_path / "north.crt", certificates / name)
    assert run_command_line(cli, arguments) == Status.CERTIFICATE
    assert "has first.crt, second.crt for the key" in capsys.readouterr().err


def test_audit_leaves_alone_a_folder_that_holds_no_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(cli, ["audit", str(tmp_path)]) == Status.STORAGE
    assert "is not a folder; expected a run's transcripts" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_submit_names_line_and_column_and_sends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, table = small_hosts(tmp_path)["north"], tmp_path / "north.csv"
    table.write_text("sex,ward,age\nf,x,1\nf,x,77\n")
    arguments = ["join", str(config), "--data", str(table)]
    assert run_command_line(cli, arguments) == Status.DATA
    assert "line 3, column 'age'" in capsys.readouterr().err
    # Nobody listens: a table that fits gets as far as the servers, and the message says where they are not.
    table.write_text("sex,ward,age\nf,x,1\n")
    short = config.read_text().replace("submit_s = 20.0", "submit_s = 0.5")
    config.write_text(short)
    assert run_command_line(cli, arguments) == Status.NETWORK
    assert "alpha at 127.0.0.1:" in capsys.readouterr().err


def drafted(table: Path, *options: str) -> Path:
    """The config that `domain` drafts beside a table."""
    out = table.with_name(f"{table.stem}-draft.toml")
    shown = CliRunner().invoke(cli, ["data", "draft", str(table), "--out", str(out), *options])
    assert shown.exit_code == 0, shown.output
    return out


def test_domain_drafts_what_run_takes_for_short_names_of_whole_numbers(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("a,b\n" + "".join(f"{i % 3},{i % 5}\n" for i in range(60)))
    config = load_config(drafted(table))
    assert config.domain.names == ("a", "b")
    assert config.workload.degree == 2
    table.write_text("a\n" + "1\n2\n" * 20)
    out = tmp_path / "one.toml"
    out.write_text(CliRunner().invoke(cli, ["data", "draft", str(table)]).stdout)
    assert load_config(out).build_workload().queries == (("a",),)


def test_domain_reads_what_spreadsheets_write_and_can_be_told(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    rows = "".join(f"{i % 7},5;gr\u00fcn\n" for i in range(40))
    table.write_bytes(f"preis;farbe\n{rows}".encode("latin-1"))
    config = load_config(drafted(table))
    assert config.domain.names == ("preis", "farbe")
    shown = CliRunner().invoke(cli, ["data", "draft", str(table)]).output
    assert "read as cp1252, semicolon between values, decimal comma." in shown
    told = CliRunner().invoke(cli, ["data", "draft", str(table), "--decimal", ".", "--json"])
    assert json.loads(told.output)["domain"]["column"][0]["kind"] == "categorical"
    assert (
        run_command_line(cli, ["data", "draft", str(table), "--delimiter", "comma"]) == Status.DATA
    )
    assert (
        run_command_line(cli, ["data", "draft", str(table), "--encoding", "klingon"]) == Status.DATA
    )
    assert (
        run_command_line(cli, ["data", "draft", str(table), "--encoding", "utf-8"]) == Status.DATA
    )


def test_draft_reads_values_from_the_line_it_is_told_and_lists_all_columns(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    rows = "".join(f"{i % 3},P{i:05d},{i % 5}\n" for i in range(60))
    table.write_text(f"a,number,b\nhow many?,which?,how old?\n{rows}")
    config = load_config(drafted(table, "--values-line", "3"))
    assert config.domain.names == ("a", "b")
    assert config.domain.format.columns == ()
    assert {column.kind for column in config.domain.columns} == {"integer"}
    (tmp_path / "t-draft.toml").unlink()
    listed = load_config(drafted(table, "--values-line", "3", "--all-columns"))
    assert listed.domain.format.columns == ("a", "number", "b")


def test_domain_says_beside_the_draft_what_is_not_in_it(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    rows = "".join(f"{i};{i % 7},5;P{i:05d}\n" for i in range(40))
    table.write_text(f"Stays, 2024\n;cost;number\n{rows}")
    done = CliRunner().invoke(cli, ["data", "draft", str(table)])
    *said, origin = done.stderr.splitlines()
    assert said == [
        "read: line 1 above the header skipped",
        "read: the index, a first column without a name, left out",
        "1 column drafted, 1 left out:",
        "  number: looks like an identifier or free text: 40 different values in 40 rows",
    ]
    assert origin.startswith("Values read from the table in the clear: ")
    assert "a study with others refuses each that is still marked" in origin
    document = tomllib.loads(done.stdout)
    assert document["format"] == {"delimiter": ";", "decimal": ","}
    assert [column["name"] for column in document["column"]] == ["cost"]
    told = CliRunner().invoke(cli, ["data", "draft", str(table), "--json"])
    assert json.loads(told.stdout)["skipped"] == [
        "line 1 above the header skipped",
        "the index, a first column without a name, left out",
    ]


def test_domain_publishes_no_row_as_names_of_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "t.csv"
    table.write_text("".join(f"Ann{i},{i % 7},north\n" for i in range(40)))
    out = tmp_path / "t.toml"
    assert run_command_line(cli, ["data", "draft", str(table), "--out", str(out)]) == Status.DATA
    said = capsys.readouterr().err
    assert "line 1, column 2: '0' looks like a value" in said
    assert "--header-line 0 if there is none" in said
    assert not out.exists()
    command = ["data", "draft", str(table), "--header-line", "0", "--out", str(out)]
    assert run_command_line(cli, command) == Status.DONE
    assert load_config(out).domain.names == ("column_2", "column_3")


@pytest.mark.parametrize("command", ["run", "join"])
def test_commands_that_read_tables_have_the_same_options(command: str) -> None:
    shown = CliRunner().invoke(cli, [command, "--help"]).output
    options = ["--data", "--sql", "--delimiter", "--decimal", "--encoding", "--header-line"]
    for option in (*options, "--sheet", "--ignore-extra"):
        assert f"  {option} " in shown


def test_run_says_all_that_is_wrong_with_a_table_and_leaves_columns_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "t.csv"
    table.write_text("a,b\n" + "".join(f"{i % 3},{i % 5}\n" for i in range(60)))
    config = drafted(table)
    command = ["run", str(config), "--method", "aim", "--clients", "3", "--rounds", "1"]
    command += ["--data", str(table), "--out", str(tmp_path / "run")]
    table.write_text("a,b,note\n" + "".join(f"{i % 4},{i % 5},x\n" for i in range(60)))
    assert run_command_line(cli, command) == Status.DATA
    assert "column 'note' is not in the domain" in capsys.readouterr().err
    assert run_command_line(cli, [*command, "--ignore-extra"]) == Status.DATA
    said = capsys.readouterr().err
    assert "15 values are not allowed; the first 10:" in said
    assert "line 5, column 'a' (integer): the value '3'" in said
    table.write_text("a,b,note\n" + "".join(f"{i % 3},{i % 5},x\n" for i in range(60)))
    assert run_command_line(cli, [*command, "--ignore-extra"]) == Status.DONE
    assert (tmp_path / "run" / "synthetic.csv").read_text().startswith("a,b\n")


def test_run_takes_a_table_from_a_database(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="the extra 'sql' is not installed")
    with contextlib.closing(sqlite3.connect(tmp_path / "t.db")) as base:
        base.execute("create table t (a integer, b integer)")
        base.executemany("insert into t values (?, ?)", [(i % 3, i % 5) for i in range(60)])
        base.commit()
    place = f"sqlite:///{tmp_path / 't.db'}"
    query = ["--sql", "select a, b from t"]
    drawn = CliRunner().invoke(cli, ["data", "draft", place, *query])
    assert drawn.stdout.startswith('# A draft from "t", read as a query to a database.')
    config = tmp_path / "t.toml"
    config.write_text(drawn.stdout)
    out = tmp_path / "run"
    command = ["run", str(config), "--data", place, *query, "--method", "aim", "--clients", "3"]
    assert run_command_line(cli, [*command, "--rounds", "1", "--out", str(out)]) == Status.DONE
    assert json.loads((out / "report.json").read_text())["dataset"] == "t"
