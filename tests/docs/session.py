"""A session of the guides: their commands, as processes, in folders of their own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from parties.config import load_config
from parties.identity.join_documents import fingerprint_words
from parties.local.children import free_ports
from parties.service.identity import ServerFile
from tests.docs.guides import AS_IT_IS, ROOT, Block

LIMIT_S = 300
_HOST = re.compile(r"\b(?:\w+\.example\.org|127\.0\.0\.1):\d+")
_PORTS = 12
_WORDS = "TWELVE WORDS"
_ROTATE = re.compile(rf"serve rotate (?P<name>\w+) '{_WORDS}'(?: --file (?P<file>\S+))?")
_STATE = "/var/lib/syncret"
_STUDIES = ("*/study/*.toml", "*/practice/study/*.toml")


class Session:
    """Runs blocks one after the other; background commands until they end, or ``end`` ends them."""

    def __init__(self, folder: Path, tables: Path | None) -> None:
        self._folder, self._tables = folder, tables
        self._free = iter(free_ports(_PORTS))
        self._ports: dict[str, int] = {}
        self._running: dict[tuple[str, int], subprocess.Popen[str]] = {}
        self._starting: list[tuple[Path, str]] = []
        programs = folder / ".bin"
        programs.mkdir()
        for name, module in (("syncret", "-m parties "), ("python", "")):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module}"$@"\n')
            program.chmod(0o755)

    def run(self, block: Block) -> None:
        """The block at each of its places. Raises AssertionError if a command fails or prints something else."""
        if "in the background" not in block.options:
            self._await_starts()
        if block.kind == "behind":
            for place in block.places:
                self._await(place)
            self._do(block, block.code.replace("ROOT", str(ROOT)), self._folder)
            return
        for place in block.places or (block.session,):
            first = block.places[0] if block.places else place
            same = first if AS_IT_IS in block.options else place
            code = self._localised(re.sub(rf"\b{first}\b", same, block.code))
            folder = self._place(place)
            if "in the background" in block.options:
                self._start(place, block, code)
            else:
                self._do(block, code, folder)

    def end(self) -> None:
        """Nothing goes on running. Servers that are still there are stopped as a supervisor would."""
        for process in self._running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(20)
            finally:
                process.kill()

    def _place(self, place: str) -> Path:
        folder = self._folder / place
        folder.mkdir(exist_ok=True)
        return folder

    def _localised(self, code: str) -> str:
        def port(found: re.Match[str]) -> str:
            if found[0] not in self._ports:
                self._ports[found[0]] = next(self._free)
            return f"127.0.0.1:{self._ports[found[0]]}"

        code = _ROTATE.sub(self._key_words, code)
        if _WORDS in code:
            study = next(p for where in _STUDIES for p in self._folder.glob(where))
            code = code.replace(_WORDS, fingerprint_words(load_config(study).digest()))
        return _HOST.sub(port, code).replace(_STATE, "service")

    def _key_words(self, found: re.Match[str]) -> str:
        """The command with the words of the key that the server announces, or of the file that it names."""
        place = self._folder / found["name"]
        if (file := found["file"]) is not None:
            server = ServerFile.load(place / file)
        else:
            said = json.loads((place / "service" / "keys" / "next.json").read_text())
            server = ServerFile.parse(said["server"].encode(), "the announcement")
        return found[0].replace(_WORDS, fingerprint_words(server.key))

    def _environment(self, folder: Path) -> Mapping[str, str]:
        # Budgets and registers are in everybody's own home, as they are on hosts of their own.
        own = {
            "HOME": str(folder / ".home"),
            "PATH": f"{self._folder / '.bin'}:{os.environ['PATH']}",
        }
        rest = {k: v for k, v in os.environ.items() if not k.startswith(("SYNCRET_", "XDG_"))}
        if self._tables is not None:
            own["SYNCRET_DATA_DIR"] = str(self._tables)
        return {**rest, **own, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"}

    def _do(self, block: Block, code: str, folder: Path) -> None:
        if "in the repository" in block.options:
            for name in ("examples", *([block.needs] if block.needs else [])):
                source = ROOT / name if name == "examples" else (self._tables or ROOT) / name
                if not (folder / name).exists():
                    (folder / name).symlink_to(source)
        command = [sys.executable, "-c", code] if block.kind == "python" else _shell(code)
        done = subprocess.run(
            command,
            cwd=folder,
            env=self._environment(folder),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S * (10 if "slow" in block.options else 1),
        )
        said = f"{block.guide}, step {block.step}:\n{code}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, said
        printed = {_pattern(line) for line in done.stdout.splitlines()}
        missing = [line for line in block.prints if _pattern(line) not in printed]
        assert not missing, f"does not print {missing}; {said}"

    def _start(self, place: str, block: Block, code: str) -> None:
        folder = self._place(place)
        log = folder / f"step-{block.step}.log"
        with log.open("w") as output:
            self._running[place, block.step] = subprocess.Popen(
                _shell(f"exec {code.strip()}"),
                cwd=folder,
                env=self._environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )

        if block.until is not None:
            self._starting.append((log, block.until))

    def _await_starts(self) -> None:
        """Waits until the background commands have printed their sign of being ready."""
        deadline = time.monotonic() + LIMIT_S
        for log, ready in self._starting:
            while ready not in log.read_text():
                assert time.monotonic() < deadline, f"{ready!r} was not said: {log.read_text()}"
                time.sleep(0.1)
        self._starting.clear()

    def _await(self, place: str) -> None:
        """The background commands at `place` end by themselves, with success."""
        for (where, step), process in self._running.items():
            if where == place:
                status = process.wait(LIMIT_S)
                log = (self._folder / place / f"step-{step}.log").read_text()
                assert status == 0, f"{place}, step {step}: {log}"


def _shell(code: str) -> list[str]:
    return ["bash", "-euo", "pipefail", "-c", code]


def _pattern(line: str) -> str:
    """The line without what differs from run to run: numbers, and the width of columns."""
    return re.sub(r"\s+", " ", re.sub(r"\d[\d.,:]*", "#", line)).strip()
