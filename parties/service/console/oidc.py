"""OpenID Connect as a client: authorisation code flow with PKCE, state and nonce, and checks of the ID token.

``Provider.begin`` returns the address to which a browser is sent, and the ``PendingLogin`` that its answer has to fit;
``complete`` exchanges the code of the answer, checks the token, and returns the reader with the role of its claim.
Signatures are checked by joserfc (extra `oidc`), with the provider's own keys and by asymmetric algorithms alone.
Sources: OpenID Connect Core 1.0 (sections 3.1.2 and 3.1.3) and Discovery 1.0; RFC 7636; RFC 9207; RFC 9700.

Secret: the client's secret, codes, verifiers and tokens; none of them is logged, or part of an error.
"""

import asyncio
import base64
import hashlib
import json
import re
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp

from parties.crypto.hpke import read_private
from parties.foundation.errors import CertificateError, ExtraMissing, PartyError
from parties.foundation.untrusted_text import printable
from parties.network.http_connections import TlsConnector
from parties.service.access import Principal, Role
from parties.service.settings import OidcSection, is_safe_url

EXTRA = "oidc"
_ALGORITHMS = ("RS256", "PS256", "ES256")
_LEEWAY_S = 60
_MAX_AGE_S = 600.0
"""Maximum age of a new ID token, and time for signing in at the provider, in seconds."""
_METADATA_S, _KEYS_S = 3600.0, 60.0
"""Time after which the provider's metadata is read again; least time between two readings of its keys."""
_LONGEST = 1 << 20
_FAILED_S = 5.0
"""Time for which a provider that has not answered is not asked again, in seconds."""
_MOST_EXCHANGES = 4
"""Codes that the provider is asked about at a time: anybody can bring one."""
_ERROR_CODE = re.compile(r"[a-z_]{1,40}")
_MAX_SUBJECT = 120
_TIMEOUT = aiohttp.ClientTimeout(total=10.0)


class SignInRefused(PartyError):
    """A browser is not signed in; the message gives the reason, for its reader."""


@dataclass(frozen=True, slots=True)
class PendingLogin:
    """Secrets of a sign-in that has begun at ``begun``, in seconds since the epoch."""

    state: str
    nonce: str
    verifier: str
    begun: float

    @classmethod
    def new(cls, now: float) -> "PendingLogin":
        """Returns fresh secrets."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        return cls(state, nonce, verifier, now)

    @property
    def challenge(self) -> str:
        """Challenge of the verifier (S256)."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class Provider:
    """Identity provider of ``section``, whose files are in ``folder``. Raises ExtraMissing, CertificateError."""

    def __init__(
        self, section: OidcSection, folder: Path, clock: Callable[[], float] = time.time
    ) -> None:
        try:
            import joserfc.jwt  # noqa: F401  # A server that lacks it says so at its start.
        except ModuleNotFoundError as error:
            raise ExtraMissing("admin.oidc", str(error.name), extra=EXTRA) from error
        self._section = section
        self._folder = folder
        self._clock = clock
        self._tls = _tls_context(section, folder)
        self._secret()
        self._exchanges = 0
        self._failed_at = -1e9
        self._discovery = asyncio.Lock()
        self._metadata: Mapping[str, Any] = {}
        self._metadata_at = self._keys_at = -1e9
        self._keys: Any = None

    async def begin(self) -> tuple[str, PendingLogin]:
        """Returns the provider's address for a sign-in, and what its answer has to fit. Raises SignInRefused."""
        metadata, pending = await self._discover(), PendingLogin.new(self._clock())
        query = {
            "response_type": "code",
            "client_id": self._section.client_id,
            "redirect_uri": self._section.callback,
            "scope": self._section.scope,
            "state": pending.state,
            "nonce": pending.nonce,
            "code_challenge": pending.challenge,
            "code_challenge_method": "S256",
        }
        there = str(metadata["authorization_endpoint"])
        return f"{there}{'&' if '?' in there else '?'}{urlencode(query)}", pending

    async def complete(self, pending: PendingLogin, answer: Mapping[str, str]) -> Principal:
        """Returns the reader that the provider's ``answer`` names. Raises SignInRefused."""
        metadata, issuer = await self._discover(), self._section.issuer
        if not secrets.compare_digest(answer.get("state", "").encode(), pending.state.encode()):
            raise SignInRefused("the answer is of another sign-in")
        if not 0 <= self._clock() - pending.begun <= _MAX_AGE_S:
            raise SignInRefused("the sign-in took too long")
        named = answer.get("iss")
        required = metadata.get("authorization_response_iss_parameter_supported") is True
        if (named is not None or required) and named != issuer:
            raise SignInRefused("the answer is of another provider")
        if "error" in answer:
            said = answer["error"]
            # Anybody can bring such an answer here, for an operator to read.
            raise SignInRefused(
                f"the provider says {said if _ERROR_CODE.fullmatch(said) else 'that there is an error'}"
            )
        code = answer.get("code", "")
        if not 0 < len(code) <= 4096:
            raise SignInRefused("the answer has no code")
        if self._exchanges >= _MOST_EXCHANGES:
            raise SignInRefused("too many sign-ins at once; try again")
        self._exchanges += 1
        try:
            document = await self._exchange(code, pending, metadata)
        finally:
            self._exchanges -= 1
        token = document.get("id_token")
        if not isinstance(token, str):
            raise SignInRefused("the provider gives no ID token")
        return self._principal(await self._claims(token, pending))

    async def _exchange(
        self, code: str, pending: PendingLogin, metadata: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        section = self._section
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": section.callback,
            "client_id": section.client_id,
            "code_verifier": pending.verifier,
        }
        headers, secret = {"Accept": "application/json"}, self._secret()
        methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if "client_secret_basic" in methods:
            # RFC 6749, section 2.3.1: both are form-encoded before they are put together.
            pair = f"{quote(section.client_id, safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form["client_secret"] = secret
        url = str(metadata["token_endpoint"])
        return await self._ask("POST", url, "takes no code", data=form, headers=headers)

    def _secret(self) -> str:
        """Returns the client's secret, read anew, since it may be replaced. Raises CertificateError."""
        path = self._folder / self._section.secret_file
        data = read_private(path, "client's secret", "a text file")
        try:
            return data.decode().strip()
        except ValueError as error:
            raise CertificateError(f"{path}: is no text; expected the client's secret") from error

    async def _claims(self, token: str, pending: PendingLogin) -> Mapping[str, Any]:
        """Returns the claims of an ID token whose signature, issuer, audience, times and nonce are right."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        section, now = self._section, int(self._clock())
        registry = jwt.JWTClaimsRegistry(
            now=now,
            leeway=_LEEWAY_S,
            iss={"essential": True, "value": section.issuer},
            aud={"essential": True, "value": section.client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True, "value": pending.nonce},
        )
        try:
            keys = await self._key_set(token)
            claims = jwt.decode(token, keys, algorithms=list(_ALGORITHMS)).claims
            registry.validate(claims)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise SignInRefused(
                f"the ID token is not right ({type(error).__name__}: {printable(str(error)[:80])})"
            ) from None
        audience = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
        party = claims.get("azp", section.client_id if len(audience) == 1 else None)
        if party != section.client_id:
            raise SignInRefused("the ID token is for another client")
        if claims["nonce"] != pending.nonce or not now - claims["iat"] <= _MAX_AGE_S + _LEEWAY_S:
            raise SignInRefused("the ID token is of another sign-in")
        return claims

    async def _key_set(self, token: str) -> Any:
        """Returns the provider's keys; they are read again for a token of a key that is not among them."""
        from joserfc.jwk import KeySet

        header = token.partition(".")[0]
        kid = json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4))).get("kid")
        known = self._keys is not None and (
            kid is None or any(key.kid == kid for key in self._keys.keys)
        )
        if not known and self._clock() - self._keys_at > _KEYS_S:
            url = str((await self._discover())["jwks_uri"])
            document = await self._ask("GET", url, "has no keys")
            found = [
                key
                for key in document.get("keys", [])
                # A symmetric key here would be one that everybody knows.
                if key.get("kty") in ("RSA", "EC") and key.get("use", "sig") == "sig"
            ]
            self._keys, self._keys_at = KeySet.import_key_set({"keys": found}), self._clock()
        if self._keys is None:
            raise SignInRefused("the provider has no keys")
        return self._keys

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        section = self._section
        subject, said = claims.get(section.subject_claim), claims.get(section.role_claim)
        if not isinstance(subject, str) or not 0 < len(subject) <= _MAX_SUBJECT:
            raise SignInRefused(f"the ID token has no subject in {section.subject_claim}")
        if not subject.isprintable():
            raise SignInRefused("the subject is no printable text")
        if section.subject_claim == "email" and claims.get("email_verified") is not True:
            raise SignInRefused("the provider has not verified the address")
        values = said if isinstance(said, list) else [said]
        roles = [
            section.roles[value]
            for value in values
            if isinstance(value, str) and value in section.roles
        ]
        if not roles:
            raise SignInRefused(
                f"{subject} has no role here; expected a value of {section.role_claim} that admin.oidc.roles of "
                "settings.toml names"
            )
        return Principal(f"oidc:{subject}", max(roles, key=list(Role).index))

    async def _discover(self) -> Mapping[str, Any]:
        """Returns the provider's metadata. Raises SignInRefused."""
        async with self._discovery:
            if self._clock() - self._metadata_at > _METADATA_S:
                if self._clock() - self._failed_at < _FAILED_S:
                    raise SignInRefused("the provider does not answer as one would")
                self._failed_at = self._clock()
                await self._read_metadata()
                self._failed_at = -1e9
            return self._metadata

    async def _read_metadata(self) -> None:
        issuer = self._section.issuer
        url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        found = await self._ask("GET", url, "has no metadata")
        if found.get("issuer") != issuer:
            raise SignInRefused("the provider's metadata is of another issuer")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not is_safe_url(str(found.get(name))):
                raise SignInRefused(f"the provider's {name} is no address over TLS")
        self._metadata, self._metadata_at = found, self._clock()

    async def _ask(self, method: str, url: str, problem: str, **options: Any) -> Mapping[str, Any]:
        """Returns the JSON object of the provider's answer. Raises SignInRefused."""
        connector = TlsConnector(self._tls)
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector, timeout=_TIMEOUT, trust_env=True
                ) as session,
                session.request(method, url, allow_redirects=False, **options) as response,
            ):
                data = await response.content.read(_LONGEST)
                document = json.loads(data) if response.status == 200 else None
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, RecursionError) as error:
            raise SignInRefused(
                f"the provider does not answer as one would ({type(error).__name__})"
            ) from None
        if not isinstance(document, dict):
            raise SignInRefused(f"the provider {problem} (HTTP status {response.status})")
        return document


def _tls_context(section: OidcSection, folder: Path) -> ssl.SSLContext:
    """Returns the context for connections to the provider. Raises CertificateError."""
    path = None if section.ca is None else folder / section.ca
    try:
        return ssl.create_default_context(cafile=None if path is None else str(path))
    except (OSError, ssl.SSLError) as error:
        raise CertificateError(
            f"{path}: cannot be used: {error}; expected the certificates of the provider's issuers (PEM)"
        ) from error
