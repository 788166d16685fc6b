"""Intake of a study into a service: validation before any operator reviews it, and a folder of its own.

A proposal may come from another server's operator. Its servers have to be these three with the keys that the service
knows, this server's sealing key has to be one that it made, and the settings of each server ([tls], [compute],
run.record_replay) are not taken over. The folder has the layout of a study on hosts of its own: ``study`` is public and
identical for all, ``tls`` has this server's keys, ``run`` is the folder of `syncret serve study`.

Secret: ``tls`` and ``run``, mode 0700. Public: the rest.
"""

import contextlib
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from mechanisms.errors import MechanismError
from parties.config import Config, EarlierModel, config_from_dict, load_config
from parties.config.provenance import check_confirmed
from parties.crypto.hpke import SealKey
from parties.foundation.errors import ConfigError, PartyError
from parties.foundation.untrusted_text import parse_toml
from parties.identity.join_documents import SEAL_FILE, ensure_server_card
from parties.identity.study_certificates import checked_certificates
from parties.identity.study_setup import CERTIFICATES, TLS
from parties.identity.tls import is_outside, link_target
from parties.methods.flaim.settings import check_flaim
from parties.methods.registry import served_method
from parties.mpc.planning.validation import validate_run
from parties.service.identity import CARDS, KEYS, ServiceIdentity
from parties.service.start_files import MAX_START_BYTES, checked_start, encoded_start
from parties.service.study_record import DISTAIM, FLAIM, SILOS, StoredProposal
from parties.session.result_digests import write_earlier
from parties.session.study import Study
from parties.storage.files import create, disk_errors, write_atomic

MAX_PROPOSAL_BYTES = 1 << 22
"""Maximum size of a configuration with its certificates."""
MAX_DOCUMENT_BYTES = MAX_PROPOSAL_BYTES + MAX_START_BYTES
"""Maximum size of a proposal's document, with an earlier model."""
SOURCE = "the proposed configuration"
_MAX_CARDS = 200
_STUDIES = "studies"
_STUDY_PATTERN, _UNFINISHED_CARD_PATTERN = r"[^.].*-[0-9a-f]{12}", r"\.[0-9a-f]{16}"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A configuration and the PEM texts of its authority and servers, by file name.

    ``start`` is the earlier model that a refresh starts from.
    """

    config: Config
    certificates: Mapping[str, str]
    start: EarlierModel | None = None

    @property
    def kind(self) -> str:
        """Kind of the study: DISTAIM, FLAIM or SILOS."""
        if self.config.parties:
            return DISTAIM
        return FLAIM if self.config.silos is None else SILOS

    @property
    def text(self) -> str:
        """Configuration as TOML, with the paths of a study's folder."""
        return tomli_w.dumps(self.config.to_dict() | {"tls": TLS})

    def to_dict(self) -> dict[str, object]:
        """Returns the JSON form."""
        texts = {"config": self.text, "certificates": dict(self.certificates)}
        return texts | encoded_start(self.start)


class ProposalRefused(PartyError):
    """This server does not accept a proposal; the message gives the reason."""


def check_proposal(document: Mapping[str, object], identity: ServiceIdentity) -> Proposal:
    """Validates a proposal and returns it as this server would run it. Raises ProposalRefused."""
    match document:
        case {"config": str() as text, "certificates": dict() as certificates}:
            pass
        case _:
            raise ProposalRefused(
                "a proposal has config (TOML) and certificates (PEM texts by file name)"
            )
    texts = {str(name): str(value) for name, value in certificates.items()}
    if len(text) + sum(map(len, texts.values())) > MAX_PROPOSAL_BYTES:
        raise ProposalRefused(f"it has more than {MAX_PROPOSAL_BYTES} bytes")
    try:
        config = _without_local_settings(text)
        _check_servers(config, identity)
        kept = checked_certificates(config, texts)
        _check_feasible(config)
        start = checked_start(document, config)
    except (PartyError, MechanismError) as error:
        raise ProposalRefused(str(error)) from error
    except Exception as error:
        # A faulty text from another server must not end this one, whatever error a library raises.
        what = f"cannot be read ({type(error).__name__}); expected what `syncret certs merge` makes"
        raise ProposalRefused(f"{SOURCE} {what}") from error
    return Proposal(config, kept, start)


def _without_local_settings(text: str) -> Config:
    """Returns the configuration without the settings that are each server's own. Raises ConfigError."""
    try:
        # JSON has strings that no file can hold (half a surrogate pair), and TOML has numbers of any length.
        text.encode()
        document = parse_toml(text)
    except ValueError as error:
        raise ConfigError(SOURCE, "", f"is not valid TOML: {error}") from error
    document.pop("compute", None)
    run = document.get("run")
    if isinstance(run, dict):
        run.pop("record_replay", None)
        if "id" not in run:
            raise ConfigError(SOURCE, "run.id", "is missing; expected the study's name")
    refresh = document.get("refresh")
    if isinstance(refresh, dict):
        # Where the proposer has the earlier model is its own; its files come with the proposal.
        refresh.pop("model", None)
    return config_from_dict(document | {"tls": TLS}, source=SOURCE, base=Path())


def _check_servers(config: Config, identity: ServiceIdentity) -> None:
    """Raises ConfigError unless the study is for these servers, with the known keys and addresses."""
    check_confirmed(config)
    if not config.parties:
        _check_single_server(config, identity)
        return
    if len(identity.servers) != len(config.parties):
        text = "are three servers; this service knows no others (`syncret serve join`)"
        raise ConfigError(SOURCE, "party", text)
    for pid, (party, server) in enumerate(zip(config.parties, identity.servers, strict=True)):
        if (former := identity.former_key(party.key)) is not None:
            text = (
                f"of {party.name} was replaced on {former.until[:10]}; expected its new one, from a new card "
                "(`syncret study propose`)"
            )
            raise ConfigError(SOURCE, "party.key", text)
        others = [
            accepted.pinned.other_than(party.name, party.key) for accepted in identity.accepted(pid)
        ]
        other = None if None in others else others[0]
        if other is not None:
            said = other.replace("the server's certificate", f"server {pid}")
            raise ConfigError(SOURCE, "party", said.replace("the configuration", "this service"))
        for end in ("mesh", "ingest"):
            here, known = getattr(party, end), getattr(server, end)
            if here != known:
                text = f"of {party.name} is {here}; expected {known}, its server's"
                raise ConfigError(SOURCE, f"party.{end}", text)


def _check_single_server(config: Config, identity: ServiceIdentity) -> None:
    section, own = config.require_federation(), identity.own
    if other := own.pinned.other_than(section.server, section.pinned.key):
        text = other.replace("the server's certificate", "the study's server")
        raise ConfigError(
            SOURCE, f"{section.KEY}.server", text.replace("the configuration", "this service")
        )
    if section.address != own.ingest:
        text = f"is {section.address}; expected {own.ingest}, this server's ingest address"
        raise ConfigError(SOURCE, f"{section.KEY}.address", text)


def _check_feasible(config: Config) -> None:
    """Raises ConfigError, MechanismError for an infeasible study."""
    study = Study.of(config)
    if config.parties:
        validate_run(study)
    elif config.silos is not None:
        served_method(config.federation_section).plan(config)
    else:
        check_flaim(study)


@dataclass(frozen=True, slots=True)
class StudyFolder:
    """Paths of a study's files, below the ``folder`` of a service, by run and digest."""

    folder: Path
    run: str
    digest: str

    @property
    def path(self) -> Path:
        """Folder of the study."""
        return self.folder / _STUDIES / self._name

    @property
    def text(self) -> str:
        """Absolute path of the folder as text, for statuses, which have it for every study many times a second.

        It is built without `Path`, whose parts Python interns. Temporary strings use up the table of interned ones, 2
        MB in a service; Python would then rebuild it with twice the size beside the old one.
        """
        return os.path.abspath(os.path.join(self.folder, _STUDIES, self._name))

    @property
    def _name(self) -> str:
        return f"{self.run}-{self.digest[:12]}"

    @property
    def config(self) -> Path:
        """Configuration file."""
        return self.path / "study" / f"{self.run}.toml"

    @property
    def seal(self) -> Path:
        """This server's sealing key for the study, until its end."""
        return self.path / "tls" / SEAL_FILE

    @property
    def work(self) -> Path:
        """Folder of the run: shares, ledger, transcript, results."""
        return self.path / "run"

    @property
    def log(self) -> Path:
        """Log file of the study's process."""
        return self.path / "worker.log"


def proposed_config(proposed: StoredProposal) -> Config:
    """Returns a study's configuration, without the paths of this server's files. Raises ConfigError."""
    return config_from_dict(parse_toml(proposed.config), source=SOURCE, base=Path())


@dataclass(frozen=True, slots=True)
class StudySummary:
    """Values of a configuration for lists of studies, kept in memory instead of whole configurations."""

    epsilon: float
    delta: float
    rounds: int
    columns: int
    expected: int | None
    minimum: int
    rows_per_client: int
    named: tuple[str, ...]

    @classmethod
    def of(cls, config: Config) -> "StudySummary":
        """Returns the summary of a configuration."""
        run, clients, one = config.run, config.clients, config.federation
        return cls(
            run.epsilon,
            run.delta,
            run.rounds,
            len(config.domain.names),
            clients.expected,
            clients.minimum,
            clients.rows_per_client,
            () if one is None else tuple(one.clients),
        )


def new_card(identity: ServiceIdentity, kind: str) -> str:
    """Returns a card of this server for a study of ``kind``, and keeps its keys for the study. Raises PartyError."""
    cards, own = identity.folder / CARDS, identity.own
    beside = cards / f".{secrets.token_hex(8)}"
    with disk_errors(cards, "made"):
        beside.mkdir(parents=True, mode=0o700)
        try:
            _copy_key(identity, beside / "tls")
            ends = {"address": own.ingest}
            if kind == DISTAIM:
                ends = {"mesh": own.mesh, "ingest": own.ingest}
            path = beside / f"{own.name}.card"
            card, _ = ensure_server_card(own.name, ends, keys=beside / "tls", path=path)
            text = path.read_text(encoding="utf-8")
            if card.seal is not None:
                beside.rename(_card_folder(identity, card.seal))
                _remove_oldest_cards(cards)
            return text
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def make_study_folder(
    identity: ServiceIdentity, proposal: Proposal, known: Collection[str] = ()
) -> StudyFolder:
    """Makes a study's folder with this server's keys; an existing one stays. Raises ProposalRefused, StoreError.

    ``known`` are the paths of the studies in the repository: a kill may have left the keys in another folder.
    """
    config = proposal.config
    study_folder = StudyFolder(identity.folder, config.run.id, config.digest())
    if study_folder.seal.parent.exists() or study_folder.work.exists():
        _check_same_study(study_folder)
        return study_folder
    keys = None
    if proposal.kind == DISTAIM:
        keys = _unused_key_folder(identity, config.parties[identity.pid].seal, known)
    beside = study_folder.path.with_name(f".{study_folder.path.name}")
    with disk_errors(study_folder.path, "made"):
        # A folder without keys was left by a kill: the keys are moved last, in one step.
        for left in (beside, study_folder.path):
            shutil.rmtree(left, ignore_errors=True)
        (beside / "study" / CERTIFICATES).mkdir(parents=True)
        beside.chmod(0o700)
        write_atomic(beside / "study" / study_folder.config.name, proposal.text)
        for name, text in proposal.certificates.items():
            write_atomic(beside / "study" / CERTIFICATES / name, text)
        if proposal.start is not None:
            write_earlier(proposal.start, beside / "study")
        if keys is None:
            _copy_key(identity, beside / "tls")
            beside.rename(study_folder.path)
        else:
            beside.rename(study_folder.path)
            keys.rename(study_folder.path / "tls")
            if keys.parent.parent.name == CARDS:
                shutil.rmtree(keys.parent, ignore_errors=True)
    return study_folder


def _check_same_study(study_folder: StudyFolder) -> None:
    """Raises ProposalRefused if the folder belongs to another study.

    A folder's name has only a part of the digest, for which two configurations could be constructed.
    """
    try:
        same = load_config(study_folder.config).digest() == study_folder.digest
    except ConfigError as error:
        raise ProposalRefused(
            f"{SOURCE}: its folder is there and cannot be read: {error}"
        ) from error
    if not same:
        raise ProposalRefused(
            f"{SOURCE}: {study_folder.path} is of another study; expected another run.id"
        )


def _unused_key_folder(identity: ServiceIdentity, seal: str, known: Collection[str]) -> Path:
    """Returns the folder of unused keys with this sealing key. Raises ProposalRefused."""
    keys = _card_folder(identity, seal) / "tls"
    if keys.exists():
        return keys
    for path in _folders(identity.folder / _STUDIES, _STUDY_PATTERN):
        # Another study that has run was in a repository.
        if str(path) not in known and not (path / "run").exists():
            with contextlib.suppress(PartyError):
                if str(SealKey.load(path / "tls" / SEAL_FILE).public) == seal:
                    return path / "tls"
    raise ProposalRefused(
        f"{SOURCE}: party.seal of {identity.own.name} is no sealing key that waits for a study here; expected one of a "
        "new card (`syncret study card`), which is for one study"
    )


def remove_unfinished(identity: ServiceIdentity) -> None:
    """Deletes unfinished cards and study folders that a killed process left. Raises StoreError.

    A study that a kill left out of the repository keeps its folder with the keys until it is proposed again: the
    database
    in use can also be the wrong one.
    """
    cards, studies = identity.folder / CARDS, identity.folder / _STUDIES
    with disk_errors(identity.folder, "deleted"):
        for path in [
            *_folders(cards, _UNFINISHED_CARD_PATTERN),
            *_folders(studies, rf"\.{_STUDY_PATTERN}"),
        ]:
            shutil.rmtree(path)


def _folders(within: Path, name: str) -> list[Path]:
    """Returns the folders with names that this server gives; other files there belong to the operator."""
    return [
        path
        for path in within.glob("*")
        if re.fullmatch(name, path.name) and path.is_dir() and not path.is_symlink()
    ]


def delete_sealing_key(study_folder: StudyFolder) -> None:
    """Deletes the sealing key of a study. Raises StoreError."""
    with disk_errors(study_folder.seal, "deleted"):
        study_folder.seal.unlink(missing_ok=True)


def _card_folder(identity: ServiceIdentity, seal: str) -> Path:
    return identity.folder / CARDS / hashlib.sha256(seal.encode()).hexdigest()[:32]


def _copy_key(identity: ServiceIdentity, folder: Path) -> None:
    """Copies this server's private key into another folder of its own, for the keys of a study.

    Of a key outside the study has a link to the same file.
    """
    folder.mkdir(mode=0o700)
    path = identity.folder / KEYS / "own.key"
    if is_outside(path):
        (folder / "own.key").symlink_to(link_target(path))
        return
    data = path.read_bytes()
    with open(create(folder / "own.key", secret=True), "wb") as file:
        file.write(data)


def _remove_oldest_cards(cards: Path) -> None:
    """Removes the oldest unused cards."""
    found = sorted(cards.glob("[0-9a-f]*"), key=lambda path: path.stat().st_mtime)
    for path in found[:-_MAX_CARDS]:
        shutil.rmtree(path, ignore_errors=True)
