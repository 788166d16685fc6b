"""Three servers of a measurement: their sections of a configuration, and the keys of one that runs.

Secret in a real run; here they are keys of a trial.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from parties.config import CertificateFiles
from parties.crypto.hpke import SealKey
from parties.identity.tls import pinned_key_in, public_keys, signer
from parties.local.children import LOOPBACK, free_ports
from protocols.mesh import TlsFiles
from protocols.pairing import Seals


class Credentials(NamedTuple):
    """Certificates and pins, sealing keys, and the function that signs a transcript."""

    tls: TlsFiles
    seals: Seals
    sign: Callable[[bytes], bytes]


def credentials(folder: Path, pid: int, names: tuple[str, str, str]) -> Credentials:
    """Returns what party ``pid`` works with, from the files that ``make_certificates`` wrote to ``folder``."""
    files = [
        CertificateFiles(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")
        for name in names
    ]
    first, second, third = (pinned_key_in(each.cert).key for each in files)
    keys = [SealKey.load(each.seal) for each in files]
    own = files[pid]
    tls = TlsFiles(own.ca, own.cert, own.key, names, (first, second, third))
    seals = Seals((keys[0].public, keys[1].public, keys[2].public), keys[pid])
    return Credentials(tls, seals, signer(own))


def server_sections(certificates: Path, names: Sequence[str]) -> dict[str, object]:
    """Returns [tls] and [[party]] of servers on this machine, whose keys are in the folder ``certificates``."""
    ports = free_ports(2 * len(names))
    return {
        "tls": {
            "ca": str(certificates / "ca.crt"),
            "cert": str(certificates / "party-{pid}.crt"),
            "key": str(certificates / "party-{pid}.key"),
        },
        "party": [
            {
                "name": name,
                "mesh": f"{LOOPBACK}:{ports[2 * pid]}",
                "ingest": f"{LOOPBACK}:{ports[2 * pid + 1]}",
                **public_keys(certificates / f"{name}.crt", certificates / f"{name}.seal"),
            }
            for pid, name in enumerate(names)
        ],
    }
