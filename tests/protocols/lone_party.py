"""A party as a process of its own, to be killed or stopped: exchanges until something ends it.

``python -m tests.protocols.lone_party PID PORT PORT PORT CA CERT KEY``. Prints ``connected``, then one line
about its end.
"""

import asyncio
import sys
from pathlib import Path

from protocols.errors import ProtocolError
from protocols.mesh import TlsFiles
from protocols.runtime import PartyRuntime
from tests.protocols.network import NAMES, pin, seals_in


async def exchange_for_ever(party: PartyRuntime) -> None:
    while True:
        await party.context().exchange(bytes(50_000))


async def main(pid: str, *arguments: str) -> None:
    addresses = [("127.0.0.1", int(port)) for port in arguments[:3]]
    ca, cert, key = (Path(path) for path in arguments[3:])
    first, second, third = (pin(cert.parent / f"{name}.crt") for name in NAMES)
    tls = TlsFiles(ca, cert, key, NAMES, (first, second, third))
    seals = seals_in(ca.parent, int(pid))
    party = PartyRuntime(int(pid), addresses, tls=tls, seals=seals, session="test", timeout_s=10.0)
    try:
        async with party:
            print("connected", flush=True)
            await exchange_for_ever(party)
    except ProtocolError as error:
        print(f"{type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
