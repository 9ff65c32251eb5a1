"""`sparklog sql --serve --login` at secured brokers: each user reads what their ACLs allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest

from sparklog.cluster.log import open_log
from sparklog.core.topic_names import SCHEMAS_TOPIC
from sparklog.security.acls import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from sparklog.security.principal import Principal
from sparklog.testing.cluster import SparklogCluster
from tests.harness.login_listener import ROOT_LOGIN, SETTINGS
from tests.harness.registry_process import ServingProcess
from tests.harness.waiting import eventually

ANN, ROOT = ("ann", "ann-secret"), ("root", "root-secret")
HIDDEN = "payments"


def may(operation: AclOperation, topic: str) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, topic, PatternType.LITERAL, Principal("User", "ann"), "*", operation,
        AclPermission.ALLOW,
    )  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("secured") / "log")
    with open_log(place) as log:
        log.set_password(*ROOT)
        log.set_password(*ANN)
        log.create_acls([may(AclOperation.READ, "flights"), may(AclOperation.DESCRIBE, "orders")])
    return place


@pytest.fixture(scope="module")
def http(root: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """The server's client; brokers have the topics that the names below say."""
    file = tmp_path_factory.mktemp("client") / "client.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n")
    with SparklogCluster(config=SETTINGS, root=root, security=ROOT_LOGIN) as cluster:
        for topic in ("flights", "orders", HIDDEN, SCHEMAS_TOPIC):
            cluster.topic(topic)
            cluster.produce(topic, [f"of {topic}".encode()] if topic != SCHEMAS_TOPIC else [])
        server = ServingProcess(
            "sql", "--serve", "0", "--login", "--bootstrap-server", cluster.bootstrap_servers,
            "--command-config", str(file),
        )  # fmt: skip
        try:
            with httpx.Client(base_url=server.url(), timeout=60) as client:
                yield client
        finally:
            server.end()


def asked(http: httpx.Client, user: tuple[str, str], statement: str) -> tuple[int, Any]:
    found = http.post("/api/v1/sql", json={"statement": statement}, auth=user)
    document = found.json()
    return found.status_code, document.get("rows", document.get("error"))


def test_a_user_reads_topics_that_acls_allow(http: httpx.Client) -> None:
    assert asked(http, ANN, "SELECT text(value) FROM flights") == (200, [["of flights"]])
    for topic in ("flights", "orders", HIDDEN):
        statement = f"SELECT text(value) FROM {topic}"
        assert asked(http, ROOT, statement) == (200, [[f"of {topic}"]])
    assert http.post("/api/v1/sql", json={"statement": "SELECT 1"}).status_code == 401
    assert asked(http, ("ann", "root-secret"), "SELECT 1 AS one")[0] == 401
    assert asked(http, ("eve", "ann-secret"), "SELECT 1 AS one")[0] == 401


@pytest.mark.parametrize(
    "table", [HIDDEN, f"json.{HIDDEN}", f"text.{HIDDEN}", f"registry.{HIDDEN}", "secret"]
)
def test_a_hidden_topic_does_not_exist(http: httpx.Client, table: str) -> None:
    name = table.rpartition(".")[2]
    for statement in (
        f"SELECT * FROM {table}",
        f"SELECT text(value) FROM flights UNION ALL SELECT text(value) FROM {table}",
        f"SELECT (SELECT max(text(value)) FROM {table}) FROM flights",
        f"EXPLAIN SELECT * FROM {table}",
    ):
        status, error = asked(http, ANN, statement)
        assert (status, "no such topic" in str(error)) == (404, True), (statement, error)
        assert f"topic={name}" in error
        assert HIDDEN not in error.replace(f"topic={name}", "").replace(name, "")


def test_names_of_hidden_topics_are_not_listed(http: httpx.Client) -> None:
    status, found = asked(http, ANN, "SHOW TABLES")
    assert (status, found) == (200, [["flights"], ["orders"]])
    _, found = asked(http, ANN, "SELECT table_name FROM information_schema.tables")
    assert HIDDEN not in str(found)


def test_a_topic_without_the_right_to_read_is_refused_by_name(http: httpx.Client) -> None:
    for table in ("orders", "json.orders"):
        status, error = asked(http, ANN, f"SELECT value FROM {table}")
        assert (status, "orders" in str(error)) == (403, True), error
        assert "of orders" not in str(error)


def test_schemas_need_the_right_to_read_their_topic(http: httpx.Client) -> None:
    status, error = asked(http, ANN, "SELECT * FROM registry.flights")
    assert (status, SCHEMAS_TOPIC in str(error)) == (403, True), error
    status, error = asked(http, ROOT, "SELECT * FROM registry.flights")
    assert (status, "has no subject flights-value" in str(error)) == (400, True), error


def test_arriving_rows_are_those_that_acls_allow(http: httpx.Client) -> None:
    def first(topic: str) -> tuple[int, str]:
        given = {"statement": f"SELECT text(value) AS v FROM {topic}", "from": "beginning"}
        path = "/api/v1/sql/follow"
        with http.stream("GET", path, params=given, auth=ANN) as events:
            lines = (line for line in events.iter_lines() if "of " in line or "error" in line)
            return events.status_code, next(lines, "")

    status, line = first("flights")
    assert (status, "of flights" in line) == (200, True), line
    status, line = first(HIDDEN)
    assert (status, f"topic={HIDDEN}" in line) == (404, True), line
    _, line = first("orders")  # the brokers' refusal may come after the first event
    assert "TOPIC_AUTHORIZATION_FAILED topic=orders" in line, line


def test_a_look_up_by_key_needs_a_root(http: httpx.Client) -> None:
    for topic in ("flights", HIDDEN):
        found = http.get(f"/api/v1/topics/{topic}/keys/k", auth=ANN)
        assert (found.status_code, "give the root" in found.text) == (400, True)


def test_a_right_that_is_taken_back_ends_the_next_query(http: httpx.Client, root: str) -> None:
    statement = "SELECT text(value) FROM flights"
    with open_log(root) as log:
        log.delete_acls([AclFilter(ResourceType.TOPIC, "flights")])
    eventually(lambda: asked(http, ANN, statement)[0] == 404, "a hidden topic")
    assert asked(http, ROOT, statement)[0] == 200
