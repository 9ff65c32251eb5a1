"""Azure and Google on bad days: their emulators behind a real proxy that has faults by plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

from sparklog.core.errors import InvalidConfig, Unavailable
from sparklog.store.base import PutOutcome
from sparklog.store.open import open_store
from sparklog.store.retrying import RetryingStore
from sparklog.store.settings import StoreSettings
from tests.conformance.conftest import BUCKET
from tests.harness.fault_proxy import Action, FaultProxy, fault_proxy
from tests.harness.store_servers import (
    AZURE_ACCOUNT,
    AZURE_KEY,
    KINDS,
    azure_environment,
    gcs_environment,
)

# The servers are installed at the first use.
pytestmark = pytest.mark.soak
CREATED, EXISTS, UNKNOWN = PutOutcome.CREATED, PutOutcome.EXISTS, PutOutcome.UNKNOWN
MINE = b"nonce of this writer"
HASTY = StoreSettings(
    connect_timeout_s=1.0,
    read_timeout_s=2.0,
    retry_deadline_s=3.0,
    retry_first_pause_ms=5,
    retry_pause_max_ms=100,
    hedge=False,
    probe=False,  # it would send a hundred requests more in each test
)
PROBING = replace(HASTY, probe=True, read_timeout_s=30.0, retry_deadline_s=30.0)


@dataclass
class Cloud:
    """One service behind a proxy."""

    kind: str
    proxy: FaultProxy
    put: str
    """The HTTP method of an upload."""
    environment: dict[str, str]

    def open(self, settings: StoreSettings = HASTY, bucket: str = BUCKET) -> RetryingStore:
        place = f"abfs://{bucket}@{AZURE_ACCOUNT}" if self.kind == "azure" else f"gs://{bucket}"
        return open_store(f"{place}/{uuid4().hex}", settings, environment=self.environment)


@pytest.fixture(params=sorted({"azure", "gcs"} & set(KINDS)))
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    port: int = request.getfixturevalue(request.param)
    with fault_proxy(port) as proxy:
        azure = request.param == "azure"
        environment = azure_environment(proxy.port) if azure else gcs_environment(proxy.port)
        yield Cloud(request.param, proxy, "PUT" if azure else "POST", environment)


@pytest.fixture
def store(cloud: Cloud) -> Iterator[RetryingStore]:
    """A store that is connected, with its counters and those of the proxy at zero."""
    store = cloud.open()
    assert list(store.list("")) == []
    assert store.put_if_absent("connected", b"") is CREATED
    store.counters.reset()
    cloud.proxy.requests.clear()
    yield store
    store.close()


def requests(store: RetryingStore) -> dict[str, int]:
    return {kind: count.requests for kind, count in store.counters.by_kind().items()}


def test_libraries_send_each_request_once(store: RetryingStore, cloud: Cloud) -> None:
    data = MINE * 3_000_000  # 60 MB: the libraries send larger ones in parts by default
    assert store.put_if_absent("log/0", data) is CREATED
    assert store.put_if_absent("log/0", data) is EXISTS
    assert store.get("log/0") == data
    assert store.get("log/0", 5, 9) == data[5:9]
    assert [info.key for info in store.list("log/")] == ["log/0"]
    store.delete("log/0")
    methods = [method for method, _ in cloud.proxy.requests]
    assert methods == [cloud.put, cloud.put, "GET", "GET", "GET", "DELETE"]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_put_answered_not_now_is_sent_again(
    store: RetryingStore, cloud: Cloud, status: int
) -> None:
    cloud.proxy.add(Action.ANSWER, cloud.put, times=2, status=status)
    assert store.put_if_absent("log/0", MINE) is CREATED
    assert requests(store) == {"put": 3}
    assert cloud.proxy.sent(cloud.put) == 3


def test_every_operation_survives_a_busy_moment(store: RetryingStore, cloud: Cloud) -> None:
    store.put_if_absent("log/0", MINE)
    operations: list[Callable[[], object]] = [
        lambda: store.get("log/0"),
        lambda: store.head("log/0"),
        lambda: list(store.list("log/")),
        lambda: store.put("hint", b"x"),
        lambda: store.delete("log/0"),
    ]
    for operation in operations:
        for method in ("GET", "HEAD", "DELETE", cloud.put):
            cloud.proxy.add(Action.ANSWER, method, times=1)
        before = len(cloud.proxy.requests)
        operation()
        assert len(cloud.proxy.requests) == before + 2
        cloud.proxy.clear()


@pytest.mark.parametrize("action", [Action.LOSE_ANSWER, Action.RESET])
def test_lost_answer_to_a_put_is_unknown_until_it_is_read_back(
    store: RetryingStore, cloud: Cloud, action: Action
) -> None:
    cloud.proxy.add(action, cloud.put, times=1)
    assert store.put_if_absent("log/0", MINE) is UNKNOWN
    assert store.get("log/0") == MINE
    assert cloud.proxy.sent(cloud.put) == 1


def test_put_lost_on_its_way_is_unknown_and_can_be_sent_again(
    store: RetryingStore, cloud: Cloud
) -> None:
    cloud.proxy.add(Action.LOSE_REQUEST, cloud.put, times=1)
    assert store.put_if_absent("log/0", MINE) is UNKNOWN
    assert [info.key for info in store.list("log/")] == []
    assert store.put_if_absent("log/0", MINE) is CREATED


def test_put_that_times_out_is_unknown(store: RetryingStore, cloud: Cloud) -> None:
    cloud.proxy.add(Action.HOLD, cloud.put, times=1)
    assert store.put_if_absent("log/0", MINE) is UNKNOWN
    cloud.proxy.released.set()
    assert store.get("log/0") == MINE


@pytest.mark.parametrize("action", [Action.CUT_ANSWER, Action.LOSE_ANSWER, Action.RESET])
def test_get_that_breaks_off_is_sent_again(
    store: RetryingStore, cloud: Cloud, action: Action
) -> None:
    data = MINE * 100_000
    store.put_if_absent("log/0", data)
    cloud.proxy.add(action, "GET", times=1)
    assert store.get("log/0") == data
    # Azure's library itself repeats a read whose body breaks off.
    hidden = cloud.kind == "azure" and action is Action.CUT_ANSWER
    assert requests(store)["get"] == (1 if hidden else 2)
    assert cloud.proxy.sent("GET") == 2


def test_server_that_goes_away_is_unavailable_and_found_again(
    store: RetryingStore, cloud: Cloud
) -> None:
    store.put_if_absent("log/0", MINE)
    cloud.proxy.go_away()
    with pytest.raises(Unavailable, match="cannot be reached"):
        store.get("log/0")
    with pytest.raises(Unavailable, match="cannot be reached"):
        store.put_if_absent("log/1", MINE)
    cloud.proxy.listen()
    assert store.get("log/0") == MINE
    assert [info.key for info in store.list("log/")] == ["log/0"]


@pytest.mark.parametrize("status", [401, 403])
def test_refused_access_is_reported_at_once(
    store: RetryingStore, cloud: Cloud, status: int
) -> None:
    cloud.proxy.add(Action.ANSWER, cloud.put, status=status, code="AuthorizationFailure")
    with pytest.raises(InvalidConfig, match="refuses access; check the credentials"):
        store.put_if_absent("log/0", MINE)
    assert cloud.proxy.sent(cloud.put) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_withdrawn_rights_are_unavailable_until_they_are_back(
    store: RetryingStore, cloud: Cloud, status: int
) -> None:
    operations: list[tuple[str, Callable[[], object]]] = [
        (cloud.put, lambda: store.put_if_absent("log/0/a", MINE)),
        ("GET", lambda: store.get("log/0/a")),
        ("GET", lambda: list(store.list("log/0/"))),
        ("DELETE", lambda: store.delete("log/0/a")),
    ]
    for method, operation in operations:
        operation()
        cloud.proxy.add(Action.ANSWER, method, status=status, code="AuthorizationFailure")
        with pytest.raises(Unavailable, match="refuses what it allowed before"):
            operation()
        cloud.proxy.clear()
        operation()


def test_missing_bucket_is_reported_at_once(cloud: Cloud) -> None:
    store = cloud.open(bucket="not-there")
    with pytest.raises(InvalidConfig, match=r"no such (bucket|container); create it"):
        store.put_if_absent("log/0", MINE)
    with pytest.raises(InvalidConfig, match=r"no such (bucket|container); create it"):
        list(store.list(""))
    store.close()


def test_probe_accepts_the_store_once_for_its_root(cloud: Cloud) -> None:
    store = cloud.open(PROBING)
    assert store.put_if_absent("log/0", MINE) is CREATED
    assert [info.key for info in store.list("")] == ["log/0"]
    sent = cloud.proxy.sent(cloud.put)
    assert sent > 90
    assert store.put_if_absent("log/1", MINE) is CREATED
    assert cloud.proxy.sent(cloud.put) == sent + 1
    store.close()


@pytest.mark.parametrize("cloud", sorted({"azure"} & set(KINDS)), indirect=True)
def test_probe_refuses_a_store_without_conditions(cloud: Cloud) -> None:
    # A request that is signed by the account's key covers the condition, so the proxy could not
    # remove it; one with a token does not.
    token = generate_account_sas(
        AZURE_ACCOUNT,
        AZURE_KEY,
        resource_types=ResourceTypes(container=True, object=True),
        permission=AccountSasPermissions(
            read=True, write=True, create=True, list=True, delete=True
        ),
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
    endpoint = cloud.environment["AZURE_STORAGE_SERVICE_ENDPOINT"]
    cloud.environment = {
        "AZURE_STORAGE_SERVICE_ENDPOINT": endpoint,
        "AZURE_STORAGE_SAS_TOKEN": token,
    }
    cloud.proxy.add(Action.IGNORE_CONDITION, "PUT")
    store = cloud.open(PROBING)
    with pytest.raises(InvalidConfig, match="loses records when writers race"):
        store.put_if_absent("log/0", MINE)
    store.close()
