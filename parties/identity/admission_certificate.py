"""Certificate of a data owner that has asked for admission, made by whoever has heard the words of its key.

Secret: the authority's key, in its folder. Public: the request and the certificate.
"""

from pathlib import Path

from parties.identity.join_documents import (
    AdmissionRequest,
    fingerprint_words,
    parse_admission_request,
)
from parties.identity.study_setup import issue_certificate
from parties.identity.typed_words import WrongWords, read_words


def admission_certificate(
    text: str, words: str, *, authority: Path, valid_days: float
) -> tuple[AdmissionRequest, bytes]:
    """Returns the signed request in ``text``, and a certificate (PEM) for its name and key, which has the ``words``.

    Name and key are the signed ones, whatever a server shows beside them. Raises WrongWords for words of another key,
    CertificateError, StoreError.
    """
    request = parse_admission_request(text.encode())
    if read_words(words) not in (fingerprint_words(request.key), request.key):
        raise WrongWords(
            f"these are not the words of {request.name}'s request; expected those that its owner reads out. Other "
            "words mean another key: somebody else may have asked by this name"
        )
    return request, issue_certificate(request, authority=authority, valid_days=valid_days)
