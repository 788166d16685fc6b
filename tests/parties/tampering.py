"""Ways of tampering with the transcripts of three servers, each with the checks that have to catch it."""

import datetime
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mechanisms.accounting import rho
from mechanisms.events import event_from_dict
from parties.audit.runner import Audit
from parties.config import CertificateFiles, agreed_config, agreed_digest
from parties.identity.tls import make_certificates
from parties.mpc.agreement import run_identity
from parties.mpc.outputs import write_synthetic
from parties.session.study import Study
from protocols.fields import decode, encode
from protocols.transcript import canonical
from tests.parties.audit_runs import Lines, read_lines, sealed_anew, write_lines
from tests.parties.mesh import uniform_model
from tests.parties.support import OWNERS, PARTIES

Certificates = dict[str, CertificateFiles]


def edit_server(run: Path, change: Callable[[Lines], object], key: CertificateFiles | None) -> None:
    """Change the records; with `key` every seal is made anew."""
    path = run / "transcripts" / "server.jsonl"
    lines: Lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    change(lines)
    path.write_bytes(sealed_anew(lines, key))


def failed(audit: Audit) -> set[str]:
    """The checks that failed."""
    return {check.name for check in audit.checks if check.status == "fail"}


class Forger:
    """A copy of a run, and the keys of those who tamper with it."""

    def __init__(self, run: Path, another: Path, certificates: Certificates) -> None:
        self.run = run
        self.another = another
        self.certificates = certificates

    def file(self, pid: int) -> Path:
        return self.run / "transcripts" / f"party-{pid}.jsonl"

    def edit(
        self, change: Callable[[Lines], object], *pids: int, by: str | None = "themselves"
    ) -> None:
        """Change the records of some servers; `by` signs anew (None: nobody does)."""
        for pid in pids or (0, 1, 2):
            lines = read_lines(self.run, pid)
            change(lines)
            name = PARTIES[pid] if by == "themselves" else by
            write_lines(self.run, pid, lines, self.certificates[name] if name else None)


def index(lines: Lines, kind: str, nth: int = 0, **fields: Any) -> int:
    """The line of the `nth` record of a kind with such fields."""
    found = [
        n for n, record in enumerate(lines)
        if record["kind"] == kind and all(record.get(f) == v for f, v in fields.items())
    ]  # fmt: skip
    return found[nth]


def find(lines: Lines, kind: str, nth: int = 0, **fields: Any) -> dict[str, Any]:
    return lines[index(lines, kind, nth, **fields)]


def setting(
    kind: str, field: str, value: Any, nth: int = 0, **fields: Any
) -> Callable[[Lines], object]:
    """Set a field; `value` may be made from the old one."""

    def change(lines: Lines) -> None:
        record = find(lines, kind, nth, **fields)
        record[field] = value(record[field]) if callable(value) else value

    return change


def dropping(kind: str, nth: int = 0, **fields: Any) -> Callable[[Lines], object]:
    return lambda lines: lines.pop(index(lines, kind, nth, **fields))


def doubling(kind: str, nth: int = 0, **fields: Any) -> Callable[[Lines], object]:
    def change(lines: Lines) -> None:
        place = index(lines, kind, nth, **fields)
        lines.insert(place, dict(lines[place]))

    return change


def swapping(
    first: tuple[str, dict[str, Any]], second: tuple[str, dict[str, Any]]
) -> Callable[[Lines], object]:
    """Exchange two records; each keeps the time of its place."""

    def change(lines: Lines) -> None:
        a, b = index(lines, first[0], **first[1]), index(lines, second[0], **second[1])
        lines[a], lines[b] = lines[b] | {"t": lines[a]["t"]}, lines[a] | {"t": lines[b]["t"]}

    return change


def rounds_swapped(lines: Lines) -> None:
    opening = {"step": "measure.open"}
    swapping(("received", opening | {"round": 1}), ("received", opening | {"round": 2}))(lines)


def opened_first(lines: Lines) -> None:
    swapping(("ledger", {"round": 1}), ("opened", {"round": 1}))(lines)


def flip(digest: str) -> str:
    data = bytearray(decode(digest))
    data[0] ^= 1
    return encode(bytes(data))


def later(seconds: float, after: float = 0.0) -> Callable[[Lines], object]:
    """All records from some part of the transcript on are later."""

    def change(lines: Lines) -> None:
        for record in lines[int(after * len(lines)) :]:
            record["t"] += int(1000 * seconds)

    return change


def extra_opening(*, charged: bool) -> Callable[[Lines], object]:
    """A second opening of the last counts, with or without a charge for it."""

    def change(lines: Lines) -> None:
        place = index(lines, "opened", -1, what="measure.counts")
        added = [dict(lines[place])]
        if charged:
            added.insert(0, dict(find(lines, "ledger", -1, step="measure")))
        lines[place + 1 : place + 1] = added
        recount(lines)

    return change


def recount(lines: Lines) -> None:
    """Make ``spent`` right again."""
    costs: list[float] = []
    for record in lines:
        if record["kind"] == "ledger":
            costs.append(record["rho"])
            record["spent"] = math.fsum(costs)


def cheaper(lines: Lines) -> None:
    """Claim more noise than was added, and the cost of that."""
    record = find(lines, "ledger", step="measure")
    record["event"]["sigma"] *= 2
    record["rho"] = rho(event_from_dict(record["event"]))
    recount(lines)


def other_config(**changes: Any) -> Callable[[Lines], object]:
    """Another configuration in the header, with its digest."""

    def change(lines: Lines) -> None:
        lines[0]["config"]["run"] |= changes
        lines[0]["config_sha256"] = agreed_digest(lines[0]["config"])

    return change


def other_plan(lines: Lines) -> None:
    """Another budget, with its digest and its division."""
    other_config(epsilon=2.0)(lines)
    config = agreed_config(lines[0]["config"])
    workload = config.build_workload()
    lines[0]["plan"] = run_identity(Study(config, workload)).plan


def smaller_message(forger: Forger) -> None:
    """A message of the noise is 8 bytes shorter at both ends, and in both accounts."""
    lines = read_lines(forger.run, 0)
    label = find(lines, "sent", step="measure.noise", round=1)["label"]
    peer = find(lines, "sent", step="measure.noise", round=1)["peer"]
    step = {"step": "measure.noise", "round": 1}

    def sender(lines: Lines) -> None:
        find(lines, "sent", label=label, peer=peer)["bytes"] -= 4
        find(lines, "step", **step)["sent"] -= 4

    def receiver(lines: Lines) -> None:
        find(lines, "received", label=label, peer=0)["bytes"] -= 4
        find(lines, "step", **step)["received"] -= 4

    forger.edit(sender, 0)
    forger.edit(receiver, peer)


def chosen_otherwise(lines: Lines) -> None:
    """Another query is noted than the one that was opened."""
    workload = agreed_config(lines[0]["config"]).build_workload()
    record = find(lines, "note", what="selected")
    record["candidate"] = (record["candidate"] + 1) % len(workload.candidates)
    record["query"] = ", ".join(workload.candidates[record["candidate"]])


def two_chosen(lines: Lines) -> None:
    record = find(lines, "opened", what="select.index")
    record["value"] = encode(bytes(16) + decode(record["value"])[16:])


def splice(forger: Forger) -> None:
    """A message of another mesh of the same run and configuration, in place of the one with the same label."""
    lines, others = read_lines(forger.run, 0), read_lines(forger.another, 0)
    place = index(lines, "received", step="agree", peer=1)
    label, peer = lines[place]["label"], lines[place]["peer"]
    lines[place] = find(others, "received", label=label, peer=peer) | {"t": lines[place]["t"]}
    write_lines(forger.run, 0, lines, forger.certificates[PARTIES[0]])


def replace_file(forger: Forger, pid: int, source: Path) -> None:
    shutil.copyfile(source, forger.file(pid))


def swap_files(forger: Forger) -> None:
    first, second = forger.file(0).read_bytes(), forger.file(1).read_bytes()
    forger.file(0).write_bytes(second)
    forger.file(1).write_bytes(first)


def cut(forger: Forger, lines: int, more: int = 0) -> None:
    """Only the first lines are left (counted from the end where negative), and a part of the next one."""
    whole = forger.file(2).read_bytes().splitlines(keepends=True)
    forger.file(2).write_bytes(b"".join(whole[:lines]) + whole[lines][:more])


def to_last_round(forger: Forger) -> None:
    lines = read_lines(forger.run, 2)
    cut(forger, index(lines, "seal", reason="round 2") + 1)


def append(line: bytes) -> Callable[[Forger], object]:
    return lambda forger: forger.file(1).write_bytes(forger.file(1).read_bytes() + line + b"\n")


def respace(forger: Forger) -> None:
    forger.file(1).write_bytes(
        forger.file(1).read_bytes().replace(b'"kind":"opened"', b'"kind": "opened"')
    )


def other_authority(forger: Forger) -> None:
    """The server's certificate is of an authority of somebody's own."""
    made = make_certificates(forger.run / "forged", [PARTIES[1]])
    shutil.copyfile(made[PARTIES[1]].cert, forger.run / "certificates" / f"{PARTIES[1]}.crt")
    forger.edit(lambda lines: None, 1)


def minted_by_the_authority(forger: Forger) -> None:
    """The authority's holder issues second certificates to all servers and signs other transcripts with them."""
    folder = forger.run / "minted"
    folder.mkdir()
    for name in ("ca.crt", "ca.key"):
        shutil.copy(forger.certificates[PARTIES[0]].ca.with_name(name), folder / name)
    made = make_certificates(folder, PARTIES)
    for pid, name in enumerate(PARTIES):
        shutil.copy(made[name].cert, forger.run / "certificates" / f"{name}.crt")
        write_lines(forger.run, pid, read_lines(forger.run, pid), made[name])


def own_authority(forger: Forger) -> None:
    """All certificates are of another authority, but the signatures are by the old keys."""
    made = make_certificates(forger.run / "forged", PARTIES)
    for name in PARTIES:
        shutil.copyfile(made[name].cert, forger.run / "certificates" / f"{name}.crt")
    shutil.copyfile(made[PARTIES[0]].ca, forger.run / "certificates" / "ca.crt")


def all_in_the_past(lines: Lines) -> None:
    lines[0]["time"] -= datetime.timedelta(days=500).total_seconds()


def report_saying(*where: str | int, value: Any) -> Callable[[Forger], object]:
    """Something else stands in a place of report.json; `value` may be made from what stood there."""

    def change(forger: Forger) -> None:
        path = forger.run / "report.json"
        document = json.loads(path.read_text())
        place = document
        for step in where[:-1]:
            place = place[step]
        last = where[-1]
        place[last] = value(place[last]) if callable(value) else value
        path.write_text(json.dumps(document))

    return change


def table_cut(forger: Forger) -> None:
    """A third of the table's rows is missing."""
    path = forger.run / "synthetic.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: len(lines) * 2 // 3]))


def table_of_another_run(forger: Forger) -> None:
    shutil.copyfile(forger.another / "synthetic.csv", forger.run / "synthetic.csv")


def model_of_another_run(forger: Forger) -> None:
    shutil.rmtree(forger.run / "model")
    shutil.copytree(forger.another / "model", forger.run / "model")


def published_otherwise(forger: Forger) -> None:
    """Table and model of another run, and the lead had told the two others that these are it."""
    table_of_another_run(forger)
    model_of_another_run(forger)
    said = find(read_lines(forger.another, 0), "note", what="published")
    digests = {name: said[name] for name in ("table", "model", "rows")}
    forger.edit(lambda lines: find(lines, "note", what="published").update(digests))


def model_of_nothing(forger: Forger) -> None:
    """A model that has learnt nothing, with rows of it, as the lead had told the two others."""
    config = agreed_config(read_lines(forger.run, 0)[0]["config"])
    shutil.rmtree(forger.run / "model")
    model = uniform_model(config.build_workload())
    # Far more rows than there are, whatever the noise: which the run has not estimated.
    said = write_synthetic(forger.run, model, config, total=5000).said.to_dict()
    forger.edit(lambda lines: find(lines, "note", what="published").update(said))


def no_bits(value: str) -> str:
    """As many zeros."""
    return encode(bytes(len(decode(value))))


def counting(number: int) -> Callable[[Lines], object]:
    """So many data owners more are listed, and noted."""

    def change(lines: Lines) -> None:
        place = index(lines, "client", -1)
        for extra in range(number):
            lines.insert(
                place, lines[place] | {"client": f"nobody-{extra}", "digest": f"{extra:064x}"}
            )
        for record in lines:
            if record["kind"] == "note" and record["what"] in ("round", "finished"):
                record["clients"] += number

    return change


NOISE = {"step": "measure.noise", "round": 1}
Manipulation = Callable[[Forger], object]


def edits(
    change: Callable[[Lines], object], *pids: int, by: str | None = "themselves"
) -> Manipulation:
    return lambda forger: forger.edit(change, *pids, by=by)


MANIPULATIONS: dict[str, tuple[Manipulation, set[str]]] = {
    # A stranger, who cannot sign.
    "bytes changed": (edits(setting("sent", "bytes", 1), 0, by=None), {"chains"}),
    "digest changed": (edits(setting("received", "digest", flip), 1, by=None), {"chains"}),
    "line dropped": (edits(dropping("ledger"), 2, by=None), {"chains"}),
    "line doubled": (edits(doubling("opened"), 0, by=None), {"chains"}),
    "lines swapped": (edits(swapping(("ledger", {}), ("opened", {})), 1, by=None), {"chains"}),
    "line from another run": (
        lambda f: f.edit(lambda lines: lines.insert(9, read_lines(f.another, 0)[9]), 0, by=None),
        {"chains"},
    ),
    "header changed": (edits(setting("header", "run", "another"), 0, by=None), {"chains"}),
    "seal's reason changed": (edits(setting("seal", "reason", "round 9"), 0, by=None), {"signatures"}),
    "seal dropped": (edits(dropping("seal", reason="round 1"), 0, by=None), {"chains", "completeness"}),
    "head made to fit, signature kept": (
        lambda f: (f.edit(setting("sent", "bytes", 1), 0, by=PARTIES[0]),
                   f.edit(setting("seal", "signature", "00" * 64), 0, by=None)),
        {"signatures"},
    ),
    "signed with another server's key": (edits(dropping("ledger"), 0, by=PARTIES[1]), {"signatures"}),
    "signed with a data owner's key": (edits(dropping("ledger"), 0, by=OWNERS[0]), {"signatures"}),
    "certificate of another authority": (other_authority, {"certificates"}),
    "authority and certificates exchanged": (own_authority, {"certificates", "signatures"}),
    "second certificates of the same authority": (
        minted_by_the_authority, {"certificates", "signatures"},
    ),
    "certificate missing": (
        lambda f: (f.run / "certificates" / f"{PARTIES[2]}.crt").unlink(), {"certificates"},
    ),
    "certificate is garbage": (
        lambda f: (f.run / "certificates" / "ca.crt").write_text("x"), {"certificates"},
    ),
    "cut off at a seal": (to_last_round, {"completeness"}),
    "cut off in a record": (lambda f: cut(f, -3, 20), {"completeness"}),
    "last seal torn": (lambda f: cut(f, -1, 40), {"completeness"}),
    "half of it cut off": (lambda f: cut(f, 100), {"completeness", "values"}),
    "something after the last seal": (
        append(canonical({"kind": "note", "t": 99999999, "what": "round", "round": 2, "clients": 3})),
        {"completeness"},
    ),
    "another way of writing a record": (respace, {"form", "chains"}),
    "a line that is none": (append(b"[]"), {"form"}),
    "a field of a name twice": (append(b'{"kind":"note","t":1,"t":2,"what":"x"}'), {"form"}),
    "file missing": (lambda f: f.file(1).unlink(), {"files"}),
    "another file": (lambda f: f.file(1).write_text("name,age\n"), {"files"}),
    "servers' files swapped": (swap_files, {"parties"}),
    "one server's file twice": (lambda f: replace_file(f, 1, f.file(0)), {"parties"}),
    "a transcript of another run": (
        lambda f: replace_file(f, 0, f.another / "transcripts" / "party-0.jsonl"),
        {"messages 0-1", "messages 0-2", "completeness"},
    ),
    "config.toml changed": (
        lambda f: (f.run / "config.toml").write_text(
            (f.run / "config.toml").read_text().replace("epsilon = 1.0", "epsilon = 0.5")
        ),
        {"configuration"},
    ),
    "config.toml is garbage": (lambda f: (f.run / "config.toml").write_text("x"), {"configuration"}),
    "report without a charge": (
        report_saying("privacy", "ledger", value=lambda ledger: ledger[:-1]), {"report"},
    ),
    "report with less opened": (report_saying("opened", value=lambda opened: opened[:-1]), {"report"}),
    "report with another epsilon": (report_saying("parameters", "epsilon", value=0.1), {"report"}),
    "report with another delta": (report_saying("parameters", "delta", value=1e-9), {"report"}),
    "report with another budget": (report_saying("privacy", "rho_total", value=1e-3), {"report"}),
    "report with less spent": (report_saying("privacy", "rho_spent", value=1e-3), {"report"}),
    "report with a cheaper charge": (
        report_saying("privacy", "ledger", 0, "rho", value=lambda rho: rho / 2), {"report"},
    ),
    "report of more owners": (report_saying("parameters", "clients", value=1000), {"report"}),
    "report with another choice": (
        report_saying("selected", 0, "query", value=lambda query: [*query, "age"]), {"report"},
    ),
    "report with finer noise": (
        report_saying("selected", 0, "sigma", value=lambda sigma: sigma / 2), {"report"},
    ),
    "report of a larger table": (report_saying("synthetic_rows", value=lambda n: 10 * n), {"report"}),
    "report of an owner left out who was counted": (
        report_saying("excluded", value=lambda left: [*left, {"client": OWNERS[0]}]), {"report"},
    ),
    "report without who was left out": (report_saying("excluded", value=lambda left: None), {"report"}),
    "report of more rounds": (report_saying("rounds_done", value=lambda n: n + 1), {"report"}),
    "report with a figure more": (
        report_saying("privacy", value=lambda privacy: privacy | {"epsilon": 0.1}), {"report"},
    ),
    "table cut": (table_cut, {"published", "table"}),
    "table of another run": (table_of_another_run, {"published", "table"}),
    "table is garbage": (
        lambda f: (f.run / "synthetic.csv").write_text("a,b\n1,2\n"), {"published", "table"},
    ),
    "model of another run": (model_of_another_run, {"published", "table", "model"}),
    "model is garbage": (
        lambda f: (f.run / "model" / "marginals.npz").write_bytes(b"x"), {"published", "table", "model"},
    ),
    "a file more in the model": (
        lambda f: (f.run / "model" / "more.txt").write_text("x"), {"published"},
    ),
    "table and model of another run, sealed": (published_otherwise, {"model"}),
    "table and model of nothing, sealed": (model_of_nothing, {"model", "report"}),
    "one server sealed another table": (
        lambda f: f.edit(setting("note", "table", "ab" * 32, what="published"), 1), {"published"},
    ),
    "nobody says what was published": (
        lambda f: f.edit(dropping("note", what="published")), {"published", "report"},
    ),
    "a round without its total": (
        lambda f: f.edit(dropping("note", what="total", round=2), 1), {"completeness"},
    ),
    "report is garbage": (lambda f: (f.run / "report.json").write_text("{}"), {"report"}),
    # One server, about its messages.
    "sent message hidden": (edits(dropping("sent", **NOISE), 0), {"messages 0-2", "traffic", "costs"}),
    "received message hidden": (edits(dropping("received", **NOISE), 1), {"traffic"}),
    "sent message denied with its account": (
        edits(setting("sent", "digest", flip, step="select.choose"), 2), {"messages 1-2"},
    ),
    "received something else": (edits(setting("received", "digest", flip, peer=0), 1), {"messages 0-1"}),
    "message of another size": (edits(setting("received", "bytes", 5, peer=1), 2), {"messages 1-2"}),
    "message of another step": (
        edits(setting("sent", "step", "measure.open", peer=2, **NOISE), 0), {"messages 0-2"},
    ),
    "message of another round": (edits(setting("sent", "round", 2, peer=2, **NOISE), 0), {"messages 0-2"}),
    "message to another server": (
        edits(setting("sent", "peer", 1, peer=2, **NOISE), 0), {"messages 0-1", "messages 0-2"},
    ),
    "message to itself": (edits(setting("sent", "peer", 0), 0), {"parties"}),
    "label changed": (edits(setting("sent", "label", "0" * 16, peer=1), 0), {"messages 0-1"}),
    "message sent twice": (edits(doubling("sent", peer=1), 0), {"messages 0-1", "steps"}),
    "message from another mesh": (splice, {"messages 0-1"}),
    "step that the protocol has not": (edits(setting("sent", "step", "gossip"), 0), {"steps"}),
    "round that the run has not": (edits(setting("sent", "round", 9, **NOISE)), {"steps"}),
    "record of an unknown kind": (edits(setting("step", "kind", "secret"), 1), {"form"}),
    "note of an unknown kind": (edits(setting("note", "what", "hint", what="round"), 1), {"form"}),
    "field added": (edits(lambda lines: lines[5].update(share="00"), 0), {"form"}),
    "format of another version": (edits(setting("header", "format", 1), 0), {"form"}),
    "received rounds in another order": (edits(rounds_swapped, 1), {"order"}),
    "shorter message at both ends": (smaller_message, {"costs"}),
    "account of a step's bytes changed": (edits(setting("step", "sent", 1, **NOISE), 1), {"traffic"}),
    "account of a step's rounds changed": (edits(setting("step", "rounds", 99, **NOISE), 1), {"costs"}),
    "account of a step dropped": (edits(dropping("step", **NOISE), 1), {"traffic", "costs"}),
    "seal of a round left out": (edits(dropping("seal", reason="round 1"), 1), {"completeness"}),
    "two headers": (
        edits(lambda lines: lines.insert(50, dict(lines[0]) | {"t": lines[49]["t"]}), 1), {"form"},
    ),
    "a restart made up": (
        edits(lambda lines: lines.insert(50, lines[0] | {"kind": "resumed", "t": 0, "time": lines[0]["time"] + 9}), 1),
        {"completeness"},
    ),
    # One server or all, about time.
    "time goes back": (edits(setting("opened", "t", 0), 1), {"clocks"}),
    "clock two hours ahead": (edits(setting("header", "time", lambda t: t + 7200), 1), {"clocks"}),
    "clock jumps in the middle": (edits(later(300, after=0.5), 1), {"clocks"}),
    "all of it before the certificates": (edits(all_in_the_past), {"certificates"}),
    # About identity and configuration.
    "another run id": (edits(setting("header", "run", "another"), 1), {"agreement"}),
    "another version of the code": (edits(setting("header", "version", "9.9"), 1), {"agreement"}),
    "another version of the messages": (edits(setting("header", "wire", 99), 2), {"form"}),
    "another workload": (edits(setting("header", "workload_sha256", "0" * 64), 2), {"agreement"}),
    "another workload at all three": (
        edits(setting("header", "workload_sha256", "0" * 64)), {"configuration"},
    ),
    "another name": (edits(setting("header", "name", PARTIES[1]), 0), {"parties"}),
    "another budget at one": (edits(other_config(epsilon=2.0), 0), {"agreement", "configuration"}),
    "another budget at all three": (edits(other_config(epsilon=2.0)), {"configuration"}),
    "another budget and division at all three": (edits(other_plan), {"configuration", "ledger"}),
    "configuration without its digest": (
        edits(lambda lines: lines[0]["config"]["run"].update(delta=0.1)), {"configuration"},
    ),
    # About openings, by one and by all.
    "an opening more at one": (edits(extra_opening(charged=False), 0), {"values", "charges"}),
    "an opening more at all three": (edits(extra_opening(charged=False)), {"openings", "charges"}),
    "an opening more at all three, charged": (edits(extra_opening(charged=True)), {"openings", "ledger"}),
    "an opening left out at one": (edits(dropping("opened", what="measure.counts"), 2), {"values"}),
    "an opening left out at all three": (
        edits(dropping("opened", -1, what="measure.counts")), {"openings", "charges"},
    ),
    "something else opened": (edits(setting("opened", "what", "counts.exact")), {"openings"}),
    "opened in another step": (
        edits(setting("opened", "step", "select.choose", what="measure.counts")), {"openings"},
    ),
    "more numbers opened": (edits(setting("opened", "count", lambda n: n + 1)), {"openings"}),
    "another value opened at one": (
        edits(setting("opened", "value", flip, what="measure.counts"), 1), {"values"},
    ),
    "two candidates opened at all three": (edits(two_chosen), {"values"}),
    "another query noted at all three": (edits(chosen_otherwise), {"values"}),
    "choice among other candidates": (
        edits(setting("note", "candidates", lambda m: f"{int(m, 16) & (int(m, 16) - 1):0{len(m)}x}", what="selecting")),
        {"openings"},
    ),
    "noise that was not made": (edits(setting("note", "samples", 0, what="selecting")), {"costs"}),
    "noise for more selections": (
        edits(setting("note", "samples", lambda n: n + 1, what="selecting")), {"costs"},
    ),
    # About charges.
    "a charge left out at one": (
        edits(lambda lines: (dropping("ledger")(lines), recount(lines)), 0), {"charges", "ledger"},
    ),
    "a charge left out at all three": (
        edits(lambda lines: (dropping("ledger")(lines), recount(lines))), {"charges", "ledger"},
    ),
    "charged after the opening": (edits(opened_first), {"charges", "order"}),
    "charged too little": (edits(setting("ledger", "rho", 1e-9)), {"ledger"}),
    "charged for more noise": (edits(cheaper), {"ledger"}),
    "spent said to be less": (edits(setting("ledger", "spent", 0.0, -1), 2), {"ledger"}),
    "charged beyond the budget": (
        edits(lambda lines: (lines.extend(dict(find(lines, "ledger")) for _ in range(9)), recount(lines))), {"ledger"},
    ),
    "charged for another round": (edits(setting("ledger", "round", 2, round=1)), {"charges", "ledger"}),
    "charged for another step": (edits(setting("ledger", "step", "select", step="measure")), {"charges", "ledger"}),
    "an event that there is not": (
        edits(lambda lines: find(lines, "ledger")["event"].update(kind="free")), {"ledger"},
    ),
    # About data owners.
    "bits of owners changed at all three": (
        edits(setting("opened", "value", no_bits, what="clients.passed")), {"limits"},
    ),
    "bits of owners that are none": (
        edits(setting("opened", "value", flip, what="clients.passed")), {"limits"},
    ),
    "bits of owners left out at all three": (
        edits(dropping("opened", what="clients.passed")), {"limits"},
    ),
    "bits of owners opened twice": (edits(doubling("opened", what="clients.passed")), {"limits"}),
    "bits of another number of owners": (
        edits(setting("opened", "count", lambda n: n + 1, what="clients.passed")), {"openings", "costs"},
    ),
    "an owner's bit changed at one": (
        edits(setting("opened", "value", no_bits, what="clients.passed"), 1), {"limits"},
    ),
    "a data owner excluded that nobody accused": (
        edits(lambda lines: find(lines, "client").update(accepted=False, reason="components differ")),
        {"limits", "clients"},
    ),
    "a data owner excluded for no reason": (edits(setting("client", "accepted", False)), {"limits", "clients"}),
    "a data owner excluded for a reason that there is not": (
        edits(lambda lines: find(lines, "client").update(accepted=False, reason="late")), {"form"},
    ),
    "a data owner excluded against its bit": (
        edits(lambda lines: find(lines, "client").update(accepted=False, reason="out of bounds")),
        {"limits", "clients"},
    ),
    "a data owner left out at one": (edits(dropping("client"), 0), {"clients"}),
    "a data owner's submission exchanged": (edits(setting("client", "digest", "0" * 64), 0), {"clients"}),
    "a data owner counted twice": (edits(doubling("client")), {"clients"}),
    "a data owner dropped at one": (edits(setting("client", "accepted", False), 1), {"clients"}),
    "fewer data owners than said": (edits(setting("note", "clients", 9, what="round")), {"clients"}),
    "more data owners than expected": (edits(counting(5)), {"clients"}),
    "another number in the end": (edits(setting("note", "clients", 2, what="finished")), {"clients"}),
    "rounds made up in the end": (edits(setting("note", "rounds", 3, what="finished")), {"openings", "ledger"}),
    "the mesh not named": (edits(dropping("note", what="agreed"), 1), {"completeness"}),
    "the mesh named otherwise": (
        edits(setting("note", "session", "0" * 64, what="agreed"), 1), {"completeness"},
    ),
}  # fmt: skip
