"""Records over --bootstrap-server, against sparklog's brokers."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import confluent_kafka as ck
import pytest

from tests.cli.conftest import Cli
from tests.interop.brokers import Brokers

DEADLINE_S = 20.0


@pytest.fixture
def cli(wire_cli: Cli) -> Cli:
    return wire_cli


@pytest.fixture
def name(cli: Cli) -> str:
    """A topic of two partitions; partition 1 holds the values 0 to 9 under one key."""
    topic = f"t-{uuid4().hex[:8]}"
    cli.ok("topics", "--create", "--topic", topic, "--partitions", "2")
    lines = "".join(f"h:{n}\tkey2\t{n}\n" for n in range(10)).encode()
    reports = cli.ok(
        "produce", "--topic", topic, "--property", "parse.key=true", "--property",
        "parse.headers=true", "--json", stdin=lines,
    ).documents  # fmt: skip
    assert {r["partition"] for r in reports} == {1}
    assert sum(r["count"] for r in reports) == 10
    return topic


def test_values_are_printed_in_order(cli: Cli, name: str) -> None:
    outcome = cli.ok("consume", "--topic", name, "--from-beginning", "--timeout-ms", "0")
    assert outcome.lines == [str(n) for n in range(10)]
    assert outcome.errors == "Processed a total of 10 messages\n"


def test_snapshot_waits_until_leaders_have_flushed_their_records(
    cli: Cli, brokers: Brokers, name: str
) -> None:
    cli.ok("configs", "--alter", "--entity-type", "topics", "--entity-name", name,
           "--add-config", "flush.ms=200")  # fmt: skip
    cli.root, cli.bootstrap = brokers.root, ""
    cli.ok("snapshots", "--create", name, "--topic", name)
    kept = cli.ok("consume", "--topic", name, "--snapshot", name)
    assert kept.lines == [str(n) for n in range(10)]


def test_every_field_has_its_place_and_its_words(cli: Cli, name: str) -> None:
    fields = ("timestamp", "partition", "offset", "headers", "key", "value")
    options = [word for f in fields for word in ("--property", f"print.{f}=true")]
    from_start = ("consume", "--topic", name, "--from-beginning", "--max-messages", "1")
    first = cli.ok(*from_start, *options).lines[0].split("\t")
    kind, stamp = first[0].split(":")
    assert kind == "CreateTime"
    assert int(stamp) > 1_600_000_000_000
    assert first[1:] == ["Partition:1", "Offset:0", "h:0", "key2", "0"]
    nothing = cli.ok(*from_start[:-2], "--timeout-ms", "0", "--property", "print.value=false")
    assert nothing.text == ""
    assert "total of 10" in nothing.errors


def test_json_over_the_wire_is_json_from_the_root(cli: Cli, brokers: Brokers) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    cli.ok("topics", "--create", "--topic", topic, "--config", "flush.ms=50")
    cli.ok(
        "produce", "--topic", topic, "--property", "parse.key=true", "--property",
        "parse.headers=true", "--property", "null.marker=NULL",
        stdin=b"a:1,b:\tk\t\xff\nc:2\tNULL\tvalue\n",
    )  # fmt: skip
    consume = ("consume", "--topic", topic, "--from-beginning", "--json", "--max-messages", "2")
    over_wire = cli.ok(*consume).documents
    assert [d["value"] for d in over_wire] == [{"base64": "/w=="}, "value"]
    assert [d["key"] for d in over_wire] == ["k", None]
    assert cli.ok(*consume, "--root", brokers.root, "--timeout-ms", "20000").documents == over_wire


def test_partition_and_offset_choose_where_to_start(cli: Cli, name: str) -> None:
    at = ("consume", "--topic", name, "--timeout-ms", "0", "--partition", "1", "--offset")
    assert cli.ok(*at, "7").lines == ["7", "8", "9"]
    assert cli.ok(*at, "10").lines == []
    assert cli.ok(*at, "earliest", "--max-messages", "3").lines == ["0", "1", "2"]
    assert cli.ok(*at, "latest").lines == []
    assert "log_end_offset=10" in cli.fails(*at, "11")
    empty = ("consume", "--topic", name, "--timeout-ms", "0", "--partition", "0")
    assert cli.ok(*empty, "--from-beginning").lines == []
    missing = ("consume", "--topic", name, "--partition", "5", "--from-beginning")
    assert "partitions=2" in cli.fails(*missing)


def test_include_reads_every_topic_that_matches(cli: Cli, name: str) -> None:
    other = f"{name}-other"
    cli.ok("topics", "--create", "--topic", other)
    cli.ok("produce", "--topic", other, stdin=b"x\n")
    include = ("consume", "--include", f"{name}.*", "--from-beginning", "--timeout-ms", "0")
    assert sorted(cli.ok(*include).lines) == [*map(str, range(10)), "x"]
    assert "no topic matches" in cli.fails("consume", "--include", "nope.*", "--timeout-ms", "0")


def test_offsets_by_time_are_those_of_the_records(cli: Cli, name: str) -> None:
    end, start = f"{name}:1:10", f"{name}:1:0"
    assert cli.ok("get-offsets", "--topic", name).lines[1] == end
    assert cli.ok("get-offsets", "--topic", name, "--time", "earliest").lines[1] == start
    first = cli.ok("get-offsets", "--topic", name, "--time", "1000000000000", "--json").documents
    assert first[1]["offset"] == 0
    assert first[1]["timestamp"] > 1_600_000_000_000
    assert first[0] == {"topic": name, "partition": 0, "offset": -1, "timestamp": -1}
    late = cli.ok("get-offsets", "--topic", name, "--time", "9000000000000")
    assert late.text == ""


def test_records_are_deleted_before_an_offset(cli: Cli, name: str) -> None:
    keep = f'{{"partitions": [{{"topic": "{name}", "partition": 1, "offset": 4}}]}}'
    deleted = cli.ok("delete-records", "--offset-json-file", "-", stdin=keep.encode())
    assert deleted.lines[-1] == f"partition: {name}-1\tlow_watermark: 4"
    left = cli.ok("consume", "--topic", name, "--from-beginning", "--timeout-ms", "0")
    assert left.lines == ["4", "5", "6", "7", "8", "9"]
    beyond = keep.replace("4}]", "99}]")
    refused = cli("delete-records", "--offset-json-file", "-", stdin=beyond.encode())
    assert refused.code == 1
    assert "error=OFFSET_OUT_OF_RANGE" in refused.text


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_codec_arrives(cli: Cli, name: str, codec: str) -> None:
    values = [f"{codec} {n}" * 10 for n in range(100)]
    topic = f"{name}-{codec}"
    cli.ok("topics", "--create", "--topic", topic)
    produce = ("produce", "--topic", topic, "--compression-codec", codec)
    cli.ok(*produce, stdin="\n".join(values).encode())
    read = cli.ok("consume", "--topic", topic, "--from-beginning", "--timeout-ms", "0")
    assert read.lines == values


def test_lines_sent_one_by_one_are_acknowledged_one_by_one(cli: Cli, name: str) -> None:
    topic = f"{name}-sync"
    cli.ok("topics", "--create", "--topic", topic)
    reports = cli.ok("produce", "--topic", topic, "--sync", "--json", stdin=b"a\nb\n").documents
    assert [r["count"] for r in reports] == [1, 1]
    assert reports[1]["baseOffset"] == reports[0]["baseOffset"] + 1
    unacknowledged = cli.ok(
        "produce", "--topic", topic, "--producer-property", "acks=0", "--json", stdin=b"c\n"
    ).documents
    assert unacknowledged[0]["baseOffset"] == -1


def test_send_error_is_one_line(cli: Cli, name: str) -> None:
    assert "topic=nope" in cli.fails("produce", "--topic", "nope", stdin=b"x\n")
    assert "topic=nope" in cli.fails("consume", "--topic", "nope", "--timeout-ms", "0")
    small = f"{name}-small"
    cli.ok("topics", "--create", "--topic", small, "--config", "max.message.bytes=200")
    error = cli.fails("produce", "--topic", small, stdin=b"x" * 500 + b"\n")
    assert "error=MESSAGE_TOO_LARGE" in error
    setting = ("--producer-property", "no.such.setting=1")
    assert "no.such.setting" in cli.fails("produce", "--topic", name, *setting, stdin=b"x\n")


def test_unreadable_line_keeps_the_lines_before_it(cli: Cli, name: str) -> None:
    topic = f"{name}-bad"
    cli.ok("topics", "--create", "--topic", topic)
    produce = ("produce", "--topic", topic, "--property", "parse.key=true")
    assert "line number 2" in cli.fails(*produce, stdin=b"k\tgood\nbad\nk\tlater\n")
    read = cli.ok("consume", "--topic", topic, "--from-beginning", "--timeout-ms", "0")
    assert read.lines == ["good"]


def test_root_of_a_led_topic_names_the_leader_of_newer_records(
    brokers: Brokers, cli: Cli, name: str
) -> None:
    root = ("--root", brokers.root)
    refused = cli.fails("produce", "--topic", name, *root, stdin=b"x\n")
    assert "--bootstrap-server" in refused
    for call in (("get-offsets", "--topic"), ("consume", "--timeout-ms", "0", "--topic")):
        assert "note: brokers lead this topic" in cli.ok(*call, name, *root).errors
    found = cli.ok("find", "--key", "x", "--topic", name, *root)
    assert "this looks at the storage only" in found.errors


def test_isolation_level_holds_from_root_as_from_brokers(brokers: Brokers, cli: Cli) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    cli.ok("topics", "--create", "--topic", topic, "--config", "flush.ms=50")
    settings = {"bootstrap.servers": brokers.bootstrap, "transactional.id": topic}
    producer = ck.Producer(settings)
    producer.init_transactions(DEADLINE_S)
    transactions: dict[str, Callable[[], object]] = {
        "c": lambda: producer.commit_transaction(DEADLINE_S),
        "a": lambda: producer.abort_transaction(DEADLINE_S),
        "o": producer.flush,
    }
    for name, end in transactions.items():
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, f"{name}{number}", partition=0)
        producer.flush()
        end()
        cli.ok("produce", "--topic", topic, stdin=f"after-{name}\n".encode())
    committed = ["c0", "c1", "c2", "after-c", "after-a"]
    every = ["c0", "c1", "c2", "after-c", "a0", "a1", "a2", "after-a", "o0", "o1", "o2", "after-o"]
    root = ("--root", brokers.root)
    begin = ("consume", "--topic", topic, "--from-beginning")
    only = ("--isolation-level", "read_committed")
    assert cli.ok(*begin, *root, "--max-messages", "12", "--timeout-ms", "20000").lines == every
    at_once = ("--timeout-ms", "0")
    assert cli.ok(*begin, *at_once, *only).lines == committed
    assert cli.ok(*begin, *at_once, *only, *root).lines == committed
    uncommitted = ("--isolation-level", "read_uncommitted")
    assert cli.ok(*begin, *at_once, *uncommitted, *root).lines == every

    place = ("consume", "--topic", topic, "--partition", "0", *at_once, *only, *root, "--offset")
    marker = "3"
    assert cli.ok(*place, marker, "--max-messages", "2").lines == ["after-c", "after-a"]
    assert cli.ok(*place, "latest").lines == []
    assert cli.ok(*place, "12").lines == [], "an offset of the open transaction"

    cli.root, cli.bootstrap = brokers.root, ""
    cli.ok("snapshots", "--create", topic, "--topic", topic)
    pinned = ("consume", "--topic", topic, "--snapshot", topic)
    assert cli.ok(*pinned, *only).lines == committed
    assert cli.ok(*pinned).lines == every
    producer.commit_transaction(DEADLINE_S)
    whole = cli.ok(*begin, *only, "--max-messages", "9", "--timeout-ms", "20000").lines
    assert whole == [*committed, "o0", "o1", "o2", "after-o"]
    assert cli.ok(*pinned, *only).lines == committed, "as it was"


def test_groups_need_brokers(brokers: Brokers, cli: Cli, name: str) -> None:
    consume = ("consume", "--topic", name, "--root", brokers.root)
    assert "needs --bootstrap-server" in cli.misused(*consume, "--group", "g")
    both = ("consume", "--topic", name, "--group", "g", "--partition", "0")
    assert "leave out --partition" in cli.misused(*both)
