"""Marks of populations in what an owner signs: evidence for its own budget, and noise for everybody else.

``make_mark`` encrypts a short digest of a population's name, and of the study, under the key beside the owner's budget
(`parties.storage.table_sketch.SketchKey`), which all copies of that budget share. ``read_mark`` returns the digest in a
mark that was made with the same key for the same study. Servers keep marks with what an owner has signed, and show them
to the owner later; to anybody without the key a mark is a pseudorandom block, and two of them have nothing in common.
Known limits: a mark names one population; another key, such as a lost or a second one, reads nothing.
"""

import hmac

from parties.storage.table_sketch import SketchKey

MARK_BYTES = 16
SALT_BYTES = 6
_CHECK_BYTES = 4
_TAG_BYTES = MARK_BYTES - SALT_BYTES - _CHECK_BYTES


def population_tag(key: SketchKey, population: str) -> bytes:
    """Returns the digest of a population's name, which marks have in them."""
    return key.digest(b"population", population.encode())[:_TAG_BYTES]


def make_mark(key: SketchKey, config: str, population: str, *, salt: bytes) -> str:
    """Returns a mark (hex) for the study with configuration ``config``; marks differ by their ``salt``."""
    if len(salt) != SALT_BYTES:
        raise ValueError(f"a salt of {len(salt)} bytes; expected {SALT_BYTES}")
    block = salt + _check(key, config) + population_tag(key, population)
    return key.encrypt_block(block).hex()


def empty_mark(key: SketchKey, config: str, *, salt: bytes) -> str:
    """Returns what stands in place of a mark (hex) and says nothing; the same for the same ``salt``."""
    return key.digest(b"no mark", config.encode() + salt)[:MARK_BYTES].hex()


def read_mark(key: SketchKey, config: str, mark: str) -> bytes | None:
    """Returns the ``population_tag`` in a mark of a study; None for anything else."""
    try:
        data = bytes.fromhex(mark)
    except ValueError:
        return None
    if len(data) != MARK_BYTES:
        return None
    block = key.decrypt_block(data)
    check, tag = block[SALT_BYTES:-_TAG_BYTES], block[-_TAG_BYTES:]
    return tag if hmac.compare_digest(check, _check(key, config)) else None


def _check(key: SketchKey, config: str) -> bytes:
    return key.digest(b"mark of study", config.encode())[:_CHECK_BYTES]
