"""A study on hosts of their own: what everybody has after the ceremony, each in a folder of its own."""

import shutil
from pathlib import Path

from parties.config import Address
from parties.identity.join_documents import ensure_join_request, ensure_server_card
from parties.identity.study_setup import CERTIFICATES, create_study, issue_certificates
from parties.identity.tls import Authority
from parties.local.children import free_ports

SERVERS = ("alpha", "beta", "gamma")
OWNERS = ("north", "south", "west")


def make_cards(folder: Path) -> list[Path]:
    """Three servers' cards, with free ports of this machine; the keys are in each one's folder."""
    ports, paths = iter(free_ports(6)), []
    for name in SERVERS:
        host = folder / name
        host.mkdir()
        ends = {end: Address("127.0.0.1", next(ports)) for end in ("mesh", "ingest")}
        paths.append(host / f"{name}.card")
        ensure_server_card(name, ends, keys=host / "tls", path=paths[-1])
    return paths


def make_requests(folder: Path) -> list[Path]:
    """Three owners' requests; the keys are in each one's folder."""
    paths = []
    for name in OWNERS:
        host = folder / name
        host.mkdir()
        paths.append(host / f"{name}.request")
        ensure_join_request(name, keys=host / "tls", path=paths[-1])
    return paths


def three_hosts(folder: Path, study: Path) -> dict[str, Path]:
    """Each one's copy of the configuration that the cards and `study` make, by the name of server or owner."""
    cards, requests = make_cards(folder), make_requests(folder)
    authority, merged = folder / "authority", folder / "study"
    Authority.make(authority, 10)
    create_study(study, cards, authority=authority, out=merged, valid_days=10)
    issue_certificates(requests, authority=authority, out=merged / CERTIFICATES, valid_days=10)
    copies = {}
    for name in (*SERVERS, *OWNERS):
        shutil.copytree(merged, folder / name / "study")
        copies[name] = folder / name / "study" / study.name
    return copies
