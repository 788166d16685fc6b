"""Three services on this machine, a coordinator's authority and three owners, for measurements with studies.

The commands of ``Trio`` are those of operators. The measurement itself starts the processes. Rows are random.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Domain, Integer
from parties.config import Address, CertificateFiles, Config, config_from_dict
from parties.identity.tls import Authority, make_certificates
from parties.local.children import LOOPBACK, free_ports
from parties.service.identity import create_identity, join_servers
from parties.service.status_client import request_document

SERVICES = ("alpha", "beta", "gamma")
OWNERS = ("north", "south", "west")
_ROWS = 50


class Trio:
    """Services in ``folder``, with all keys and ports; with ``relays`` the services reach one another over relays.

    ``ways`` then maps a relay's port to the port of the service behind it.
    """

    def __init__(self, folder: Path, *, relays: bool = False) -> None:
        self.folder = folder
        self.authority = folder / "authority"
        self.ways: dict[int, int] = {}
        self.listening: list[int] = []
        """Ports of the services themselves."""
        self._listen: dict[str, list[str]] = {name: [] for name in SERVICES}
        self._prepare(relays)

    def _prepare(self, relays: bool) -> None:
        ports, files = iter(free_ports(3 * len(SERVICES))), []
        for name in SERVICES:
            own = self.folder / name
            own.mkdir(mode=0o700)
            mesh, ingest, behind = next(ports), next(ports), next(ports)
            create_identity(own, name, Address(LOOPBACK, mesh), Address(LOOPBACK, ingest))
            files.append(own / f"{name}.server")
            self.listening += [ingest, behind if relays else mesh]
            if relays:
                self.ways[mesh] = behind
                self._listen[name] = ["--listen-mesh", f"{LOOPBACK}:{behind}"]
        for name in SERVICES:
            join_servers(self.folder / name, files)
        Authority.make(self.authority, 30)
        make_certificates(self.authority, (), OWNERS)

    def serve(self, name: str) -> list[str]:
        """Returns the command of a service."""
        # No --json: nobody reads the child's standard output, and an hour's studies print more than a pipe holds.
        return ["serve", "--dir", str(self.folder / name), *self._listen[name]]

    def propose(self, study: Path, by: str, out: Path) -> list[str]:
        """Returns the command that proposes a ``study`` without servers; ``out`` gets the same file with servers."""
        arguments = ["study", "propose", str(study), "--dir", str(self.folder / by)]
        return [*arguments, "--authority", str(self.authority), "--out", str(out), "--json"]

    def certificates(self, owner: str) -> CertificateFiles:
        """Returns an owner's certificates."""
        folder = self.authority
        return CertificateFiles(folder / "ca.crt", folder / f"{owner}.crt", folder / f"{owner}.key")

    def ask(
        self, name: str, method: str, target: str, document: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Returns a service's answer. Raises NotRunning, StoreError without one, RuntimeError if it refuses."""
        status, answer = request_document(self.folder / name, method, target, document)
        if status >= 400:
            raise RuntimeError(f"{name}: {method} {target}: {answer}")
        return answer


def study_of(status: dict[str, Any], digest: str) -> dict[str, Any] | None:
    """Returns a study in a service's status."""
    return next((item for item in status["studies"] if item["digest"] == digest), None)


def rows_of(owner: int) -> NDArray[np.int32]:
    """Returns an owner's rows (rows, columns)."""
    return np.random.default_rng(owner).integers(0, 4, (_ROWS, 3), dtype=np.int32)


def study_config(name: str, rounds: int = 2, **sections: Mapping[str, object]) -> Config:
    """Returns a study of three owners, without servers; ``sections`` are added."""
    document: dict[str, object] = {
        "run": {"id": name, "epsilon": 1.0, "delta": 1e-9, "rounds": rounds, "rows": 100},
        "workload": {"queries": [["a", "b"], ["b", "c"]]},
        "clients": {"expected": len(OWNERS), "rows_per_client": _ROWS},
        **Domain(tuple(Integer(name, 0, 3, 4) for name in "abc")).to_dict(),
    }
    for section, values in sections.items():
        document[section] = {**document.get(section, {}), **values}  # type: ignore[dict-item]
    return config_from_dict(document, source=name, base=Path())


def children(pid: int) -> list[int]:
    """Returns the running child processes of a process."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(one) for one in listed.split()]
