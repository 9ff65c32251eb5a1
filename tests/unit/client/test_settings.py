"""The settings of librdkafka, and its errors that end a client."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from sparklog.client.settings import SecurityProblem, client_settings
from sparklog.core.errors import InvalidConfig, SaslAuthenticationFailed

AUTHENTICATION, SSL, TRANSPORT = (
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError._TRANSPORT,
)


def test_java_names_become_librdkafkas(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": f"${{dir:{tmp_path}:password}}",
    }
    settings = client_settings("h:1", {"acks": "all"}, given)
    assert settings["sasl.mechanisms"] == "PLAIN"
    assert settings["sasl.password"] == "secret"
    assert settings["acks"] == "all"
    assert "sasl.mechanism" not in settings


def test_settings_without_security_stay() -> None:
    settings = client_settings("h:1", {"acks": "all"})
    assert {name for name in settings if "s" in name.split(".")[0][:4]} >= {"acks"}
    assert "security.protocol" not in settings
    with pytest.raises(InvalidConfig, match=r"did you mean ssl\.ca\.|unknown security setting"):
        client_settings("h:1", {"ssl.ca.locatoin": "x"})


def test_bearer_tokens_come_by_callback(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a.b.c")
    given = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri(),
    }
    token, expiry_s = client_settings("h:1", given)["oauth_cb"]("")
    assert token == "a.b.c"
    assert expiry_s > 0


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (AUTHENTICATION, "SASL authentication error: wrong password", SaslAuthenticationFailed),
        (SSL, "SSL handshake failed: certificate verify failed: ...", InvalidConfig),
        (SSL, "SSL handshake failed: Disconnected", None),
        (AUTHENTICATION, "Local: Broker transport failure", None),
        (TRANSPORT, "Connection refused", None),
    ],
)
def test_only_lasting_errors_of_security_end_a_client(
    code: int, text: str, kind: type[Exception] | None
) -> None:
    problem = SecurityProblem()
    problem(KafkaError(code, text))
    assert (None if problem.found is None else type(problem.found)) is kind
