"""Requests about delegation tokens, and the answers of brokers in a form that can be compared."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from sparklog.client.addresses import bootstrap_addresses
from sparklog.client.security import SecuritySettings
from sparklog.client.wire import WireConnection
from sparklog.core.errors import SaslAuthenticationFailed
from sparklog.protocol.api_keys import Api
from tests.harness.plain_requests import plain_request
from tests.harness.waiting import eventually
from tests.peers.kafka_tools import run_tool

SECRET_KEY = "the key of tokens"
DAY = timedelta(days=1)
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
NOW, SOON = timedelta(0), timedelta(milliseconds=1)

WEEK, HOUR = 7 * DAY, timedelta(hours=1)
NOT_ALLOWED = [64, 64, 64, 64]
KAFKAS_ANSWERS: dict[str, Any] = {
    "plaintext": NOT_ALLOWED,
    "one-way TLS": NOT_ALLOWED,
    "by token SCRAM-SHA-256": NOT_ALLOWED,
    "by token SCRAM-SHA-512": NOT_ALLOWED,
    "principals": [("alice", "alice"), ("odd", "alice")],
    "times": [(WEEK, DAY), (HOUR, HOUR), (WEEK, DAY)],
    "sizes": (22, 64),
    "renewer of another type": 67,
    "owner of another type": 0,
    "HMAC of the id": True,
    "wrong": [False, False],
    "described": ("alice", "alice", [("User", "odd")], 64),
    "described by a renewer": True,
    "described to none": set(),
    "renewed and expired": [0, 0, 63, 63],
    "unknown": [62, 62],
    "days until the expiry": [-1.0, 0.0, -1.0],
    "removed": [0, 62, 62],
    "expired": [66, 66, 66, 63, 0],
}
"""The answers of Kafka 4.4."""
OUR_ANSWERS = {**KAFKAS_ANSWERS, "owner of another type": 67}
"""Kafka lets a token of `Group:odd` log in as `User:odd`."""


@dataclass(frozen=True)
class TokenClient:
    """A client that sends requests about tokens and keeps what it learns."""

    connection: WireConnection

    def create(self, version: int = 3, **values: Any) -> Any:
        values = {"max_lifetime": timedelta(milliseconds=-1), **values}
        return self.connection.call(plain_request(Api.CREATE_DELEGATION_TOKEN, version, **values))

    def renew(self, secret: bytes, period: timedelta = -SOON) -> Any:
        asked = plain_request(Api.RENEW_DELEGATION_TOKEN, 2, hmac=secret, renew_period=period)
        return self.connection.call(asked)

    def expire(self, secret: bytes, period: timedelta = -SOON) -> Any:
        asked = plain_request(
            Api.EXPIRE_DELEGATION_TOKEN, 2, hmac=secret, expiry_time_period=period
        )
        return self.connection.call(asked)

    def describe(self, *owners: str, every: bool = False) -> Any:
        named = [{"principal_type": "User", "principal_name": one} for one in owners]
        asked = plain_request(Api.DESCRIBE_DELEGATION_TOKEN, 3, owners=None if every else named)
        return self.connection.call(asked)

    def await_described(self, token_id: str, fits: Callable[[Any], bool]) -> None:
        """Wait until a token is shown as it is expected; None stands for a token that is gone.

        A controller of Kafka decides on a cache that a change reaches a moment later. A renewal in
        between brings a removed token back.
        """

        def fitting() -> bool:
            tokens = {one.token_id: one for one in self.describe(every=True).tokens}
            return fits(tokens.get(token_id))

        eventually(fitting, "the change of the token is shown", 10.0)

    def all_codes(self, secret: bytes = b"none") -> list[int]:
        answers = [
            self.create(), self.renew(secret), self.expire(secret), self.describe(every=True)
        ]  # fmt: skip
        return [int(one.error_code) for one in answers]


@contextmanager
def client(address: str, settings: Mapping[str, str]) -> Iterator[TokenClient]:
    (found,) = bootstrap_addresses(address)
    with WireConnection(found, 10.0, SecuritySettings(dict(settings))) as connection:
        yield TokenClient(connection)


def token_login(mechanism: str, token_id: str, secret: bytes) -> dict[str, str]:
    password = base64.b64encode(secret).decode()
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{SCRAM} username="{token_id}" password="{password}" '
        'tokenauth="true";',
    }


def can_log_in(address: str, settings: Mapping[str, str]) -> bool:
    """Return whether a login succeeds. A broker learns of a token a moment later."""
    try:
        with client(address, settings):
            return True
    except SaslAuthenticationFailed:
        return False


def token_answers(login: Callable[[str], tuple[str, dict[str, str]]]) -> dict[str, Any]:
    """Return what a cluster answers to users with and without rights to a token.

    `login` returns the address and the settings of a kind of client.
    """
    found: dict[str, Any] = {kind: _codes_of(*login(kind)) for kind in ("plaintext", "one-way TLS")}
    with (
        client(*login("alice")) as alice,
        client(*login("odd")) as odd,
        client(*login("b")) as b,
    ):
        found |= _created(alice)
        token = alice.create(renewers=[{"principal_type": "User", "principal_name": "odd"}])
        secret, token_id = bytes(token.hmac), token.token_id
        expected = hmac.digest(SECRET_KEY.encode(), token_id.encode(), "sha512")
        found["HMAC of the id"] = secret == expected
        address, settings = login("alice")
        by_token = {
            mechanism: {**settings, **token_login(mechanism, token_id, secret)}
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        }
        for mechanism, own in by_token.items():
            eventually(partial(can_log_in, address, own), "the token is known", 10.0)
            found[f"by token {mechanism}"] = _codes_of(address, own, secret)
        wrong = {**settings, **token_login("SCRAM-SHA-256", token_id, b"wrong")}
        unknown = {**settings, **token_login("SCRAM-SHA-256", "unknown", secret)}
        found["wrong"] = [can_log_in(address, wrong), can_log_in(address, unknown)]
        found |= _described(alice, odd, token_id)
        found |= _changed(alice, odd, b, secret)
        found["removed"] = [int(alice.expire(secret).error_code)]
        alice.await_described(token_id, lambda one: one is None)
        found["removed"] += [
            int(alice.expire(secret).error_code), int(alice.renew(secret).error_code)
        ]  # fmt: skip
        eventually(
            lambda: not can_log_in(address, by_token["SCRAM-SHA-512"]), "it is removed", 10.0
        )
        found |= _expired(alice, b)
    return found


def _codes_of(address: str, settings: Mapping[str, str], secret: bytes = b"none") -> list[int]:
    with client(address, settings) as one:
        return one.all_codes(secret)


def _created(alice: TokenClient) -> dict[str, Any]:
    token = alice.create()
    short = alice.create(max_lifetime=HOUR)
    old = alice.create(version=1)
    group = [{"principal_type": "Group", "principal_name": "g"}]
    other = alice.create(owner_principal_type="User", owner_principal_name="odd")
    return {
        "principals": [
            (one.principal_name, one.token_requester_principal_name) for one in (token, other)
        ],
        "times": [
            (one.max_timestamp - one.issue_timestamp, one.expiry_timestamp - one.issue_timestamp)
            for one in (token, short, old)
        ],
        "sizes": (len(token.token_id), len(token.hmac)),
        "renewer of another type": int(alice.create(renewers=group).error_code),
        "owner of another type": int(
            alice.create(owner_principal_type="Group", owner_principal_name="odd").error_code
        ),
    }


def _described(alice: TokenClient, odd: TokenClient, token_id: str) -> dict[str, Any]:
    def ids(answer: Any) -> set[str]:
        assert int(answer.error_code) == 0
        return {one.token_id for one in answer.tokens}

    eventually(lambda: token_id in ids(alice.describe("alice")), "it is described", 10.0)
    (one,) = [t for t in alice.describe("alice").tokens if t.token_id == token_id]
    return {
        "described": (
            one.principal_name,
            one.token_requester_principal_name,
            [(r.principal_type, r.principal_name) for r in one.renewers],
            len(one.hmac),
        ),
        "described by a renewer": token_id in ids(odd.describe("odd")),
        "described to none": ids(alice.describe()),
    }


def _changed(alice: TokenClient, odd: TokenClient, b: TokenClient, secret: bytes) -> dict[str, Any]:
    minute = timedelta(minutes=1)
    renewals = [alice.renew(secret), odd.renew(secret), b.renew(secret), b.expire(secret)]
    day, short, long = (alice.renew(secret, one) for one in (-SOON, minute, 10 * DAY))
    lowered = odd.expire(secret, minute)
    spans = [one.expiry_timestamp - day.expiry_timestamp for one in (short, long, lowered)]
    return {
        "renewed and expired": [int(one.error_code) for one in renewals],
        "unknown": [int(alice.renew(b"x").error_code), int(alice.expire(b"x").error_code)],
        "days until the expiry": [round(span / DAY, 2) for span in spans],
    }


def _expired(alice: TokenClient, b: TokenClient) -> dict[str, Any]:
    """Return the codes for a token that has expired and was not removed yet."""
    token = alice.create()
    secret = bytes(token.hmac)
    alice.await_described(token.token_id, lambda one: one is not None)
    end = alice.expire(secret, NOW).expiry_timestamp
    alice.await_described(
        token.token_id, lambda one: datetime.fromtimestamp(one.expiry_timestamp / 1000, UTC) == end
    )
    answers = [
        alice.renew(secret), b.renew(secret), alice.expire(secret, NOW), b.expire(secret),
        alice.expire(secret),
    ]  # fmt: skip
    return {"expired": [int(one.error_code) for one in answers]}


def token_tool(address: str, file: Path, *words: str) -> str:
    """Run kafka-delegation-tokens with a client properties file; return what it prints."""
    given = ("--bootstrap-server", address, "--command-config", str(file), *words)
    return run_tool("DelegationTokenCommand", *given)


def properties_file(file: Path, settings: Mapping[str, str]) -> Path:
    """Write settings of a Java client; its trust store is PEM."""
    lines = {**settings, "ssl.truststore.type": "PEM"}.items()
    file.write_text("".join(f"{name}={text}\n" for name, text in lines))
    return file
