"""Fuzzing: a sample of it, what it has found before, and that it would find."""

import io
import json
import mmap
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from parties.foundation.errors import StoreError
from tests.robustness import page
from tests.robustness.cli import robustness
from tests.robustness.fuzzing.cli import all_targets, corpus_folder
from tests.robustness.fuzzing.corpus import Corpus
from tests.robustness.fuzzing.loop import run_target
from tests.robustness.fuzzing.mutate import Mutator
from tests.robustness.fuzzing.servers import SCENES, play
from tests.robustness.fuzzing.target import Target, judged

FINDS = Path(__file__).parent / "finds"
"""FINDS/TARGET/NAME: inputs that `python -m tests.robustness fuzz --finds` has kept."""
NAMES = [name for name, _ in all_targets(Corpus(Path()))]
SLOW = {
    "mesh-frames": 20,
    "audit": 2,
    "audited-report": 1,
    "bundle": 8,
    "budget": 4,
    "store": 8,
    "register": 8,
}
Targets = Callable[[str], Target]


@pytest.fixture(scope="module")
def targets() -> Iterator[Targets]:
    """By name, each made once."""
    made: dict[str, Target] = {}
    with corpus_folder() as folder:
        makers = dict(all_targets(Corpus(Path(folder))))

        def target(name: str) -> Target:
            if name not in made:
                made[name] = makers[name]()
            return made[name]

        yield target


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_damaged_inputs_are_taken_or_refused(targets: Targets, name: str) -> None:
    sums = run_target(targets(name), SLOW.get(name, 60), seed=1)
    assert sums.finds == []


@pytest.mark.parametrize("name", SCENES)
async def test_servers_serve_honest_peers_beside_those_who_send_damage(
    tmp_path: Path, name: str
) -> None:
    sums = await play(name, Corpus(tmp_path), 150, 1, on_input=lambda: None)
    assert sums.finds == []


def zipped(name: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("report.json", "{}")
        archive.writestr(zipfile.ZipInfo(name), b"x")
    return made.getvalue()


DEEP = b"[" * 3000
TRAFFIC = {"sent": {}, "passed_on": 1, "clients": 1, "from_clients": 1, "to_clients": 1}
FOUND = [
    ("traffic", DEEP, "deeper than the parser follows"),
    ("traffic", json.dumps(TRAFFIC | {"clients": float("inf")}).encode(), "an infinite count"),
    ("traffic", json.dumps(TRAFFIC | {"sent": {"x": 1e999}}).encode(), "an infinite size"),
    ("state", DEEP, "deeper than the parser follows"),
    (
        "state",
        b'{"checkpoints": [], "ledger": [], "selections": {"1": 1e999}}',
        "an infinite choice",
    ),
    ("other-configuration", b'{"column": [{"name": [1]}]}', "a name that is a list"),
    ("proof", DEEP, "deeper than the parser follows"),
    ("proof", b'{"client": "north", "servers": [[]]}', "a list for a table"),
    ("withdrawn", b'{"withdrawn": {"": 0}}', "a withdrawal without anything"),
    ("config", b"[run]\nepsilon = " + b"9" * 400, "a number beyond floats"),
    ("config", b"[run]\nrounds = " + b"9" * 5000, "a number too long to read"),
    ("config", b"x = " + DEEP, "deeper than the parser follows"),
    ("settings", b"[keep]\nresults_days = " + b"9" * 400, "a number beyond floats"),
    ("settings", b'"\\u001b[2J" = 1', "a key that clears the terminal"),
    (
        "past",
        json.dumps({"kind": "header", "time": 1e300}).encode() + b"\n",
        "a time without a date",
    ),
    ("past", DEEP, "deeper than the parser follows"),
    ("bundle", zipped(""), "a file without a name"),
    ("tape", b"syncret tape 1\ni\1\0\0\0\0\0\0\0\0\0\xff", "a name that is no text"),
    ("backup-bytes", b"syncret backup 1\n" + DEEP + b"\n", "deeper than the parser follows"),
    ("result", b"[]", "a result that is a list"),
    ("result", DEEP, "deeper than the parser follows"),
]


@pytest.mark.parametrize(
    ("name", "data"), [found[:2] for found in FOUND], ids=[f"{f[0]}: {f[2]}" for f in FOUND]
)
def test_an_input_that_was_not_refused_once_is_now(
    targets: Targets, name: str, data: bytes
) -> None:
    target = targets(name)
    assert judged(target, data) == (None, True) or name == "other-configuration"
    assert judged(target, data)[0] is None


@pytest.mark.parametrize("path", sorted(FINDS.glob("*/*[!.txt]")), ids=lambda path: path.name)
def test_a_find_stays_mended(targets: Targets, path: Path) -> None:
    assert judged(targets(path.parent.name), path.read_bytes())[0] is None


def test_certificates_of_another_version_are_refused(targets: Targets) -> None:
    """The library's error for those is none of its others."""
    target = targets("owners-certificate")
    der = bytearray(target.seeds[0])
    at = der.index(bytes([0xA0, 0x03, 0x02, 0x01, 0x02])) + 4
    der[at] = 28
    assert judged(target, bytes(der)) == (None, True)


# That it would find.


def worst(data: bytes) -> object:
    """A reader with one fault for each kind of find."""
    document = json.loads(data)
    if not isinstance(document, dict):
        raise StoreError(Path("x"), "is no table; expected one")
    return document["a"] + 1


def test_a_reader_that_crashes_is_found() -> None:
    def damage(draw: Mutator, data: bytes) -> bytes:
        return draw.json(data)

    sums = run_target(Target("worst", [b'{"a": 1}'], worst, damage, (StoreError,)), 300, seed=1)
    kinds = " ".join(find.what for find in sums.finds)
    assert "KeyError" in kinds
    assert "TypeError" in kinds
    assert "Exceeds the limit" in kinds


def test_a_reader_that_grows_is_found() -> None:
    kept = []

    def hoard(data: bytes) -> object:
        # Pages of its own: what the heap of this process has free would not grow it.
        pages = mmap.mmap(-1, 1 << 20)
        pages.write(bytes([1]) * (1 << 20))
        kept.append(pages)
        return kept

    sums = run_target(Target("hoard", [b"x"], hoard, lambda draw, data: data), 100, seed=1)
    assert [find.what.split(":")[0] for find in sums.finds] == ["memory grows"]


def test_a_reader_that_takes_all_memory_is_found() -> None:
    def huge(data: bytes) -> object:
        return bytearray(1 << 40)

    sums = run_target(Target("huge", [b"x"], huge, lambda draw, data: data), 2, seed=1)
    assert sums.finds[-1].what.startswith("MemoryError")


def test_a_reader_that_hangs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.robustness.fuzzing.target.LIMIT_S", 0.05)

    def hang(data: bytes) -> object:
        while data:
            pass
        return None

    target = Target("hang", [b""], hang, lambda draw, data: data)
    assert "takes longer" in str(judged(target, b"x")[0])


def test_the_same_seed_makes_the_same_inputs() -> None:
    def inputs(seed: int) -> list[bytes]:
        draw = Mutator(f"{seed}", [b'{"a": [1, 2.5, "x"]}'])
        return [draw.json(draw.pick()) for _ in range(200)]

    assert inputs(1) == inputs(1)
    assert inputs(1) != inputs(2)


def test_command_says_what_each_target_did() -> None:
    arguments = ["fuzz", "--frames", "50", "--target", "client-hello", "--json"]
    shown = CliRunner().invoke(robustness, arguments)
    assert shown.exit_code == 0, shown.output
    document = json.loads(shown.stdout)
    assert (document["ok"], document["targets"][0]["inputs"]) == (True, 50)


def test_damaged_inputs_of_several_seeds_are_in_one_table() -> None:
    one = {"target": "a", "inputs": 7, "taken": 2, "seconds": 1.5, "slowest_s": 0.5, "finds": []}
    records = [
        {
            "kind": page.FUZZ,
            "command": f"python -m tests.robustness fuzz --seed {seed}",
            "commit": "abc",
            "date": "2000-01-01",
            "machine": {},
            "result": {"seed": seed, "targets": [one | {"grown_bytes": 10**seed}]},
        }
        for seed in (6, 7)
    ]
    lines = page.markdown(records).splitlines()
    assert "| 6 | 7 | 1 | 2 | 2 | 0.5 (a) | 1 (a) | 0 |" in lines
    assert "| all | 14 | 1 | 4 | 3 | 0.5 (a) | 10.0 (a) | 0 |" in lines
