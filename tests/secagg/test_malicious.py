"""A malicious server that lies about survivors or keeps messages back, against sessions with signatures.

Each attack is carried out with honest clients' state machines, and has a control in which it succeeds.
"""

from collections.abc import Collection

import numpy as np
import pytest
from numpy.typing import NDArray

from secagg import shamir, wire
from secagg.boxes import open_revealed
from secagg.client import Awaits, SecAggClient
from secagg.errors import InconsistentSurvivors, ParameterError, ParametersRefused
from secagg.graph import Adversary, ThreatModel, thick_run
from secagg.keys import HybridKey, Usage, derive
from secagg.masks import add_mask, unpack, word
from secagg.parameters import Parameters
from secagg.server import SecAggServer
from secagg.simulation import policy_for
from secagg.wire import Envelope, Kind
from tests.secagg.support import exact_sum, identities, lost_mask_key, session, vectors


class Attack:
    """A signed round up to the masked vectors, which the attacker keeps; clients are named by places on the ring.

    ``withhold`` says of whose sealed shares each client never gets to know; ``silent`` send no vector; of the
    ``corrupt`` the attacker has all secrets.
    """

    def __init__(
        self,
        parameters: Parameters,
        silent: Collection[int] = (),
        corrupt: Collection[int] = (),
        withhold: dict[int, set[int]] | None = None,
    ) -> None:
        self.parameters = parameters
        self.ring = parameters.graph._order
        n = parameters.clients
        people = identities(n)
        roster = [person.public for person in people]
        self.values = vectors(parameters)
        self.clients = [
            SecAggClient(
                u, self.values[u], policy_for(parameters), identity=people[u], roster=roster
            )
            for u in range(n)
        ]
        server = SecAggServer(parameters, roster=roster)
        self.server_key = server._own_key
        queue = [(u, self.clients[u].receive(message)) for u, message in server.start()]
        shared = self.through(server, self.through(server, queue))
        self.keys, self.boxes = server._keys, server._secrets
        self.masked: dict[int, bytes] = {}
        self.corrupt_keys = {
            self.ring[p]: self.clients[self.ring[p]]._own.mask_key for p in corrupt
        }
        missing = {
            self.ring[place]: {self.ring[w] for w in gone}
            for place, gone in (withhold or {}).items()
        }
        for u, inbox in shared:
            graph = parameters.graph
            before = [v for v in graph.neighbours(u) if graph.first(v, u)]
            body = wire.open_envelope(inbox, 1 << 20).body
            boxes = wire.decode_inbox(body, graph.neighbours(u), before)
            gone = missing.get(u, set())
            kept = wire.Boxes(
                {v: entry for v, entry in boxes.shares.items() if v not in gone},
                {v: entry for v, entry in boxes.secrets.items() if v not in gone},
            )
            if u not in {self.ring[place] for place in silent}:
                answer = self.ask(u, Kind.INBOX, wire.encode_inbox(kept))
                self.masked[u] = wire.open_envelope(answer, 1 << 20).body
        self.stolen = {u: self.clients[u]._shares for u in self.corrupt_keys}
        self.shown: dict[int, bytes] = {}
        self.signatures: dict[int, bytes] = {}

    def through(
        self, server: SecAggServer, answers: list[tuple[int, bytes | None]]
    ) -> list[tuple[int, bytes]]:
        """Hands answers to an honest server; what the clients answer to it, or the inboxes."""
        down: list[tuple[int, bytes]] = []
        for u, answer in answers:
            assert answer is not None
            down += server.receive(u, answer)
        if wire.open_envelope(down[0][1], 1 << 20).kind is Kind.INBOX:
            return down
        return [(u, self.clients[u].receive(message)) for u, message in down]  # type: ignore[misc]

    def ask(self, u: int, kind: Kind, body: bytes) -> bytes:
        tag = self.parameters.digest[:16]
        message = wire.pack_envelope(Envelope(kind, wire.SERVER, u, tag, body))
        answer = self.clients[u].receive(message)
        assert answer is not None
        return answer

    def show(self, places: Collection[int], gone: Collection[int]) -> None:
        """Tell the clients at ``places`` that all but ``gone`` survived, and keep their signatures."""
        alive = np.ones(self.parameters.clients, np.bool_)
        alive[[self.ring[place] for place in gone]] = False
        body = wire.encode_survivors(alive)
        for place in places:
            u = self.ring[place]
            answer = self.ask(u, Kind.SURVIVORS, body)
            self.shown[u], self.signatures[u] = body, wire.open_envelope(answer, 1 << 20).body

    def reveal(self) -> dict[int, dict[int, wire.Revealed]]:
        """Give every client the witnesses' signatures of its own list: what each of those who accept reveals."""
        revealed = {}
        for u, body in self.shown.items():
            signed = {
                v: self.signatures[v]
                for v in self.parameters.graph.witnesses
                if self.shown.get(v) == body
            }
            try:
                answer = self.ask(u, Kind.SIGNATURES, wire.encode_list(signed))
            except InconsistentSurvivors:
                continue
            box = wire.open_envelope(answer, 1 << 20).body
            shares = open_revealed(self.parameters, u, box, self.server_key)
            revealed[u] = wire.decode_revealed(shares, self.parameters.graph.neighbours(u))
        return revealed

    def secret(
        self, of: int, key: bool, revealed: dict[int, dict[int, wire.Revealed]]
    ) -> bytes | None:
        """Secret that the shares of one client's seed or mask key give, if they are enough."""
        found = {
            v: shares[of].share
            for v, shares in revealed.items()
            if of in shares and shares[of].key is key
        }
        found |= {v: shares[of][key] for v, shares in self.stolen.items() if of in shares}
        chosen = sorted(found)[: self.parameters.threshold]
        if len(chosen) < self.parameters.threshold:
            return None
        return shamir.combine([v + 1 for v in chosen], [found[v] for v in chosen])

    def open(
        self, part: Collection[int], revealed: dict[int, dict[int, wire.Revealed]]
    ) -> NDArray[np.int64] | None:
        """The sum over ``for_server`` of the clients alone, with all that was revealed; None where a mask stays on."""
        parameters = self.parameters
        total = np.zeros(parameters.length, word(parameters.bits))
        inside = {self.ring[place] for place in part}
        for u in inside:
            total += unpack(self.masked[u], parameters.length, parameters.bits)
            seed = self.secret(u, False, revealed)
            if seed is None:
                return None
            add_mask(total, derive(seed, Usage.SELF_MASK, parameters.digest), negative=True)
            for v in parameters.graph.neighbours(u):
                if v in self.masked and v not in self.corrupt_keys:
                    continue
                secret = self.secret(v, True, revealed)
                if v not in self.corrupt_keys and secret is None:
                    return None
                key = self.corrupt_keys[v] if secret is None else HybridKey(secret)
                box = self.boxes.get(v, {}).get(u, b"")
                mask = lost_mask_key(parameters, key, v, u, self.keys[u].mask, box)
                add_mask(total, mask, negative=v > u)
        return parameters.encoding.decode(total, len(inside)) + len(inside) * parameters.low


CORRUPT, GONE = (10, 30), (9, 31)


def two_arcs(parameters: Parameters) -> tuple[Attack, range, NDArray[np.int64] | None]:
    """Clients 11 to 29 of 40 on the ring, and 32 to 8, with a corrupt one and a dropout between. Opens the first arc.

    Those of the first arc near the second never get its shares, have no masks in common with it, and are asked nothing
    any more; everybody else sees an ordinary round.
    """
    first = range(11, 30)
    second = {place for place in range(40) if place not in {*first, *CORRUPT, *GONE}}
    near = {
        place: {w for w in second if min((w - place) % 40, (place - w) % 40) <= 4}
        for place in first
    }
    edge = {place: gone for place, gone in near.items() if gone}
    attack = Attack(parameters, silent=GONE, corrupt=CORRUPT, withhold=edge)
    attack.show([place for place in range(40) if place not in {*edge, *GONE}], GONE)
    return attack, first, attack.open(first, attack.reveal())


def test_withheld_masks_open_part_of_the_survivors_where_a_run_has_too_many_corrupt() -> None:
    # The control. No client has more than one corrupt neighbour in a run, none has 2t - k = 2 in all: enough for one
    # secret per client, not for one sum.
    parameters = session(40, True, neighbours=8, threshold=5, min_survivors=38, length=3)
    assert thick_run(8, 5) == 1
    attack, part, opened = two_arcs(parameters)
    inside = frozenset(attack.ring[place] for place in part)
    assert opened is not None
    assert opened.tolist() == exact_sum(attack.values, inside).tolist()


def test_withheld_masks_open_nothing_from_the_next_threshold_on() -> None:
    parameters = session(40, True, neighbours=8, threshold=6, min_survivors=38, length=3)
    assert thick_run(8, 6) == 2
    attack, _, opened = two_arcs(parameters)
    assert opened is None
    # All those who were asked have revealed: the shares of the first arc's last ones are too few.
    assert all(attack.clients[u].awaits is Awaits.FINISHED for u in attack.shown)


def test_split_survivor_lists_are_opened_for_one_of_them_only() -> None:
    # Two halves of the ring, 80 clients of 16 neighbours; each is told that two of its own middle are gone. Either list
    # has 78 survivors, both together 76.
    n, k = 80, 16
    parameters = session(n, True, neighbours=k, threshold=10, min_survivors=78, length=1)
    attack = Attack(parameters)
    halves, gone = (range(40), range(40, 80)), ({19, 21}, {59, 61})
    for half, missing in zip(halves, gone, strict=True):
        attack.show([place for place in half if place not in missing], missing)
    # The control: neighbours' own signatures would satisfy enough clients of both halves to open all 76.
    place = {u: p for p, u in enumerate(attack.ring)}
    content = {
        u
        for u, body in attack.shown.items()
        if sum(attack.shown.get(v) == body for v in parameters.graph.neighbours(u)) >= 10
    }
    assert {attack.shown[u] for u in content} == set(attack.shown.values())
    assert all(len(content & set(parameters.graph.neighbours(u))) >= 10 for u in attack.shown)
    revealed = attack.reveal()
    assert len({attack.shown[u] for u in revealed}) <= 1
    assert attack.open([place[u] for u in attack.shown], revealed) is None


def test_signed_sessions_refuse_a_threshold_that_withstands_nothing() -> None:
    for neighbours, refused, least in ((8, 4, 5), (7, 4, 5), (39, 19, 20)):
        changes = {"neighbours": neighbours, "min_survivors": 38}
        with pytest.raises(ParameterError, match="open some survivors' sum"):
            session(40, True, threshold=refused, **changes)
        session(40, True, threshold=least, **changes)
        session(40, False, threshold=refused, **changes)


def test_policy_of_a_malicious_threat_refuses_a_ring_without_room_for_corrupt_clients() -> None:
    roster = [person.public for person in identities(40)]
    # One client at least is taken for corrupt: a run of four needs room for it.
    for least, corrupt, refused in ((5, 0.0, True), (6, 0.0, False), (6, 0.05, True)):
        parameters = session(40, True, neighbours=8, threshold=least, min_survivors=38)
        accepted = policy_for(parameters)
        accepted.check(parameters, roster)
        fields = {name: getattr(accepted, name) for name in type(accepted).__slots__}
        threat = ThreatModel(corrupt, 0.0, Adversary.MALICIOUS)
        policy = type(accepted)(**{**fields, "threat": threat})
        if refused:
            with pytest.raises(ParametersRefused, match="bits"):
                policy.check(parameters, roster)
        else:
            policy.check(parameters, roster)
