"""Fixtures shared by the tests of `parties`."""

import pytest

from parties.config import CertificateFiles
from tests.parties import support


@pytest.fixture(scope="session")
def certificates() -> dict[str, CertificateFiles]:
    """One authority, three servers, four data owners, whose keys the small run's config pins."""
    return support.certificates()
