"""Page of the site with the words that reports, guides and READMEs use in a meaning of their own.

``entries`` has the words of the report's glossary, as the report explains them, and the words in ``WORDS``;
``glossary`` yields the lines of the page.
"""

from collections.abc import Iterator, Mapping, Sequence

from parties.report.glossary import GLOSSARY

WORDS: Mapping[str, str] = {
    "AIM": (
        "The algorithm behind the tables: rounds that choose a marginal, measure it with noise, "
        "and fit a model. Central AIM runs it on a table in the clear."
    ),
    "accountant": (
        "The rule by which costs of openings are added up and become epsilon and delta: "
        "`gaussian` or `zcdp`."
    ),
    "admission": (
        "The act by which the authority gives a data owner the certificate that a study asks for."
    ),
    "annealed": (
        "With rounds whose noise is halved as soon as the model has settled. The other kind of "
        "schedule is fixed."
    ),
    "audit": (
        "A check of transcripts, table and model after a run, without anything secret: `syncret "
        "audit`."
    ),
    "authority": (
        "The key that signs the certificates of a study's data owners. Its holder can keep owners "
        "out, and learns nothing."
    ),
    "bundle": (
        "One file with a run's table, model, report and transcripts. Nothing in it is secret."
    ),
    "candidate": (
        "A marginal that a round may choose: a query of the workload, a part of one, or a single column."
    ),
    "clique": "A set of columns whose joint distribution the model holds in one table.",
    "coordinator": (
        "The person who writes a study's configuration and admits data owners. Nobody has to "
        "trust the coordinator: everybody compares the study's words."
    ),
    "DistAIM": (
        "AIM by three servers on secret shares. Data owners send their shares once, and may leave."
    ),
    "discrete Gaussian": (
        "Noise of whole numbers with the bell curve of a Gaussian: a count with it stays a whole "
        "number."
    ),
    "exponential mechanism": (
        "A choice by chance that favours high scores. It is private since a row changes no chance "
        "by much."
    ),
    "Fed-TDA": (
        "A method between silos that makes a table of frequencies, mixtures and second moments."
    ),
    "FLAIM": (
        "AIM with one server. Data owners stay connected, and the server learns sums of masked "
        "counts."
    ),
    "Gumbel noise": (
        "Random numbers on scores, of such a distribution that the largest sum is a choice by the "
        "exponential mechanism."
    ),
    "heartbeat": (
        "A message to people that a slow run still works, with its step and the estimated time "
        "left."
    ),
    "invitation": (
        "A file or an address by which a data owner joins a study. It names the servers by their "
        "keys."
    ),
    "keepalive": "A message between servers that says nothing but that the sender still works.",
    "lead": (
        "The first of the three servers. It fits the model and sends it to the two others; the audit "
        "checks the model."
    ),
    "ledger": "A durable list of charges. A server opens nothing that its ledger does not cover.",
    "linking key": (
        "A column, such as a national number, by which rows of one person in several sources are "
        "joined on shares."
    ),
    "malicious": (
        "Of a server: one that may send anything, and stop at any time. With `run.security` of "
        "this name a lie ends the run before anything is opened."
    ),
    "mask": (
        "A random number that is added to a secret one, so that the sum says nothing by itself."
    ),
    "measurement": "The opening of one marginal with noise on each of its counts.",
    "MR-MTL": (
        "A method between silos that makes a model for each of them, drawn towards the mean of "
        "all models."
    ),
    "neighbouring tables": (
        "Two tables that differ by one protected unit: a row, or all rows of a person."
    ),
    "opening": (
        "A value that the three servers put together from their shares, so that all of them see it."
    ),
    "population": "The people in a table. They have one budget, whatever file they stand in.",
    "post-processing": "Any computation on values that are published already. It costs no privacy.",
    "Private-PGM": (
        "The fit of a model to noisy marginals: of all distributions the one that explains them "
        "best."
    ),
    "registry": (
        "A server's list. The participant registry has the data owners of a study and what became "
        "of their submissions; the release registry has what was released of whose key, over all "
        "studies."
    ),
    "reshare": (
        "To turn terms that each server has after a multiplication into shares again: each server "
        "masks its term and sends it to one other server."
    ),
    "round": (
        "One choice of a marginal, its measurement, and a new model. Round 0 measures single "
        "columns without a choice."
    ),
    "score": (
        "The number by which a round compares candidates: how wrong the model is there, less what "
        "noise would leave."
    ),
    "SecAgg": (
        "Secure aggregation: a server learns the sum of many participants' numbers and no single "
        "one of them."
    ),
    "semi-honest": "Of a server: one that follows the protocol, and looks at all it sees.",
    "sensitivity": (
        "The largest change that one protected unit can make to a number, or to a list of counts."
    ),
    "server": (
        "A program that computes for a study: one of three in DistAIM, the only one in FLAIM and "
        "between silos."
    ),
    "share": (
        "The part of a secret number that a server has: two of the three parts whose sum is the "
        "number. By themselves the two are random."
    ),
    "silo": "A data owner that stays connected during a run.",
    "structural zero": (
        "A combination of values that no row can have, by a constraint of the study. The model "
        "gives it no probability."
    ),
    "study": (
        "One configuration that servers and data owners agree on: columns, queries, budget, "
        "servers."
    ),
    "submission": (
        "All that a data owner sends in one study: its table in shares, one part sealed to each "
        "server."
    ),
    "transcript": (
        "A server's signed record of a run: messages by size and digest, openings, charges."
    ),
    "twelve words": (
        "A spelling of a digest that people can compare by telephone. The same words mean the "
        "same configuration, or key."
    ),
    "unit": (
        "The thing that epsilon and delta protect: one row, or a person with all rows (`run.unit`)."
    ),
    "verifier": (
        "The part of a server that proves its own products and checks those of the two others, in "
        "malicious mode."
    ),
    "workload": (
        "The list of marginals that a study is meant to answer well, by default all pairs of "
        "columns."
    ),
}
"""Meanings of words that a report does not explain, by word."""


def entries() -> Sequence[tuple[str, str]]:
    """Returns all words with their meanings, sorted as people look them up."""
    every = {word.name: word.meaning for word in GLOSSARY} | WORDS
    return sorted(every.items(), key=lambda entry: entry[0].casefold())


def glossary() -> Iterator[str]:
    """Yields every word of the glossary, as a heading to link to, with its meaning."""
    yield (
        "# Glossary\n\nWords that reports, guides and READMEs use in a meaning of their own. The "
        "words of a [report](analyst.md#read-the-report) are explained as at its end. [How "
        "it works](how.md) shows most of the others in pictures, and [The "
        "mathematics](mathematics.md) derives the numbers."
    )
    for name, meaning in entries():
        yield f"\n### {name}\n\n{meaning}"
