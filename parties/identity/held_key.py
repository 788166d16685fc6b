"""A server's private key in a file that another program writes: read again when it changes, and held in memory.

A service's ``keys/own.key`` is then a symbolic link to that file, which Vault's agent, Kubernetes' secret driver or a
person keeps outside of the service's folder. ``HeldKey`` has the key as it was when it was last right: the file may go
away, be half written, or hold another key, and the service goes on and says so. The key itself never changes, since
its hash is pinned by the others: a new key is another file (`parties.service.rotation`).

Secret: the key, in an anonymous file in memory, which ends with the process and is no part of any file system. Known
limit: memory may be swapped, as that of each process with a key.
"""

import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

from parties.crypto.hpke import read_private
from parties.foundation.errors import CertificateError, OutsideKeyError
from parties.identity.tls import link_target, parse_key


class HeldKey:
    """The key behind the ``link``, whose public half is ``public``.

    Attributes:
        problem: What is wrong with the file now, a sentence; "" while it has the key.
    """

    def __init__(self, link: Path, public: PublicKeyTypes) -> None:
        """Reads the file. Raises OutsideKeyError."""
        self.problem = ""
        self._link, self._public = link, public
        self._seen = _mark(link)
        data = self._read()
        self._descriptor = os.memfd_create("syncret-key")
        os.fchmod(self._descriptor, 0o600)
        os.write(self._descriptor, data)

    @property
    def path(self) -> Path:
        """Path of the held copy, for this process alone."""
        return Path(f"/proc/self/fd/{self._descriptor}")

    @property
    def target(self) -> str:
        """Path of the file that the other program writes. Raises OutsideKeyError if the link has gone."""
        try:
            return link_target(self._link)
        except OSError as error:
            raise OutsideKeyError(
                f"{self._link}: is no link any more; expected that to the private key outside"
            ) from error

    def look(self) -> bool:
        """Reads the file again if it has changed, or was wrong before; returns true if ``problem`` has changed.

        Its disk may be slow, and another host's: call it in a thread.
        """
        mark, before = _mark(self._link), self.problem
        if mark == self._seen and not before:
            return False
        try:
            self._read()
            self.problem = ""
        except CertificateError as error:
            self.problem = (
                f"{error}; this server goes on with the key that was there before until it ends, and needs the file "
                "when it starts"
            )
        self._seen = mark
        return self.problem != before

    def close(self) -> None:
        """Forgets the key."""
        os.close(self._descriptor)

    def _read(self) -> bytes:
        """Returns the file's content. Raises OutsideKeyError unless it is the key."""
        where = Path(self.target)
        try:
            data = read_private(where, "the private key outside", "what writes it to be at work")
            key = parse_key(data, where, in_token=False)
        except CertificateError as error:
            raise OutsideKeyError(str(error)) from error
        if key.public_key() != self._public:
            raise OutsideKeyError(
                f"{where}: has another key than the one that the other servers know; expected that one (a new key is "
                "announced by `syncret serve rotate --key` with a file of its own)"
            )
        return data


def _mark(path: Path) -> tuple[int, ...]:
    """Returns what changes with a file's content; () without a file."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode)
