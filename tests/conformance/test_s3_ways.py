"""Ways to an S3 server: TLS with an authority of one's own, proxies, virtual-host addressing.

Errors of the server arrive by each way as well. The server is versitygw, which checks the signature
of each request.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.core.errors import InvalidConfig, Unavailable
from sparklog.store.base import PutOutcome
from sparklog.store.open import open_store
from sparklog.store.retrying import RetryingStore
from sparklog.store.settings import S3Access, StoreSettings
from tests.harness.certificates import CertificateAuthority
from tests.harness.fault_proxy import Action, FaultProxy, fault_proxy
from tests.harness.store_servers import KINDS, s3_environment, versitygw
from tests.harness.waiting import eventually

BUCKET = "ways"
DOMAIN = "s3.test"
"""No name server knows it: only a proxy leads there."""
HASTY = StoreSettings(probe=False, hedge=False, retry_deadline_s=2, read_timeout_s=10)
pytestmark = pytest.mark.parametrize("server", sorted({"versitygw"} & set(KINDS)))


@pytest.fixture
def authority() -> CertificateAuthority:
    return CertificateAuthority()


@pytest.fixture
def port(server: str, tmp_path: Path) -> Iterator[int]:
    with versitygw(tmp_path / "plain", BUCKET, "--virtual-domain", DOMAIN) as port:
        yield port


def write_and_read(environment: dict[str, str]) -> None:
    store = open_store(f"s3://{BUCKET}/log", HASTY, environment=environment)
    try:
        assert store.put_if_absent("a/b", b"data") is PutOutcome.CREATED
        assert store.put_if_absent("a/b", b"other") is PutOutcome.EXISTS
        assert store.get("a/b", -3) == b"ata"
        assert [info.key for info in store.list("a/")] == ["a/b"]
    finally:
        store.close()


def test_an_authority_of_ones_own_is_named_in_aws_ca_bundle(
    server: str,
    authority: CertificateAuthority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    issued = authority.issue("server", "localhost", "127.0.0.1")
    chain, key, bundle = (tmp_path / name for name in ("chain.pem", "key.pem", "ca.pem"))
    chain.write_text(issued.chain)
    key.write_text(issued.key)
    bundle.write_text(authority.pem)
    options = ["--cert", str(chain), "--key", str(key)]
    with versitygw(tmp_path / "secure", BUCKET, *options) as port:
        environment = {**s3_environment(port), "AWS_ENDPOINT_URL": f"https://localhost:{port}"}
        with pytest.raises(Unavailable, match="AWS_CA_BUNDLE"):
            write_and_read(environment)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(bundle))
        write_and_read(environment)


def test_path_style_is_the_default_and_needs_no_name_of_the_bucket(server: str, port: int) -> None:
    with fault_proxy(port) as proxy:
        write_and_read(s3_environment(port, proxy.endpoint_url))
        assert {path.split("/")[1].partition("?")[0] for _, path in proxy.requests} == {BUCKET}


def test_virtual_host_style_goes_through_a_proxy_of_the_environment(
    server: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {
        **s3_environment(port, f"http://{DOMAIN}"),
        "SPARKLOG_S3_ADDRESSING_STYLE": "virtual",
    }
    with fault_proxy(port) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.endpoint_url)
        write_and_read(environment)
        hosts = {path.split("/")[2] for _, path in proxy.requests}
        assert hosts == {f"{BUCKET}.{DOMAIN}"}


def test_unknown_addressing_style_is_an_error_with_the_known_ones(server: str) -> None:
    with pytest.raises(InvalidConfig, match="auto, path, virtual"):
        S3Access.from_environment({"SPARKLOG_S3_ADDRESSING_STYLE": "dns"})


@pytest.fixture
def proxy(port: int) -> Iterator[FaultProxy]:
    with fault_proxy(port) as proxy:
        yield proxy


@pytest.fixture
def store(port: int, proxy: FaultProxy) -> Iterator[RetryingStore]:
    environment = s3_environment(port, proxy.endpoint_url)
    store = open_store(f"s3://{BUCKET}/log", HASTY, environment=environment)
    assert store.put_if_absent("connected", b"") is PutOutcome.CREATED
    yield store
    store.close()


def test_slow_down_lowers_the_concurrency_which_recovers(
    server: str, store: RetryingStore, proxy: FaultProxy
) -> None:
    limit = store.counters.concurrency_limit
    assert limit is not None
    before = limit()
    proxy.add(Action.ANSWER, "PUT", "log/", times=1)
    assert store.put_if_absent("log/0", b"mine") is PutOutcome.CREATED
    lowered = limit()
    assert lowered < before
    eventually(lambda: limit() > lowered, "more concurrent requests again")


def test_rights_that_are_taken_away_are_unavailable_until_they_return(
    server: str, store: RetryingStore, proxy: FaultProxy
) -> None:
    assert store.put_if_absent("topics/a/0", b"") is PutOutcome.CREATED
    proxy.add(Action.ANSWER, "PUT", "topics/b", times=1, status=403, code="AccessDenied")
    with pytest.raises(InvalidConfig, match="refuses access"):
        store.put_if_absent("topics/b/0", b"")
    proxy.add(Action.ANSWER, "PUT", "topics/a/1", times=1, status=403, code="AccessDenied")
    with pytest.raises(Unavailable, match=r"refuses what it allowed before.*code=AccessDenied"):
        store.put_if_absent("topics/a/1", b"mine")
    proxy.add(Action.ANSWER, "PUT", "topics/a/1", times=1, status=404, code="NoSuchBucket")
    with pytest.raises(Unavailable, match=r"refuses what it allowed before.*code=NoSuchBucket"):
        store.put_if_absent("topics/a/1", b"mine")
    assert store.put_if_absent("topics/a/1", b"mine") is PutOutcome.CREATED


def test_a_wrong_clock_is_named_with_the_time_at_s3(
    server: str, store: RetryingStore, proxy: FaultProxy
) -> None:
    date = ("Date", "Sat, 28 Nov 2026 08:00:00 GMT")
    skewed = {"status": 403, "code": "RequestTimeTooSkewed", "headers": [date]}
    proxy.add(Action.ANSWER, "PUT", "log/0", times=1, **skewed)
    with pytest.raises(Unavailable, match=r"clock is more than 15 minutes wrong.*28 Nov 2026"):
        store.put_if_absent("log/0", b"mine")
    assert store.put_if_absent("log/0", b"mine") is PutOutcome.CREATED


@pytest.fixture
def checking(port: int, proxy: FaultProxy) -> Iterator[RetryingStore]:
    environment = {
        **s3_environment(port, proxy.endpoint_url),
        "SPARKLOG_S3_CHECKSUM": "crc32c",
    }
    store = open_store(f"s3://{BUCKET}/log", HASTY, environment=environment)
    assert store.put_if_absent("connected", b"") is PutOutcome.CREATED
    yield store
    store.close()


def test_damaged_download_is_read_again_and_named_if_it_stays_so(
    server: str, checking: RetryingStore, proxy: FaultProxy
) -> None:
    assert checking.put_if_absent("log/0", b"some records") is PutOutcome.CREATED
    proxy.add(Action.DAMAGE_ANSWER, "GET", "log/0", times=1)
    assert checking.get("log/0") == b"some records"
    assert proxy.sent("GET", "log/0") == 2
    assert checking.get("log/0", 5) == b"records", "a range has no checksum"
    proxy.add(Action.DAMAGE_ANSWER, "GET", "log/0")
    with pytest.raises(Unavailable, match="the bytes that arrived are not those that S3 stored"):
        checking.get("log/0")


def test_damaged_upload_is_refused_and_sent_again(
    server: str, checking: RetryingStore, proxy: FaultProxy
) -> None:
    proxy.add(Action.DAMAGE_BODY, "PUT", "log/0", times=1)
    assert checking.put_if_absent("log/0", b"some records") is PutOutcome.CREATED
    assert proxy.sent("PUT", "log/0") == 2
    assert checking.get("log/0") == b"some records"


def test_checksum_is_the_default_at_amazon_only(server: str) -> None:
    assert S3Access().checks
    assert not S3Access(endpoint_url="http://elsewhere").checks
    assert S3Access(endpoint_url="http://elsewhere", checksum="crc32c").checks
    with pytest.raises(InvalidConfig, match="crc32c, none"):
        S3Access(checksum="md5")
