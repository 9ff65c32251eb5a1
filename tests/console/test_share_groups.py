"""Share groups in a console on a root: the list, and a group with the stored states of records."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from sparklog.cluster.log import Log
from sparklog.console import share_rows, share_state_reader
from sparklog.console.root_view import RootView
from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.share.delivery_state import DeliveryState, SharePartitionKey, StateBatch
from sparklog.coordinator.share.records import ShareGroupEpoch, write_share_record
from sparklog.core.clock import ManualClock
from tests.harness.console_browser import Browser
from tests.harness.stored_shares import (
    store_records,
    store_share_group,
    store_state,
    topic_uuid,
)

Opens = Callable[..., Browser]
FLIGHTS = {"flights": 40}


def log_of(browser: Browser) -> Log:
    assert browser.log is not None
    return browser.log


def with_topic(browser: Browser, topic: str = "jobs", partitions: int = 3) -> UUID:
    log_of(browser).create_topic(topic, partitions)
    return topic_uuid(log_of(browser), topic)


def test_share_group_has_its_states_and_members(root_browser: Opens, filled_root: str) -> None:
    browser = root_browser(filled_root)
    found = browser.get("/share-groups/g")
    assert (found["type"], found["state"], found["epoch"]) == ("Share", "Unknown", 3)
    rows = {row["partition"]: row for row in found["partitions"]}
    assert rows[0] == {
        "topic": "flights", "topicId": rows[1]["topicId"], "partition": 0, "startOffset": 2,
        "windowEnd": 8, "endOffset": 40, "lag": 33, "available": 1, "acknowledged": 3,
        "archived": 2, "deliveryCountMax": 5, "memberCount": 1, "members": ["m-1"],
        "problem": None,
    }  # fmt: skip
    assert (rows[1]["startOffset"], rows[1]["lag"], rows[1]["available"]) == (None, None, 0)
    assert (rows[2]["available"], rows[2]["endOffset"]) == (None, 40)
    assert (found["lag"], found["total"], found["memberCount"]) == (33, 3, 1)
    assert found["members"][0]["partitions"] == ["flights-0"]
    assert [found[name] for name in ("statesProblem", "statesBehind", "statesFull")] == [
        None, False, False,
    ]  # fmt: skip
    page = browser.page("/share-groups/g")
    assert "&lt;i&gt;client" in page
    assert "never stored" in page
    assert 'hx-get="/dead-letters/g"' in page
    assert "no share group" in browser.get("/share-groups/none", 404)["message"]


def test_list_has_share_groups_with_lag(root_browser: Opens) -> None:
    browser = root_browser()
    topic_id = with_topic(browser)
    log = log_of(browser)
    store_share_group(log, "teams/one", "jobs")
    # A group of which only a state is left.
    store_state(log, SharePartitionKey("left", topic_id, 1), 0)
    browser.post("/topics/jobs/records", value="a", partition=1)
    listed = browser.get("/groups?lag=1")
    assert listed["states"] == ["Unknown"]
    assert [(one["group"], one["type"], one["lag"], one["partitions"], one["problem"])
            for one in listed["groups"]] == [
        ("left", "Share", 1, 1, None), ("teams/one", "Share", 0, 2, None),
    ]  # fmt: skip
    assert 'href="/share-groups/teams%2Fone"' in browser.page("/groups?lag=1")
    assert browser.get("/share-groups/teams%2Fone")["group"] == "teams/one"
    assert browser.get("/share-groups/left")["lag"] == 1


def test_deleted_group_and_deleted_topic(tmp_path_factory: pytest.TempPathFactory) -> None:
    clock = ManualClock()
    view = RootView(str(tmp_path_factory.mktemp("shares")), clock)
    log = view.storage()
    log.create_topic("jobs", 3)
    store_share_group(log, "workers", "jobs")
    assert [one.group_id for one in view.groups().listings] == ["workers"]
    stored = view.stored_share_group("workers")
    assert stored is not None
    assert [member.member_id for member in stored.members] == ["m-1"]
    gone = write_share_record(ShareGroupEpoch("workers", None))
    store_records(log, "__consumer_offsets", [gone, CoordinatorRecord(b"\x00\x0bx", None)])
    log.delete_topic("jobs")
    clock.sleep_s(10)
    assert view.stored_share_group("workers") is None
    assert [one.group_id for one in view.groups().listings] == ["workers"]
    view.close()


def test_state_of_a_deleted_topic_is_shown_by_its_id(root_browser: Opens) -> None:
    browser = root_browser()
    store_state(log_of(browser), SharePartitionKey("workers", UUID(int=9), 0), 5)
    (row,) = browser.get("/share-groups/workers")["partitions"]
    assert (row["topic"], row["startOffset"], row["lag"]) == (None, 5, None)
    assert f"deleted, {row['topicId']}" in browser.page("/share-groups/workers")


def test_states_of_one_page_are_bounded(
    root_browser: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_rows, "PARTITION_ROWS", 2)
    browser = root_browser()
    topic_id = with_topic(browser)
    batches = [StateBatch(n * 2, n * 2, DeliveryState.ACKNOWLEDGED, 1) for n in range(50)]
    for number in range(3):
        store_state(log_of(browser), SharePartitionKey("workers", topic_id, number), 0, batches)
    found = browser.get("/share-groups/workers")
    assert [row["acknowledged"] for row in found["partitions"]] == [50, 50]
    assert (found["total"], found["pages"]) == (3, 2)
    last = browser.get("/share-groups/workers?page=2")
    assert [row["partition"] for row in last["partitions"]] == [2]
    assert 'href="/share-groups/workers?page=2"' in browser.page("/share-groups/workers")
    (listed,) = browser.get("/groups?lag=1")["groups"]
    assert listed["problem"] == "its own page shows the lag of 3 partitions"
    monkeypatch.setattr(share_rows, "DECODED_BYTES_MAX", 1500)
    first, second = browser.get("/share-groups/workers")["partitions"]
    assert (first["acknowledged"], second["acknowledged"]) == (50, None)
    assert "too many states" in second["problem"]


def test_states_are_read_in_bounded_pieces(
    root_browser: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_state_reader, "READ_BYTES_MAX", 1)
    browser = root_browser()
    topic_id = with_topic(browser)
    for number in range(2):
        store_state(log_of(browser), SharePartitionKey("workers", topic_id, number), 3)
    first = browser.get("/share-groups/workers")
    assert (first["total"], first["statesBehind"]) == (1, True)
    assert "Load the page again" in browser.page("/share-groups/workers")
    monkeypatch.undo()
    later = browser.get("/share-groups/workers")
    assert (later["total"], later["statesBehind"]) == (2, False)
