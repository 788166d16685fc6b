"""A transcript whose every line and seal is right, or the first thing that is wrong with it."""

from collections.abc import Callable
from pathlib import Path

from protocols.errors import CheckFailed
from protocols.transcript import Record, read


def verified_records(path: Path, *, verify: Callable[[bytes, bytes], None]) -> list[Record]:
    """All whole records, after checking every seal; ``verify(signature, signed)`` raises where a signature is wrong.

    Raises CheckFailed for a line that is no record, or a seal that does not state the chain before it.
    """
    reading = read(path)
    records = [record for record in reading.records if record is not None]
    if len(records) != len(reading.records):
        number = reading.records.index(None) + 1
        raise CheckFailed(f"{path}, line {number}: not a record of a transcript")
    for seal in reading.seals:
        if not seal.fits:
            raise CheckFailed(
                f"{path}, line {seal.line}: the seal does not fit the records before it"
            )
        verify(seal.signature, seal.signed)
    return records
