"""Pages of a console on a root, with no broker: what they show, and what they never show."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pytest
from pyarrow import parquet

from sparklog.cluster.metadata import changes as registry
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import Record
from sparklog.cluster.publication import StagedPartition, publish
from sparklog.console import live_tail
from sparklog.console.resources import ConsoleRole, PageResource
from sparklog.console.root_view import RootView
from sparklog.console.site import ALL_PAGES
from sparklog.coordinator.group_records import (
    OffsetKey,
    OffsetValue,
    write_offset_key,
    write_offset_value,
)
from sparklog.core.clock import ManualClock
from sparklog.core.entropy import SYSTEM_ENTROPY, new_topic_id
from sparklog.spark.schedule.history import JobRun, KnownJob, write_history
from tests.harness.console_browser import NASTY, Browser, browser_of

Opens = Callable[..., Browser]

PATHS = {"topic": "flights", "partition": "1", "offset": "3", "group": "g", "snapshot": "kept",
         "subject": "flights-value", "run": "r1", "job": "tidy",
         "query": "q1"}  # fmt: skip


def path_of(page: PageResource) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: PATHS.get(found[1], "1"), page.path)


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: page.name)
def test_page_and_json_answer_alike(
    page: PageResource, root_browser: Opens, filled_root: str
) -> None:
    browser = root_browser(filled_root)
    path = path_of(page)
    expected = 400 if page.brokers_only else 200
    answer = browser.client.get(path)
    assert answer.status_code == expected
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    # With no-referrer, browsers send the console's own forms with `Origin: null`.
    assert answer.headers["referrer-policy"] == "same-origin"
    assert "<h1" in answer.text
    assert re.search(r"<script(?![^>]* src=)|\son\w+=|\sstyle=|javascript:", answer.text) is None
    document = browser.get("/overview" if path == "/" else path, expected)
    assert ("error" in document) is page.brokers_only
    described = browser.get("/openapi.json")["paths"]
    assert f"/api/v1{'/overview' if page.path == '/' else page.path}" in described


def test_hostile_records_are_shown_as_text(root_browser: Opens, filled_root: str) -> None:
    browser = root_browser(filled_root)
    pages = [browser.page("/topics/nasty/records")]
    pages += [
        browser.page(f"/topics/nasty/partitions/0/records/{offset}?decoder={decoder}")
        for offset in range(len(NASTY))
        for decoder in ("auto", "text", "json", "hex")
    ]
    for text in pages:
        assert "<script>alert" not in text
        assert "<i>k" not in text
        assert "<u>" not in text
        assert re.search("[\x00-\x08\x0b-\x1f\u202e]", text.replace("\r", "")) is None
        assert len(text) < 400_000
    assert "right\\u202eleft" in pages[0]
    assert "schema 7" in pages[0]
    rows = {row["offset"]: row["value"] for row in browser.get("/topics/nasty/records")["records"]}
    assert rows[7] == {
        "text": "x" * 512, "decoder": "text", "bytes": 3_000_000, "shortened": True,
        "schemaId": None, "problem": None,
    }  # fmt: skip
    assert [rows[4]["decoder"], rows[5]["decoder"], rows[6]["decoder"]] == ["empty", "null", "json"]
    value = browser.client.get("/topics/nasty/partitions/0/records/7/value")
    assert value.content == NASTY[7]
    assert value.headers["content-type"] == "application/octet-stream"
    assert value.headers["content-disposition"].startswith("attachment;")


def test_pages_of_records_show_each_record_once(root_browser: Opens, filled_root: str) -> None:
    browser = root_browser(filled_root)
    for start, step in (("newest", "older"), ("oldest", "newer")):
        seen = []
        query = f"from={start}"
        while query:
            found = browser.get(f"/topics/flights/records?limit=7&{query}")
            seen += [(row["partition"], row["offset"]) for row in found["records"]]
            way = "before" if step == "older" else "after"
            query = f"from={way}&at={found[step]}" if found[step] else ""
        assert sorted(seen) == [(p, o) for p in range(3) for o in range(40)], start
    later = browser.get("/topics/flights/records?from=time&at=2026-09-21T14:13:50&limit=3")
    assert {row["offset"] for row in later["records"]} == {30}
    one = browser.get("/topics/flights/records?from=offset&at=38&partition=2")
    assert [row["offset"] for row in one["records"]] == [38, 39]
    problem = browser.get("/topics/flights/records?from=offset&at=99&partition=2", 404)
    assert "log_end_offset=40" in problem["message"]


def test_snapshot_is_read_as_it_was(root_browser: Opens) -> None:
    browser = root_browser()
    browser.post("/topics", name="orders")
    for value in ("first", "second"):
        browser.post("/topics/orders/records", value=value)
    browser.post("/snapshots", name="then", topics="orders")
    browser.post("/topics/orders/records", value="third")
    browser.post("/topics/orders/purge", confirm="orders")
    then = "snapshot=then"
    rows = browser.get(f"/topics/orders/records?{then}&from=oldest")["records"]
    assert [row["value"]["text"] for row in rows] == ["first", "second"]
    later = f"{then}&from=time&at=2030-01-01T00:00:00"
    assert browser.get(f"/topics/orders/records?{later}")["records"] == []
    one = browser.get(f"/topics/orders/partitions/0/records/1?{then}")
    assert one["value"]["text"] == "second"
    browser.get("/topics/orders/partitions/0/records/1", 404)
    text = browser.page(f"/topics/orders/records?{then}")
    assert "Follow live" not in text
    assert "Produce a record" not in text
    for path, words in (
        ("/topics/gone/records?snapshot=then", "has no such topic"),
        ("/topics/orders/records?snapshot=now", "no such snapshot"),
    ):
        answer = browser.client.get(f"/api/v1{path}")
        assert answer.status_code in {400, 404}
        assert words in answer.json()["message"]


def test_export_has_whole_records_as_json_lines(root_browser: Opens, filled_root: str) -> None:
    browser = root_browser(filled_root)
    answer = browser.client.get("/api/v1/topics/flights/export?limit=1000")
    assert answer.headers["content-disposition"] == 'attachment; filename="flights.jsonl"'
    rows = [json.loads(line) for line in answer.text.splitlines()]
    assert [(r["partition"], r["offset"]) for r in rows] == [
        (partition, offset) for partition in range(3) for offset in range(40)
    ]
    assert rows[7]["value"] == '{"n": 7}'
    few = browser.client.get("/api/v1/topics/flights/export?from=newest&limit=3&partition=2")
    assert [json.loads(line)["offset"] for line in few.text.splitlines()] == [37, 38, 39]
    nasty = browser.client.get("/api/v1/topics/nasty/export").text.splitlines()
    assert len(json.loads(nasty[7])["value"]) == 3_000_000
    assert json.loads(nasty[3])["value"] == {"base64": "AAAAAAdmcmFtZWT/"}
    assert browser.client.get("/api/v1/topics/empty/export").text == ""
    shares = browser.client.get("/api/v1/topics/flights/export?from=newest&limit=6").text
    assert [json.loads(line)["offset"] for line in shares.splitlines()] == [38, 39] * 3
    assert "no such topic" in browser.get("/topics/gone/export", 404)["message"]


def test_export_reports_records_beyond_its_bounds(root_browser: Opens, filled_root: str) -> None:
    browser = root_browser(filled_root, role=ConsoleRole.VIEWER)

    def exported(query: str) -> list[dict[str, Any]]:
        text = browser.client.get(f"/api/v1/topics/flights/{query}&summary=1").text
        return [json.loads(line) for line in text.splitlines()]

    *rows, last = exported("export?limit=50")
    assert (len(rows), last["sparklog.export"]) == (50, {
        "records": 50, "bytes": 560, "bound": "limit", "leftOutOffsets": 70,
        "next": "0:40,1:10,2:0", "leftOutPartitions": 0,
    })  # fmt: skip
    *rest, last = exported("export?from=after&at=0:40,1:10,2:0")
    assert (len(rest), last["sparklog.export"]["leftOutOffsets"]) == (70, 0)
    *few, last = exported("export?bytes=25")
    assert [row["offset"] for row in few] == [0, 1]
    assert (last["sparklog.export"]["bytes"], last["sparklog.export"]["bound"]) == (20, "bytes")
    *newest, last = exported("export?from=newest&limit=3&partition=2")
    assert [row["offset"] for row in newest] == [37, 38, 39]
    assert last["sparklog.export"]["leftOutOffsets"] == 37
    *found, last = exported("search/export?key=N25&everywhere=1&limit=2")
    assert [(row["partition"], row["key"]) for row in found] == [(0, "N25"), (1, "N25")]
    assert last["sparklog.export"]["leftOutRecords"] == 1
    assert browser.page("/topics/flights/search?key=N25").count("/search/export?") == 3
    parameters = browser.get("/openapi.json")["paths"]["/api/v1/topics/{topic}/export"]["get"]
    assert {one["name"] for one in parameters["parameters"]} >= {"format", "limit", "bytes"}


def test_csv_and_parquet_exports_are_safe_and_exact(root_browser: Opens, filled_root: str) -> None:
    browser = root_browser()
    assert browser.log is not None
    browser.log.create_topic("cells", 1)
    hostile = [b"=1+1", b" @SUM(A1)", b"a;-2", b"\x1b[2J\n=3", b"\xff", None, b"plain"]
    row = {"key": pa.array([b"+k"] * 7, pa.binary()), "value": pa.array(hostile, pa.binary())}
    browser.log.partition("cells", 0).append([pa.record_batch(row)])
    path = "/api/v1/topics/cells/export?format="
    answer = browser.client.get(f"{path}csv&summary=1&limit=7")
    assert answer.headers["content-disposition"] == 'attachment; filename="cells.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [one["value"] for one in rows[:7]] == [
        "'=1+1", "' @SUM(A1)", "a;'-2", "\\x1b[2J\\n=3", "\\xff", "", "plain",
    ]  # fmt: skip
    assert {one["key"] for one in rows[:7]} == {"'+k"}
    assert rows[7]["partition"].startswith("sparklog.export: records 7")
    whole = browser.client.get(f"{path}parquet")
    table = parquet.read_table(io.BytesIO(whole.content))
    assert table.column("value").to_pylist() == hostile
    assert table.column_names[:2] == ["partition", "offset"]
    footer = parquet.read_metadata(io.BytesIO(whole.content)).metadata
    summary = json.loads(footer[b"sparklog.export"])
    assert (summary["records"], summary["leftOutOffsets"]) == (7, 0)
    browser.log.create_topic("bare", 1)
    bare = browser.client.get("/api/v1/topics/bare/export?format=parquet")
    assert parquet.read_table(io.BytesIO(bare.content)).num_rows == 0


def test_spark_queries_are_listed_by_their_batches(
    root_browser: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = root_browser()
    log = browser.log
    assert log is not None
    assert browser.get("/spark-queries")["queries"] == []
    log.create_topic("out", 2)
    clock = ManualClock()

    def write(query: str, number: int, rows: tuple[int, ...]) -> None:
        columns = [pa.record_batch({"value": pa.array([b"v"] * n, pa.binary())}) for n in rows]
        topic_id = log.topic("out").topic_id
        staged = [
            StagedPartition("out", topic_id, at, (log.partition("out", at).stage([one]),))
            for at, one in enumerate(columns)
        ]
        publish(log, query, number, staged, clock=clock)
        clock.sleep_s(5)

    for number in (*range(40), 47, 300):
        write("b-query", number, (3,))
    write("b", 7, (4, 6))
    second, first = browser.get("/spark-queries")["queries"]
    assert (first["query"], first["batch"], first["records"], first["rate"]) == ("b", 7, 10, None)
    assert (second["query"], second["batch"], second["rate"]) == ("b-query", 300, None)
    write("b-query", 301, (20,))
    found = browser.get("/spark-queries/b-query")
    assert (found["batch"], found["records"], found["topics"]) == (301, 20, ["out"])
    assert found["rate"] == pytest.approx(20 / 10)
    (row,) = found["partitions"]
    assert (row["partition"], row["baseOffset"], row["endOffset"]) == (0, 130, 150)
    write("b", 8, (1,))
    (row,) = browser.get("/spark-queries/b-query")["partitions"]
    assert row["recordsSince"] == 1
    for query in ("gone", "a%20b"):
        assert "on record" in browser.get(f"/spark-queries/{query}", 404)["message"]
    assert "b-query" in browser.page("/spark-queries")
    assert 'hx-get="/spark-queries"' in browser.page("/groups")


def test_search_by_key_reports_skipped_segments(root_browser: Opens, filled_root: str) -> None:
    browser = root_browser(filled_root)
    found = browser.get("/topics/flights/search?key=N25&everywhere=1")
    assert [row["offset"] for row in found["records"]] == [25, 25, 25]
    assert found["cost"]["segments"] == 12
    assert found["cost"]["skipped"] >= 9
    assert f"<strong>{found['cost']['skipped']} of 12</strong>" in browser.page(
        "/topics/flights/search?key=N25&everywhere=1"
    )


def test_files_page_shows_segments_and_their_times(root_browser: Opens, filled_root: str) -> None:
    browser = root_browser(filled_root)
    found = browser.get("/topics/flights/partitions/1/files")
    assert [(s["baseOffset"], s["endOffset"], s["rows"]) for s in found["segments"]] == [
        (30, 40, 10), (20, 30, 10), (10, 20, 10), (0, 10, 10),
    ]  # fmt: skip
    newest = found["segments"][0]
    assert (newest["codec"], newest["keyIndex"], newest["problem"]) == ("lz4", True, None)
    assert (newest["minTimestamp"], newest["maxTimestamp"]) == (1790000030000, 1790000039000)
    assert found["bytes"] == sum(s["bytes"] for s in found["segments"])


def test_five_thousand_topics_are_paged_and_filtered(root_browser: Opens) -> None:
    browser = root_browser()
    assert browser.log is not None

    def five_thousand(image: MetadataImage) -> list[Record]:
        return [
            record
            for number in range(5000)
            for record in registry.create_topic(
                image, f"topic-{number:04}", new_topic_id(SYSTEM_ENTROPY), 1, {}
            )
        ]

    browser.log._decide(five_thousand)
    first = browser.get("/topics")
    assert (first["total"], first["pages"], len(first["topics"])) == (5000, 100, 50)
    answer = browser.client.get("/topics")
    assert answer.elapsed.total_seconds() < 10  # on any machine; test_load.py holds it to 1 s
    last = browser.get("/topics?page=100&sort=-name")["topics"]
    assert last[-1]["name"] == "topic-0000"
    assert browser.get("/topics?filter=C-00")["total"] == 100
    assert browser.get("/topics?filter=/9$/")["total"] == 500
    assert "regular expression" in browser.get("/topics?filter=/(/", 400)["message"]
    slow = browser.client.get("/topics?filter=/(t?o?p?i?c?-?)*[0-9]*(.*)*X$/")
    assert slow.elapsed.total_seconds() < 10
    assert browser.client.get("/").elapsed.total_seconds() < 10


def test_ten_thousand_groups_are_read_once(root_browser: Opens) -> None:
    browser = root_browser()
    log = browser.log
    assert log is not None
    log.create_topic("flights", 1)
    log.create_topic("__consumer_offsets", 1, by_cluster=True)
    where = [OffsetKey(f"group-{number:05}", "flights", 0) for number in range(10_000)]
    value = write_offset_value(OffsetValue(7, -1, "", 1_790_000_000_000))
    rows = {"key": [write_offset_key(one) for one in where], "value": [value] * len(where)}
    log.partition("__consumer_offsets", 0).append([pa.record_batch(rows)])
    first = browser.client.get("/api/v1/groups")
    assert first.elapsed.total_seconds() < 10
    found = first.json()
    assert (found["total"], found["pages"], len(found["groups"])) == (10_000, 200, 50)
    gone = {"key": [write_offset_key(where[0])], "value": pa.array([None], pa.binary())}
    log.partition("__consumer_offsets", 0).append([pa.record_batch(gone)])
    assert browser.get("/groups/group-09999")["offsets"][0]["offset"] == 7
    assert browser.get("/groups?filter=group-0999")["total"] == 10


def test_list_of_groups_names_the_reason_without_brokers(filled_root: str) -> None:
    with closing(RootView(filled_root)) as view, closing(view.with_brokers({})) as asking:
        with browser_of(asking) as client:
            browser = Browser(client)
            found = browser.get("/groups")
            assert "no broker of this log runs" in found["problem"]
            assert "no broker of this log runs" in browser.page("/groups")
        with browser_of(view) as client:
            assert Browser(client).get("/groups")["problem"] is None


def test_wrong_parameters_are_refused_with_words(root_browser: Opens, filled_root: str) -> None:
    browser = root_browser(filled_root)
    for path, words in (
        ("/topics?pages=2", "no such parameter: 'pages'"),
        ("/topics?page=x", "page is a whole number"),
        ("/topics?page=0", "outside its limits"),
        ("/topics?page=1&page=2", "given twice"),
        ("/topics/flights/records?limit=100000", "outside its limits"),
        ("/topics/flights/records?from=offset&at=", "needs at"),
        ("/topics/flights/records?decoder=avro", "is one of"),
        (f"/topics?filter={'x' * 400}", "too long"),
    ):
        assert words in browser.get(path, 400)["message"]
    assert "no such topic" in browser.get("/topics/gone", 404)["message"]
    assert "no such partition" in browser.get("/topics/flights/records?partition=9", 404)["message"]
    assert "There is no page" in browser.page("/nothing", 404)


def test_run_of_a_job_has_its_report(root_browser: Opens, filled_root: str) -> None:
    browser = root_browser(filled_root)
    found = browser.get("/jobs/runs/r1")
    assert (found["job"], found["outcome"], json.loads(found["report"])) == (
        "tidy", "done", {"topics": 3},
    )  # fmt: skip
    assert found["dryRun"] == f"sparklog run retain --root {filled_root} --topic flights --dry-run"
    text = browser.page("/jobs/runs/r1")
    assert "&lt;b&gt;kept&lt;/b&gt;" in text
    assert 'href="/jobs/runs/r1"' in browser.page("/jobs")
    assert "no such run" in browser.get("/jobs/runs/r2", 404)["message"]


def test_jobs_show_their_log_and_a_dry_run(root_browser: Opens, filled_root: str) -> None:
    browser = root_browser(filled_root)
    assert "warning: &lt;i&gt;slow&lt;/i&gt;" in browser.page("/jobs/runs/r1")
    assert 'href="/jobs/tidy/dry-run"' in browser.page("/jobs")
    assert browser.log is not None
    before = browser.log.partition("flights", 0).view()
    found = browser.get("/jobs/tidy/dry-run")
    report = json.loads(found["report"])
    assert (found["lookedAt"], found["partitions"], report["dry_run"]) == (3, 3, True)
    assert (report["expired_offsets"], report["records_after"]) == (120, 0)
    assert "would expire 120 offsets" in browser.page("/jobs/tidy/dry-run")
    assert browser.log.partition("flights", 0).view().entries == before.entries
    assert "no application runs a job" in browser.get("/jobs/gone/dry-run", 404)["message"]


def test_dry_run_of_a_materialization_goes_on_from_its_last_run(root_browser: Opens) -> None:
    browser = root_browser()
    log = browser.log
    assert log is not None
    log.create_topic("flights", 2)
    for _ in range(2):
        rows = pa.record_batch({"value": [b"x" * 100] * 10})
        log.partition("flights", 0).append([rows])
    size_bytes = log.partition("flights", 0).view().entries[1].size_bytes
    avro = ("--format", "avro", "--avro-schema=none.json")
    words = ("--topic", "flights", "--table", "/tables/flights", "--max-per-batch", "3", *avro)
    known = KnownJob("table", "materialize", "@hourly", "UTC", words, True)
    write_history(log, known, patience_s=1.0)
    first = json.loads(browser.get("/jobs/table/dry-run")["report"])
    assert (first["rows"], first["batches"], first["after_run"]) == (20, 7, None)
    ends = [{"partition": 0, "until": 14}, {"partition": 1, "until": 0}, {"partition": "2"}]
    done = JobRun("r1", "table", "materialize", "schedule", 1, 1, 1, outcome="done",
                  report={"topic": "flights", "partitions": ends})  # fmt: skip
    for run in (done, replace(done, run_id="r2", started_ms=2, report={})):
        write_history(log, run, patience_s=1.0)
    found = browser.get("/jobs/table/dry-run")
    planned = json.loads(found["report"])
    assert (found["lookedAt"], found["partitions"], planned["after_run"]) == (2, 2, "r1")
    assert (planned["rows"], planned["bytes"], planned["batches"]) == (6, size_bytes, 2)
    assert planned["partitions"][0] == {"partition": 0, "from": 14, "until": 20}
    page = browser.page("/jobs/table/dry-run")
    assert "flights-0: offsets 14 to 20" in page
    assert "/tables/flights in 2 batches; it goes on from the end of run r1" in page


@pytest.mark.parametrize("has_ended", [False, True])
def test_live_tail_goes_on_until_its_session_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_ended: bool
) -> None:
    monkeypatch.setattr(live_tail, "CHECK_EVERY_S", 0.0)
    looks = iter([False] * 3)
    with closing(RootView(str(tmp_path / "log"))) as view:
        view.storage().create_topic("flights", 1)

        async def collected() -> list[bytes]:
            events = live_tail.tail_events(
                view, "flights", None, "auto", anyio.CapacityLimiter(1),
                lambda: next(looks, True), lambda: has_ended,
            )  # fmt: skip
            return [event async for event in events]

        found = anyio.run(collected)
    assert found[0].startswith(b"event: records")
    assert [b"your session has ended" in event for event in found[1:]] == [True] * has_ended
