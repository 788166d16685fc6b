"""State of a run in a store: closed to clients, ended, or given up; and the keys that openings' noise is drawn from.

Secret: the noise keys.
"""

from parties.foundation.times import iso_time
from parties.mpc.noise_keys import pack_keys, unpack_keys
from parties.storage.database import Database
from protocols.context import NoiseKeys

ENDED, FORGOTTEN, RHO = "ended", "forgotten", "rho"
"""Keys of the table ``meta``: time of the run's end, time of giving it up, and its whole budget."""
_CLOSED, _NOISE_KEYS = "closed_to_clients", "noise_keys"


class RunState:
    """State of a store's run. All methods may be called from any thread; all may raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def closed_to_clients(self) -> bool:
        """True if the run takes no submissions any more."""
        return self._database.meta(_CLOSED) is not None

    def close_to_clients(self) -> None:
        """Takes no submissions from now on."""
        self._database.set_meta(_CLOSED, "yes")

    @property
    def ended(self) -> bool:
        """True if all three servers are done, so that no share is needed any more."""
        return self._database.meta(ENDED) is not None

    def end(self) -> None:
        """Marks the run as done at all three servers; its secrets are due for deletion."""
        self._mark(ENDED)

    @property
    def forgotten(self) -> str | None:
        """Time at which the run was given up for good (ISO 8601, UTC), or None."""
        return self._database.meta(FORGOTTEN)

    def forget(self) -> None:
        """Gives the run up for good; its secrets are due for deletion."""
        self._mark(FORGOTTEN)

    def _mark(self, key: str) -> None:
        if self._database.meta(key) is None:
            self._database.set_meta(key, iso_time())

    def noise_keys(self) -> NoiseKeys | None:
        """Keys that openings' noise is drawn from, as long as the run lasts. Secret."""
        kept = self._database.meta(_NOISE_KEYS)
        return None if kept is None else unpack_keys(bytes.fromhex(kept))

    def save_noise_keys(self, keys: NoiseKeys) -> None:
        """Stores the keys of openings' noise; durable on return."""
        self._database.set_meta(_NOISE_KEYS, pack_keys(keys).hex())

    def discard_keys(self) -> None:
        """Deletes the noise keys."""
        self._database.drop_meta(_NOISE_KEYS)
