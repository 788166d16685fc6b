"""Layout of the rows of one source: the parts of the linking key, then the source's columns. All of it is public."""

from mechanisms.domain import Domain
from mechanisms.linking import LIMB_BITS, LIMBS
from parties.config import BY_KEY, Config


def key_limbs(config: Config) -> int:
    """Number of entries before a row's codes that hold its key; 0 if rows are linked by their order."""
    return LIMBS if config.run.link == BY_KEY else 0


def source_domain(config: Config, number: int) -> Domain:
    """Returns the columns of a source, in its own order. Its key is in the table and not in the domain."""
    source, domain = config.sources[number], config.domain
    return domain.only(source.columns, (*domain.ignore, *source.key))


def source_sizes(config: Config, number: int) -> tuple[int, ...]:
    """Sizes of a source's row entries: the parts of its key, then its columns."""
    key = (1 << LIMB_BITS,) * key_limbs(config)
    return (*key, *source_domain(config, number).shape)
