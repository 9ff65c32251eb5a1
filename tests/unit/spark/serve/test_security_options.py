"""Options of `serve` for TLS, logins and listeners, and the brokers' settings that they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.broker.network.listeners import advertised_of, listeners_of
from sparklog.broker.runtime.environment import Address
from sparklog.core.config.broker import BrokerConfig, parse_broker_configs
from sparklog.spark.serve.arguments import parse_serve
from sparklog.spark.serve.broker_plan import ControlPoint


def never(*_: object, **__: object) -> None:
    raise AssertionError("no broker is started")


def settings(root: Path, *words: str) -> list[BrokerConfig]:
    """Return the settings of each broker on one machine."""
    job = parse_serve(["--root", str(root), "--brokers", "2", *words])
    plans = job.plans(never, ControlPoint("127.0.0.1", 1, "t"), "local[2]")
    return [parse_broker_configs(plan.settings("127.0.0.1", {})) for plan in plans]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name in ("broker.pem", "broker.key", "ca.pem"):
        (tmp_path / name).write_text("PEM")
    return tmp_path


def test_a_certificate_and_a_login_make_the_protocol(files: Path) -> None:
    first, second = settings(
        files, "--port", "9100", "--tls-cert", f"{files}/broker.pem", "--tls-key",
        f"{files}/broker.key", "--tls-ca", f"{files}/ca.pem", "--sasl", "scram", "--sasl", "plain",
    )  # fmt: skip
    assert first["listeners"] == "SASL_SSL://127.0.0.1:9100"
    assert second["advertised.listeners"] == "SASL_SSL://127.0.0.1:9101"
    assert first["ssl.keystore.key"] == f"${{dir:{files}:broker.key}}"
    assert first["ssl.keystore.certificate.chain"] == f"${{dir:{files}:broker.pem}}"
    assert first["ssl.truststore.location"] == f"{files}/ca.pem"
    assert first["sasl.enabled.mechanisms"] == ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")


@pytest.mark.parametrize(
    ("words", "protocol"),
    [
        ((), "PLAINTEXT"),
        (("--sasl", "scram"), "SASL_PLAINTEXT"),
        (("--tls-cert", "broker.pem"), "SSL"),
        (("--tls-cert", "broker.pem", "--sasl", "oauthbearer", "--protocol", "SSL"), "SSL"),
    ],
)
def test_the_protocol_follows_from_the_options(
    files: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], protocol: str
) -> None:
    monkeypatch.chdir(files)
    (listener,) = listeners_of(settings(files, *words)[0])
    assert listener.name == listener.protocol == protocol


def test_further_listeners_count_on_and_have_their_own_hosts(files: Path) -> None:
    words = ("--port", "9100", "--tls-cert", f"{files}/broker.pem", "--protocol", "SSL",
             "--listener", "external=SASL_SSL://0.0.0.0:9200@kafka.example",
             "--listener", "PLAIN=PLAINTEXT://:0")  # fmt: skip
    _, second = settings(files, *words)
    ssl, external, plain = listeners_of(second)
    assert (ssl.name, ssl.protocol, ssl.is_inter_broker) == ("SSL", "SSL", True)
    assert (external.name, external.protocol) == ("EXTERNAL", "SASL_SSL")
    assert external.address == Address("0.0.0.0", 9201)
    assert (plain.address, plain.is_inter_broker) == (Address("127.0.0.1", 0), False)
    bound = {one.name: one.address for one in (ssl, external, plain)}
    assert advertised_of(second, bound)["EXTERNAL"] == Address("kafka.example", 9201)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--tls-key", "broker.key"), "--tls-key needs --tls-cert"),
        (("--tls-cert", "none.pem"), "there is no such file"),
        (("--protocol", "SSL"), "needs a certificate"),
        (("--tls-cert", "broker.pem", "--protocol", "PLAINTEXT"), "no effect"),
        (("--listener", "A=TLS://h:1"), "--listener takes NAME=PROTOCOL"),
        (("--listener", "PLAINTEXT=PLAINTEXT://h:1"), "has a name twice"),
        (("--sasl", "scram", "--config", "sasl.enabled.mechanisms=PLAIN"), "another option"),
        (("--config", "ssl.key.password=open"), "refer to a file instead"),
        (("--config", "listener.security.protocol.map=A:SSL"), "use --protocol and --listener"),
    ],
)
def test_options_that_do_not_go_together_are_errors(
    files: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(files)
    with pytest.raises(SystemExit) as ended:
        settings(files, *words)
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "=open" not in shown
