"""Dead letters in a console on a root: the newest of a group, and headers that say anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from sparklog.cluster.log import Log
from sparklog.console import dead_letter_pages
from sparklog.console.payloads import PREVIEW_BYTES
from sparklog.log.schema import HEADERS
from tests.harness.console_browser import Browser
from tests.harness.stored_shares import configure_group, dead_letter_headers

Opens = Callable[..., Browser]
Headers = Sequence[tuple[str, bytes | None]]


def log_of(browser: Browser) -> Log:
    assert browser.log is not None
    return browser.log


def bury(log: Log, letters: Sequence[Headers], partition: int = 0, value: bytes = b"v") -> None:
    """Append dead letters with these headers."""
    headers = [[{"key": name, "value": data} for name, data in one] for one in letters]
    rows = {
        "timestamp": pa.array(range(1_790_000_000_000, 1_790_000_000_000 + len(letters))),
        "value": pa.array([value] * len(letters), pa.binary()),
        "headers": pa.array(headers, HEADERS),
    }
    log.partition("dlq.jobs", partition).append([pa.record_batch(rows)])


def workers(browser: Browser, partitions: int = 1) -> Log:
    log = log_of(browser)
    log.create_topic("jobs", 3)
    log.create_topic("dlq.jobs", partitions)
    configure_group(log, "workers", {"errors.deadletterqueue.topic.name": "dlq.jobs"})
    return log


def test_newest_letters_of_the_group_lead_to_their_records(root_browser: Opens) -> None:
    browser = root_browser()
    log = workers(browser)
    letters = [dead_letter_headers(f"{'workers' if n % 2 else 'others'}", "jobs", 1, n)
               for n in range(60)]  # fmt: skip
    bury(log, letters)
    found = browser.get("/dead-letters/workers")
    assert (found["deadLetterTopic"], found["copiesRecords"], found["records"]) == (
        "dlq.jobs", False, 60,
    )  # fmt: skip
    assert [one["source"]["offset"] for one in found["letters"]] == list(range(59, 39, -2))
    first = found["letters"][0]
    assert first == {
        "partition": 0, "offset": 59, "timestamp": 1_790_000_000_059,
        "source": {"topic": "jobs", "partition": 1, "offset": 59}, "sourceText": "jobs-1@59",
        "deliveryCount": "5", "message": "rejected",
    }  # fmt: skip
    assert (found["isComplete"], found["partitions"], found["readPartitions"]) == (True, 1, 1)
    page = browser.page("/dead-letters/workers")
    assert 'href="/topics/jobs/partitions/1/records/59"' in page
    assert 'href="/topics/dlq.jobs/partitions/0/records/59"' in page
    assert "60 records, of all groups together" in page


def test_headers_may_say_anything(root_browser: Opens) -> None:
    browser = root_browser()
    log = workers(browser)
    group = ("__dlq.errors.group", b"workers")
    place = dict(dead_letter_headers("workers", "jobs", 1, 7))
    wrong: list[Headers] = [
        [*(place | {"__dlq.errors.topic": b"<script>alert(1)</script>"}).items()],
        [*(place | {"__dlq.errors.topic": b"../../users"}).items()],
        [*(place | {"__dlq.errors.partition": b"1/../x"}).items()],
        [*(place | {"__dlq.errors.offset": b"9" * 40}).items()],
        [*(place | {"__dlq.errors.offset": "\u0663".encode()}).items()],
        [*(place | {"__dlq.errors.offset": None}).items()],
        [*(place | {"__dlq.errors.topic": b"\xff\x00\x1b[31m"}).items()],
        [group, ("__dlq.errors.message", b"m" * 100_000)],
        [group],
    ]
    bury(log, wrong)
    found = browser.get("/dead-letters/workers")["letters"]
    assert [one["source"] for one in found] == [None] * len(wrong)
    assert max(len(one["message"]) for one in found) == PREVIEW_BYTES + 1
    page = browser.page("/dead-letters/workers")
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert "users/partitions" not in page
    # A record's own headers are copied before those of the broker.
    bury(log, [[("__dlq.errors.topic", b"forged"), *place.items()]])
    sources = [one["source"] for one in browser.get("/dead-letters/workers")["letters"]]
    assert {"topic": "jobs", "partition": 1, "offset": 7} in sources


def test_reading_of_dead_letters_has_bounds(
    root_browser: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = root_browser()
    log = workers(browser, partitions=2)
    mine = [dead_letter_headers("workers", "jobs", 0, 0)]
    others = [dead_letter_headers("others", "jobs", 0, n) for n in range(300)]
    bury(log, [*mine, *others])
    bury(log, mine, partition=1)
    whole = browser.get("/dead-letters/workers")
    assert [(one["partition"], one["offset"]) for one in whole["letters"]] == [(1, 0), (0, 0)]
    assert (whole["readRecords"], whole["isComplete"]) == (302, True)
    monkeypatch.setattr(dead_letter_pages, "RECORDS_READ_MAX", 100)
    some = browser.get("/dead-letters/workers")
    assert [(one["partition"], one["offset"]) for one in some["letters"]] == [(1, 0)]
    assert (some["isComplete"], some["readRecords"] < 302) == (False, True)
    assert "16 MiB at most" in browser.page("/dead-letters/workers")


def test_missing_dead_letters_are_explained(root_browser: Opens) -> None:
    browser = root_browser()
    names = {"topic.name": "dlq.gone", "copy.record.enable": "true"}
    own = {f"errors.deadletterqueue.{name}": value for name, value in names.items()}
    configure_group(log_of(browser), "workers", own)
    found = browser.get("/dead-letters/others")
    assert (found["deadLetterTopic"], found["letters"]) == ("", [])
    assert "drops the records" in browser.page("/dead-letters/others")
    found = browser.get("/dead-letters/workers")
    assert found["copiesRecords"]
    assert "dlq.gone" in found["problem"]
    assert "cannot be read" in browser.page("/dead-letters/workers")
