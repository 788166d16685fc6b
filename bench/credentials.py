"""Credentials of a measurement's three parties, from the files that ``parties.identity.tls.make_certificates`` writes.

Secret in a real run; here they are keys of a trial.
"""

from pathlib import Path

from parties.config import CertificateFiles
from parties.crypto.hpke import SealKey
from parties.identity.tls import pinned_key_in
from protocols.mesh import TlsFiles
from protocols.pairing import Seals


def credentials(folder: Path, pid: int, names: tuple[str, str, str]) -> tuple[TlsFiles, Seals]:
    """Returns certificates, pins and sealing keys of party ``pid`` from the files in ``folder``."""
    files = [
        CertificateFiles(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")
        for name in names
    ]
    first, second, third = (pinned_key_in(each.cert).key for each in files)
    keys = [SealKey.load(each.seal) for each in files]
    own = files[pid]
    tls = TlsFiles(own.ca, own.cert, own.key, names, (first, second, third))
    return tls, Seals((keys[0].public, keys[1].public, keys[2].public), keys[pid])
