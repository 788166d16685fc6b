"""An MPyC program that chooses and measures a table of counts by Syncret's protocols, on its own secure types.

    python examples/mpyc_bridge.py -M3

Each of three parties has counts of its own people by age and by region. MPyC adds them up, as SecInt. Syncret's
protocols choose the table that a public guess fits worse, by the exponential mechanism, and open that table with
discrete Gaussian noise. Nothing else is opened. All options are MPyC's.
"""

import numpy as np
from mpyc.runtime import mpc

import syncret

GUESSES = {"age": [40.0, 40.0, 40.0], "region": [60.0, 60.0]}
OWN = ([5, 12, 23, 30, 10], [9, 20, 11, 5, 35], [16, 8, 16, 25, 15])
"""Counts of each party: three groups of age, then two regions."""
EPSILON, SIGMA, MAX_ROWS = 1.0, 3.0, 1000


async def main() -> None:
    """Runs one party."""
    secint = mpc.SecInt(32)
    async with mpc:
        bridge = await syncret.mpyc.open_bridge(mpc)
        counts = sum(mpc.input(secint.array(np.array(OWN[mpc.pid]))))
        spec = syncret.mpyc.ErrorSelection.of(
            list(GUESSES.values()), epsilon=EPSILON, max_rows=MAX_ROWS
        )
        chosen = await bridge.select(counts, spec)
        start = int(spec.sizes[:chosen].sum())
        table = counts[start : start + int(spec.sizes[chosen])]
        noisy = await bridge.measure(table, sigma=SIGMA, max_rows=MAX_ROWS)
        # The chosen table is MPyC's as before, and noise that nobody knows may be, too.
        noise = await bridge.discrete_gaussian(secint, 1, sigma=SIGMA)
        total = await mpc.output(mpc.np_sum(table) + noise[0])
        print(f"chosen: {list(GUESSES)[chosen]}")
        print(f"counts with noise: {[int(value) for value in noisy]}")
        print(f"total with noise: {total}")
        print(f"party {mpc.pid}: {bridge.rounds} rounds, {bridge.sent_bytes} bytes sent by Syncret")


if __name__ == "__main__":
    mpc.run(main())
