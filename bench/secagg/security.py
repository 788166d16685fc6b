"""Security of a benchmark round's parameters under our own threat model, in bits.

``bits_of`` has a round's bits by name, ``recommended`` a table of the threat model's requirements. The formulas are
those of `secagg.graph`. All values here are public. Known limits: of another implementation the parameters alone are
judged, as if its graph were drawn as ours is.
"""

from dataclasses import replace
from math import isinf

from bench.experiment.markdown import markdown_table
from secagg.errors import ParameterError
from secagg.graph import Adversary, ThreatModel, choose, strength

MODEL = ThreatModel(corrupt=0.05, dropouts=0.33, security_bits=40, correctness_bits=20)
_LYING = replace(MODEL, adversary=Adversary.MALICIOUS)
_SIZES = (10, 50, 100, 1_000, 10_000)

OURS, SIGNED, FLOWER = "syncret", "syncret signed", "flower"
"""The implementations of a round."""


def bits_of(
    implementation: str, clients: int, neighbours: int, threshold: int
) -> dict[str, float | None]:
    """Returns bits by the event to avoid; None if nothing is left to chance, 0 if nothing is promised.

    ``semi_honest_bits``: the corrupt clients and the server reach a threshold among some client's neighbours, or the
    honest survivors fall apart. ``malicious_bits``: the same for a server that lies, which signatures alone withstand.
    ``correctness_bits``: some secret cannot be recovered, and the sum fails. Of Flower's shares a client holds one
    itself, so that one neighbour less is enough.
    """
    lying = 0.0
    if implementation == SIGNED:
        lying = strength(clients, neighbours, threshold, _LYING).security_bits
    needed = threshold - (implementation == FLOWER)
    found = {
        "semi_honest_bits": strength(clients, neighbours, threshold, MODEL).security_bits,
        "malicious_bits": lying,
        "correctness_bits": strength(clients, neighbours, needed, MODEL).correctness_bits,
    }
    return {name: None if isinf(bits) else bits for name, bits in found.items()}


def shown(bits: float | None) -> str:
    """Returns bits as text."""
    return "certain" if bits is None else f"{bits:.1f}" if bits else "0"


def recommended() -> str:
    """Returns the parameters for 40 bits of security and 20 of correctness, as a table in Markdown."""
    rows = []
    for clients in _SIZES:
        cells: list[str] = [f"{clients:,}"]
        for model in (MODEL, _LYING):
            try:
                neighbours, threshold = choose(clients, model)
            except ParameterError:
                cells += ["none", "", ""]
                continue
            worth = strength(clients, neighbours, threshold, model)
            found = (worth.security_bits, worth.correctness_bits)
            cells += [
                f"({neighbours}, {threshold})",
                *(shown(None if isinf(bits) else bits) for bits in found),
            ]
        rows.append(cells)
    heads = "n | (k, t) | private | sum | signed: (k, t) | private | sum"
    return markdown_table(heads, rows, right=(0, 2, 3, 5, 6))
