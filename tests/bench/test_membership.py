"""Membership attacks: a copied table is found by each, an independent one by none, and the bound is epsilon's.

Statistical: 300 members and 300 others. An attack without information has an AUC of 0.5 with a standard error of 0.024;
0.12, five of them, is exceeded with probability 6e-7. The tables are seeded.
"""

import math

import numpy as np
import pandas as pd
import pytest

from bench.quality.membership import (
    ATTACKS,
    FALSE_POSITIVES,
    AttackResult,
    Features,
    allowed,
    attack_all,
    judge,
)

KINDS = {"age": "numerical", "income": "numerical", "ward": "categorical", "sex": "categorical"}
MEMBERS = 300


def population(rows: int, seed: int) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    age = draw.integers(18, 90, rows)
    income = np.where(draw.random(rows) < 0.1, np.nan, draw.lognormal(8 + age / 60, 0.6, rows))
    return pd.DataFrame(
        {
            "age": age.astype(str),
            "income": ["" if np.isnan(x) else f"{x:.2f}" for x in income],
            "ward": draw.choice(list("abcdefgh"), rows),
            "sex": draw.choice(["f", "m"], rows),
        }
    )


def attacked(synthetic: pd.DataFrame, members: pd.DataFrame) -> dict[str, AttackResult]:
    reference, others = population(MEMBERS, 2), population(MEMBERS, 3)
    return {
        found.attack: found
        for found in attack_all(synthetic, reference, KINDS, members=members, others=others)
    }


def test_a_copied_table_is_found() -> None:
    members = population(MEMBERS, 1)
    found = attacked(members, members)
    assert set(found) == set(ATTACKS)
    for exact in ("distance", "calibrated distance", "volume"):
        assert found[exact].auc > 0.97, exact
        assert min(found[exact].found) > 0.9, exact
    # The other attacks smooth: they see that there is something where a member is.
    for smooth in ("density", "neighbourhood", "classifier"):
        assert found[smooth].auc > 0.6, smooth


@pytest.mark.slow
def test_a_table_of_others_finds_nobody() -> None:
    found = attacked(population(600, 4), population(MEMBERS, 1))
    for name, result in found.items():
        assert abs(result.auc - 0.5) < 0.12, name
        assert result.error == pytest.approx(0.0236, abs=5e-4)
        assert result.found[0] < 0.08, name


@pytest.mark.slow
def test_a_table_with_some_members_in_it_is_between() -> None:
    members = population(MEMBERS, 1)
    mixed = pd.concat([population(MEMBERS, 4), members[:100]], ignore_index=True)
    found = attacked(mixed, members)["calibrated distance"]
    assert 0.6 < found.auc < 0.8
    assert found.found[0] == pytest.approx(1 / 3, abs=0.03)


def test_judge_has_known_figures() -> None:
    scores = np.arange(100.0)
    assert judge("", scores, scores).auc == 0.5
    assert judge("", scores, scores).found == FALSE_POSITIVES
    above = judge("", scores + 100, scores)
    assert (above.auc, above.error, above.found) == (1.0, 0.0, (1.0, 1.0))
    # Equal scores: a coin.
    alike = judge("", np.zeros(50), np.zeros(80))
    assert (alike.auc, alike.found) == (0.5, FALSE_POSITIVES)
    # A tenth of the members is above all others, the rest as them.
    some = judge("", np.concatenate([np.full(10, 200.0), scores[:90]]), scores)
    assert some.found[0] == pytest.approx(0.1, abs=0.01)


def test_features_take_the_attackers_scale_and_keep_missing_cells_apart() -> None:
    features = Features(population(500, 2), KINDS)
    rows = population(3, 5)
    rows.loc[1] = rows.loc[0]
    rows.loc[1, "ward"] = "z" if rows.loc[0, "ward"] != "z" else "a"
    rows.loc[2] = rows.loc[0]
    rows.loc[2, "income"] = ""
    at = features.of(rows)
    assert np.isfinite(at).all()
    assert np.linalg.norm(at[0] - at[1]) == pytest.approx(1.0)
    assert np.abs(at[0] - at[2]).max() >= 1.0


def test_allowed_is_what_epsilon_and_delta_allow() -> None:
    bound = allowed(1.0, 1e-5)
    assert bound.found == pytest.approx((math.e * 0.01 + 1e-5, math.e * 0.1 + 1e-5), abs=2e-4)
    # Two straight lines, that meet where e a = 1 - (1 - a) / e: the area of a pure epsilon is e / (1 + e).
    assert bound.auc == pytest.approx(math.e / (1 + math.e), abs=2e-3)
    assert bound.auc >= math.e / (1 + math.e)
    assert allowed(50.0, 1e-5).auc == 1.0
