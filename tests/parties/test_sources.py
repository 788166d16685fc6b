"""[[source]] tables: what a configuration takes, what it refuses and how, and what privacy its unit has."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from parties.config import Config, config_from_dict
from parties.config.diff import differences
from parties.foundation.errors import ConfigError
from parties.methods.flaim.settings import check_flaim
from parties.mpc.planning.budget import distaim_release, make_plan
from parties.mpc.planning.counting_cost import link_seconds
from parties.mpc.planning.resources import server_memory
from parties.report.privacy_text import unit_text, unit_trust
from parties.session.study import Study
from tests.parties.support import document

CLINICS = {"name": "clinics", "columns": ["sex", "age"], "key": ["number"]}
REGISTRY = {"name": "registry", "columns": ["ward"], "key": ["person"]}


def linked(changes: Mapping[str, object] | None = None, *sources: Mapping[str, object]) -> Config:
    """The small run with two sources, for a trial; ``changes`` by dotted key."""
    made = document() | {"source": list(sources or (CLINICS, REGISTRY))}
    made.pop("party")
    run = dict(made["run"])  # type: ignore[call-overload]
    run.pop("input")
    made["run"] = run
    if any("owners" in source for source in sources):
        made["clients"] = {"rows_per_client": 100}
    for key, value in (changes or {}).items():
        section, _, name = key.partition(".")
        made[section] = {**made.get(section, {}), name: value}  # type: ignore[dict-item]
    return config_from_dict(made, source="linked.toml", base=Path())


def owned(**owners: list[str]) -> list[dict[str, object]]:
    return [{**CLINICS, "owners": owners["clinics"]}, {**REGISTRY, "owners": owners["registry"]}]


def test_sources_survive_toml_and_have_owners_send_rows() -> None:
    config = linked()
    again = config.override({"run.epsilon": 2.0}).override({"run.epsilon": 1.0})
    assert again.sources == config.sources
    assert config.run.input == "rows"
    assert [source.key for source in config.sources] == [("number",), ("person",)]


def test_a_key_of_one_column_needs_no_brackets() -> None:
    config = linked(None, {**CLINICS, "key": "number"}, {**REGISTRY, "key": "person"})
    assert config.sources[0].key == ("number",)


def test_owners_of_sources_are_all_that_may_take_part() -> None:
    config = config_from_dict(
        {
            **linked().to_dict(),
            "clients": {"rows_per_client": 100},
            "source": owned(clinics=["a", "b"], registry=["r"]),
        },
        source="linked.toml",
        base=Path(),
    )
    assert config.owners == {"a", "b", "r"}
    assert config.clients.expected == config.clients.minimum == 3
    assert (config.source_of("b"), config.source_of("r")) == (0, 1)
    with pytest.raises(ConfigError, match="has no 'x'"):
        config.source_of("x")


@pytest.mark.parametrize(
    ("sources", "changes", "said"),
    [
        ([CLINICS], {}, "column 'ward' in none; expected it in exactly one"),
        (
            [CLINICS, {**REGISTRY, "columns": ["ward", "age"]}],
            {},
            "column 'age' in 'clinics' and 'registry'",
        ),
        ([{**CLINICS, "columns": ["sex", "agee"]}, REGISTRY], {}, "has 'agee', which no"),
        ([{**CLINICS, "key": ["sex"]}, REGISTRY], {}, "'sex', which is a .*would be published"),
        ([CLINICS, {**REGISTRY, "key": ["a", "b"]}], {}, "has 2 columns; expected 1"),
        ([CLINICS, {k: v for k, v in REGISTRY.items() if k != "key"}], {}, "source.key: .*missing"),
        ([CLINICS, {**REGISTRY, "name": "clinics"}], {}, "source.name: repeats"),
        ([CLINICS, REGISTRY], {"run.input": "counts"}, "run.input: is 'counts'; .*expected 'rows'"),
        ([CLINICS, REGISTRY], {"run.input": "auto"}, "run.input: is 'auto'; .*expected 'rows'"),
        ([CLINICS, REGISTRY], {"clients.participation": 0.5}, "linked once, before round 0"),
        ([CLINICS, REGISTRY], {"run.link": "order"}, "stands beside run.link = 'order'"),
        ([CLINICS, REGISTRY], {"run.link": "name"}, "run.link: is 'name'; expected one of"),
        ([CLINICS, REGISTRY], {"run.unit": "house"}, "run.unit: is 'house'"),
        ([{**CLINICS, "rows_per_person": 3}, REGISTRY], {}, "run.unit: is 'row' beside"),
        (
            [{**CLINICS, "rows_per_person": 3}, {**REGISTRY, "rows_per_person": 2}],
            {"run.unit": "person"},
            "above 1 in clinics and registry; expected that in one",
        ),
        ([CLINICS, REGISTRY], {"run.unit": "person", "run.rows_per_person": 2}, "rows_per_person"),
        (owned(clinics=["a", "b"], registry=["b"]), {}, "'b' more than once"),
        ([owned(clinics=["a"], registry=[])[0], REGISTRY], {}, "missing in some sources"),
        (
            owned(clinics=["a", "b"], registry=["r"]),
            {"clients.names": ["a", "b", "x"]},
            "differs from the owners",
        ),
    ],
)
def test_sources_refuse_by_key(
    sources: list[Mapping[str, object]], changes: Mapping[str, object], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        linked(changes, *sources)


def test_an_empty_list_of_names_does_not_let_owners_choose_their_source() -> None:
    sources = owned(clinics=["a"], registry=["r"])
    with pytest.raises(ConfigError, match=r"clients\.names: differs from the owners"):
        linked({"clients.names": [], "clients.expected": 2}, *sources)


@pytest.mark.parametrize("unit", ["row", "person"])
def test_by_order_a_place_is_protected_and_that_a_person_has_one_is_the_owners_word(
    unit: str,
) -> None:
    """A row missing in one source alone would move all others: no sentence may say that this is covered."""
    sources = [{k: v for k, v in source.items() if k != "key"} for source in (CLINICS, REGISTRY)]
    config = linked({"run.link": "order", "run.unit": unit}, *sources)
    assert "place" in unit_text(config)
    assert "one of the sources" not in unit_text(config)
    assert "owners state" in " ".join(unit_trust(config))
    assert "owners state" not in " ".join(unit_trust(linked({"run.unit": unit})))


def test_plans_know_that_proofs_take_most_of_the_time_of_a_join() -> None:
    sources = owned(clinics=["a"], registry=["r"])
    plain, proved = (
        link_seconds(linked({"run.security": security}, *sources))
        for security in ("semi-honest", "malicious")
    )
    assert 2 * plain < proved < 5 * plain


def test_sources_of_servers_name_their_owners() -> None:
    with pytest.raises(ConfigError, match=r"source.owners: is missing; where \[\[party\]\]"):
        linked().override({"party": document()["party"]})


def test_sources_by_order_have_equally_many_owners() -> None:
    sources = [
        {k: v for k, v in source.items() if k != "key"}
        for source in owned(clinics=["a", "b"], registry=["r"])
    ]
    with pytest.raises(ConfigError, match="equally many owners"):
        linked({"run.link": "order"}, *sources)


def test_sources_are_agreed_on_and_differences_shown_by_name() -> None:
    one, other = linked(), linked(None, {**CLINICS, "key": ["mrn"]}, REGISTRY)
    assert one.digest() != other.digest()
    (difference,) = differences(one.agreed(), other.agreed())
    assert str(difference) == 'source.clinics.key: ["number"] here, ["mrn"] there'


def test_flaim_refuses_sources() -> None:
    config = linked()
    with pytest.raises(ConfigError, match="source: is DistAIM's"):
        check_flaim(Study.of(config))


def test_unit_of_linked_rows() -> None:
    assert linked().rows_of_unit == 1
    assert linked({"run.unit": "person"}).rows_of_unit == 1
    visits = {**CLINICS, "rows_per_person": 3}
    assert linked({"run.unit": "person"}, visits, REGISTRY).rows_of_unit == 3


def test_unit_scales_noise_and_selections_and_charges_owners_for_the_person() -> None:
    """A person of 3 rows: sigma three times, epsilon a third; the table's budget pays for the person."""
    plain = {"run.accountant": "zcdp"}
    row = linked(plain)
    person = linked({**plain, "run.unit": "person"}, {**CLINICS, "rows_per_person": 3}, REGISTRY)
    workload = row.build_workload()
    one, three = make_plan(Study(row, workload)), make_plan(Study(person, workload))
    assert three.sigma == pytest.approx(3 * one.sigma, rel=1e-6)
    assert three.epsilon == pytest.approx(one.epsilon / 3, rel=1e-3)
    assert distaim_release(Study(person, workload)).rho == pytest.approx(9 * three.rho)
    assert distaim_release(Study(row, workload)).rho == one.rho
    assert [distaim_release(Study(config, workload)).unit for config in (row, person)] == [
        "row",
        "person with up to 3 rows",
    ]


def test_memory_of_a_server_grows_with_the_rows_to_join_and_with_their_proofs() -> None:
    def peak(rows: int, security: str) -> int:
        config = linked(
            {"clients.rows_per_client": rows, "run.security": security},
            *owned(clinics=["a", "b"], registry=["r"]),
        )
        return server_memory(Study.of(config), 1)

    few, many = (peak(rows, "semi-honest") for rows in (1000, 1_000_000))
    assert many - few > 10**9
    assert peak(1_000_000, "malicious") > 3 * many
