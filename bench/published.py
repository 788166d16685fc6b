"""Sources of the published benchmark tables, and their conversion to one table each with a header row.

The column names of originals without a header are here. SHA-256 values are those that other public loaders pin
(scikit-learn for covtype and intrusion, see `bench.fetch` for tables that nobody pins). All values here are public.
"""

import gzip
import hashlib
import io
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import pandas as pd

from bench.fetch import DatasetError, RemoteFile, fetch


def names(text: str) -> tuple[str, ...]:
    """Splits a text at commas into names of columns."""
    return tuple(name.strip() for name in text.split(","))


ADULT_CODES: Mapping[str, int] = {
    "age": 85,
    "workclass": 9,
    "fnlwgt": 100,
    "education-num": 16,
    "marital-status": 7,
    "occupation": 15,
    "relationship": 6,
    "race": 5,
    "sex": 2,
    "capital-gain": 100,
    "capital-loss": 100,
    "hours-per-week": 99,
    "native-country": 42,
    "income>50K": 2,
}
"""Columns of the coded Adult table and their numbers of codes, as its authors (Private-PGM) publish them."""

ADULT_COLUMNS = names("""
    age, workclass, fnlwgt, education, education-num, marital-status, occupation, relationship,
    race, sex, capital-gain, capital-loss, hours-per-week, native-country, income
""")
MAGIC_COLUMNS = names("""
    fLength, fWidth, fSize, fConc, fConc1, fAsym, fM3Long, fM3Trans, fAlpha, fDist, class
""")
CREDIT_COLUMNS = ("Time", *(f"V{i}" for i in range(1, 29)), "Amount", "Class")
COVTYPE_COLUMNS = (
    *names("""
        elevation, aspect, slope, horizontal_dist_to_hydro, vertical_dist_to_hydro,
        horizontal_dist_to_road, hillshade_9am, hillshade_noon, hillshade_3pm,
        horizontal_dist_to_fire_points
    """),
    *(f"wilderness_area{i}" for i in range(1, 5)),
    *(f"soil_type{i}" for i in range(1, 41)),
    "cover_type",
)
CENSUS_COLUMNS = names("""
    age, class of worker, detailed industry recode, detailed occupation recode, education,
    wage per hour, enroll in edu inst last wk, marital stat, major industry code,
    major occupation code, race, hispanic origin, sex, member of a labor union,
    reason for unemployment, full or part time employment stat, capital gains, capital losses,
    dividends from stocks, tax filer stat, region of previous residence,
    state of previous residence, detailed household and family stat,
    detailed household summary in household, instance weight, migration code-change in msa,
    migration code-change in reg, migration code-move within reg, live in this house 1 year ago,
    migration prev res in sunbelt, num persons worked for employer, family members under 18,
    country of birth father, country of birth mother, country of birth self, citizenship,
    own business or self employed, fill inc questionnaire for veteran's admin, veterans benefits,
    weeks worked in year, year, label
""")
INTRUSION_COLUMNS = names("""
    duration, protocol_type, service, flag, src_bytes, dst_bytes, land, wrong_fragment, urgent,
    hot, num_failed_logins, logged_in, num_compromised, root_shell, su_attempted, num_root,
    num_file_creations, num_shells, num_access_files, num_outbound_cmds, is_host_login,
    is_guest_login, count, srv_count, serror_rate, srv_serror_rate, rerror_rate, srv_rerror_rate,
    same_srv_rate, diff_srv_rate, srv_diff_host_rate, dst_host_count, dst_host_srv_count,
    dst_host_same_srv_rate, dst_host_diff_srv_rate, dst_host_same_src_port_rate,
    dst_host_srv_diff_host_rate, dst_host_serror_rate, dst_host_srv_serror_rate,
    dst_host_rerror_rate, dst_host_srv_rerror_rate, label
""")

ATTACKS: Mapping[str, str] = {
    f"{attack}.": group
    for group, attacks in {
        "normal": "normal",
        "dos": "back, land, neptune, pod, smurf, teardrop",
        "probe": "ipsweep, nmap, portsweep, satan",
        "r2l": "ftp_write, guess_passwd, imap, multihop, phf, spy, warezclient, warezmaster",
        "u2r": "buffer_overflow, loadmodule, perl, rootkit",
    }.items()
    for attack in names(attacks)
}
"""KDD Cup 99's groups of Intrusion's attacks: its task description."""

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"


@dataclass(frozen=True, slots=True)
class Publication:
    """Files that make up one table, one after the other.

    `columns` are the names for files without a header row; `member` is the file inside a zip archive; `skip` the
    lines before the data, file by file; `last_dot` takes the dot off the last column; `rows` is the number of rows.
    """

    files: tuple[RemoteFile, ...]
    rows: int
    packing: Literal["plain", "gzip", "zip"] = "plain"
    columns: tuple[str, ...] | None = None
    member: str | None = None
    skip: tuple[int, ...] = (0, 0)
    separator: str = ","
    last_dot: bool = False
    left_out: tuple[str, ...] = ()


PUBLICATIONS: Mapping[str, Publication] = {
    "adult": Publication(
        (
            RemoteFile(
                f"{_UCI}/adult/adult.data",
                "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            ),
            RemoteFile(
                f"{_UCI}/adult/adult.test",
                "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            ),
        ),
        rows=48_842,
        columns=ADULT_COLUMNS,
        skip=(0, 1),
        last_dot=True,
    ),
    "adult-coded": Publication(
        (
            RemoteFile(
                "https://raw.githubusercontent.com/ryan112358/private-pgm/a07c9f5e4db36a5e831980d2920ba02176d85ed6/data/adult.csv",
                "de1b8341b65de6081d50863b9c15b90ed976e7e47322a7efc37968db98705400",
            ),
        ),
        rows=48_842,
    ),
    "magic": Publication(
        (
            RemoteFile(
                f"{_UCI}/magic/magic04.data",
                "e9314b7ebd4b4b59a3b3d65f7316663963777b16a46786877651dbbaa640b36a",
            ),
        ),
        rows=19_020,
        columns=MAGIC_COLUMNS,
    ),
    "marketing": Publication(
        (RemoteFile(f"{_UCI}/00222/bank-additional.zip", None),),
        rows=41_188,
        packing="zip",
        member="bank-additional/bank-additional-full.csv",
        separator=";",
    ),
    "covtype": Publication(
        (
            RemoteFile(
                f"{_UCI}/covtype/covtype.data.gz",
                "614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
            ),
        ),
        rows=581_012,
        packing="gzip",
        columns=COVTYPE_COLUMNS,
    ),
    "census": Publication(
        (
            RemoteFile(f"{_UCI}/census-income-mld/census-income.data.gz", None),
            RemoteFile(f"{_UCI}/census-income-mld/census-income.test.gz", None),
        ),
        rows=299_285,
        packing="gzip",
        columns=CENSUS_COLUMNS,
        last_dot=True,
        left_out=("instance weight",),
    ),
    "intrusion": Publication(
        (
            RemoteFile(
                "http://kdd.ics.uci.edu/databases/kddcup99/kddcup.data_10_percent.gz",
                "8045aca0d84e70e622d1148d7df782496f6333bf6eb979a1b0837c42a9fd9561",
            ),
        ),
        rows=494_021,
        packing="gzip",
        columns=INTRUSION_COLUMNS,
    ),
    "credit": Publication(
        (
            RemoteFile(
                "https://storage.googleapis.com/download.tensorflow.org/data/creditcard.csv",
                "76274b691b16a6c49d3f159c883398e03ccd6d1ee12d9d8ee38f4b4b98551a89",
            ),
        ),
        rows=284_807,
    ),
}
"""The published tables by the name of their file in SYNCRET_DATA_DIR."""

_MEMBER_DIGESTS = {
    "bank-additional/bank-additional-full.csv": "74adfc578bf77a7ff4bb1ba4a9f8709d9e3c6907342959c2c8416847e0afb4d8",
}


def fetch_table(name: str, *, progress: Callable[[str], None] = lambda line: None) -> pd.DataFrame:
    """Returns all rows of a published table as strings, with names for its columns.

    Raises DatasetError if a file is not available or readable, or the table has another number of rows or columns.
    """
    return read_publication(PUBLICATIONS[name], progress=progress)


def read_publication(
    publication: Publication, *, progress: Callable[[str], None] = lambda line: None
) -> pd.DataFrame:
    """See `fetch_table`."""
    parts = [
        _read(fetch(file, progress=progress), publication, publication.skip[min(i, 1)])
        for i, file in enumerate(publication.files)
    ]
    frame = pd.concat(parts, ignore_index=True)
    if len(frame) != publication.rows:
        raise DatasetError(
            f"{publication.files[0].url}: {len(frame)} rows, expected {publication.rows}"
        )
    if publication.last_dot:
        last = frame.columns[-1]
        frame[last] = frame[last].str.removesuffix(".")
    return frame.drop(columns=list(publication.left_out))


def _read(path: Path, publication: Publication, skip: int) -> pd.DataFrame:
    names = publication.columns
    try:
        with _unpacked(path, publication) as stream:
            frame = pd.read_csv(
                stream,
                sep=publication.separator,
                header=0 if names is None else None,
                names=None if names is None else list(names),
                skiprows=skip,
                dtype=str,
                keep_default_na=False,
                skipinitialspace=True,
                index_col=False,
            )
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from error
    return frame


def _unpacked(path: Path, publication: Publication) -> BinaryIO:
    if publication.packing == "gzip":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if publication.packing == "zip":
        return io.BytesIO(_member(path, publication.member or ""))
    return path.open("rb")


def _member(path: Path, member: str) -> bytes:
    with zipfile.ZipFile(path) as archive:
        content = archive.read(member)
    expected = _MEMBER_DIGESTS.get(member)
    if expected is not None and hashlib.sha256(content).hexdigest() != expected:
        raise DatasetError(f"{path}: {member} in it has another SHA-256 than {expected}")
    return content
