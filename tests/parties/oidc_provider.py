"""A small identity provider on loopback: authorisation code flow with PKCE, and ID tokens with real signatures.

It signs in everybody as the person that ``claims`` describe. A test changes claims, header or signature of the next
token, and sees every request. Tokens are made here and not by the library that checks them.
"""

import base64
import contextlib
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode

from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

CLIENT, SECRET = "syncret", "a secret: of %& the client"


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


@dataclass
class IdentityProvider:
    """The provider, at ``issuer``; ``claims`` are those of the person that signs in next."""

    issuer: str = ""
    alg: str = "RS256"
    claims: dict[str, Any] = field(default_factory=lambda: {"sub": "anna", "groups": ["approvers"]})
    metadata: dict[str, Any] = field(default_factory=dict)
    change: Callable[[dict[str, Any], dict[str, Any]], None] | None = None
    """Changes header and claims of a token before it is signed."""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    rsa_key: rsa.RSAPrivateKey = field(
        default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )
    ec_key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )
    signing_key: Any = None
    """Another key in the place of the one in the metadata."""

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/.well-known/openid-configuration", self.discovery),
            web.get("/authorize", self.authorize),
            web.post("/token", self.token),
            web.get("/keys", self.keys),
        ]

    async def discovery(self, request: web.Request) -> web.Response:
        ends = {
            "authorization_endpoint": "authorize",
            "token_endpoint": "token",
            "jwks_uri": "keys",
        }
        document = {name: f"{self.issuer}/{path}" for name, path in ends.items()}
        return web.json_response({"issuer": self.issuer, **document, **self.metadata})

    async def authorize(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        assert query["response_type"] == "code"
        assert query["client_id"] == CLIENT
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        answer = urlencode({"code": code, "state": query["state"], "iss": self.issuer})
        return web.Response(status=302, headers={"Location": f"{query['redirect_uri']}?{answer}"})

    async def token(self, request: web.Request) -> web.Response:
        form = {name: values[0] for name, values in parse_qs(await request.text()).items()}
        self.asked.append("token")
        given = base64.b64decode(request.headers["Authorization"].removeprefix("Basic ")).decode()
        query = self.codes.pop(form["code"], None)
        challenge = b64(hashlib.sha256(form["code_verifier"].encode()).digest())
        if (
            query is None
            or unquote(given.partition(":")[2]) != SECRET
            or challenge != query["code_challenge"]
            or form["redirect_uri"] != query["redirect_uri"]
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": query["nonce"],
            **self.claims,
        }
        header = {"alg": self.alg, "kid": self.alg, "typ": "JWT"}
        if self.change is not None:
            self.change(header, claims)
        return web.json_response(
            {"access_token": "x", "token_type": "Bearer", "id_token": self.signed(header, claims)}
        )

    def signed(self, header: dict[str, Any], claims: dict[str, Any]) -> str:
        text = ".".join(b64(json.dumps(part).encode()) for part in (header, claims))
        return f"{text}.{b64(self._signature(header['alg'], text.encode()))}"

    def _signature(self, alg: str, data: bytes) -> bytes:
        match alg:
            case "RS256":
                key = self.signing_key or self.rsa_key
                return bytes(key.sign(data, padding.PKCS1v15(), hashes.SHA256()))
            case "ES256":
                der = self.ec_key.sign(data, ec.ECDSA(hashes.SHA256()))
                return b"".join(part.to_bytes(32, "big") for part in decode_dss_signature(der))
            case "HS256":
                public = self.rsa_key.public_key()
                form = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
                return hmac.digest(form, data, "sha256")
        return b""

    async def keys(self, request: web.Request) -> web.Response:
        self.asked.append("keys")
        public, point = (
            self.rsa_key.public_key().public_numbers(),
            self.ec_key.public_key().public_numbers(),
        )
        return web.json_response(
            {
                "keys": [
                    {"kty": "RSA", "kid": "RS256", "n": number(public.n), "e": number(public.e)},
                    {
                        "kty": "EC",
                        "kid": "ES256",
                        "crv": "P-256",
                        "x": b64(point.x.to_bytes(32, "big")),
                        "y": b64(point.y.to_bytes(32, "big")),
                    },
                    # What a provider must not publish, and a client must not take.
                    {"kty": "oct", "kid": "HS256", "k": b64(b"everybody knows this one, really")},
                ]
            }
        )


@contextlib.asynccontextmanager
async def identity_provider() -> AsyncIterator[IdentityProvider]:
    provider = IdentityProvider()
    app = web.Application()
    app.add_routes(provider.routes())
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    provider.issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield provider
    finally:
        await runner.cleanup()
