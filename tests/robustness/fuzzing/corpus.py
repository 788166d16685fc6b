"""Real messages and files to damage: a small study on this machine, with its keys, its owners and one whole run.

The parts of ``Corpus`` are made on first use. All values here are public and generated; keys are of this folder alone.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import tomli_w
from numpy.typing import NDArray

from mechanisms.workload import Workload
from parties.config import Address, CertificateFiles, Config, config_from_dict
from parties.identity.study_setup import CERTIFICATES, create_study
from parties.identity.tls import Authority, make_certificates, pinned_key_in, public_keys
from parties.local.children import free_ports
from parties.mpc.inputs.own import OwnerInput
from parties.mpc.submission.submit import PreparedSubmission, prepare
from parties.service.identity import ServiceIdentity, create_identity, join_servers
from parties.service.study_intake import new_card
from parties.service.study_record import DISTAIM
from parties.session.study import Study

PARTIES = ("party-0", "party-1", "party-2")
SERVER = "flaim-server"
OWNERS = ("north", "south", "west")
ROWS = 60
_SHAPE = (2, 3, 10)


def codes_of(owner: int) -> NDArray[np.int32]:
    """Returns an owner's rows (rows, columns)."""
    return np.random.default_rng(owner).integers(0, _SHAPE, (ROWS, 3)).astype(np.int32)


class Corpus:
    """The corpus in the empty ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports = free_ports(14)

    def path(self, name: str) -> Path:
        """Returns a path in the corpus's folder, whose parent exists."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @cached_property
    def certificates(self) -> Mapping[str, CertificateFiles]:
        """Certificates of the servers and the owners, by name."""
        names = (*PARTIES, SERVER)
        return make_certificates(self.path("certificates"), names, OWNERS)

    @cached_property
    def study(self) -> dict[str, object]:
        """A study without servers: three columns, 56 cells."""
        return {
            "run": {
                "id": "small",
                "epsilon": 2.0,
                "delta": 1e-5,
                "rounds": 2,
                "iterations": 5,
                "final_iterations": 5,
                "input": "counts",
            },
            "workload": {"degree": 2, "count": "all"},
            "clients": {"expected": 3, "rows_per_client": 100, "wait_s": 600.0},
            "timeouts": {"connect_s": 600.0, "receive_s": 10.0, "submit_s": 20.0},
            "column": [
                {"name": "sex", "kind": "categorical", "categories": ["f", "m"]},
                {"name": "ward", "kind": "categorical", "categories": ["x", "y", "z"]},
                {"name": "age", "kind": "integer", "low": 0, "high": 9},
            ],
        }

    @cached_property
    def config(self) -> Config:
        """Configuration of DistAIM with its three servers."""
        parties = [
            {
                "name": name,
                "mesh": f"127.0.0.1:{self._ports[2 * pid]}",
                "ingest": f"127.0.0.1:{self._ports[2 * pid + 1]}",
                **public_keys(self.certificates[name].cert, self.certificates[name].seal),
            }
            for pid, name in enumerate(PARTIES)
        ]
        return config_from_dict(self.study | {"party": parties}, source="small.toml", base=Path())

    @cached_property
    def flaim(self) -> Config:
        """Configuration of FLAIM with its server."""
        files = self.certificates[SERVER]
        section = {
            "address": f"127.0.0.1:{self._ports[6]}",
            "key": pinned_key_in(files.cert).key,
            "clients": list(OWNERS),
        }
        tls = {"ca": str(files.ca), "cert": str(files.cert), "key": str(files.key)}
        run = {key: self.study["run"][key] for key in ("id", "epsilon", "delta", "rounds")}  # type: ignore[index]
        run |= {"iterations": 5, "final_iterations": 5}
        document = {key: value for key, value in self.study.items() if key != "workload"}
        document |= {"run": run, "flaim": section, "tls": tls}
        return config_from_dict(document, source="small.toml", base=Path())

    @cached_property
    def workload(self) -> Workload:
        """Workload of both configurations."""
        return self.config.build_workload()

    @cached_property
    def table(self) -> bytes:
        """The first owner's table, as CSV."""
        names = [("f", "m"), ("x", "y", "z"), tuple(map(str, range(10)))]
        rows = [
            ",".join(of[code] for of, code in zip(names, row, strict=True)) for row in codes_of(0)
        ]
        return ("sex,ward,age\n" + "\n".join(rows) + "\n").encode()

    @cached_property
    def state(self) -> Path:
        """File of the first owner's state, before its submission is complete."""
        _ = self.prepared
        return self.path("north.state")

    @cached_property
    def prepared(self) -> PreparedSubmission:
        """The first owner's submission, sealed and signed."""
        own = OwnerInput.of(Study(self.config, self.workload), codes_of(0))
        made = prepare(
            self.config,
            own,
            self.certificates[OWNERS[0]],
            workload=self.workload,
            first_round=1,
            state=self.path("north.state"),
        )
        if made is None:
            raise RuntimeError("an owner with a given round takes part")
        return made

    @cached_property
    def identity(self) -> ServiceIdentity:
        """Identity of a service that knows two others."""
        files = []
        for number, name in enumerate(PARTIES):
            ends = [Address("127.0.0.1", self._ports[7 + 2 * number + end]) for end in range(2)]
            create_identity(self.path(f"services/{name}"), name, *ends)
            files.append(self.folder / "services" / name / f"{name}.server")
        return join_servers(self.folder / "services" / PARTIES[0], files)

    @cached_property
    def proposal(self) -> tuple[str, dict[str, str]]:
        """A study with the three services as its servers, as TOML, and its certificates by file name."""
        cards, folder = [], self.path("proposal/study")
        for server in self.identity.servers:
            own = replace(self.identity, folder=self.folder / "services" / server.name)
            own = replace(own, pid=self.identity.servers.index(server))
            cards.append(self.path(f"proposal/{server.name}.card"))
            cards[-1].write_text(new_card(own, DISTAIM))
        study = self.path("proposal/small.toml")
        study.write_text(tomli_w.dumps(self.study))
        Authority.make(self.path("proposal/authority"), 10)
        authority = self.folder / "proposal" / "authority"
        create_study(study, cards, authority=authority, out=folder, valid_days=9)
        texts = {path.name: path.read_text() for path in (folder / CERTIFICATES).glob("*.crt")}
        return (folder / "small.toml").read_text(), texts

    @cached_property
    def run(self) -> Path:
        """Folder of a finished run of DistAIM's processes; takes seconds."""
        return self._finished("distaim")

    @cached_property
    def flaim_run(self) -> Path:
        """Folder of a finished run of FLAIM's processes; takes seconds."""
        return self._finished("flaim")

    def _finished(self, method: str) -> Path:
        from parties.api.run import synthesize

        table, out = self.path(f"{method}/table.csv"), self.folder / method / "run"
        table.write_bytes(self.table)
        study = dict(self.study)
        if method == "flaim":
            study["run"] = {k: v for k, v in study["run"].items() if k != "input"}  # type: ignore[attr-defined]
            del study["workload"]
        synthesize(str(table), study, clients=3, method=method, out=out)
        return out
