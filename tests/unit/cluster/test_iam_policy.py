"""The IAM policy of a principal: what it lets a process do in the bucket, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from sparklog.cluster.iam_policy import BucketRoot, bucket_root, iam_policy
from sparklog.cluster.log import Log
from sparklog.cluster.publication import StagedPartition, publish
from sparklog.cluster.usage_reporter import UsageReporter
from sparklog.cluster.usage_reports import usage_listing
from sparklog.core.errors import InvalidConfig, ResourceNotFound
from sparklog.core.topic_names import AUDIT_TOPIC
from sparklog.log.effects import run
from sparklog.log.layout import TOPICS_PREFIX, topic_of_key, usage_key
from sparklog.security.acls import checked_binding
from sparklog.security.principal import parse_principal
from sparklog.store.memory import MemoryStore
from sparklog.store.metered import MeteredStore
from sparklog.store.probe import result_key
from tests.harness.iam import GuardedStore, is_allowed

ROOT = BucketRoot("bucket", "some/log")
READ, WRITE, DESCRIBE = 3, 4, 8
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ETL = parse_principal("User:etl")
GET, PUT = "s3:GetObject", "s3:PutObject"


@pytest.fixture
def log() -> Iterator[Log]:
    with Log(MemoryStore("iam")) as opened:
        for name in ("orders", "orders-2", "payments"):
            opened.create_topic(name, 2)
            append(opened, name)
        yield opened


def append(log: Log, topic: str) -> None:
    log.partition(topic, 0).append([pa.record_batch({"value": [b"x", b"y"]})])


def records(log: Log, topic: str) -> int:
    partition = log.partition(topic, 0)
    view = partition.view()
    return sum(batch.num_rows for batch in partition.read(0, view.end_offset, view=view))


def allow(
    log: Log,
    name: str,
    operation: int,
    pattern: int = LITERAL,
    *,
    host: str = "*",
    user: str = "etl",
    permission: int = ALLOW,
) -> None:
    acl = checked_binding(2, name, pattern, f"User:{user}", host, operation, permission)
    log.create_acls([acl])


def policy(log: Log, **options: Any) -> Any:
    return iam_policy(log.refresh(), ETL, ROOT, **options).document


def as_etl(log: Log) -> Log:
    """Return the log as a process sees it that has the policy of `etl`."""
    return Log(GuardedStore(log.store, policy(log), ROOT))


def folder(log: Log, topic: str) -> str:
    return log.partition(topic, 0).layout.folder


def may(log: Log, action: str, topic: str, name: str = "log/x", **options: Any) -> bool:
    """Return whether the policy allows an action on an object of a topic's partition 0."""
    return is_allowed(policy(log), action, ROOT.arn(f"{folder(log, topic)}{name}"), **options)


def test_reader_reads_its_topic_and_nothing_else(log: Log) -> None:
    allow(log, "orders", READ)
    with as_etl(log) as reader:
        assert records(reader, "orders") == 2
        assert reader.partition("orders", 0).probe().end_offset == 2
        for topic in ("orders-2", "payments"):
            with pytest.raises(InvalidConfig, match="access denied"):
                records(reader, topic)
        with pytest.raises(InvalidConfig, match="PutObject"):
            append(reader, "orders")
        with pytest.raises(InvalidConfig, match="PutObject"):
            reader.create_topic("new")
    assert records(log, "orders") == 2


def test_writer_appends_to_its_topic_and_nothing_else(log: Log) -> None:
    allow(log, "orders", WRITE)
    with as_etl(log) as writer:
        append(writer, "orders")
        assert records(writer, "orders") == 4
        partition = writer.partition("orders", 1)
        staged = partition.stage([pa.record_batch({"value": [b"z"]})])
        part = StagedPartition("orders", partition.layout.topic_id, 1, (staged,))
        publish(writer, "query", 0, [part])
        publish(writer, "query", 0, [part])
        assert partition.view().end_offset == 1
        with pytest.raises(InvalidConfig, match="access denied"):
            append(writer, "payments")
        with pytest.raises(InvalidConfig, match="PutObject"):
            writer.create_acls([checked_binding(2, "payments", 3, "User:etl", "*", 3, 3)])
    assert not may(log, PUT, "orders", "manifest/00000000000000000001.arrow")


@pytest.mark.parametrize("operation", [READ, WRITE])
def test_holder_creates_usage_reports_and_reads_none(log: Log, operation: int) -> None:
    allow(log, "orders", operation)
    guarded = GuardedStore(log.store, policy(log), ROOT)
    with Log(MeteredStore(guarded, label_of=topic_of_key)) as holder:
        assert records(holder, "orders") == 2
        UsageReporter(holder, "test").report()
    (report,) = run(usage_listing(""), log.store)
    with pytest.raises(InvalidConfig, match=r"GetObject.*/usage/"):
        guarded.get(report.key)
    with pytest.raises(InvalidConfig, match=r"DeleteObject.*/usage/"):
        guarded.delete(report.key)
    # A process asks before its first put if the store has passed the race.
    assert is_allowed(policy(log), GET, ROOT.arn(result_key("https://s3 s3://bucket")))


def test_other_arrow_readers_create_no_usage_reports(log: Log) -> None:
    report = ROOT.arn(usage_key("2026-11-29", "ab" * 16, 0))
    allow(log, "orders", READ)
    assert is_allowed(policy(log), PUT, report)
    assert PUT not in str(policy(log, with_metadata=False))
    allow(log, "orders", WRITE)
    assert not is_allowed(policy(log, with_metadata=False), PUT, report)
    assert is_allowed(policy(log, with_metadata=False), PUT, ROOT.arn("commits/q/0.json"))


def test_prefix_holds_for_topics_that_come_later(log: Log) -> None:
    allow(log, "orders", READ, PREFIXED)
    document = policy(log)
    log.create_topic("orders-3")
    append(log, "orders-3")
    with Log(GuardedStore(log.store, document, ROOT)) as reader:
        assert [records(reader, name) for name in ("orders", "orders-2", "orders-3")] == [2] * 3
        with pytest.raises(InvalidConfig, match="access denied"):
            records(reader, "payments")


def test_wildcard_holds_for_each_topic_but_writes_no_internal_one(log: Log) -> None:
    allow(log, "*", READ, user="*")
    allow(log, "*", WRITE)
    with as_etl(log) as writer:
        append(writer, "payments")
        assert records(writer, "payments") == 4
        with pytest.raises(InvalidConfig, match="PutObject"):
            writer.create_topic("new")
    document = policy(log)
    closed = ("__consumer_offsets", "__transaction_state", "__cluster_metadata", AUDIT_TOPIC)
    for name in closed:
        assert not is_allowed(document, PUT, ROOT.arn(object_of(name)))
    assert is_allowed(document, GET, ROOT.arn(object_of("__consumer_offsets")))


def object_of(topic: str) -> str:
    return f"{TOPICS_PREFIX}{topic}~{'A' * 22}/0/log/x"


def test_audit_topic_is_read_by_its_name_or_a_prefix_only(log: Log) -> None:
    allow(log, "*", READ)
    allow(log, "*", WRITE)
    audit = ROOT.arn(object_of(AUDIT_TOPIC))
    assert not is_allowed(policy(log), GET, audit)
    allow(log, "__sparklog", READ, PREFIXED)
    assert is_allowed(policy(log), GET, audit)
    assert not is_allowed(policy(log), PUT, audit)


def test_denials_win_and_count_for_each_address(log: Log) -> None:
    allow(log, "orders", READ, PREFIXED)
    allow(log, "payments", READ)
    allow(log, "orders-2", READ, permission=DENY, host="10.0.0.1")
    allow(log, "pay", READ, PREFIXED, permission=DENY, user="*")
    assert may(log, GET, "orders")
    assert not may(log, GET, "orders-2")
    assert not may(log, GET, "payments")
    assert "payments" not in str(policy(log)["Statement"][0])


def test_addresses_become_conditions(log: Log) -> None:
    allow(log, "orders", READ, host="10.0.0.0/8")
    allow(log, "orders-2", READ, host="10.0.0.0/8")
    allow(log, "orders-2", READ)
    assert may(log, GET, "orders", source_ip="10.1.2.3")
    assert not may(log, GET, "orders", source_ip="192.0.2.1")
    assert may(log, GET, "orders-2", source_ip="192.0.2.1")


def test_metadata_can_be_left_out(log: Log) -> None:
    allow(log, "*", READ)
    metadata = ROOT.arn(f"{TOPICS_PREFIX}__cluster_metadata~AAAAAAAAAAAAAAAAAAAAAQ/0/log/x")
    assert is_allowed(policy(log), GET, metadata)
    without = iam_policy(log.refresh(), ETL, ROOT, with_metadata=False)
    assert not is_allowed(without.document, GET, metadata)
    assert is_allowed(without.document, GET, ROOT.arn(f"{folder(log, 'orders')}log/x"))
    assert without.notes == []
    assert "secret" in iam_policy(log.refresh(), ETL, ROOT).notes[0]


def test_topics_that_do_not_exist_are_left_out_and_named(log: Log) -> None:
    allow(log, "later", READ)
    with pytest.raises(ResourceNotFound, match="no topic of the ACLs exists"):
        policy(log)
    allow(log, "orders", READ)
    assert "topic=later" in iam_policy(log.refresh(), ETL, ROOT).notes[-1]
    assert "later" not in str(policy(log))


def test_names_with_wildcards_of_policies_grant_nothing(log: Log) -> None:
    allow(log, "pay*", READ, PREFIXED)
    allow(log, "p?yments", READ)
    allow(log, "orders", DESCRIBE)
    allow(log, "orders", READ, user="other")
    with pytest.raises(ResourceNotFound, match="no ACL lets"):
        policy(log)
    allow(log, "orders", READ)
    assert not may(log, GET, "payments")


def test_long_names_are_cut_only_where_that_grants_less(log: Log) -> None:
    long = "l" * 240
    log.create_topic(f"{long}-1")
    log.create_topic(f"{'l' * 232}-other")
    allow(log, long, READ, PREFIXED)
    assert may(log, GET, f"{long}-1")
    assert not may(log, GET, f"{'l' * 232}-other")


@pytest.mark.parametrize("url", ["s3://bucket/a*", "s3://bucket/${x}", "s3:///x", "/tmp/x", ""])
def test_roots_that_are_no_bucket_are_rejected(url: str) -> None:
    with pytest.raises(InvalidConfig):
        bucket_root(url)


def test_root_may_be_a_whole_bucket() -> None:
    assert bucket_root("s3://bucket").arn("x") == "arn:aws:s3:::bucket/x"
    assert bucket_root("s3://bucket/a/b/") == BucketRoot("bucket", "a/b")
