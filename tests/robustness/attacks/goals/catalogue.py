"""All goals by name: ``GOALS``."""

from collections.abc import Mapping

from tests.robustness.attacks.goals.joins import BEND, LINK
from tests.robustness.attacks.goals.people import EXCLUDE, GUILTY
from tests.robustness.attacks.goals.restarts import BURN, END, LEARN, PICK
from tests.robustness.attacks.goals.results import Goal

GOALS: Mapping[str, Goal] = {
    "burn-the-budget": BURN,
    "pick-the-query": PICK,
    "learn-first": LEARN,
    "exclude-an-owner": EXCLUDE,
    "blame-an-honest-server": GUILTY,
    "bend-a-join": BEND,
    "link-an-owner": LINK,
    "keep-from-ending": END,
}
