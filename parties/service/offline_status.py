"""Status of a server's run from its folder, while no process holds it: the last durable state.

``offline_status`` builds a status document (parties/README.md, Status) from the transcript's first and last records
and the store, which it reads without changes. All values it shows are public.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from parties.config import config_from_dict
from parties.federation.result import RESULT
from parties.foundation.errors import ConfigError, StoreError
from parties.foundation.untrusted_text import parse_json
from parties.methods.registry import plan_of
from parties.mpc.outputs import STORE_FOLDER
from parties.mpc.progress_text import Rows, budget_use, participant_statuses
from parties.mpc.storage.run_state import ENDED, FORGOTTEN, RHO
from parties.observability.status import (
    FLAIM_SERVER,
    MPC_SERVER,
    SILOS_SERVER,
    Phase,
    RunInfo,
    RunStatus,
)
from parties.service.retention import TRANSCRIPT, TRANSCRIPTS, removed_at
from parties.storage.database import FILE, Row
from parties.storage.files import disk_errors
from parties.storage.sqlite import connect_existing
from protocols.transcript import END

_TAIL_BYTES = 1 << 16
"""Number of bytes at the end of a transcript that are searched for its last record."""
_LONGEST_HEADER = 1 << 26
_LATEST = 253_402_300_800


def offline_status(folder: Path) -> dict[str, object]:
    """Returns the status of the server that ran in ``folder``. Raises StoreError if none did, or on bad files."""
    path = folder / TRANSCRIPT
    if (when := removed_at(folder, TRANSCRIPTS)) is not None:
        raise StoreError(
            folder, f"is of a run that has ended; its transcript was deleted on {when} for its age"
        )
    if not path.exists():
        raise StoreError(
            folder,
            "is no server's folder; expected one that syncret serve study ran in",
        )
    header = _header(path)
    with disk_errors(path, "read"):
        last = path.stat().st_mtime
    board = RunStatus(_about(header, path), clock=lambda: last, began=float(header["time"]))
    with _rows(folder / STORE_FOLDER / FILE) as rows:
        _fill(board, folder, rows, header)
        board.freeze()
    if (reason := _last_seal(path)) not in (None, END):
        board.error("failed", str(reason))
    return board.status()


def _fill(board: RunStatus, folder: Path, rows: Rows, header: dict[str, Any]) -> None:
    meta: dict[str, str] = dict(rows("SELECT key, value FROM meta"))
    done, over = None, (folder / RESULT).exists()
    rho = header.get("rho_total", math.nan)
    if board.about.kind == MPC_SERVER:
        names = [table["name"] for table in header["config"]["party"]]
        enrolled = header["config"]["clients"].get("names", ())
        owners = participant_statuses(rows, names, enrolled=enrolled)
        board.sources.owners = lambda: owners
        (done,) = rows("SELECT max(round) FROM checkpoint")[0]
        over, rho = ENDED in meta, float(meta.get(RHO, math.nan))
    elif board.about.kind == SILOS_SERVER:
        (done,) = rows("SELECT max(number) FROM sum WHERE total IS NOT NULL")[0]
    elif rounds := sorted((folder / STORE_FOLDER / "rounds").glob("*.round")):
        done = int(rounds[-1].stem)
    spent = budget_use(rows, rho)
    board.sources.spent = lambda: spent
    board.last_round(done)
    board.enter(Phase.FINISHED if over else Phase.STOPPED)
    if FORGOTTEN in meta:
        board.error("forgotten", f"given up for good at {meta[FORGOTTEN]}")


def _about(header: dict[str, Any], path: Path) -> RunInfo:
    """Returns the run's information from the transcript's header. Raises StoreError for a header of unknown form."""
    try:
        config, pid = header["config"], header.get("party")
        run, clients = config["run"], config["clients"]
        names = [table["name"] for table in config["party"]] if pid is not None else []
        silos = config.get("silos")
        alone = FLAIM_SERVER if silos is None else SILOS_SERVER
        return RunInfo(
            kind=alone if pid is None else MPC_SERVER,
            name=header["name"],
            pid=pid,
            study=header["run"],
            config=header["config_sha256"],
            epsilon=run["epsilon"],
            delta=run["delta"],
            rounds=run["rounds"] if silos is None else _sums(config),
            at_most=silos is not None or run["schedule"] != "fixed",
            expected=clients["expected"],
            minimum=max(clients["minimum"], (silos or config.get("flaim", {})).get("minimum", 0)),
            peers={i: name for i, name in enumerate(names) if i != pid},
        )
    except (KeyError, TypeError, AttributeError, ConfigError) as error:
        raise _unknown(path) from error


def _sums(config: dict[str, Any]) -> int:
    """Returns the maximum number of sums of a run between silos, which stand for its rounds. Raises ConfigError."""
    return plan_of(config_from_dict(config, source="the transcript", base=Path())).sums


def _header(path: Path) -> dict[str, Any]:
    with disk_errors(path, "read"), path.open("rb") as file:
        line = file.readline(_LONGEST_HEADER)
    try:
        header = parse_json(line)
    except ValueError as error:
        raise _unknown(path) from error
    if not isinstance(header, dict) or not _is_time(header.get("time")):
        raise _unknown(path)
    return header


def _is_time(value: object) -> bool:
    """Returns true for seconds since the epoch, up to the year 9999."""
    return isinstance(value, int | float) and 0 <= value < _LATEST


def _unknown(path: Path) -> StoreError:
    return StoreError(path, "does not begin as a server's transcript does; expected its header")


def _last_seal(path: Path) -> str | None:
    """Returns the reason of the last seal if the seal is the last record; None means that the process was killed."""
    with disk_errors(path, "read"), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = file.read().splitlines()
    with contextlib.suppress(ValueError):
        record = parse_json(lines[-1]) if lines else None
        if isinstance(record, dict) and record.get("kind") == "seal":
            return str(record.get("reason"))
    return None


@contextlib.contextmanager
def _rows(path: Path) -> Iterator[Rows]:
    """Yields a function for queries of a database, opened read-only. Raises StoreError."""
    if not path.exists():
        raise StoreError(path, "is missing; expected the store of the server that ran here")
    with disk_errors(path, "read"):
        database = connect_existing(path, writable=False)

    def rows(query: str) -> Sequence[Row]:
        with disk_errors(path, "read"):
            return database.execute(query).fetchall()

    try:
        yield rows
    finally:
        database.close()
