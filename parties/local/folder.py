"""Run folder of a trial: new, or of an interrupted run of the same request.

Secret: keys, shares and tables below it until the run is finished, in folders of mode 0700.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from parties.config import Config, earlier_model
from parties.foundation.errors import StoreError
from parties.foundation.untrusted_text import parse_json
from parties.session.result_digests import write_earlier
from parties.storage.files import disk_errors, write_atomic, write_json

SERVER_FOLDERS = ("0", "1", "2")
"""Names of the folders of DistAIM's servers."""
REGISTRY_FILE = "register.sqlite"
"""File of a trial server's registry of studies, in its folder."""
_MARK = "run.json"


def default_run_folder(run_id: str) -> Path:
    """Default path of a run's folder: runs/ID-TIME."""
    return Path("runs") / f"{run_id}-{time.strftime('%Y%m%d-%H%M%S')}"


class RunFolder:
    """The run folder. It also holds the files for a restart until `parties.local.assemble.tidy` removes them.

    ``servers`` are the names of the servers' folders below parties/.

        parties/PID/        one server's folder each, mode 0700: store, transcript, costs, log
        owners/             table, submission states and receipts, mode 0700
        certificates/       the trial's own authority
        run.json            fingerprint of the request, and whether it is finished
    """

    def __init__(self, path: Path, servers: Sequence[str] = SERVER_FOLDERS) -> None:
        self.path = path
        self.servers = tuple(servers)
        self.resumed = False

    @property
    def config(self) -> Path:
        """Path of the resolved config."""
        return self.path / "config.toml"

    def write_config(self, config: Config) -> None:
        """Writes the resolved config, and the earlier model that a refresh starts from beside it. Raises PartyError."""
        earlier = earlier_model(config)
        if earlier is not None:
            write_earlier(earlier, self.path)
        write_atomic(self.config, config.resolved_toml())

    @property
    def certificates(self) -> Path:
        """Path of the trial's certificates and keys."""
        return self.path / "certificates"

    @property
    def owners(self) -> Path:
        """Path of the owners' process's files."""
        return self.path / "owners"

    def party(self, pid: int) -> Path:
        """Path of one server's folder."""
        return self.path / "parties" / self.servers[pid]

    @property
    def parties(self) -> tuple[Path, ...]:
        """Paths of the servers' folders."""
        return tuple(self.party(pid) for pid in range(len(self.servers)))

    @property
    def finished(self) -> bool:
        """True if the folder holds a finished run. Raises StoreError if its mark cannot be read."""
        mark = self._read_mark()
        return mark is not None and mark.get("finished") is True

    def open(self, fingerprint: str) -> None:
        """Creates the folder, or opens that of an interrupted run of the same request (``resumed`` is then true).

        Raises StoreError, and changes nothing, if the folder holds anything else or cannot be written.
        """
        mark = self._read_mark()
        if mark is None and self.path.exists() and any(self._entries()):
            raise StoreError(
                self.path, "is not empty and not a run of this program; expected a new folder"
            )
        if self.finished:
            raise StoreError(self.path, "holds a finished run; expected a new folder for --out")
        if mark is not None and mark.get("fingerprint") != fingerprint:
            raise StoreError(
                self.path,
                "holds an unfinished run of another config, table or options; expected a new folder, or the same "
                "command again to go on with it",
            )
        self.resumed = mark is not None
        with disk_errors(self.path, "made"):
            self.path.mkdir(parents=True, exist_ok=True)
            if mark is None:
                # The mark comes first, so that the same command can resume from any later point.
                self._write_mark(fingerprint, finished=False)
            for folder in (*self.parties, self.owners):
                folder.mkdir(parents=True, exist_ok=True)
            for folder in (self.path / "parties", self.owners, *self.parties):
                folder.chmod(0o700)

    def finish(self, fingerprint: str) -> None:
        """Marks the run as finished. Raises StoreError."""
        self._write_mark(fingerprint, finished=True)

    def _entries(self) -> list[str]:
        with disk_errors(self.path, "read"):
            return os.listdir(self.path)

    def _read_mark(self) -> Mapping[str, object] | None:
        try:
            mark = parse_json((self.path / _MARK).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise StoreError(self.path / _MARK, f"cannot be used: {error}") from error
        return mark if isinstance(mark, dict) else {}

    def _write_mark(self, fingerprint: str, *, finished: bool) -> None:
        write_json(self.path / _MARK, {"fingerprint": fingerprint, "finished": finished})
