"""`serve` with TLS and logins: clients, Spark and commands get in, and no secret gets out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparklog
from sparklog.client.admin import Admin
from sparklog.client.consumer import Consumer
from sparklog.client.producer import Producer
from sparklog.client.security import read_client_file
from sparklog.client.values import EARLIEST, ConfigResource
from sparklog.core.errors import InvalidConfig, SaslAuthenticationFailed
from sparklog.core.types import TopicPartition
from tests.harness.certificates import CertificateAuthority
from tests.peers.sparklog import SparklogCluster

USER = "etl"
PASSWORD, KEY_PASSWORD = "MARKED-PASSWORD-3f9c", "MARKED-KEY-PASSWORD-77aa"
GUESS = "MARKED-GUESS-51d0"
STATIC_PASSWORD = "MARKED-STATIC-0b2e"
SECRETS = (PASSWORD, KEY_PASSWORD, GUESS, STATIC_PASSWORD)


@dataclass(frozen=True)
class SecureServe:
    """An application whose brokers have TLS and logins."""

    cluster: SparklogCluster
    folder: Path
    secrets: Path
    """The folder with the files that may contain secrets."""

    def client(self, password: str = "password") -> Path:
        """Return a client's properties, which refer to the file of a password."""
        path = self.folder / f"{password}.properties"
        path.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
            f"sasl.username={USER}\nsasl.password=${{dir:{self.secrets}:{password}}}\n"
            f"ssl.truststore.location={self.folder}/ca.pem\n"
        )
        return path

    def settings(self, password: str = "password") -> dict[str, str]:
        security, _ = read_client_file(self.client(password), "test")
        return security.given


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureServe]:
    folder = tmp_path_factory.mktemp("secure-serve")
    secrets = folder / "secrets"
    secrets.mkdir()
    authority = CertificateAuthority()
    (folder / "ca.pem").write_text(authority.pem)
    issued = authority.issue("broker", "127.0.0.1", "localhost", password=KEY_PASSWORD)
    (folder / "broker.pem").write_text(issued.chain)
    (secrets / "broker.key").write_text(issued.key)
    for name, text in (("password", PASSWORD), ("guess", GUESS), ("key", KEY_PASSWORD)):
        (secrets / name).write_text(text)
    (secrets / "users").write_text(f"robot={STATIC_PASSWORD}\n")
    root = (folder / "log").as_uri()
    with sparklog.open_log(root) as log:
        log.set_password(USER, PASSWORD)
    plain = "listener.name.sasl_ssl.plain.sasl.jaas.config"
    (secrets / "jaas").write_text(
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'user_robot="{STATIC_PASSWORD}";'
    )
    options = (
        *("--brokers", "2", "--tls-cert", f"{folder}/broker.pem"),
        *("--tls-key", f"{secrets}/broker.key", "--tls-ca", f"{folder}/ca.pem"),
        *("--sasl", "scram", "--sasl", "plain"),
        *("--config", f"ssl.key.password=${{dir:{secrets}:key}}"),
        *("--config", f"{plain}=${{dir:{secrets}:jaas}}", "--log-level", "DEBUG"),
    )
    with SparklogCluster(folder / "serve", *options, root=root) as cluster:
        yield SecureServe(cluster, folder, secrets)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command as users do."""
    ran = subprocess.run(
        [sys.executable, "-m", "sparklog.cli", *words],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert not any(secret in ran.stdout + ran.stderr for secret in SECRETS)
    return ran


def test_clients_and_commands_log_in(serve: SecureServe) -> None:
    where = ("--bootstrap-server", serve.cluster.bootstrap, "--command-config")
    config = str(serve.client())
    created = command("topics", *where, config, "--create", "--topic", "orders")
    assert created.returncode == 0, created.stderr
    with Producer(serve.cluster.bootstrap, settings=serve.settings()) as producer:
        sent = [producer.send("orders", b"%d" % n) for n in range(100)]
        assert all(one.result(60).offset >= 0 for one in sent)
    found: list[bytes | None] = []
    with Consumer(serve.cluster.bootstrap, settings=serve.settings()) as consumer:
        consumer.assign({TopicPartition("orders", 0): EARLIEST})
        while len(found) < 100:
            found += [record.value for record in consumer.poll()]
    assert found == [b"%d" % n for n in range(100)]
    refused = command("topics", *where, str(serve.client("guess")), "--list")
    assert refused.returncode == 1
    assert "the broker rejected the login" in refused.stderr


def test_spark_logs_in_by_references_to_secrets(serve: SecureServe, spark: SparkSession) -> None:
    options = {f"kafka.{name}": text for name, text in serve.settings().items()}
    rows = spark.range(50).selectExpr("cast(id AS string) AS value")
    where = {"path": serve.cluster.root, **options}
    with Admin(serve.cluster.bootstrap, settings=serve.settings()) as admin:
        admin.create_topic("numbers", 2, replication_factor=2)
    rows.write.format("sparklog").options(**where).option("topic", "numbers").mode("append").save()
    read = spark.read.format("sparklog").options(**where).option("subscribe", "numbers").load()
    assert sorted(int(row.value) for row in read.select("value").collect()) == list(range(50))


def test_a_client_without_a_login_learns_the_protocol(
    serve: SecureServe, spark: SparkSession
) -> None:
    with pytest.raises(InvalidConfig, match="speaks TLS; set security"):
        Admin(serve.cluster.bootstrap).topic_names()
    plain = spark.read.format("sparklog").option("path", serve.cluster.root)
    with pytest.raises(Exception, match=r"security\.protocol=PLAINTEXT protocols=SASL_SSL"):
        plain.option("subscribe", "orders").load().count()


def test_no_secret_is_in_a_log_an_answer_or_a_command_line(serve: SecureServe) -> None:
    with pytest.raises(SaslAuthenticationFailed) as caught:
        Admin(serve.cluster.bootstrap, settings=serve.settings("guess")).topic_names()
    with Admin(serve.cluster.bootstrap, settings=serve.settings()) as admin:
        described = repr(admin.configs(ConfigResource.BROKER, ("1", "2")))
    assert "ssl.key.password" in described
    leaks = [f"an answer has {secret}" for secret in SECRETS if secret in described]
    leaks += [f"an error has {secret}" for secret in SECRETS if secret in repr(caught.value)]
    scratch = Path(serve.cluster.brokers[1]["folder"]).parents[2]
    looked = 0
    for folder in (serve.folder, scratch):
        for path in folder.rglob("*"):
            if path.is_file() and serve.secrets not in path.parents:
                looked += 1
                data = path.read_bytes()
                leaks += [f"{path} has {secret}" for secret in SECRETS if secret.encode() in data]
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            try:
                words = (process / "cmdline").read_bytes()
            except OSError:  # it has ended
                continue
            leaks += [f"{words!r} has {s}" for s in SECRETS if s.encode() in words]
    assert leaks == []
    assert looked > 20
