"""GSSAPI: a Kerberos ticket as the credential, server and client side. Source: RFC 4752, KIP-12.

The server's side of an exchange:

    context -> (context ...) -> offer -> choice

- CONTEXT: a token of the client goes to the security context, until that is established.
- OFFER: if the established context leaves a token for the client, the client answers with an empty
  one.
- CHOICE: the server offers security layers, which are only "none". The client answers with its
  choice and an authorization id. The context protects both messages.

Java's brokers ignore the authorization id, and clients send different ones there. So it grants
nothing here: the user is the one of the ticket. The session ends with the ticket.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from typing import Final

from sparklog.security.kerberos_name import KerberosName, LocalNames, UnmappedPrincipal
from sparklog.security.sasl.kerberos import KerberosContext
from sparklog.security.sasl.mechanism import Authenticated, Check, SaslFailure, Step

GSSAPI: Final = "GSSAPI"
TOKEN_BYTES_MAX: Final = 64 * 1024
"""Largest token; Windows bounds tickets with the groups of a user by as much."""
CHOICE_BYTES_MAX: Final = 8 * 1024
STEPS_MAX: Final = 6
"""More tokens than Kerberos needs to establish a context."""
NO_LAYER: Final = 1
"""The bit of "no security layer"; TLS protects records, where it is wanted."""
_OFFER: Final = bytes([NO_LAYER, 0, 0, 0])
"""The layers, and in 3 bytes the largest protected message, which is none without a layer."""


class _Phase(Enum):
    CONTEXT = "a token of the context"
    OFFER = "an empty token"
    CHOICE = "the chosen layer"
    DONE = "nothing"


class GssapiServer:
    """The server side of one exchange."""

    def __init__(self, context: KerberosContext, names: LocalNames, service: str) -> None:
        """Authenticate by tickets for `service`, and name users by `names`."""
        self._context = context
        self._names = names
        self._service = service
        self._phase = _Phase.CONTEXT
        self._steps = 0

    def evaluate(self, token: bytes, now_ms: int) -> Check:
        """Return the work of one step, which calls the Kerberos library.

        Raises:
            SaslFailure: a token that is too large, or one too many.
        """
        most = CHOICE_BYTES_MAX if self._phase is _Phase.CHOICE else TOKEN_BYTES_MAX
        if len(token) > most:
            raise SaslFailure(f"a GSSAPI token is too large. bytes={len(token)} most={most}")
        if self._phase is _Phase.DONE or self._steps >= STEPS_MAX:
            raise SaslFailure(f"the GSSAPI exchange has no more steps. steps={self._steps}")
        self._steps += 1
        return Check(lambda: self._advanced(token, now_ms))

    def _advanced(self, token: bytes, now_ms: int) -> Step:
        if self._phase is _Phase.CONTEXT:
            reply = self._context.step(token)
            if not self._context.complete:
                return Step(reply)
            if reply:
                self._phase = _Phase.OFFER
                return Step(reply)
        elif self._phase is _Phase.CHOICE:
            self._phase = _Phase.DONE
            return Step(b"", self._authenticated(self._context.unwrap(token), now_ms))
        elif token:
            raise SaslFailure(
                f"the client sent a GSSAPI token after the last one. bytes={len(token)}"
            )
        self._phase = _Phase.CHOICE
        return Step(self._context.wrap(_OFFER))

    def _authenticated(self, choice: bytes, now_ms: int) -> Authenticated:
        if len(choice) < len(_OFFER) or choice[0] != NO_LAYER:
            raise SaslFailure(
                "the client asks for a GSSAPI security layer; only TLS encrypts records: set its "
                f"quality of protection to auth. choice={choice[:4].hex()}"
            )
        client, service = self._context.peers()
        try:
            if KerberosName.parse(service).service != self._service:
                raise SaslFailure(
                    "the ticket is for another service than sasl.kerberos.service.name. "
                    f"client={client!r} ticket_for={service!r} service={self._service}"
                )
            user = self._names.user_name(KerberosName.parse(client))
        except UnmappedPrincipal as error:
            raise SaslFailure(str(error)) from None
        lifetime_s = self._context.lifetime_s()
        return Authenticated(user, None if lifetime_s is None else now_ms + lifetime_s * 1000)


def gssapi_exchange(context: KerberosContext) -> Generator[bytes, bytes, None]:
    """Yield the client's tokens, with a context for the broker's service that proves itself."""
    challenge = yield context.step(b"")
    while not context.complete:
        challenge = yield context.step(challenge)
    offer = context.unwrap(challenge)
    if len(offer) != len(_OFFER) or not offer[0] & NO_LAYER:
        raise SaslFailure(
            "the broker demands a GSSAPI security layer, which is not supported. "
            f"offer={offer[:4].hex()}"
        )
    rest = yield context.wrap(_OFFER)
    if rest:
        raise SaslFailure(f"the broker sent a GSSAPI token after the last one. bytes={len(rest)}")
