"""Checks of a root: credentials, clock, put-if-absent, the head of each log, brokers.

Nothing is changed. The check of put-if-absent creates some objects and deletes them.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from sparklog.cli.doctor.machine import Finding, disk, failure, ok, warning
from sparklog.cli.target import STORE_SETTINGS
from sparklog.client.addresses import BrokerAddress
from sparklog.client.connections import BrokerConnections
from sparklog.client.security import SecuritySettings
from sparklog.cluster.log import Log
from sparklog.cluster.metadata.image import Broker
from sparklog.cluster.usage_reporter import reported_usage
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.entropy import SYSTEM_ENTROPY
from sparklog.core.errors import InvalidConfig, SparklogError
from sparklog.log.effects import run
from sparklog.log.layout import WalLayout, topic_of_key
from sparklog.log.wal.objects import decode
from sparklog.log.wal.sealing import listed
from sparklog.store.base import ObjectNotFound, ObjectStore
from sparklog.store.open import open_store
from sparklog.store.probe import PROBE_PREFIX
from sparklog.store.probe_race import race
from sparklog.store.root_url import RootUrl, parse_root_url
from sparklog.store.settings import S3Access

SKEW_S_MAX: Final = 300.0
"""S3 rejects requests that were signed 15 minutes from its own time."""
SKEW_S_WANTED: Final = 5.0
ANSWERS_WITHIN_S: Final = 5.0
PARTITIONS_MAX: Final = 1000
"""Partitions whose newest objects are read: `verify` reads all."""
READERS: Final = 8
METADATA: Final = 3
"""Number of the API that every broker has."""
DAMAGED_MAX: Final = 10
WAL_OBJECTS: Final = 4
"""Newest objects of a write-ahead log that are read."""


def root(
    url: str, environment: Mapping[str, str], security: Mapping[str, str] | None = None
) -> Iterator[Finding]:
    """Yield the findings about a root. A later check needs the earlier ones to pass.

    `security` has a client's settings of TLS and SASL for the brokers.
    """
    try:
        parts = parse_root_url(url)
        store = open_store(url, STORE_SETTINGS, label_of=topic_of_key, environment=environment)
    except InvalidConfig as error:
        yield failure("root", str(error))
        return
    yield ok("root", store.url)
    if parts.scheme == "s3":
        access = S3Access.from_environment(environment)
        yield _credentials(access)
        yield _clock(access, parts)
    if parts.scheme == "file":
        yield from disk(Path(parts.path), SYSTEM_CLOCK)
        if not Path(parts.path).exists():
            yield ok("log", f"{parts.path} does not exist yet: the first append creates it")
            store.close()
            return
    with ExitStack() as stack:
        log = stack.enter_context(Log(store))
        try:
            image = log.refresh()
        except SparklogError as error:
            yield failure("log", f"the metadata cannot be read: {error}")
            return
        if image.end_offset:  # else there is no log yet, and nothing of it should be left here
            stack.enter_context(reported_usage(log, "sparklog doctor"))
        try:
            race(store, PROBE_PREFIX, SYSTEM_CLOCK, SYSTEM_ENTROPY)
        except SparklogError as error:
            yield failure("put-if-absent", str(error))
        else:
            yield ok("put-if-absent", "of concurrent creates exactly one succeeds")
        yield from _heads(log)
        yield from _write_ahead_logs(log, store)
        yield from _brokers(log, SecuritySettings(security))


def _credentials(access: S3Access) -> Finding:
    """Name the source of the credentials; their values stay out of every text."""
    if access.access_key_id and access.secret_access_key:
        token = " and AWS_SESSION_TOKEN" if access.session_token else ""
        return ok("credentials", f"AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY{token}")
    if access.access_key_id or access.secret_access_key:
        return failure(
            "credentials", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY go together: set both"
        )
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - other roots need no client
    from botocore.session import get_session  # noqa: PLC0415 - likewise

    try:
        found: Any = get_session().get_credentials()
    except BotoCoreError as error:
        return failure("credentials", f"none can be had: {error}")
    if found is None:
        return failure(
            "credentials", "none: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role"
        )
    return ok("credentials", f"from botocore's source {found.method}")


def _clock(access: S3Access, parts: RootUrl) -> Finding:
    """Compare this machine's clock with the Date header that the store sends to anyone."""
    region = access.region or "us-east-1"
    address = urlsplit(access.endpoint_url or f"https://{parts.bucket}.s3.{region}.amazonaws.com")
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    connection = kind(address.hostname or "", address.port, timeout=ANSWERS_WITHIN_S)
    try:
        connection.request("HEAD", "/")
        text = connection.getresponse().getheader("Date")
        now_s = SYSTEM_CLOCK.now_ms() / 1000
    except (OSError, http.client.HTTPException) as error:
        return failure(
            "clock", f"{address.netloc} does not answer: {error}. Check endpoint and network"
        )
    finally:
        connection.close()
    try:
        skew_s = now_s - parsedate_to_datetime(text or "").timestamp()
    except ValueError:
        return warning("clock", f"{address.netloc} sends no Date: compare the clock yourself")
    seen = f"this machine is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} the store"
    if abs(skew_s) > SKEW_S_MAX:
        return failure("clock", f"{seen}, which rejects such requests: synchronize the clock")
    if abs(skew_s) > SKEW_S_WANTED:
        return warning("clock", f"{seen}: synchronize the clock, as by NTP")
    return ok("clock", "agrees with the store's")


def _heads(log: Log) -> Iterator[Finding]:
    """Read the newest objects of each partition: what readers and new leaders begin with."""
    names = [
        (topic.name, number)
        for topic in log.topics().values()
        for number in range(topic.partitions)
    ]

    def fault(place: tuple[str, int]) -> str | None:
        try:
            log.partition(*place).view()
        except SparklogError as error:
            return f"{place[0]}-{place[1]}: {error}"
        return None

    with ThreadPoolExecutor(READERS) as pool:
        faults = [one for one in pool.map(fault, names[:PARTITIONS_MAX]) if one is not None]
    for text in faults[:DAMAGED_MAX]:
        yield failure("head", f"{text} Run sparklog run verify")
    looked_at = min(len(names), PARTITIONS_MAX)
    if len(faults) > DAMAGED_MAX:
        yield failure("head", f"{len(faults)} of {looked_at} partitions are damaged at their head")
    if not faults:
        yield ok("head", f"the newest objects of {looked_at} of {len(names)} partitions are whole")


def _write_ahead_logs(log: Log, store: ObjectStore) -> Iterator[Finding]:
    """Read the newest objects of each registered broker's write-ahead log, as a take-over would."""
    for _, broker in sorted(log.refresh().brokers.items()):
        layout = WalLayout(broker.broker_id, broker.incarnation)
        check = f"write-ahead log of broker {broker.broker_id}"
        try:
            newest = run(listed(layout), store)[-WAL_OBJECTS:]
            for sequence in newest:
                _read_window(store, layout, sequence)
        except SparklogError as error:
            yield failure(check, f"{error} Keep a copy of its folder, and see WAL.md")
        else:
            yield ok(check, f"its newest {len(newest)} objects are whole")


def _read_window(store: ObjectStore, layout: WalLayout, sequence: int) -> None:
    """Decode an object. Raises DataCorrupt, Unavailable."""
    try:
        decode(store.get(layout.key(sequence)), layout, sequence)
    except ObjectNotFound:
        pass  # its broker trimmed it meanwhile


def _brokers(log: Log, security: SecuritySettings) -> Iterator[Finding]:
    brokers = log.refresh().brokers
    if not brokers:
        yield ok("brokers", "none is registered: the log is read and written directly")
    for _, broker in sorted(brokers.items()):
        yield _broker(broker, security)


def _broker(broker: Broker, security: SecuritySettings) -> Finding:
    """Send a request, because a proxy accepts connections to a broker that is not there."""
    check = f"broker {broker.broker_id}"
    address = BrokerAddress(broker.host, broker.port)
    connections = BrokerConnections([address], ANSWERS_WITHIN_S, security)
    try:
        connections.offers(METADATA)
    except SparklogError as error:
        text = f"{error}. address={address}"
        if broker.fenced:
            return warning(check, f"{text}. The others deposed it: start it again")
        return failure(
            check,
            f"{text}. Start it again, mend its advertised address, or give TLS and SASL by "
            "--command-config",
        )
    finally:
        connections.close()
    if broker.fenced:
        return warning(check, f"answers at {address}, but the others deposed it: see its log")
    return ok(check, f"answers at {address}")
