"""Parts of the console: decoding, the live tail's queue, findings, vendored files, options."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from sparklog.cli.commands.serve import client_settings, has_users
from sparklog.cli.main import main, parser_of
from sparklog.cluster.metadata.image import PartitionState, Topic
from sparklog.console.cluster_view import RECORD_COLUMNS
from sparklog.console.command import application, served
from sparklog.console.live_tail import QUEUE_ROWS, TailQueue
from sparklog.console.overview_page import job_findings, partition_findings
from sparklog.console.page_templates import STATIC
from sparklog.console.payloads import shown_payload
from sparklog.console.resources import RowPage
from sparklog.console.topic_pages import records_by_time
from sparklog.console.vendored import CODEMIRROR, VENDORED
from sparklog.core.config.broker import STANDARD_AUTHORIZER
from sparklog.core.counters import RequestCount
from sparklog.core.types import TopicPartition
from sparklog.log.manifest.manifest import Entry
from sparklog.log.schema import read_schema
from sparklog.spark.schedule.history import JobHistory, JobRun
from sparklog.spark.serve.arguments import parse_serve
from tests.harness.store_servers import free_port


@pytest.mark.parametrize(
    ("data", "decoder", "shown"),
    [
        (b'{"b":1, "a": "\xc3\xa9"}', "auto", ("json", '{"b": 1, "a": "é"}')),
        (b"plain", "auto", ("text", "plain")),
        (b"\x1b[0mx", "auto", ("text", "\\x1b[0mx")),
        (b"\xff\xfe", "auto", ("hex", "ff fe")),
        (b"\xffa", "text", ("text", "\\xffa")),
        (b"ab", "hex", ("hex", "61 62")),
        (b"\x00\x01\x02\x03", "auto", ("hex", "00 01 02 03")),
        (b"", "auto", ("empty", "")),
        (None, "hex", ("null", "null")),
    ],
)
def test_payload_is_recognised(data: bytes | None, decoder: str, shown: tuple[str, str]) -> None:
    found = shown_payload(data, decoder, pretty=False)
    assert (found.decoder, found.text) == shown


def test_payload_is_cut_between_characters() -> None:
    found = shown_payload(("é" * 400).encode(), bytes_max=101, pretty=False)
    assert (found.text, found.shortened, found.size_bytes) == ("é" * 50, True, 800)
    nested = b"[" * 100_000
    assert shown_payload(nested, bytes_max=len(nested), pretty=True).decoder == "text"


def test_tail_queue_keeps_the_newest_and_counts_the_rest() -> None:
    queue = TailQueue("auto")
    rows = [
        {"offset": n, "timestamp": n, "key": None, "value": b"v", "headers": None}
        for n in range(1000)
    ]
    batch = pa.RecordBatch.from_pylist(rows, read_schema(RECORD_COLUMNS))
    where = TopicPartition("t", 0)
    assert queue.take(where, batch)
    assert queue.take(where, batch.slice(0, 50))
    shown, skipped = queue.drain()
    assert (len(shown), skipped) == (QUEUE_ROWS, 1050 - QUEUE_ROWS)
    assert [row["offset"] for row in shown[-51:-49]] == [999, 0]
    assert queue.drain() == ([], 0)
    queue.stopped = True
    assert not queue.take(where, batch)


def test_findings_name_the_fault_and_its_cure() -> None:
    states = (
        PartitionState(replicas=(1, 2), isr=(1, 2), leader=1),
        PartitionState(replicas=(1, 2), isr=(1,), leader=1),
        PartitionState(replicas=(3,), isr=(), leader=3),
        PartitionState(),
    )
    topics = {"t": Topic("t", "id", states)}
    assert [f.finding for f in partition_findings(topics, [])] == ["no-brokers"]
    failed = JobRun("r", "retain", "retain", "cron", 5, 5, 6, outcome="failed", message="no space")
    history = JobHistory(runs={"r": failed})
    (found,) = job_findings(history)
    assert (found.severity, found.since_ms, found.link) == ("bad", 5, "/jobs?job=retain")
    assert "no space" in found.what
    assert [one.finding for one in job_findings(JobHistory())] == ["no-jobs"]


def test_chart_spreads_rows_over_the_time_of_segments() -> None:
    entries = [
        Entry(0, 600, "a", 1, 600, 0, 60_000, 0, ""),
        Entry(600, 1200, "b", 1, 600, 60_000, 120_000, 0, ""),
    ]
    chart = records_by_time(entries)
    assert chart is not None
    assert sum(chart["rates"]) == pytest.approx(1200)
    assert records_by_time(entries[:0]) is None


def test_page_beyond_the_end_is_the_last_one() -> None:
    assert RowPage.of(101, 9, 50) == RowPage(3, 3, 101, 100)
    assert RowPage.of(0, 1, 50) == RowPage(1, 1, 0, 0)


def test_vendored_files_have_licences_and_checksums() -> None:
    folder = STATIC / "vendor"
    listed = {one.name for one in VENDORED} | {one.licence for one in VENDORED}
    assert {path.name for path in folder.iterdir()} == listed
    for one in VENDORED:
        digest = hashlib.sha384((folder / one.name).read_bytes()).digest()
        assert one.integrity == f"sha384-{base64.b64encode(digest).decode()}"
        assert one.package_integrity.startswith("sha512-")
    lock = Path(__file__).parents[2] / ".ci/editor/package-lock.json"
    name, version = CODEMIRROR.package.rsplit("@", 1)
    locked = json.loads(lock.read_text())["packages"][f"node_modules/{name}"]
    assert (locked["version"], locked["integrity"]) == (version, CODEMIRROR.package_integrity)


def test_templates_have_no_inline_script_style_or_other_host() -> None:
    templates = sorted((STATIC.parent / "templates").glob("*.html"))
    assert len(templates) > 15
    for path in templates:
        text = path.read_text()
        assert re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son[a-z]+=|https?:", text) is None
        assert "| safe" not in text


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--root", "x", "--host", "0.0.0.0"], "--oidc-issuer or --read-only"),
        (["--root", "x", "--role", "ann=admin"], "--role goes with --login"),
        (["--root", "x", "--login", "--role", "ann=boss"], "knows no role 'boss'"),
        (["--bootstrap-server", "h:1", "--login", "--role", "a=admin"], "ACLs decide"),
        (["--root", "x", "--login", "--oidc-issuer", "https://p"], "choose one"),
        (["--root", "x", "--oidc-issuer", "https://p"], "go together"),
        (
            ["--root", "x", "--port", "0", "--oidc-issuer", "https://p", "--oidc-client-id", "c"],
            "needs --public-url",
        ),
        ([], "which log?"),
    ],
)
def test_command_refuses_unsafe_options(
    argv: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("SPARKLOG_ROOT", "SPARKLOG_BOOTSTRAP_SERVER"):
        monkeypatch.delenv(name, raising=False)
    assert main(["console", *argv]) == 2
    assert words in capsys.readouterr().err


def test_command_builds_a_read_only_console(tmp_path: Path) -> None:
    args = parser_of("console")[1].parse_args(["--root", str(tmp_path), "--read-only"])
    with TestClient(application(args).starlette, base_url="http://127.0.0.1:9099") as client:
        assert client.get("/api/v1/session").json()["role"] == "viewer"
        assert client.get("/", headers={"Host": "other:9099"}).status_code == 421


def test_command_says_which_package_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["console", "--root", str(tmp_path)]) == 1
    assert "pip install 'sparklog[console]'" in capsys.readouterr().err


@pytest.mark.parametrize("login", [False, True])
def test_console_beside_brokers_asks_for_a_login_if_they_do(tmp_path: Path, login: bool) -> None:
    puts = {("put", "orders"): RequestCount(7, 70)}
    counters = {"this application": lambda: puts}
    pages = {"broker 1": f"http://127.0.0.1:{free_port()}"}
    with served(str(tmp_path), 0, login=login, pages=lambda: pages, counters=counters) as url:
        assert url.startswith("http://127.0.0.1:")
        if login:
            with pytest.raises(HTTPError) as refused:
                urlopen(f"{url}api/v1/topics")
            with refused.value as answer:
                assert answer.code == 401
        else:
            with urlopen(f"{url}api/v1/session") as answer:
                assert json.load(answer)["role"] == "admin"
            with urlopen(f"{url}api/v1/bill") as answer:
                bill = json.load(answer)
            assert bill["requests"]["put"] == 7
            problems = {one["name"]: one["problem"] for one in bill["sources"]}
            assert problems.keys() == {"this console", "this application", "broker 1"}
            assert "does not answer" in problems["broker 1"]
    with pytest.raises(URLError):
        urlopen(url)


def test_serve_takes_the_port_of_a_console(tmp_path: Path) -> None:
    root = ["--root", str(tmp_path)]
    given = {
        "plain": [],
        "sasl": ["--sasl", "scram"],
        "acls": ["--config", f"authorizer.class.name={STANDARD_AUTHORIZER}"],
    }
    parsed = {name: parse_serve([*root, *words]) for name, words in given.items()}
    assert client_settings(parsed["plain"]) == {"security.protocol": "PLAINTEXT"}
    assert client_settings(parsed["sasl"]) == {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512",
    }  # fmt: skip
    assert {name: has_users(job) for name, job in parsed.items()} == {
        "plain": False, "sasl": True, "acls": True,
    }  # fmt: skip
    assert main(["serve", *root, "--console-port", "70000"]) == 2
