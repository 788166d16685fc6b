"""Benchmark tables: where they come from, how they are coded, and that a wrong file is refused."""

import gzip
import hashlib
import http.server
import io
import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from bench import datasets, published
from bench.fetch import DatasetError, RemoteFile, cache_folder, fetch
from bench.published import PUBLICATIONS, Publication, read_publication
from bench.synthfs import SynthFs, generate


class Site:
    """A web server on this machine: what it has, and what it was asked for."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.files: dict[str, bytes] = {}
        self.announced: int | None = None
        self.asked: list[str] = []

    def put(self, name: str, content: bytes, *, pinned: bool = True) -> RemoteFile:
        """Publish a file."""
        self.files[f"/{name}"] = content
        digest = hashlib.sha256(content).hexdigest() if pinned else None
        return RemoteFile(f"{self.address}/{name}", digest)


@pytest.fixture
def site() -> Iterator[Site]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.path)
            content = found.files.get(self.path)
            self.send_response(404 if content is None else 200)
            if found.announced is not None:
                self.send_header("Content-Length", str(found.announced))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Site(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache and a data folder for each test."""
    monkeypatch.setenv("SYNCRET_CACHE_DIR", str(tmp_path / "cache"))
    data = tmp_path / "data"
    data.mkdir()
    monkeypatch.setenv("SYNCRET_DATA_DIR", str(data))
    return data


def test_fetch_asks_once_and_keeps_the_file(site: Site) -> None:
    file = site.put("table.csv", b"a,b\n1,2\n")
    assert fetch(file).read_bytes() == b"a,b\n1,2\n"
    assert fetch(file) == fetch(file)
    assert site.asked == ["/table.csv"]


def test_fetch_refuses_another_digest_and_keeps_nothing(site: Site) -> None:
    file = site.put("table.csv", b"right")
    site.files["/table.csv"] = b"wrong"
    with pytest.raises(DatasetError, match="SHA-256"):
        fetch(file)
    assert list((cache_folder() / "published").iterdir()) == []
    site.files["/table.csv"] = b"right"
    assert fetch(file).read_bytes() == b"right"


def test_fetch_refuses_a_file_that_was_changed_in_the_cache(site: Site) -> None:
    file = site.put("table.csv", b"right")
    fetch(file).write_bytes(b"wrong")
    with pytest.raises(DatasetError, match="remove it to fetch it again"):
        fetch(file)


def test_fetch_without_a_pinned_digest_holds_to_the_first_one(site: Site) -> None:
    file = site.put("table.csv", b"first", pinned=False)
    path = fetch(file)
    assert fetch(file) == path
    path.write_bytes(b"other")
    with pytest.raises(DatasetError, match="SHA-256"):
        fetch(file)


def test_fetch_stops_at_the_limit(site: Site) -> None:
    file = site.put("table.csv", b"x" * 1000)
    with pytest.raises(DatasetError, match="more than 999 bytes"):
        fetch(RemoteFile(file.url, file.sha256, limit_bytes=999))


def test_fetch_refuses_a_file_that_was_cut_off(site: Site) -> None:
    file = site.put("table.csv", b"a,b\n1,2\n", pinned=False)
    site.announced = 100
    with pytest.raises(DatasetError, match="100 bytes announced, 8 received"):
        fetch(file)
    assert list((cache_folder() / "published").iterdir()) == []
    site.announced = 8
    assert fetch(file).read_bytes() == b"a,b\n1,2\n"


def test_fetch_names_the_address_where_there_is_nothing(site: Site) -> None:
    with pytest.raises(DatasetError, match=r"nothing\.csv: cannot be fetched"):
        fetch(RemoteFile(f"{site.address}/nothing.csv", None))


def test_fetch_names_the_address_of_what_is_no_answer(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http.server.BaseHTTPRequestHandler, "protocol_version", "nonsense")
    with pytest.raises(DatasetError, match=r"table\.csv: cannot be fetched"):
        fetch(site.put("table.csv", b"a"))


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/x"])
def test_remote_file_refuses_other_addresses(url: str) -> None:
    with pytest.raises(ValueError, match="HTTP"):
        RemoteFile(url, None)


def test_read_publication_joins_files_skips_lines_and_takes_the_dot_off(site: Site) -> None:
    first = site.put("a.data", b"1, x, <=50K\n2, ?, >50K\n\n")
    second = site.put("a.test", b"|1x3 Cross validator\n3, y, <=50K.\n")
    table = read_publication(
        Publication(
            (first, second), rows=3, columns=("n", "c", "label"), skip=(0, 1), last_dot=True
        )
    )
    assert table.to_numpy().tolist() == [
        ["1", "x", "<=50K"],
        ["2", "?", ">50K"],
        ["3", "y", "<=50K"],
    ]


def test_read_publication_unpacks_gzip_and_leaves_columns_out(site: Site) -> None:
    file = site.put("a.gz", gzip.compress(b"1, NA,9.5, - 50000.\n2, b,9.5, 50000+.\n"))
    table = read_publication(
        Publication(
            (file,),
            rows=2,
            packing="gzip",
            columns=("n", "c", "weight", "label"),
            last_dot=True,
            left_out=("weight",),
        )
    )
    assert table.to_numpy().tolist() == [["1", "NA", "- 50000"], ["2", "b", "50000+"]]


def test_read_publication_reads_a_member_of_a_zip(site: Site) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("folder/t.csv", '"age";"y"\n56;"no"\n')
    file = site.put("t.zip", packed.getvalue(), pinned=False)
    publication = Publication((file,), 1, packing="zip", member="folder/t.csv", separator=";")
    assert read_publication(publication).to_dict("list") == {"age": ["56"], "y": ["no"]}


def test_read_publication_refuses_another_number_of_rows(site: Site) -> None:
    file = site.put("t.csv", b"a\n1\n")
    with pytest.raises(DatasetError, match="1 rows, expected 2"):
        read_publication(Publication((file,), rows=2))


def test_read_publication_refuses_what_is_no_archive(site: Site) -> None:
    file = site.put("t.gz", b"not gzip")
    with pytest.raises(DatasetError, match="cannot be read"):
        read_publication(Publication((file,), rows=1, packing="gzip", columns=("a",)))


def write_magic(folder: Path, rows: int = 200) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(rows, 10))
    lines = [",".join(published.MAGIC_COLUMNS)]
    lines += [
        ",".join(f"{value:.4f}" for value in row) + ("," + "gh"[i % 2])
        for i, row in enumerate(numbers)
    ]
    (folder / "magic.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_load_takes_the_data_folder_first_and_codes_in_32_bins(own_folders: Path) -> None:
    write_magic(own_folders)
    table = datasets.load("magic")
    assert table.domain.shape == (32,) * 10 + (2,)
    assert table.train.shape == (180, 11)
    assert table.test.shape == (20, 11)
    assert table.label == 10
    together = np.concatenate([table.train, table.test])
    assert (together[:, :10].min(axis=0) == 0).all()
    assert (together[:, :10].max(axis=0) == 31).all()


def test_load_splits_as_pandas_samples(own_folders: Path) -> None:
    import pandas as pd

    write_magic(own_folders)
    table = datasets.load("magic")
    whole = pd.read_csv(own_folders / "magic.csv")
    train = whole.sample(frac=0.9, random_state=571).sort_index()
    assert (table.train[:, 10] == (train["class"] == "h")).all()


def test_load_fetches_the_published_original_where_the_folder_has_none(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = ",".join(["1.5"] * 10)
    content = "\n".join([row + ",g", ",".join(["2.5"] * 10) + ",h"] * 10) + "\n"
    publication = Publication(
        (site.put("magic04.data", content.encode()),), 20, columns=published.MAGIC_COLUMNS
    )
    monkeypatch.setattr(published, "PUBLICATIONS", {**PUBLICATIONS, "magic": publication})
    lines: list[str] = []
    assert datasets.load("magic", progress=lines.append).train.shape == (18, 11)
    assert datasets.load("magic").test.shape == (2, 11)
    assert site.asked == ["/magic04.data"]
    assert len(lines) == 1


def test_load_says_what_to_do_without_a_network(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Publication((RemoteFile(f"{site.address}/lost", None),), 1)
    monkeypatch.setattr(published, "PUBLICATIONS", {**PUBLICATIONS, "magic": lost})
    with pytest.raises(DatasetError, match=r"magic\.csv\.gz .* SYNCRET_DATA_DIR"):
        datasets.load("magic")


def test_load_draws_a_subsample_of_a_large_table(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pandas as pd

    write_magic(own_folders)
    recipe = datasets.Recipe("class", binned=published.MAGIC_COLUMNS[:-1], rows=100)
    monkeypatch.setitem(datasets.RECIPES, "magic", recipe)  # type: ignore[arg-type]
    table = datasets.load("magic")
    assert len(table.train) + len(table.test) == 100
    # The authors' draws, in pandas' words.
    drawn = pd.read_csv(own_folders / "magic.csv").sample(n=100, random_state=1034)
    train = drawn.reset_index(drop=True).sample(frac=0.9, random_state=571).sort_index()
    assert (table.train[:, 10] == (train["class"] == "h")).all()


def test_load_takes_bounds_of_all_rows_before_it_draws(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_magic(own_folders)
    whole = datasets.load("magic").domain
    recipe = datasets.Recipe("class", binned=published.MAGIC_COLUMNS[:-1], rows=20)
    monkeypatch.setitem(datasets.RECIPES, "magic", recipe)  # type: ignore[arg-type]
    assert datasets.load("magic").domain == whole


def test_load_groups_classes_and_bins_a_constant(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ["a,b,class", *(f"{i},7,{'xyz'[i % 3]}" for i in range(30))]
    (own_folders / "magic.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    classes = {"x": "one", "y": "other", "z": "other"}
    recipe = datasets.Recipe("class", binned=("a", "b"), classes=classes)
    monkeypatch.setitem(datasets.RECIPES, "magic", recipe)  # type: ignore[arg-type]
    table = datasets.load("magic")
    assert table.domain.shape == (32, 32, 2)
    together = np.concatenate([table.train, table.test])
    assert set(together[:, 1]) == {0}
    assert (together[:, 2] == 0).sum() == 10
    del classes["z"]
    with pytest.raises(DatasetError, match=r"magic: column 'class' has 'z'; expected one of x, y"):
        datasets.load("magic")


def test_load_leaves_out_what_the_recipe_drops(
    own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_magic(own_folders)
    recipe = datasets.Recipe(
        "class",
        binned=published.MAGIC_COLUMNS[1:-1],
        dropped=(published.MAGIC_COLUMNS[0], "absent"),
    )
    monkeypatch.setitem(datasets.RECIPES, "magic", recipe)  # type: ignore[arg-type]
    assert datasets.load("magic").domain.names == published.MAGIC_COLUMNS[1:]


@pytest.mark.parametrize("name", ["", "Adult", "../adult", "mnist"])
def test_load_names_the_tables_it_knows(name: str) -> None:
    with pytest.raises(DatasetError, match=r"expected one of adult, adult-uci, census"):
        datasets.load(name)


def test_load_refuses_a_value_outside_a_published_code(own_folders: Path) -> None:
    names = list(published.ADULT_CODES)
    rows = [",".join(names), ",".join("0" * len(names)), ",".join(["85", *"0" * 13])]
    (own_folders / "adult-coded.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    with pytest.raises(DatasetError, match=r"line 3, column 'age'.*'85'"):
        datasets.load("adult")


def test_load_refuses_a_table_without_its_columns(own_folders: Path) -> None:
    (own_folders / "magic.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(DatasetError, match="has no column 'class'"):
        datasets.load("magic")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda lines: [lines[0], *(line + ",g" for line in lines[1:])], "more values than"),
        (lambda lines: [*lines, "1,2,3"], "row 201: has no value for 'class'"),
        (lambda lines: [*lines, lines[1] + ",g"], "cannot be read as CSV"),
        (lambda lines: lines[:1], "has no rows"),
    ],
)
def test_load_refuses_rows_of_another_length(
    own_folders: Path, change: Callable[[list[str]], list[str]], says: str
) -> None:
    write_magic(own_folders)
    path = own_folders / "magic.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(change(lines)) + "\n", encoding="utf-8")
    with pytest.raises(DatasetError, match=says):
        datasets.load("magic")


def test_load_refuses_damaged_gzip(own_folders: Path) -> None:
    write_magic(own_folders)
    plain = own_folders / "magic.csv"
    packed = bytearray(gzip.compress(plain.read_bytes()))
    packed[200] ^= 0xFF
    (own_folders / "magic.csv.gz").write_bytes(packed)
    with pytest.raises(DatasetError, match=r"magic\.csv\.gz: cannot be read"):
        datasets.load("magic")


def test_load_refuses_text_where_numbers_belong(own_folders: Path) -> None:
    write_magic(own_folders)
    path = own_folders / "magic.csv"
    path.write_text(path.read_text(encoding="utf-8") + "x" + ",1" * 9 + ",g\n", encoding="utf-8")
    with pytest.raises(DatasetError, match="'fLength' should hold numbers"):
        datasets.load("magic")


def test_every_recipe_has_a_publication_and_a_known_label() -> None:
    for name, recipe in datasets.RECIPES.items():
        publication = PUBLICATIONS[recipe.file or name]
        if publication.columns is not None:
            columns = set(publication.columns) - set(publication.left_out)
            assert {recipe.label, *recipe.binned, *recipe.dropped} <= columns
            assert len(publication.columns) == len(set(publication.columns))


def test_intrusion_has_five_classes_of_attacks() -> None:
    """KDD Cup 99 has 22 attacks and normal connections, by its task description."""
    assert len(published.ATTACKS) == 23
    assert Counter(published.ATTACKS.values()) == {
        "normal": 1,
        "dos": 6,
        "probe": 4,
        "r2l": 8,
        "u2r": 4,
    }


def test_intrusion_has_forty_features_and_credit_twenty_nine() -> None:
    dropped = {name: datasets.RECIPES[name].dropped for name in ("intrusion", "credit")}
    assert len(published.INTRUSION_COLUMNS) - 1 - len(dropped["intrusion"]) == 40
    assert len(published.CREDIT_COLUMNS) - 1 - len(dropped["credit"]) == 29
    assert len(published.CENSUS_COLUMNS) - 1 == 41
    assert len(published.COVTYPE_COLUMNS) == 55


def test_synthfs_is_repeatable_and_within_its_domain() -> None:
    settings = SynthFs(skew=2.0, clients=5, rows_per_client=40, features=3)
    domain, codes, owners = generate(settings)
    assert (codes == generate(settings)[1]).all()
    assert domain.shape == (41, 41, 41)
    assert codes.min() >= 0
    assert codes.max() <= 40
    assert (np.bincount(owners) == 40).all()


def test_synthfs_clients_are_closer_with_a_larger_exponent() -> None:
    def spread(skew: float) -> float:
        _, codes, owners = generate(SynthFs(skew=skew, clients=50, rows_per_client=50))
        means = np.stack([codes[owners == k].mean(axis=0) for k in range(50)])
        return float(means.std(axis=0).mean())

    assert spread(1.0) > 5 * spread(5.0)


def test_synthfs_values_follow_zipf_and_normal_laws() -> None:
    # One feature's client means: the cumulative law of 4,000 draws is within 0.04 of Zipf's, with a false-alarm rate
    # below 6e-6 (Dvoretzky, Kiefer, Wolfowitz); the control is another exponent.
    _, codes, owners = generate(SynthFs(skew=1.5, clients=4000, rows_per_client=30, features=1))
    means = np.bincount(owners, codes[:, 0]) / 30
    chance = np.arange(1, 41) ** -1.5
    chance /= chance.sum()
    # digitize counts the 40 points of 0 .. 40 (40/39 apart) at or below a value.
    guessed = np.clip(np.rint((means - 0.5) * 40 / 39), 1, 40)
    found = np.bincount(guessed.astype(int), minlength=41)[1:41] / 4000
    assert np.abs(np.cumsum(found) - np.cumsum(chance)).max() < 0.04
    other = np.arange(1, 41) ** -2.0
    assert np.abs(np.cumsum(found) - np.cumsum(other / other.sum())).max() > 0.04


def test_load_synthfs_keeps_owners_with_their_rows() -> None:
    table = datasets.load("synthfs", synthfs=SynthFs(clients=4, rows_per_client=50))
    assert table.owners is not None
    assert table.train.shape == (180, 10)
    assert len(table.owners) == 180
    assert table.label is None
