"""The Kerberos library behind GSSAPI: keys of a service, tickets of a client, and clear errors.

The library is MIT's, by the package `gssapi` of the extra `sparklog[gssapi]`. It reads the file of
`KRB5_CONFIG`, by default `/etc/krb5.conf`. A service needs no ticket, and does not ask a KDC. The
library keeps a replay cache: a recorded token does not log in a second time.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

from sparklog.core.errors import InvalidConfig
from sparklog.security.kerberos_name import KerberosName, UnmappedPrincipal
from sparklog.security.sasl.mechanism import SaslFailure

_TABLE: Final = -1765328384
"""Base of the error codes of the library; the codes of the protocol count from here."""
_LIFETIME_S_MAX: Final = 0xFFFFFFFF
"""The lifetime of what does not expire."""
CAUSES: Final = {
    7: "the KDC does not know the service; does the broker's host name match its principal?",
    31: "the ticket was not made with this keytab's key; renew the keytab, or correct the realm",
    32: "the ticket has expired; the client must get a new one",
    33: "the ticket is not valid yet; correct the clocks",
    34: "the same token came before: the client repeated it, or an attacker recorded it",
    35: "the keytab has no key of the ticket's service; correct its principal, or the realm",
    36: "the ticket is for another service than the keytab's",
    37: "the clocks differ by more than the clock skew of krb5.conf; correct them",
    39: "the version of the protocol is not supported",
    41: "a message was changed on its way",
    44: "the keytab has no key of the ticket's version; renew the older of the two",
    45: "the keytab has no key of the ticket's service; correct its principal, or the realm",
}
"""Error codes of RFC 4120, with what to do."""


def cause_of(code: int, text: str) -> str:
    """Return the cause of an error of the library for the log, on one line.

    Args:
        code: the minor status, as a number of 32 bits with or without a sign.
        text: what the library says about it.
    """
    signed = code - (1 << 32) if code >= 1 << 31 else code
    number = signed - _TABLE
    known = CAUSES.get(number)
    said = " ".join(text.split())[:300]
    return f"{known} ({said})" if known else said or f"Kerberos error {signed}"


def load_library() -> ModuleType:
    """Return the module `gssapi`.

    Raises:
        InvalidConfig: it is not installed.
    """
    try:
        import gssapi  # noqa: PLC0415 - an extra, which only Kerberos needs
    except (ImportError, OSError) as error:
        raise InvalidConfig(
            "GSSAPI needs the extra sparklog[gssapi] and MIT's library: install both, on Debian "
            f"and Ubuntu after `apt-get install gcc python3-dev libkrb5-dev`. problem={error}"
        ) from None
    module: ModuleType = gssapi
    return module


class KerberosContext:
    """One end of a context. Each method may block for some milliseconds, and raise SaslFailure."""

    def __init__(self, library: ModuleType, context: Any) -> None:
        """Wrap a context of the library; errors are raised at once, not sent first."""
        self._library = library
        self._context = context
        context.__DEFER_STEP_ERRORS__ = False

    @property
    def complete(self) -> bool:
        """Return True once the context is established."""
        return bool(self._context.complete)

    def step(self, token: bytes) -> bytes:
        """Return the token for the other end, or an empty one."""
        try:
            reply: bytes | None = self._context.step(token or None)
        except self._library.exceptions.GSSError as error:
            raise _failure("the ticket was not accepted", self._library, error) from None
        return reply or b""

    def wrap(self, message: bytes) -> bytes:
        """Return a message with proof that it is from this end."""
        try:
            wrapped: bytes = self._context.wrap(message, encrypt=False).message
        except self._library.exceptions.GSSError as error:
            raise _failure("a message cannot be protected", self._library, error) from None
        return wrapped

    def unwrap(self, token: bytes) -> bytes:
        """Return the message of a token that is proved to be from the other end."""
        try:
            message: bytes = self._context.unwrap(token).message
        except self._library.exceptions.GSSError as error:
            raise _failure("a message is not the peer's", self._library, error) from None
        return message

    def peers(self) -> tuple[str, str]:
        """Return the principals of the client and of the service."""
        try:
            return str(self._context.initiator_name), str(self._context.target_name)
        except (self._library.exceptions.GSSError, UnicodeDecodeError) as error:
            raise SaslFailure(f"the ticket has no readable principal. problem={error}") from None

    def lifetime_s(self) -> int | None:
        """Return the seconds until the ticket expires; None if it does not."""
        try:
            left_s = int(self._context.lifetime)
        except self._library.exceptions.GSSError as error:
            raise _failure("the ticket's end is unknown", self._library, error) from None
        return None if left_s >= _LIFETIME_S_MAX else left_s


class KerberosService:
    """The keys of a service, from a keytab. The library reads the file at each login."""

    def __init__(self, keytab: str, principal: str = "") -> None:
        """Open a keytab.

        Args:
            keytab: path of the file.
            principal: whose keys count, as `service/host@REALM`; empty: each key.

        Raises:
            InvalidConfig: no library, no such file, or no key of the principal.
        """
        self._library = load_library()
        gssapi = self._library
        try:
            name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
            self._keys = gssapi.Credentials(
                name=name, usage="accept", mechs=[gssapi.MechType.kerberos],
                store={"keytab": f"FILE:{keytab}"},
            )  # fmt: skip
        except gssapi.exceptions.GSSError as error:
            raise InvalidConfig(
                f"the keytab cannot be used: {_cause(gssapi, error)} keyTab={keytab} "
                f"principal={principal or '(each)'}"
            ) from None

    def context(self) -> KerberosContext:
        """Return a context for one client."""
        context = self._library.SecurityContext(creds=self._keys, usage="accept")
        return KerberosContext(self._library, context)

    def default_realm(self) -> str:
        """Return the realm that krb5.conf names; empty if it names none."""
        gssapi = self._library
        try:
            probe = gssapi.Name("x", gssapi.NameType.user)
            return KerberosName.parse(str(probe.canonicalize(gssapi.MechType.kerberos))).realm
        except (gssapi.exceptions.GSSError, UnmappedPrincipal):
            return ""


def client_context(
    host: str, service: str, keytab: str = "", principal: str = ""
) -> KerberosContext:
    """Return a context for a client that logs in at a broker.

    Args:
        host: the broker's host, as it is advertised.
        service: the first component of the broker's principal.
        keytab: file with the client's key; empty: the ticket cache, which `kinit` fills.
        principal: the client; empty: the one of the cache, or the first one of the keytab.

    Raises:
        InvalidConfig: no library, or neither a ticket nor a key.
    """
    gssapi = load_library()
    try:
        name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
        # Tickets got by a keytab stay in memory, and serve the next connection. The library
        # renews them. The cache of `kinit` may be another user's.
        cache = f"MEMORY:{keytab}:{principal}"
        store = {"client_keytab": f"FILE:{keytab}", "ccache": cache} if keytab else None
        own = gssapi.Credentials(
            name=name, usage="initiate", mechs=[gssapi.MechType.kerberos], store=store
        )
        target = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
        context = gssapi.SecurityContext(
            name=target, creds=own, usage="initiate", mech=gssapi.MechType.kerberos,
            flags=gssapi.RequirementFlag.mutual_authentication | gssapi.RequirementFlag.integrity,
        )  # fmt: skip
    except gssapi.exceptions.GSSError as error:
        raise InvalidConfig(
            f"there is no Kerberos ticket and no key: {_cause(gssapi, error)} "
            f"keyTab={keytab or '(ticket cache)'} principal={principal or '(default)'}"
        ) from None
    return KerberosContext(gssapi, context)


def _failure(what: str, library: ModuleType, error: Any) -> SaslFailure:
    return SaslFailure(f"{what}: {_cause(library, error)}")


def _cause(library: ModuleType, error: Any) -> str:
    """Return the cause of an error: the mechanism's text where it has one, else GSSAPI's."""
    said = "; ".join(error.get_all_statuses(error.min_code, False)) if error.min_code else ""
    said = said or "; ".join(error.get_all_statuses(error.maj_code, True))
    return cause_of(error.min_code, said)
