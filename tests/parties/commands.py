"""The `syncret` command as a process, and what it leaves lying about."""

import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 90


class Run:
    """A `syncret` process whose standard error is read as it comes."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "parties", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.said.append(line.rstrip())
                self._news.notify_all()

    def wait_for(self, text: str) -> None:
        """Until a line with `text` was said."""
        with self._news:
            found = self._news.wait_for(lambda: any(text in line for line in self.said), LIMIT_S)
        assert found, f"{text!r} was not said in {self.said}"

    def end(self, limit_s: float = LIMIT_S) -> tuple[int, str]:
        """Its exit status and standard output."""
        assert self.process.stdout is not None
        output = self.process.stdout.read()
        status = self.process.wait(limit_s)
        self._reader.join()
        self.process.stdout.close()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status, output


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
