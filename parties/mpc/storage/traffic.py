"""Traffic of each client with a server: requests, and body bytes in both directions. All values here are public."""

from parties.storage.database import Database

TRAFFIC_TABLE = """CREATE TABLE IF NOT EXISTS traffic (
    client TEXT PRIMARY KEY, requests INTEGER NOT NULL, received INTEGER NOT NULL, sent INTEGER NOT NULL) STRICT"""


class ClientTraffic:
    """Traffic in a store. All methods may be called from any thread; all may raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, client: str, *, received: int, sent: int) -> None:
        """Counts a request of ``client``: body bytes ``received`` and ``sent``.

        The entry survives a kill at once, but a power failure only after the next durable entry: it is not worth a disk
        write.
        """
        with self._database.relaxed_durability():
            self._database.enter(
                "INSERT INTO traffic VALUES (?1, 1, ?2, ?3) ON CONFLICT (client) DO UPDATE SET "
                "requests = requests + 1, received = received + ?2, sent = sent + ?3",
                [(client, received, sent)],
            )

    def by_client(self) -> dict[str, tuple[int, int, int]]:
        """Requests, body bytes received and body bytes sent, by client; refused requests included."""
        rows = self._database.rows(
            "SELECT client, requests, received, sent FROM traffic ORDER BY client"
        )
        return {row[0]: (row[1], row[2], row[3]) for row in rows}

    def total_bytes(self) -> tuple[int, int]:
        """Body bytes received and sent, of all clients."""
        row = self._database.row("SELECT total(received), total(sent) FROM traffic")
        return (0, 0) if row is None else (int(row[0]), int(row[1]))
