"""An independent reading of the wire format: rebuilds every message of a recorded round from the clients' random bytes.

Imports nothing of secagg. X25519, HKDF, ChaCha20-Poly1305, Shamir, packing and the graph are written out below from
their RFCs and from secagg/README.md; AES (one block at a time, counted by hand), Ed25519 and ML-KEM come from a
library, whose encapsulations are recorded, since they take no randomness from outside: each is decapsulated here.
"""

import hashlib
import hmac
import struct

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

P25519 = 2**255 - 19
FIELD = 2**256 - 189
SERVER = 0xFFFFFFFF


def x25519(secret: bytes, point: bytes) -> bytes:
    """RFC 7748, section 5."""
    scalar = int.from_bytes(secret, "little") & ~7 & ((1 << 255) - 1) & ~(1 << 255) | 1 << 254
    x1 = int.from_bytes(point, "little") & ((1 << 255) - 1)
    x2, z2, x3, z3, swap = 1, 0, x1, 1, 0
    for bit in reversed(range(255)):
        now = scalar >> bit & 1
        if swap ^ now:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = now
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a, b * b, d * a, c * b
        e = aa - bb
        x3, z3 = (da + cb) ** 2 % P25519, x1 * (da - cb) ** 2 % P25519
        x2, z2 = aa * bb % P25519, e * (aa + 121665 * e) % P25519
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, -1, P25519) % P25519).to_bytes(32, "little")


BASE = (9).to_bytes(32, "little")


def hkdf(secret: bytes, salt: bytes, info: bytes, blocks: int = 1) -> bytes:
    """RFC 5869, one block of output or more."""
    extracted = hmac.new(salt, secret, hashlib.sha256).digest()
    output, block = b"", b""
    for number in range(1, blocks + 1):
        block = hmac.new(extracted, block + info + bytes([number]), hashlib.sha256).digest()
        output += block
    return output


def chacha20_block(key: bytes, counter: int) -> bytes:
    """RFC 8439, section 2.3, with a nonce of zeros."""
    start = [
        *struct.unpack("<4I", b"expand 32-byte k"),
        *struct.unpack("<8I", key),
        counter,
        0,
        0,
        0,
    ]
    state = list(start)

    def rotate(value: int, by: int) -> int:
        return (value << by | value >> (32 - by)) & 0xFFFFFFFF

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for x, y, z, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            state[x] = (state[x] + state[y]) & 0xFFFFFFFF
            state[z] = rotate(state[z] ^ state[x], by)

    for _ in range(10):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(state, start, strict=True)))


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 16)


def chacha20_poly1305(key: bytes, plaintext: bytes, associated: bytes) -> bytes:
    """RFC 8439, section 2.8, nonce zero."""
    blocks = -(-len(plaintext) // 64)
    stream = b"".join(chacha20_block(key, i + 1) for i in range(blocks))
    text = bytes(a ^ b for a, b in zip(plaintext, stream, strict=False))
    one_time = chacha20_block(key, 0)
    r = int.from_bytes(one_time[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    s = int.from_bytes(one_time[16:32], "little")
    data = padded(associated) + padded(text) + struct.pack("<QQ", len(associated), len(text))
    total = 0
    for at in range(0, len(data), 16):
        total = (total + int.from_bytes(data[at : at + 16] + b"\x01", "little")) * r % (2**130 - 5)
    return text + ((total + s) % 2**128).to_bytes(16, "little")


def keystream(key: bytes, length: int) -> bytes:
    """AES-256 of 0, 1, 2, ... as 16-byte big-endian blocks."""
    block = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return b"".join(block.update(i.to_bytes(16, "big")) for i in range(-(-length // 16)))[:length]


def usage(name: str) -> bytes:
    return f"syncret secagg 2 {name}".encode()


def id4(*clients: int) -> bytes:
    return b"".join(client.to_bytes(4, "big") for client in clients)


class Key:
    """A hybrid key pair from its secret."""

    def __init__(self, secret: bytes) -> None:
        self.agreement = hkdf(secret, b"", usage("agreement key"))
        seed = hkdf(secret, b"", usage("encapsulation key"), blocks=2)
        self.kem = MLKEM768PrivateKey.from_seed_bytes(seed)
        self.point = x25519(self.agreement, BASE)
        self.public = self.point + self.kem.public_key().public_bytes_raw()


class Round:
    """One recorded round; ``messages`` are rebuilt from parameters, random bytes, vectors and dropouts."""

    def __init__(
        self,
        parameters: bytes,
        randoms: list[bytes],
        identities: list[bytes],
        server: bytes,
        encapsulations: list[list[tuple[bytes, bytes]]],
    ) -> None:
        fields = struct.unpack(">32sIIIIIqqIBQQ32sB32s", parameters)
        self.session, self.n, self.k, self.t, self.minimum, self.length = fields[:6]
        self.low, self.high, self.scale = fields[6:9]
        seed, self.bits, roster = fields[12:]
        self.parameters = parameters
        self.digest = hashlib.sha256(usage("parameters") + parameters).digest()
        self.signers = [Ed25519PrivateKey.from_private_bytes(i) for i in identities]
        public = b"".join(signer.public_key().public_bytes_raw() for signer in self.signers)
        assert roster == (
            hashlib.sha256(usage("roster") + public).digest() if public else bytes(32)
        )
        self.randoms = randoms
        self.server = Key(server)
        self.encapsulations = [iter(made) for made in encapsulations]
        words = struct.unpack(
            f"<{self.n}Q", keystream(hkdf(seed, self.session, usage("graph")), 8 * self.n)
        )
        self.ring = sorted(range(self.n), key=lambda client: words[client])

    def neighbours(self, client: int) -> list[int]:
        place = self.ring.index(client)
        steps = [s for i in range(1, self.k // 2 + 1) for s in (i, -i)]
        steps += [self.n // 2] if self.k % 2 else []
        return sorted(self.ring[(place + step) % self.n] for step in steps)

    def first(self, client: int, other: int) -> bool:
        place, to = self.ring.index(client), self.ring.index(other)
        ahead = (to - place) % self.n
        return 2 * ahead < self.n or (2 * ahead == self.n and place < to)

    def random(self, client: int, index: int) -> bytes:
        """Draws: cipher key, mask key, seed, t - 1 coefficients for the seed, t - 1 for the mask key, revealing key."""
        return self.randoms[client][32 * index : 32 * index + 32]

    def envelope(self, kind: int, sender: int, recipient: int, body: bytes) -> bytes:
        head = b"SAGG\x02" + bytes([kind]) + id4(sender, recipient) + self.digest[:16]
        data = head + len(body).to_bytes(4, "big") + body
        return data + hashlib.sha256(data).digest()[:16]

    def up(self, kind: int, client: int, body: bytes) -> bytes:
        return self.envelope(kind, client, SERVER, body)

    def sign(self, client: int, name: str, what: bytes) -> bytes:
        if not self.signers:
            return b""
        return self.signers[client].sign(usage(name) + self.digest + id4(client) + what)

    def key(self, client: int, index: int) -> Key:
        return Key(self.random(client, index))

    def box(self, client: int, common: bytes, to: Key, info: bytes, content: bytes) -> bytes:
        """Under X25519's ``common`` and the next encapsulation, which has to be to ``to``."""
        shared, ciphertext = next(self.encapsulations[client])
        assert to.kem.decapsulate(ciphertext) == shared
        key = hkdf(common + shared, self.digest, info)
        return ciphertext + chacha20_poly1305(key, content, ciphertext)

    def advertise(self, client: int) -> bytes:
        keys = self.key(client, 0).public + self.key(client, 1).public
        return self.up(1, client, keys + self.sign(client, "signed keys", keys))

    def share(self, client: int, holder: int, which: int) -> bytes:
        """Of the seed (0) or the mask key (1)."""
        first = 3 + which * (self.t - 1)
        coefficients = [self.random(client, first + i) for i in range(self.t - 1)]
        coefficients.append(self.random(client, 2 if which == 0 else 1))
        powers = range(self.t - 1, -1, -1)
        total = sum(
            int.from_bytes(c, "big") * (holder + 1) ** p
            for c, p in zip(coefficients, powers, strict=True)
        )
        return (total % FIELD).to_bytes(32, "big")

    def sealed(self, sender: int, holder: int, index: int, name: str, content: bytes) -> bytes:
        """To a holder's cipher key (index 0) or mask key (1)."""
        to = self.key(holder, index)
        common = x25519(self.key(sender, index).agreement, to.point)
        return self.box(sender, common, to, usage(name) + id4(sender, holder), content)

    def pair_secret(self, client: int, other: int) -> bytes:
        maker, second = (client, other) if self.first(client, other) else (other, client)
        return hkdf(self.random(maker, 1), self.digest, usage("pair secret") + id4(maker, second))

    def shares(self, client: int, present: set[int]) -> bytes:
        holders = [v for v in self.neighbours(client) if v in present]
        lists: list[list[bytes]] = [[], []]
        for v in holders:
            both = self.share(client, v, 0) + self.share(client, v, 1)
            lists[0].append(id4(v) + self.sealed(client, v, 0, "encrypted shares", both))
            if self.first(client, v):
                secret = self.pair_secret(client, v)
                box = self.sealed(client, v, 1, "encrypted pair secret", secret)
                lists[1].append(id4(v) + box)
        body = hkdf(self.random(client, 2), self.digest, usage("self commitment"))
        return self.up(3, client, body + b"".join(id4(len(e)) + b"".join(e) for e in lists))

    def mask(self, key: bytes) -> list[int]:
        size = 4 if self.bits <= 32 else 8
        stream = keystream(key, size * self.length)
        return [int.from_bytes(stream[i : i + size], "little") for i in range(0, len(stream), size)]

    def masked(self, client: int, values: list[int], sharing: set[int]) -> bytes:
        total = [self.scale * (value - self.low) for value in values]
        own = self.mask(hkdf(self.random(client, 2), self.digest, usage("self mask")))
        total = [a + b for a, b in zip(total, own, strict=True)]
        for v in self.neighbours(client):
            if v in sharing:
                common = x25519(self.key(client, 1).agreement, self.key(v, 1).point)
                common += self.pair_secret(client, v)
                pair = id4(min(client, v), max(client, v))
                mask = self.mask(hkdf(common, self.digest, usage("pair mask") + pair))
                sign = 1 if v > client else -1
                total = [a + sign * b for a, b in zip(total, mask, strict=True)]
        stream = sum((a % (1 << self.bits)) << (i * self.bits) for i, a in enumerate(total))
        return self.up(5, client, stream.to_bytes(-(-self.length * self.bits // 8), "little"))

    def survivors(self, survivors: set[int]) -> bytes:
        bits = sum(1 << (-(-self.n // 8) * 8 - 1 - u) for u in survivors)
        return bits.to_bytes(-(-self.n // 8), "big")

    def signature(self, client: int, survivors: set[int]) -> bytes:
        shown = hashlib.sha256(self.survivors(survivors)).digest()
        return self.up(7, client, self.sign(client, "signed survivors", shown))

    def reveal(self, client: int, sharing: set[int], survivors: set[int]) -> bytes:
        neighbours = [v for v in self.neighbours(client) if v in sharing]
        body = id4(len(neighbours))
        for v in neighbours:
            which = 0 if v in survivors else 1
            body += id4(v) + bytes([which]) + self.share(v, client, which)
        fresh = self.random(client, 3 + 2 * (self.t - 1))
        point, common = x25519(fresh, BASE), x25519(fresh, self.server.point)
        info = usage("encrypted revealed shares") + id4(client) + point + self.server.point
        return self.up(9, client, point + self.box(client, common, self.server, info, body))
