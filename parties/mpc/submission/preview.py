"""Preview of a submission before anything is done: rows, bytes, budget and servers, for the table's owner.

``preview`` reads, and asks the three servers for their run over connections with the pinned keys; it sends nothing of
the table, and charges and writes nothing. Secret: the columns' summaries, made for the owner's own screen
(`mechanisms.summary`). Public: everything else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Self

from mechanisms.summary import ColumnSummary
from parties.config import CertificateFiles, Config
from parties.mpc.planning.upload_size import UploadSize
from parties.mpc.submission.http_api import printable_answer
from parties.mpc.submission.status import ServerAnswer, ask_differences, ask_servers
from parties.session.study import Study
from parties.storage.owner_budget import BudgetQuote


@dataclass(frozen=True, slots=True)
class ServerAvailability:
    """Availability of one server: its ``address``, its answer in words, and ``takes``: it accepts the submission."""

    party: str
    address: str
    takes: bool
    says: str

    @classmethod
    def of(cls, heard: ServerAnswer, config: Config, differences: str = "") -> Self:
        """Builds the availability from the server's answer, if any, and the ``differences`` of its configuration."""
        party, address = heard.party.name, str(heard.party.ingest)
        if heard.says is None:
            return cls(party, address, False, heard.problem)
        if heard.says.get("config") != config.digest():
            shown = f": {differences}" if differences else ""
            what = f"runs another configuration{shown}; expected the same file"
            return cls(party, address, False, what)
        if heard.says.get("open") is not True:
            why = heard.says.get("turned_away")
            ended = "the run has ended: it takes no submissions any more"
            return cls(party, address, False, printable_answer(why, 200) if why else ended)
        has = "has a submission of yours" if heard.says.get("upload") else "takes submissions"
        return cls(party, address, True, has)


@dataclass(frozen=True, slots=True)
class Preview:
    """Preview of a submission of ``rows`` rows: upload, cost, and servers that would accept it.

    ``sent_bytes`` is the upload without HTTP and TLS, the same for every table of at most ``capacity`` rows;
    ``sent_bytes_by_form`` has the size in each form of the run. ``earlier``: this submission was made before, and is
    only sent on.
    """

    run: str
    client: str
    rows: int = field(repr=False)
    columns: tuple[ColumnSummary, ...] = field(repr=False)
    form: str
    cells: int
    capacity: int
    sent_bytes: int
    sent_bytes_by_form: Mapping[str, int]
    epsilon: float
    delta: float
    cost: BudgetQuote
    servers: tuple[ServerAvailability, ...]
    earlier: bool

    @property
    def there(self) -> Sequence[str]:
        """Servers that would accept the submission."""
        return [server.party for server in self.servers if server.takes]

    def to_dict(self) -> dict[str, object]:
        """JSON form."""
        return {
            **asdict(self),
            "columns": [column.to_dict() for column in self.columns],
            "cost": self.cost.to_dict(),
        }


async def _server_state(
    heard: ServerAnswer, config: Config, files: CertificateFiles
) -> ServerAvailability:
    other = heard.says is not None and heard.says.get("config") != config.digest()
    return ServerAvailability.of(
        heard, config, await ask_differences(config, heard.party, files) if other else ""
    )


async def preview(
    config: Config,
    files: CertificateFiles,
    columns: Sequence[ColumnSummary],
    cost: BudgetQuote,
    *,
    client: str,
    rows: int,
    capacity: int | None,
    earlier: bool,
) -> Preview:
    """Asks the servers and makes the preview. Raises DataError (too many rows), ConfigError, CertificateError."""
    config.check_rows(rows, capacity)
    study = Study.of(config)
    offer = UploadSize.of(study, capacity, client)
    heard = await ask_servers(config, files)
    return Preview(
        run=config.run.id,
        client=client,
        rows=rows,
        columns=tuple(columns),
        form=offer.form,
        cells=study.workload.maximal_cells,
        capacity=offer.capacity,
        sent_bytes=offer.sent_bytes[offer.form],
        sent_bytes_by_form=offer.sent_bytes,
        epsilon=config.run.epsilon,
        delta=config.run.delta,
        cost=cost,
        servers=tuple([await _server_state(each, config, files) for each in heard]),
        earlier=earlier,
    )
