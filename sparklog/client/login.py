"""Logs a connection in by SASL. Source: KIP-43, KIP-152, KIP-368."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sparklog.client.addresses import BrokerAddress
from sparklog.client.errors import of_code
from sparklog.client.security_settings import GSSAPI, SaslSettings
from sparklog.client.token_source import bearer_token
from sparklog.core.entropy import Entropy
from sparklog.core.errors import SaslAuthenticationFailed, UnsupportedSaslMechanism
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.schemas import request_schema
from sparklog.security.sasl.client import SaslExchange, SaslLogin, sasl_exchange
from sparklog.security.sasl.mechanism import SaslFailure

VERSION: Final = 1
"""Of both messages: the first with tokens in frames, and with the duration of a session."""
STEPS_MAX: Final = 5
"""More than any mechanism needs."""
UNSUPPORTED_MECHANISM: Final = 33


def log_in(
    call: Callable[[Any], Any], sasl: SaslSettings, address: BrokerAddress, entropy: Entropy
) -> int:
    """Log in, for the first time or again, and return the session's duration in ms; 0 has no end.

    Args:
        call: sends a request entity and returns the response.
        sasl: mechanism and credentials.
        address: the broker's address, for errors.
        entropy: for the nonce.

    Raises:
        SaslAuthenticationFailed: the credentials are wrong, or the broker is not genuine.
        UnsupportedSaslMechanism: the broker does not offer the mechanism.
        InvalidConfig, Unavailable: there is no bearer token, or no Kerberos ticket.
    """
    exchange = _exchange(sasl, address, entropy)
    answer = call(request_schema(Api.SASL_HANDSHAKE, VERSION)(mechanism=sasl.mechanism))
    code = int(answer.error_code)
    if code == UNSUPPORTED_MECHANISM:
        raise UnsupportedSaslMechanism(
            "the broker does not offer this SASL mechanism; set sasl.mechanism. "
            f"sasl.mechanism={sasl.mechanism} offered={','.join(answer.mechanisms)} "
            f"broker={address}"
        )
    if code:
        raise of_code(code, None, "the broker's listener expects no login", broker=address)
    try:
        out = next(exchange)
    except SaslFailure as failure:
        raise _not_completed(failure, sasl, address) from None
    for _ in range(STEPS_MAX):
        answer = call(request_schema(Api.SASL_AUTHENTICATE, VERSION)(auth_bytes=out))
        if int(answer.error_code):
            raise of_code(
                int(answer.error_code),
                answer.error_message,
                "the broker rejected the login; correct the user and the password, or the token",
                mechanism=sasl.mechanism,
                user=sasl.user or None,
                broker=address,
            )
        try:
            out = exchange.send(answer.auth_bytes)
        except StopIteration:
            return _milliseconds(answer.session_lifetime)
        except SaslFailure as failure:
            raise _not_completed(failure, sasl, address) from None
    raise SaslAuthenticationFailed(f"the login does not end. broker={address}")


def _exchange(sasl: SaslSettings, address: BrokerAddress, entropy: Entropy) -> SaslExchange:
    if sasl.mechanism == GSSAPI:
        from sparklog.security.sasl.gssapi import gssapi_exchange  # noqa: PLC0415 - seldom
        from sparklog.security.sasl.kerberos import client_context  # noqa: PLC0415 - seldom

        return gssapi_exchange(
            client_context(address.host, sasl.service, sasl.keytab, sasl.principal)
        )
    token = bearer_token(sasl) if sasl.mechanism == "OAUTHBEARER" else ""
    login = SaslLogin(sasl.mechanism, sasl.user, sasl.password, token, by_token=sasl.by_token)
    return sasl_exchange(login, entropy)


def _not_completed(
    failure: SaslFailure, sasl: SaslSettings, address: BrokerAddress
) -> SaslAuthenticationFailed:
    return SaslAuthenticationFailed(
        f"the login was not completed: {failure} mechanism={sasl.mechanism} broker={address}"
    )


def _milliseconds(lifetime: Any) -> int:
    return int(lifetime.total_seconds() * 1000)
