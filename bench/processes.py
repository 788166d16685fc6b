"""Resources of processes by the kernel's account (Linux, proc(5)): memory, processor time, descriptors, threads."""

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Figures:
    """A process at one moment: resident memory, user and system seconds, open files and sockets, threads."""

    memory_bytes: int
    cpu_s: float
    descriptors: int
    threads: int


def figures(pid: int) -> Figures:
    """Returns the figures of a process. Raises OSError if there is none."""
    folder = Path(f"/proc/{pid}")
    after_name = (folder / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    cpu_s = (int(after_name[11]) + int(after_name[12])) * _TICKS_S
    pages, descriptors = int(after_name[21]), len(os.listdir(folder / "fd"))
    return Figures(pages * _PAGE_BYTES, cpu_s, descriptors, int(after_name[17]))


def memory(name: str, pid: int | None = None) -> int:
    """Returns a line of a process's memory status (VmRSS now, VmHWM peak), in bytes; by default of this process.

    Raises OSError without one.
    """
    path = Path(f"/proc/{'self' if pid is None else pid}/status")
    for line in path.read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"this system does not say {name} of a process; expected Linux")


def forget_peak() -> None:
    """Resets this process's VmHWM; if the kernel forbids that, earlier peaks count too."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return
