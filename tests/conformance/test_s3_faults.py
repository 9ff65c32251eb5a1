"""S3 on bad days: a real server behind a real proxy that has faults by plan."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import boto3
import pytest

from sparklog.core.clock import SYSTEM_CLOCK, Clock, ManualClock
from sparklog.core.entropy import SYSTEM_ENTROPY
from sparklog.core.errors import InvalidConfig, Unavailable
from sparklog.core.per_process import PerProcess
from sparklog.store.base import ObjectNotFound, PutOutcome
from sparklog.store.open import open_store
from sparklog.store.probe import PROBE_PREFIX, result_key
from sparklog.store.probe_race import NAMES, RACERS
from sparklog.store.retrying import RetryingStore
from sparklog.store.settings import StoreSettings
from tests.conformance.conftest import BUCKET
from tests.harness.fault_proxy import Action, FaultProxy, fault_proxy
from tests.harness.moto_server import REGION, MotoServer
from tests.harness.short_credentials import ShortCredentials
from tests.harness.waiting import eventually

CREATED, EXISTS, UNKNOWN = PutOutcome.CREATED, PutOutcome.EXISTS, PutOutcome.UNKNOWN
MINE = b"nonce of this writer"
HASTY = StoreSettings(
    connect_timeout_s=1.0,
    read_timeout_s=0.5,
    retry_deadline_s=1.0,
    retry_first_pause_ms=5,
    retry_pause_max_ms=100,
    hedge=False,
    probe=False,  # it would send a hundred requests more in each test
)
PROBING = replace(HASTY, probe=True, read_timeout_s=30.0, retry_deadline_s=30.0)
UNHURRIED = replace(PROBING, probe=False)
PATIENT = StoreSettings(retry_deadline_s=20.0, retry_first_pause_ms=5, retry_pause_max_ms=50)

Open = Callable[..., RetryingStore]


@pytest.fixture
def proxy(moto: MotoServer) -> Iterator[FaultProxy]:
    with fault_proxy(moto.port) as proxy:
        yield proxy


@pytest.fixture
def open_through(moto: MotoServer, proxy: FaultProxy) -> Iterator[Open]:
    opened: list[RetryingStore] = []

    def open_one(
        settings: StoreSettings = HASTY, endpoint_url: str | None = None, bucket: str = BUCKET
    ) -> RetryingStore:
        environment = moto.environment(endpoint_url or proxy.endpoint_url)
        root = f"s3://{bucket}/{uuid4().hex}"
        opened.append(open_store(root, settings, environment=environment))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def store(open_through: Open) -> RetryingStore:
    """A store that is connected, with its counters at zero."""
    store = open_through()
    assert list(store.list("")) == []  # connects; unlike a put it is sent again when it takes long
    assert store.put_if_absent("connected", b"") is CREATED
    store.counters.reset()
    return store


def requests(store: RetryingStore) -> dict[str, int]:
    return {kind: count.requests for kind, count in store.counters.by_kind().items()}


# Answered "not now"


def test_a_put_answered_slow_down_is_sent_again_and_counted_again(
    store: RetryingStore, proxy: FaultProxy
) -> None:
    proxy.add(Action.ANSWER, "PUT", "log/0", times=2)
    assert store.put_if_absent("log/0", MINE) is CREATED
    assert requests(store) == {"put": 3}
    assert proxy.sent("PUT", "log/0") == 3


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
def test_a_get_answered_with_a_server_error_is_sent_again(
    store: RetryingStore, proxy: FaultProxy, status: int
) -> None:
    store.put_if_absent("log/0", MINE)
    proxy.add(Action.ANSWER, "GET", "log/0", times=1, status=status, code="InternalError")
    assert store.get("log/0") == MINE
    assert requests(store) == {"put": 1, "get": 2}


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PUT"])
def test_every_operation_survives_a_busy_moment(
    store: RetryingStore, proxy: FaultProxy, method: str
) -> None:
    store.put_if_absent("log/0", MINE)
    proxy.add(Action.ANSWER, method, times=1)
    operations: dict[str, Callable[[], object]] = {
        "GET": lambda: list(store.list("log/")),
        "HEAD": lambda: store.head("log/0"),
        "DELETE": lambda: store.delete("log/0"),
        "PUT": lambda: store.put("hint", b""),
    }
    operations[method]()
    assert proxy.sent(method) >= 2


def test_stored_put_with_response_slow_down_finds_its_own_nonce(
    store: RetryingStore, proxy: FaultProxy
) -> None:
    proxy.add(Action.FORWARD_THEN_ANSWER, "PUT", "log/0", times=1)
    assert store.put_if_absent("log/0", MINE) is EXISTS
    assert store.get("log/0") == MINE


def test_a_put_always_answered_slow_down_ends_unknown(
    store: RetryingStore, proxy: FaultProxy
) -> None:
    proxy.add(Action.ANSWER, "PUT", "log/0")
    assert store.put_if_absent("log/0", MINE) is UNKNOWN
    with pytest.raises(ObjectNotFound):
        store.get("log/0")
    assert proxy.sent("PUT", "log/0") == requests(store)["put"] > 2


def test_get_always_answered_slow_down_ends_unavailable(
    store: RetryingStore, proxy: FaultProxy
) -> None:
    proxy.add(Action.ANSWER, "GET", "log/0")
    with pytest.raises(Unavailable, match=r"does not answer.*operation=get.*503.*SlowDown"):
        store.get("log/0")


def test_a_conflict_with_another_writer_is_tried_again(
    store: RetryingStore, proxy: FaultProxy
) -> None:
    conflict = {"status": 409, "code": "ConditionalRequestConflict"}
    proxy.add(Action.ANSWER, "PUT", "log/0", times=2, **conflict)
    assert store.put_if_absent("log/0", MINE) is CREATED
    proxy.add(Action.ANSWER, "PUT", "log/0", times=1, **conflict)
    assert store.put_if_absent("log/0", b"late") is EXISTS


def test_lasting_conflict_is_unavailable_and_writes_nothing(
    store: RetryingStore, proxy: FaultProxy
) -> None:
    proxy.add(Action.ANSWER, "PUT", "log/0", status=409, code="ConditionalRequestConflict")
    with pytest.raises(Unavailable, match="another write to this key"):
        store.put_if_absent("log/0", MINE)


# No answer at all


@pytest.mark.parametrize("size", [20, 3_000_000])
@pytest.mark.parametrize("action", [Action.LOSE_ANSWER, Action.RESET])
def test_lost_response_to_a_put_is_unknown_until_it_is_read_back(
    store: RetryingStore, proxy: FaultProxy, size: int, action: Action
) -> None:
    proxy.add(action, "PUT", "log/0", times=1)
    assert store.put_if_absent("log/0", MINE * (size // 20)) is UNKNOWN
    assert proxy.sent("PUT", "log/0") == 1, "nobody may send a put again behind our back"
    assert requests(store) == {"put": 1}
    assert store.get("log/0", 0, 20) == MINE
    assert store.put_if_absent("log/0", b"again") is EXISTS


def test_a_put_lost_on_its_way_is_unknown_and_can_be_sent_again(
    store: RetryingStore, proxy: FaultProxy
) -> None:
    proxy.add(Action.LOSE_REQUEST, "PUT", "log/0", times=1)
    assert store.put_if_absent("log/0", MINE) is UNKNOWN
    assert proxy.sent("PUT", "log/0") == 1
    with pytest.raises(ObjectNotFound):
        store.get("log/0")
    assert store.put_if_absent("log/0", MINE) is CREATED


def test_put_that_times_out_is_unknown_and_may_appear_later(
    store: RetryingStore, proxy: FaultProxy
) -> None:
    proxy.add(Action.HOLD, "PUT", "log/0", times=1)
    assert store.put_if_absent("log/0", MINE) is UNKNOWN
    assert not proxy.released.is_set(), "the answer is still held"
    assert store.get("log/0") == MINE


@pytest.mark.parametrize(
    "action", [Action.LOSE_REQUEST, Action.LOSE_ANSWER, Action.RESET, Action.CUT_ANSWER]
)
def test_a_get_that_breaks_off_is_sent_again(
    store: RetryingStore, proxy: FaultProxy, action: Action
) -> None:
    data = MINE * 100_000
    store.put_if_absent("log/0", data)
    proxy.add(action, "GET", "log/0", times=2)
    assert store.get("log/0") == data
    assert store.get("log/0", 10, 30) == data[10:30]
    assert requests(store) == {"put": 1, "get": 4}
    assert proxy.sent("GET", "log/0") == 4


def test_a_listing_goes_on_behind_the_last_key_when_a_page_fails(
    open_through: Open, proxy: FaultProxy
) -> None:
    store = open_through(UNHURRIED)  # a busy moto takes seconds for a page of 1000 keys
    names = [f"many/{n:05}" for n in range(1100)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put_if_absent(key, b""), names))
    proxy.add(Action.ANSWER, "GET", "continuation-token", times=1)
    proxy.add(Action.LOSE_REQUEST, "GET", "start-after", times=1)
    assert [info.key for info in store.list("many/")] == names


# The server is gone


def test_a_server_that_comes_back_is_found_again(store: RetryingStore, proxy: FaultProxy) -> None:
    retrying = open_like(store, PATIENT)
    proxy.go_away()
    with ThreadPoolExecutor(2) as pool:
        put = pool.submit(retrying.put_if_absent, "log/0", MINE)
        get = pool.submit(retrying.get, "connected")
        eventually(
            lambda: requests(store).get("put", 0) > 2 and requests(store).get("get", 0) > 2,
            "both try again",
            every_s=0.01,
        )
        assert not put.done()
        assert not get.done()
        proxy.listen()
        assert put.result() is CREATED
        assert get.result() == b""
    assert store.get("log/0") == MINE


def test_a_server_that_never_was_there_is_unavailable_in_bounded_time(open_through: Open) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        endpoint_url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        clock = ManualClock()
        store = open_like(open_through(endpoint_url=endpoint_url), HASTY, clock)
        for operation in (
            lambda: store.put_if_absent("log/0", MINE),
            lambda: store.get("log/0"),
            lambda: list(store.list("log/")),
        ):
            with pytest.raises(Unavailable) as caught:
                operation()
            for told in ("check that it is up", store.url, endpoint_url, "tries="):
                assert told in str(caught.value)
        assert clock.monotonic_s() <= 3 * HASTY.retry_deadline_s


def test_a_host_without_a_name_is_unavailable(open_through: Open) -> None:
    store = open_through(endpoint_url="http://no-such-host.invalid:9")
    with pytest.raises(Unavailable, match=r"no-such-host\.invalid"):
        store.put_if_absent("log/0", MINE)


def test_rejected_put_is_unknown_when_an_earlier_copy_was_sent(
    store: RetryingStore, proxy: FaultProxy
) -> None:
    proxy.add(Action.FORWARD_THEN_ANSWER, "PUT", "log/0", times=1)
    proxy.add(Action.ANSWER, "PUT", "log/0", status=409, code="ConditionalRequestConflict")
    assert store.put_if_absent("log/0", MINE) is UNKNOWN
    assert store.get("log/0") == MINE


# Fix the settings: no retry helps


def test_missing_bucket_is_reported_at_once(open_through: Open) -> None:
    store = open_through(bucket="no-such-bucket")
    for operation in (
        lambda: store.put_if_absent("log/0", MINE),
        lambda: store.get("log/0"),
        lambda: list(store.list("log/")),
    ):
        with pytest.raises(InvalidConfig, match="no such bucket"):
            operation()
    assert requests(store) == {"put": 1, "get": 1, "list": 1}


@pytest.mark.parametrize("code", ["AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"])
def test_rejected_credentials_are_reported_at_once(
    store: RetryingStore, proxy: FaultProxy, code: str
) -> None:
    proxy.add(Action.ANSWER, "GET", status=403, code=code)
    with pytest.raises(InvalidConfig, match=f"check the credentials.*{code}"):
        store.get("log/0")
    assert requests(store) == {"get": 1}


def test_expired_credentials_are_unavailable_and_not_retried(
    store: RetryingStore, proxy: FaultProxy
) -> None:
    proxy.add(Action.ANSWER, "GET", status=400, code="ExpiredToken")
    with pytest.raises(Unavailable, match="no longer valid"):
        store.get("log/0")
    assert requests(store) == {"get": 1}


# The probe


@pytest.mark.parametrize("action", [Action.IGNORE_CONDITION, Action.LOSE_RACES])
def test_store_that_loses_races_is_rejected_before_the_first_write(
    open_through: Open, proxy: FaultProxy, action: Action
) -> None:
    proxy.add(action, "PUT")
    store = open_through(PROBING)
    for _ in range(2):
        with pytest.raises(InvalidConfig, match="honours If-None-Match on concurrent") as caught:
            store.put_if_absent("log/0", MINE)
        for named in (store.url, proxy.endpoint_url, "such as Amazon S3"):
            assert named in str(caught.value)
    assert proxy.sent("PUT", "log/0") == 0
    with pytest.raises(ObjectNotFound):
        store.get("log/0")


def test_store_that_loses_races_is_right_for_sequential_requests(
    open_through: Open, proxy: FaultProxy
) -> None:
    proxy.add(Action.LOSE_RACES, "PUT")
    store = open_through(HASTY)
    assert store.put_if_absent("log/0", MINE) is CREATED
    assert store.put_if_absent("log/0", b"other") is EXISTS
    assert store.get("log/0") == MINE


def test_the_race_is_run_once_for_a_root_and_never_for_a_reader(
    moto: MotoServer, open_through: Open, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = open_through(PROBING)
    assert list(reader.list("")) == []
    assert proxy.sent("PUT") == 0
    writer = open_through(PROBING)
    writer.put_if_absent("log/0", MINE)
    writer.put_if_absent("log/1", MINE)
    result = result_key(f"{proxy.endpoint_url} s3://{BUCKET}")
    assert proxy.sent("PUT", PROBE_PREFIX) == RACERS * NAMES + 1
    assert proxy.sent("GET", PROBE_PREFIX) == NAMES + 1
    assert proxy.sent("DELETE", PROBE_PREFIX) == NAMES
    again = open_store(writer.url, PROBING, environment=moto.environment(proxy.endpoint_url))
    again.put_if_absent("log/2", MINE)
    assert requests(again) == {"put": 1}
    monkeypatch.setattr("sparklog.store.probe._PROBED", PerProcess(set))  # as in a new process
    again.put_if_absent("log/3", MINE)
    assert requests(again) == {"put": 2, "get": 1}
    again.close()
    assert [info.key for info in writer.list("")] == ["log/0", "log/1", "log/2", "log/3"]
    assert writer.head(result).size_bytes > 0
    assert open_through(PROBING).put_if_absent("log/0", MINE) is CREATED
    assert proxy.sent("PUT", PROBE_PREFIX) == RACERS * NAMES + 1, "the bucket is the same"


def test_another_endpoint_of_a_root_is_raced_again(
    moto: MotoServer, open_through: Open, proxy: FaultProxy
) -> None:
    writer = open_through(PROBING)
    writer.put_if_absent("log/0", MINE)
    with fault_proxy(moto.port) as other:
        elsewhere = open_store(
            writer.url, PROBING, environment=moto.environment(other.endpoint_url)
        )
        elsewhere.put_if_absent("log/1", MINE)
        elsewhere.close()
        assert other.sent("PUT", PROBE_PREFIX) == RACERS * NAMES + 1


def test_a_probe_result_that_is_damaged_is_made_anew(open_through: Open, proxy: FaultProxy) -> None:
    store = open_through(PROBING)
    result = result_key(f"{proxy.endpoint_url} s3://{BUCKET}")
    store.put(result, b"damaged")
    assert store.put_if_absent("log/0", MINE) is CREATED
    assert proxy.sent("PUT", PROBE_PREFIX) == RACERS * NAMES + 2
    assert b"holds" in store.get(result)


def test_a_busy_moment_during_the_probe_does_not_fail_the_put(
    open_through: Open, proxy: FaultProxy
) -> None:
    proxy.add(Action.ANSWER, "PUT", PROBE_PREFIX, times=1)
    proxy.add(Action.LOSE_ANSWER, "PUT", PROBE_PREFIX, times=1)
    conflict = {"status": 409, "code": "ConditionalRequestConflict"}
    proxy.add(Action.ANSWER, "PUT", PROBE_PREFIX, times=3, **conflict)
    assert open_through(PROBING).put_if_absent("log/0", MINE) is CREATED


# Hedging


def test_a_get_that_hangs_is_answered_by_a_second_one(
    open_through: Open, proxy: FaultProxy
) -> None:
    # Hedged from the 41st on, and never given up: what hangs is answered by a second one or not.
    settings = StoreSettings(
        read_timeout_s=3600, hedge_samples_min=40, hedge_after_min_ms=300, probe=False
    )
    store = open_through(settings)
    store.put_if_absent("log/0", MINE)
    for _ in range(40):
        assert store.get("log/0") == MINE
    proxy.add(Action.HOLD, "GET", "log/0", times=1)
    assert store.get("log/0") == MINE
    assert not proxy.released.is_set()
    assert proxy.sent("GET", "log/0") == 42
    proxy.released.set()
    eventually(lambda: requests(store)["get"] == 42, "all is read", every_s=0.01)


def open_like(
    store: RetryingStore, settings: StoreSettings, clock: Clock = SYSTEM_CLOCK
) -> RetryingStore:
    """Return the same store with other patience, or another clock for its pauses."""
    return RetryingStore(
        store._store, store.counters, settings, clock=clock, entropy=SYSTEM_ENTROPY
    )


def test_expired_credentials_are_retried_only_when_they_are_renewed(
    moto: MotoServer, proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    static = moto.environment(proxy.endpoint_url)
    renewed = {name: text for name, text in static.items() if "KEY" not in name}
    with ShortCredentials(moto, tmp_path, lifetime_s=60.0) as credentials:
        for name, value in credentials.environment.items():
            monkeypatch.setenv(name, value)
        for environment, outcome in ((static, Unavailable), (renewed, None)):
            with closing(open_store(f"s3://{BUCKET}/e", HASTY, environment=environment)) as store:
                assert list(store.list("")) == []
                proxy.add(Action.ANSWER, "PUT", times=2, status=400, code="ExpiredToken")
                if outcome is not None:
                    with pytest.raises(outcome, match="no longer valid"):
                        store.put_if_absent("a", b"")
                    proxy.clear()
                else:
                    assert store.put_if_absent("a", b"") is CREATED
                    store.delete("a")


def test_store_waits_for_credentials_that_are_renewed_late(
    moto: MotoServer, proxy: FaultProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ShortCredentials(moto, tmp_path, lifetime_s=60.0) as credentials:
        for name, value in credentials.environment.items():
            monkeypatch.setenv(name, value)
        environment = {"AWS_ENDPOINT_URL": proxy.endpoint_url, "AWS_REGION": REGION}
        credentials.renew_late(readings=4)
        late = f"s3://{BUCKET}/late"
        with closing(open_store(late, PATIENT, environment=environment)) as store:
            assert store.put_if_absent("a", b"") is CREATED
            assert credentials.late_readings == 4
            store.delete("a")
        credentials.renew_late(readings=10**6)
        with (
            closing(open_store(late, HASTY, environment=environment)) as store,
            pytest.raises(Unavailable, match="no credentials just now"),
        ):
            store.put_if_absent("a", b"")


def test_puts_ask_s3_for_the_encryption_of_the_root(moto: MotoServer) -> None:
    environment = {**moto.environment(), "SPARKLOG_S3_ENCRYPTION": "aws:kms"}
    with closing(open_store(f"s3://{BUCKET}/kms", HASTY, environment=environment)) as store:
        assert store.put_if_absent("a", b"x") is CREATED
        store.put("b", b"x")
    client = boto3.client(
        "s3",
        endpoint_url=moto.endpoint_url,
        region_name=environment["AWS_REGION"],
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    found = [client.head_object(Bucket=BUCKET, Key=f"kms/{key}") for key in ("a", "b")]
    assert [one["ServerSideEncryption"] for one in found] == ["aws:kms"] * 2
    assert [one["BucketKeyEnabled"] for one in found] == [True] * 2
