"""Answers of Azure and Google, from a real HTTP server that has them by plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from uuid import uuid4

import pytest
import requests
from requests import Session

from sparklog.core.errors import InvalidConfig, Unavailable
from sparklog.store.azure import AzureStore
from sparklog.store.azure_access import AzureAccess
from sparklog.store.base import (
    ObjectNotFound,
    ObjectStore,
    PutOutcome,
    TransientStoreError,
    http_range,
    key_prefix,
)
from sparklog.store.cloud_requests import CloudRequest, LostAnswer, pooled
from sparklog.store.gcs import GcsStore
from sparklog.store.settings import StoreSettings
from tests.harness.fault_proxy import Action, FaultProxy, fault_proxy

KEY = "a2V5"
"""A key of an account, as base64."""
SETTINGS = StoreSettings(connect_timeout_s=1.0, read_timeout_s=2.0)
REQUEST = CloudRequest("Azure", "a role", "get", "root=abfs://c@a key=k")
PUTS = ("PUT", "POST")
"""The methods of uploads to Azure and to Google."""


@pytest.fixture
def server() -> Iterator[FaultProxy]:
    """A server that answers by plan; there is nothing behind it."""
    with fault_proxy(upstream_port=1) as proxy:
        proxy.add(Action.ANSWER, "GET", "comp=properties", status=403, code="Denied")
        yield proxy


@pytest.fixture(params=["azure", "gcs"])
def store(request: pytest.FixtureRequest, server: FaultProxy) -> Iterator[ObjectStore]:
    opened: ObjectStore
    if request.param == "azure":
        access = AzureAccess(f"{server.endpoint_url}/account", KEY)
        opened = AzureStore("container", "account", uuid4().hex, access, SETTINGS)
    else:
        variables = {"STORAGE_EMULATOR_HOST": server.endpoint_url}
        opened = GcsStore("bucket", uuid4().hex, variables, SETTINGS)
    with closing(opened):
        yield opened


def answer_puts(server: FaultProxy, status: int, code: str = "") -> None:
    for method in PUTS:
        server.add(Action.ANSWER, method, status=status, code=code)


def sent_puts(server: FaultProxy) -> int:
    return sum(server.sent(method) for method in PUTS)


def test_put_outcomes_follow_the_status(store: ObjectStore, server: FaultProxy) -> None:
    exists = (409, "BlobAlreadyExists") if isinstance(store, AzureStore) else (412, "")
    answer_puts(server, *exists)
    assert store.put_if_absent("log/0", b"x") is PutOutcome.EXISTS
    server.clear()
    for method in PUTS:
        server.add(Action.LOSE_REQUEST, method)
    assert store.put_if_absent("log/0", b"x") is PutOutcome.UNKNOWN
    assert sent_puts(server) == 2


@pytest.mark.parametrize(
    ("status", "code", "error", "text"),
    [
        (409, "LeaseIdMissing", TransientStoreError, "another write to this key is under way"),
        (429, "ServerBusy", TransientStoreError, "takes fewer requests"),
        (503, "ServerBusy", TransientStoreError, "takes fewer requests"),
        (401, "NoAuthenticationInformation", InvalidConfig, "refuses access"),
        (403, "AuthorizationFailure", InvalidConfig, "refuses access"),
        (404, "ContainerNotFound", InvalidConfig, "no such"),
        (400, "InvalidInput", Unavailable, "refuses the request"),
    ],
)
def test_refused_put_raises_an_error_that_names_the_root(
    store: ObjectStore,
    server: FaultProxy,
    status: int,
    code: str,
    error: type[Exception],
    text: str,
) -> None:
    answer_puts(server, status, code)
    with pytest.raises(error, match=text) as raised:
        store.put_if_absent("log/0", b"x")
    assert f"root={store.url} key=log/0" in str(raised.value)
    assert KEY not in str(raised.value)
    assert sent_puts(server) == 1


def test_a_store_that_is_away_has_written_nothing(store: ObjectStore, server: FaultProxy) -> None:
    server.go_away()
    for request in (lambda: store.get("k"), lambda: store.put_if_absent("k", b"x")):
        with pytest.raises(TransientStoreError, match="cannot be reached") as raised:
            request()
        assert not raised.value.unsettled
    server.listen()


def test_absent_object_is_not_found(store: ObjectStore, server: FaultProxy) -> None:
    for method in ("GET", "HEAD", "DELETE"):
        server.add(Action.ANSWER, method, status=404, code="BlobNotFound")
    for look in (store.get, store.head):
        with pytest.raises(ObjectNotFound):
            look("log/0")
    store.delete("log/0")


def test_account_with_folders_is_refused(server: FaultProxy) -> None:
    server.clear()
    server.add(
        Action.ANSWER,
        "GET",
        "comp=properties",
        status=200,
        headers=[("x-ms-is-hns-enabled", "true")],
    )
    access = AzureAccess(f"{server.endpoint_url}/account", KEY)
    store = AzureStore("container", "account", "log", access, SETTINGS)
    with pytest.raises(InvalidConfig, match="hierarchical namespace"):
        store.put_if_absent("log/0", b"x")
    assert sent_puts(server) == 0
    store.close()


def test_plain_server_at_a_secure_endpoint_is_no_outage(server: FaultProxy) -> None:
    with (
        pooled(Session(), SETTINGS) as session,
        pytest.raises(requests.RequestException) as raised,
    ):
        session.get(f"https://127.0.0.1:{server.port}/", timeout=5)
    translated = REQUEST.unanswered(raised.value)
    assert isinstance(translated, Unavailable)
    assert not isinstance(translated, TransientStoreError)
    assert "no secure connection to Azure" in str(translated)


def test_lost_answer_may_have_written() -> None:
    translated = REQUEST.unanswered(requests.ReadTimeout("silence"))
    assert isinstance(translated, LostAnswer)
    assert translated.unsettled


@pytest.mark.parametrize("status", [401, 403])
def test_withdrawn_right_is_unavailable_and_a_missing_one_is_not(status: int) -> None:
    first, later = (
        replace(REQUEST, granted=one).answered(status, "Denied") for one in (False, True)
    )
    assert isinstance(first, InvalidConfig)
    assert isinstance(later, Unavailable)
    assert "refuses what it allowed before" in str(later)


def test_azure_access_reads_variables_and_connection_strings() -> None:
    assert AzureAccess.from_environment({}) == AzureAccess()
    text = "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5==;BlobEndpoint=http://h/a;"
    read = AzureAccess.from_environment({"AZURE_STORAGE_CONNECTION_STRING": text})
    assert read == AzureAccess("http://h/a", "a2V5==")
    assert "a2V5" not in repr(read)
    both = {"AZURE_STORAGE_CONNECTION_STRING": text, "AZURE_STORAGE_KEY": "other"}
    assert AzureAccess.from_environment(both).account_key == "other"
    with pytest.raises(InvalidConfig, match="parts like") as raised:
        AzureAccess.from_environment({"AZURE_STORAGE_CONNECTION_STRING": "secret"})
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("account", "url"),
    [
        ("a", "https://a.blob.core.windows.net"),
        ("a.dfs.core.chinacloudapi.cn", "https://a.blob.core.chinacloudapi.cn"),
        ("a.blob.storage.azure.net", "https://a.blob.storage.azure.net"),
    ],
)
def test_azure_endpoint_follows_the_account(account: str, url: str) -> None:
    assert AzureAccess().endpoint_url(account) == url


def test_ranges_and_prefixes_are_those_of_every_store() -> None:
    assert [http_range(*each) for each in ((None, None), (0, None), (3, None), (-3, None))] == [
        None,
        None,
        "bytes=3-",
        "bytes=-3",
    ]
    assert http_range(None, 4) == "bytes=0-3"
    assert key_prefix("gs://b", "") == ""
    assert key_prefix("gs://b", "a/b/") == "a/b/"
    with pytest.raises(InvalidConfig, match="too long"):
        key_prefix("gs://b", "x" * 201)
