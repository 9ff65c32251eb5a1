"""The REST API: paths, codes and content types of Confluent's registry, and its own client."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Schema,
    SchemaRegistryClient,
    SchemaRegistryError,
)
from confluent_kafka.schema_registry import ServerConfig as ClientConfig

from sparklog.cluster.log import Log
from sparklog.core.web_requests import open_socket
from sparklog.registry.http.server import CONTENT_TYPE
from sparklog.store.memory import MemoryStore
from tests.harness.registry_server import served_registry

RECORD = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
WIDER = (
    '{"type":"record","name":"R","fields":[{"name":"a","type":"long"},'
    '{"name":"b","type":"string","default":""}]}'
)
WRONG = '{"type":"record","name":"R","fields":[{"name":"z","type":"int"}]}'


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Serve a registry from a thread of this process."""
    with served_registry(Log(MemoryStore("http"))) as found:
        yield found


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, headers={"Content-Type": CONTENT_TYPE}) as made:
        yield made


def post(http: httpx.Client, path: str, document: Any) -> httpx.Response:
    return http.post(path, content=json.dumps(document))


def test_versions_ids_and_texts_are_found_by_every_path(http: httpx.Client) -> None:
    made = post(http, "/subjects/a%2Fb/versions", {"schema": RECORD})
    assert made.status_code == 200, made.text
    assert made.headers["content-type"] == CONTENT_TYPE
    one = made.json()
    assert (one["version"], one["schema"]) == (1, RECORD)
    two = post(http, "/subjects/a%2Fb/versions", {"schema": WIDER}).json()
    ids, guid = f"/schemas/ids/{one['id']}", one["guid"]
    assert http.get(ids).json() == {"guid": guid, "schema": RECORD}
    assert http.get(f"{ids}/schema").text == RECORD
    assert http.get(f"{ids}/subjects").json() == ["a/b"]
    assert http.get(f"{ids}/versions").json() == [{"subject": "a/b", "version": 1}]
    assert http.get(f"/schemas/guids/{guid}").json() == {"guid": guid, "schema": RECORD}
    assert http.get(f"/schemas/guids/{guid}/ids").json() == [{"context": ".", "id": one["id"]}]
    assert http.get("/subjects/a%2Fb/versions").json() == [1, 2]
    latest = http.get("/subjects/a%2Fb/versions/latest").json()
    assert latest == {"subject": "a/b", **two}
    assert http.get("/subjects/a%2Fb/versions/1/schema").text == RECORD
    assert http.get("/subjects?subjectPrefix=a/").json() == ["a/b"]
    assert http.get("/schemas/types").json() == ["JSON", "PROTOBUF", "AVRO"]
    assert http.get("/contexts").json() == ["."]
    assert post(http, "/subjects/a%2Fb", {"schema": RECORD}).json()["version"] == 1
    assert http.get("/").json() == {}


def test_wrong_requests_get_confluents_codes(http: httpx.Client) -> None:
    post(http, "/subjects/codes/versions", {"schema": RECORD})
    cases = [
        (http.get("/subjects/none/versions"), 404, 40401),
        (http.get("/subjects/codes/versions/9"), 404, 40402),
        (http.get("/subjects/codes/versions/0"), 422, 42202),
        (http.get("/subjects/codes/versions/x"), 422, 42202),
        (http.get("/schemas/ids/99999"), 404, 40403),
        (http.get("/schemas/ids/abc"), 404, 404),
        (post(http, "/subjects/codes", {"schema": WRONG}), 404, 40403),
        (post(http, "/subjects/codes/versions", {"schema": "{"}), 422, 42201),
        (post(http, "/subjects/codes/versions", {"schema": ""}), 422, 422),
        (post(http, "/subjects/codes/versions", []), 422, 422),
        (post(http, "/subjects/codes/versions", {"schema": WRONG}), 409, 409),
        (http.get("/config/codes"), 404, 40408),
        (http.get("/mode/codes"), 404, 40409),
        (http.put("/config", content='{"compatibility":"NO"}'), 422, 42203),
        (http.put("/mode", content='{"mode":"NO"}'), 422, 42204),
        (http.delete("/subjects/codes?permanent=true"), 404, 40405),
        (http.get("/nowhere"), 404, 404),
        (http.put("/subjects"), 405, 405),
        (http.post("/subjects/a/versions", headers={"Content-Type": "text/xml"}), 415, 415),
        (httpx.post(f"{http.base_url}/subjects/a/versions", content=b"{}"), 415, 415),
        (http.get("/subjects", headers={"Host": "evil.example:8081"}), 421, 421),
        (http.get("/subjects", headers={"Host": "[::1]:8081"}), 200, 0),
        (http.post("/subjects/a/versions", content=b" " * 4_200_000), 413, 413),
        (http.get("/subjects/__GLOBAL/versions"), 422, 42208),
        (http.get("/associations/resources/-/t"), 404, 404),
    ]
    for response, status, code in cases:
        assert response.status_code == status, (response.url, response.text)
        assert not code or response.json()["error_code"] == code, response.text
        assert response.headers["content-type"] == CONTENT_TYPE
    reasons = post(http, "/compatibility/subjects/codes/versions/latest?verbose=true",
                   {"schema": WRONG}).json()  # fmt: skip
    assert reasons["is_compatible"] is False
    assert "'/fields/0'" in reasons["messages"][0]


def test_confluents_client_reads_and_changes_everything(url: str) -> None:
    with SchemaRegistryClient({"url": url}) as client:
        _use(client)


def _use(client: SchemaRegistryClient) -> None:
    schema, wider = Schema(RECORD, "AVRO"), Schema(WIDER, "AVRO")
    number = client.register_schema("client", schema)
    assert client.register_schema("client", wider) == number + 1
    assert client.get_schema(number).schema_str == RECORD
    assert client.get_latest_version("client").version == 2
    assert client.lookup_schema("client", schema).version == 1
    assert client.get_versions("client") == [1, 2]
    assert client.test_compatibility("client", Schema(WRONG, "AVRO")) is False
    assert client.test_compatibility_all_versions("client", wider) is True
    assert client.get_subjects() == sorted(client.get_subjects())
    guid = client.get_latest_version("client").guid or ""
    assert client.get_schema_by_guid(guid).schema_str == WIDER
    client.set_config("client", ClientConfig(compatibility=ConfigCompatibilityLevel.FULL))
    assert client.get_config("client").compatibility_level == "FULL"
    assert client.update_mode("client", "READONLY") == "READONLY"
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema("client", Schema(WRONG, "AVRO"))
    assert refused.value.error_code == 42205
    assert client.update_mode("client", "READWRITE") == "READWRITE"
    assert client.delete_version("client", 2) == 2
    assert client.delete_subject("client") == [1]
    assert client.delete_subject("client", permanent=True) == [1, 2]


def test_an_address_in_use_is_refused(url: str) -> None:
    port = int(url.rpartition(":")[2])
    with pytest.raises(OSError, match="in use"):
        open_socket("127.0.0.1", port)
    with open_socket("::1", 0) as other:
        assert other.family == socket.AF_INET6
