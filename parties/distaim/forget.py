"""Shares do not outlive the run: what is secret goes when all three servers are done, or when an operator gives up.

Provides ``discard``, which a server does at its end (and goes on with at its next start, if it was killed meanwhile),
and ``forget_run``, for a run that will not be finished: its store is closed for good. Submissions, running totals, what
waits to be passed on, the key of the totals' commitments and the server's sealing key go: what was recorded of the
traffic stays closed for good. Transcript, model, ledger, costs and result stay; so does a tape (`tape`), which was
asked for, but when the run is forgotten.

Secret: what is deleted. Known limits: files are unlinked, and the database is written anew, without what was in it;
nothing is overwritten, which would mean little on a flash disk, a file system with a journal or a copy elsewhere. Who
is to rely on it has an encrypted disk.
"""

import shutil
from pathlib import Path

from parties.config import CertificateFiles, Config
from parties.database import FILE
from parties.distaim.store import Store
from parties.distaim.tape import FOLDER
from parties.errors import StoreError
from parties.files import disk_errors
from parties.places import register_file
from parties.progress import Progress
from parties.register import Register, Registered, Study
from protocols.durable import sync

STORE = "store"
"""The store's folder in a server's."""


def has_store(directory: Path) -> bool:
    """Whether a server's folder has a store in it."""
    return (directory / STORE / FILE).exists()


def check_open(store: Store) -> None:
    """Refuse a store that was forgotten. Raises StoreError."""
    since = store.forgotten
    if since is not None:
        raise StoreError(
            store.directory,
            f"was forgotten on {since} (syncret forget): its shares and its sealing key are deleted; expected a new "
            "configuration, with a new card of this server, and another folder",
        )


def discard(
    store: Store, files: CertificateFiles, registered: Registered, *, progress: Progress
) -> None:
    """Delete all that is secret of a run that has ended. May be repeated. Raises StoreError.

    A sealing key that another study of ``registered`` has, too, and is not over with, stays until that one is.
    """
    store.discard_shares()
    if others := registered.sharing_seal():
        key = ""
        progress.event("key-kept", f"{files.seal} stays: {', '.join(others)} needs it, too")
    else:
        key = _delete_key(files.seal, progress)
    registered.end()
    progress.event(
        "deleted",
        f"deleted: the data owners' submissions and totals{key}; transcript, model, ledger, costs and result stay",
    )


def forget_run(
    config: Config,
    pid: int,
    directory: Path,
    *,
    progress: Progress,
    register: Path | None = None,
) -> None:
    """Close the store in the folder of server ``pid`` for good, and delete all that is secret, a tape too.

    ``register`` as in ``server.run_party``. Raises StoreError: none is there, in use, of another configuration.
    """
    if not has_store(directory):
        raise StoreError(directory, "is no compute server's folder; expected the one of its --dir")
    with Store(directory / STORE, config.digest()) as store:
        store.forget()
        if (directory / FOLDER).exists():
            with disk_errors(directory / FOLDER, "deleted"):
                shutil.rmtree(directory / FOLDER)
        study = Study.of_server(config, pid, store.identity, directory)
        registered = Registered(Register(register_file(register)), study)
        discard(store, config.require_tls(pid), registered, progress=progress)


def _delete_key(path: Path, progress: Progress) -> str:
    """What to say of it. One that cannot be deleted here is left to the operator: the run has ended all the same."""
    try:
        path.unlink()
        sync(path.parent)
    except FileNotFoundError:
        return ""
    except OSError as error:
        progress.event(
            "key-kept",
            f"WARNING: {path} cannot be deleted ({error.strerror or error}): delete it yourself. Whoever has it opens "
            "what was recorded of the owners' uploads",
        )
        return ""
    return f", and the sealing key {path}"
