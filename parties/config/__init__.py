"""The configuration of a run: TOML in, frozen dataclasses out.

``sections`` has the sections, ``reading`` takes them out of TOML tables, ``whole`` puts them together, ``files`` begins
at a file. Everything in a config is public; it names key files but holds no key. Unknown sections and keys are refused
with a hint, units are in the names (``_s`` seconds, ``_mb`` megabytes), values are checked when they are made. What
servers and data owners of a run have to agree on is in ``Config.digest``. [[party]] and [tls] may be missing in a
config for a trial on one machine; ``require_parties`` and ``require_tls`` say so where they are needed.
Known limits: exactly three parties; one domain, one workload.
"""

from parties.config.checks import NAME_PATTERN
from parties.config.files import agreed_config, load_config, overrides
from parties.config.sections import (
    ALWAYS,
    ANNEALED,
    AUTO_INPUT,
    CELLS,
    CHECKS,
    COUNTS_INPUT,
    FIXED,
    FLAIM_GROUPINGS,
    FLAIM_NOISES,
    FLAIM_SIZES,
    FLAIM_VARIANTS,
    INPUTS,
    MALICIOUS,
    MAX_ROWS,
    NEVER,
    NO_CHECK,
    ROWS_INPUT,
    SCHEDULES,
    SECURITIES,
    SEMI_HONEST,
    TOTALS,
    UPLOADS,
    Address,
    CertificateFiles,
    ClientsSection,
    ComputeSection,
    FlaimSection,
    PartySection,
    RunSection,
    TimeoutsSection,
    TlsSection,
    WorkloadSection,
    check_terms,
)
from parties.config.whole import Config, agreed_digest, apply_overrides, config_from_dict

__all__ = [
    "ALWAYS",
    "ANNEALED",
    "AUTO_INPUT",
    "CELLS",
    "CHECKS",
    "COUNTS_INPUT",
    "FIXED",
    "FLAIM_GROUPINGS",
    "FLAIM_NOISES",
    "FLAIM_SIZES",
    "FLAIM_VARIANTS",
    "INPUTS",
    "MALICIOUS",
    "MAX_ROWS",
    "NAME_PATTERN",
    "NEVER",
    "NO_CHECK",
    "ROWS_INPUT",
    "SCHEDULES",
    "SECURITIES",
    "SEMI_HONEST",
    "TOTALS",
    "UPLOADS",
    "Address",
    "CertificateFiles",
    "ClientsSection",
    "ComputeSection",
    "Config",
    "FlaimSection",
    "PartySection",
    "RunSection",
    "TimeoutsSection",
    "TlsSection",
    "WorkloadSection",
    "agreed_config",
    "agreed_digest",
    "apply_overrides",
    "check_terms",
    "config_from_dict",
    "load_config",
    "overrides",
]
