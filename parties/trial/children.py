"""The processes of a trial: three servers, and one that plays all data owners.

Provides ``Children`` and ``hold``, which starts them held (`parties.trial.processes`): they import what they need while
the table is read and certificates are made. Imports hardly anything itself, so that a command can hold them first of
all. Nothing here is secret.
"""

from dataclasses import dataclass

from parties.trial.folder import REGISTER, Folder
from parties.trial.processes import Child

JOB = "job.json"
_WATCHED = ("--json", "--watch-stdin")


@dataclass(frozen=True, slots=True)
class Children:
    """The servers by pid, and the owners."""

    servers: tuple[Child, ...]
    owners: Child

    @property
    def all(self) -> tuple[Child, ...]:
        """Everybody."""
        return (*self.servers, self.owners)

    def kill(self) -> None:
        """End whoever still runs."""
        for child in self.all:
            child.kill()


def hold(folder: Folder) -> Children:
    """Start the processes of a run in ``folder``, which need not be there yet. Raises OSError."""
    servers = tuple(_party(folder, pid) for pid in range(len(folder.servers)))
    arguments = ["owners", str(folder.owners / JOB), *_WATCHED]
    return Children(servers, Child.held("data owners", arguments, log=folder.owners / "log.txt"))


def _party(folder: Folder, pid: int) -> Child:
    directory = folder.party(pid)
    arguments = ["party", str(folder.config), "--pid", str(pid), "--dir", str(directory)]
    # A trial has its own: nothing is written outside its folder, and the next one may be the same again.
    arguments += ["--register", str(directory / REGISTER), *_WATCHED]
    return Child.held(f"party {pid}", arguments, log=directory / "log.txt")
