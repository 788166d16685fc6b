"""The table of the bridge from MPyC programs, by three processes; the tasks that MPyC's types have are long."""

from bench.engine.peer import PROGRAMS
from bench.mpyc_bridge import TASKS
from tests.protocols.test_mpyc_bridge import outputs_of


def test_table_has_a_row_for_each_task_at_party_0_alone() -> None:
    tasks = ("to_share", "there_and_back")
    first, *others = outputs_of("-m", "bench.mpyc_bridge", *tasks, "--no-log")
    assert others == ["", ""]
    _, _, there, back = first.splitlines()
    # A field element has 8 bytes, and a message 12 of MPyC's.
    assert there.startswith("| `to_share`, 10,000 | 1 | 53 | ")
    assert back.startswith("| `there_and_back`, 10,000 | 9 | 299 | ")


def test_tasks_are_those_of_mpycs_types_beside_conversions() -> None:
    conversions = {"to_share", "to_share_exactly", "there_and_back"}
    assert set(TASKS) - conversions <= set(PROGRAMS)
