"""The fuzzing loop: random inputs for one target after another."""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.processes import memory
from tests.robustness.fuzzing.mutate import Mutator
from tests.robustness.fuzzing.target import Find, Target, bounded, judged, refused_seed

_WARM = 0.3
"""Share of a target's inputs after which its memory must not grow."""
GROWTH_BYTES = 48 << 20
MOST_FINDS = 20


@dataclass(slots=True)
class Sums:
    """Totals of a target's inputs: ``taken`` were read as if they were real, the others refused."""

    target: str
    inputs: int = 0
    taken: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    grown_bytes: int = 0
    finds: list[Find] = field(default_factory=list)


def run_target(
    target: Target, inputs: int, seed: int, *, on_input: Callable[[], object] = lambda: None
) -> Sums:
    """Runs ``inputs`` damaged inputs, the same ones for the same seed. Ends early after some finds."""
    sums, draw = Sums(target.name), Mutator(f"{seed} {target.name}", target.seeds)
    if (wrong := refused_seed(target)) is not None:
        sums.finds.append(wrong)
    warm, before = int(inputs * _WARM), 0
    seen: set[str] = set()
    started = time.perf_counter()
    with bounded():
        for number in range(inputs):
            if number == warm:
                gc.collect()
                before = memory("VmRSS")
            data = target.damage(draw, draw.pick())
            began = time.perf_counter()
            find, refused = judged(target, data)
            sums.slowest_s = max(sums.slowest_s, time.perf_counter() - began)
            sums.inputs += 1
            sums.taken += not refused
            on_input()
            if find is not None and find.kind not in seen:
                seen.add(find.kind)
                sums.finds.append(find)
                if len(sums.finds) >= MOST_FINDS:
                    break
    gc.collect()
    sums.seconds = time.perf_counter() - started
    sums.grown_bytes = max(0, memory("VmRSS") - before)
    if sums.grown_bytes > GROWTH_BYTES:
        what = f"memory grows: {sums.grown_bytes >> 20} MiB in {inputs - warm} inputs"
        sums.finds.append(Find(target.name, what, b""))
    return sums
