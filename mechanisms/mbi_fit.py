"""Fits by mbi, the package of Private-PGM's authors, in place of our own mirror descent (extra ``mbi``).

``mbi_descent`` is a ``descent.Descent``; ``fit_by_mbi`` is the fit behind it. mbi compiles a program for every new
tree, which takes seconds, and runs whole blocks of 50 iterations. Structural zeros are its constraints. All values here
are public, as post-processing of released measurements.

Source: McKenna et al., ICML 2019; https://github.com/ryan112358/private-pgm.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.descent import OnIteration, Tables, Target
from mechanisms.domain import Clique, Domain
from mechanisms.errors import EstimationError
from mechanisms.inference import JunctionTree

__all__ = ["MBI_PACKAGES", "fit_by_mbi", "import_quietly", "mbi_descent", "mbi_in_doubles"]

MBI_PACKAGES = ("jax", "mbi")
"""Packages of the extra ``mbi``."""
_BLOCK = 50


def import_quietly(name: str) -> ModuleType:
    """Imports a package; warnings of its import say nothing about a run. Raises ImportError."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def mbi_descent(
    tree: JunctionTree,
    targets: Mapping[Clique, Target],
    potentials: Tables,
    *,
    iterations: int,
    on_iteration: OnIteration,
) -> tuple[Tables, list[NDArray[np.float64]]]:
    """Minimises by mbi's mirror descent. Raises ``EstimationError``, and ImportError without mbi."""
    done = 0

    def count(_: object) -> None:
        nonlocal done
        done = min(done + _BLOCK, iterations)
        on_iteration(done, iterations)

    on_iteration(0, iterations)
    with mbi_in_doubles() as mbi:
        found = fit_by_mbi(
            mbi, tree.domain, targets, iterations=iterations, start=potentials, on_block=count
        ).potentials
        # Theirs has a potential for each target that is in no larger one; the others' are part of these.
        moved = {
            q: np.array(found[q].values, np.float64) if q in found.cliques else np.zeros_like(p)
            for q, p in potentials.items()
        }
    marginals = tree.marginals(moved)
    if not all(np.isfinite(marginal).all() for marginal in marginals):
        raise EstimationError("mbi's marginals are not finite; the measurements are unusable")
    return moved, marginals


@contextlib.contextmanager
def mbi_in_doubles() -> Iterator[Any]:
    """Yields the module, which computes in 64 bits meanwhile. Raises ImportError."""
    jax = import_quietly("jax")
    # Its compiled programs go into no folder of the user's.
    jax.config.update("jax_enable_compilation_cache", False)
    with jax.enable_x64(True):
        yield import_quietly("mbi")


def fit_by_mbi(
    mbi: Any,
    domain: Domain,
    targets: Mapping[Clique, Target],
    *,
    iterations: int,
    start: Tables | None = None,
    on_block: Callable[[object], None] | None = None,
) -> Any:
    """Returns mbi's model of the targets, with the total 1, after ``iterations`` rounded up to whole blocks.

    ``start`` are the potentials to start from; ``on_block`` is called after each block. Raises ``EstimationError`` if
    mbi can fit no model.
    """
    theirs = mbi.Domain(domain.names, domain.shape)
    zeros = [
        mbi.Constraint(theirs.project(zero.columns), valid=np.argwhere(zero.allowed))
        for zero in domain.zeros
    ]
    try:
        return mbi.estimation.MirrorDescent().estimate(
            theirs,
            [_linear(mbi, clique, target) for clique, target in targets.items()],
            known_total=1.0,
            iters=iterations,
            constraints=zeros,
            callback_fn=on_block,
            warm_start=None if start is None else _potentials(mbi, theirs, start),
        )
    except (RuntimeError, MemoryError) as error:
        raise EstimationError("mbi can fit no model to what was opened") from error


def _potentials(mbi: Any, domain: Any, potentials: Tables) -> Any:
    tables = {q: mbi.Factor(domain.project(q), p) for q, p in potentials.items()}
    return mbi.CliqueVector(domain, tuple(tables), tables)


def _linear(mbi: Any, clique: Clique, target: Target) -> Any:
    """Returns mbi's measurement of a target; counts of unequal variance are brought to one first."""
    mean = target.mean.reshape(-1)
    if isinstance(target.weight, float):
        return mbi.LinearMeasurement(mean, clique, 1 / math.sqrt(target.weight))
    root = np.sqrt(target.weight).reshape(-1)
    query = mbi.WeightedQuery(root)
    return mbi.LinearMeasurement(mean * root, clique, 1.0, query=query)
