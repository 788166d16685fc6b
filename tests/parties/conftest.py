"""Fixtures shared by the tests of `parties`."""

from pathlib import Path

import pytest

from parties.config import CertificateFiles
from parties.storage.user_paths import BUDGET_VARIABLE, REGISTRY_VARIABLE
from tests.parties import support


@pytest.fixture(autouse=True)
def places(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Budgets and registers of this test alone: most of them run the same study, each in a folder of its own."""
    folder = tmp_path_factory.mktemp("places")
    for variable in (BUDGET_VARIABLE, REGISTRY_VARIABLE):
        monkeypatch.setenv(variable, str(folder / f"{variable.lower()}.sqlite"))
    return folder


@pytest.fixture(scope="session")
def certificates() -> dict[str, CertificateFiles]:
    """One authority, three servers, four data owners, whose keys the small run's config pins."""
    return support.certificates()
