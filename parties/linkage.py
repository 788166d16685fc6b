"""A data owner's table of one source: its columns of the domain, and before them its rows' linking keys, hashed.

Provides ``source_domain``, ``key_limbs`` (how many numbers of a row are its key), ``read_keys`` and ``source_codes``.
Secret: the table, its keys and hashes. Public: columns and sizes. Source: `mechanisms.linking`.
"""

import numpy as np
from numpy.typing import NDArray

from mechanisms.domain import Domain
from mechanisms.linking import LIMB_BITS, LIMBS, LinkingKeys, hashed, linking_keys
from mechanisms.table import encode
from mechanisms.text_table import TextTable
from parties.config import BY_KEY, Config


def key_limbs(config: Config) -> int:
    """How many numbers before a row's codes are its key: none where rows are linked by their order."""
    return LIMBS if config.run.link == BY_KEY else 0


def source_domain(config: Config, number: int) -> Domain:
    """The columns of a source, in its own order; its key is in the table and not in the domain."""
    source, domain = config.sources[number], config.domain
    return domain.only(source.columns, (*domain.ignore, *source.key))


def source_sizes(config: Config, number: int) -> tuple[int, ...]:
    """The sizes of what a row of a source has: the parts of its key, then its columns."""
    key = (1 << LIMB_BITS,) * key_limbs(config)
    return (*key, *source_domain(config, number).shape)


def read_keys(config: Config, number: int, table: TextTable, *, where: str) -> LinkingKeys:
    """The linking keys of a table of a source.

    Raises DataError, which names rows and no value: a row without a key, or a key in more rows than a person may have.
    """
    source = config.sources[number]
    return linking_keys(
        table,
        source.key,
        source=where,
        missing=config.domain.missing_values,
        at_most=source.rows_per_person,
    )


def source_codes(
    config: Config, number: int, table: TextTable, *, where: str, ignore_extra: bool
) -> NDArray[np.int32]:
    """What an owner shares of a table: (rows, ``source_sizes``). Raises DataError as ``read_keys`` and ``encode``."""
    domain = source_domain(config, number)
    codes = encode(domain, table, source=where, ignore_extra=ignore_extra)
    if not key_limbs(config):
        return codes
    keys = read_keys(config, number, table, where=where)
    return np.concatenate([hashed(keys, salt(config)), codes], axis=1)


def salt(config: Config) -> bytes:
    """The salt of linking keys: the digest of what all agree on, the run's id included. Public."""
    return bytes.fromhex(config.digest())
