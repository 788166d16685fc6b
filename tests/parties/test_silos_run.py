"""Sums between silos over mutual TLS, with the server and all silos in one event loop."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parties.config import CertificateFiles
from parties.silos.client import SiloReport
from parties.silos.server import RESULT
from parties.tls import make_certificates
from tests.parties.silos_support import (
    MALICIOUS,
    NAMES,
    SERVER,
    SUMS,
    Tails,
    numbers_of,
    play,
    silos_config,
)


def result_in(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "server" / RESULT).read_text())


def exact(number: int, silos: range) -> np.ndarray:
    return sum(numbers_of(silo, number) for silo in silos)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CertificateFiles]:
    return make_certificates(tmp_path_factory.mktemp("silos"), [SERVER], NAMES)


@pytest.mark.parametrize("security", ["semi-honest", "malicious"])
def test_run_silos_sends_what_the_formula_says(
    certificates: Mapping[str, CertificateFiles], tmp_path: Path, security: str
) -> None:
    config = silos_config(certificates, MALICIOUS if security == "malicious" else None)
    _, silos = asyncio.run(play(config, certificates, tmp_path, Tails(config)))
    result = result_in(tmp_path)
    for number, total in enumerate(result["facts"]["totals"]):
        off = np.array(total) - exact(number, range(len(NAMES)))
        assert 0 < np.abs(off).max() < 100
    assert result["facts"]["survivors"] == [6] * SUMS
    # Besides: what it says first and what it is told first, the result, goodbye; cards and members in malicious mode.
    sent, received = result["sums"]["formula_sent"], result["sums"]["formula_received"]
    greeting = 118 if security == "semi-honest" else 559
    assert max(abs(own - sent - greeting) for own in result["silos_sent"].values()) < 8
    others = {own - received for own in result["silos_received"].values()}
    assert others == {107} if security == "semi-honest" else max(others) < 3000
    assert all(isinstance(silo, SiloReport) and silo.finished for silo in silos)
