"""Tasks that need brokers, in Chromium: elections, moves, offsets, quotas, and aborts.

`make soak` runs them, as those of `test_browser`. Screenshots are in pytest's folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from playwright.sync_api import Browser, Page

from sparklog.client.admin import Admin
from sparklog.client.consumer import Consumer
from sparklog.client.producer import Producer
from sparklog.client.values import EARLIEST, CommittedOffset
from sparklog.console.broker_view import BrokerView
from sparklog.core.types import TopicPartition
from sparklog.testing.cluster import SparklogCluster
from tests.harness.chromium import MODE_NAMES, MODES, check_pages, opened
from tests.harness.console_browser import served
from tests.harness.hanging import FORGETFUL, leave_hanging
from tests.harness.share_member import ShareMember
from tests.harness.waiting import eventually

pytestmark = pytest.mark.soak

PATHS = (
    "/", "/topics", "/topics/flights", "/topics/flights/records", "/brokers", "/brokers/1",
    "/groups", "/groups/readers", "/groups/readers?to=shift&value=-2#reset", "/transactions",
    "/transactions/hanging?minutes=0", "/moves", "/users", "/acls", "/jobs", "/schemas", "/sql",
    "/snapshots", "/share-groups/crew", "/share-groups/crew?to=earliest#reset",
    "/dead-letters/crew",
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparklogCluster]:
    with SparklogCluster(3, config=FORGETFUL) as running:
        running.topic("flights", 3, replication_factor=2)
        with Producer(running.bootstrap_servers) as producer:
            for number in range(30):
                producer.send("flights", b"%d" % number, partition=number % 3)
        leave_hanging(running, TopicPartition("billing", 0))
        with Consumer(running.bootstrap_servers, group="readers") as consumer:
            consumer.assign({TopicPartition("flights", n): EARLIEST for n in range(3)})
            read = 0
            while read < 30:
                read += len(consumer.poll(100, 1.0))
            consumer.commit()
        member = ShareMember(running.bootstrap_servers, "crew")
        member.join("flights")
        member.beat(-1)
        with Admin(running.bootstrap_servers) as admin:
            moved = admin.share_groups.move_offsets("crew", {TopicPartition("flights", 0): 3})
            assert set(moved.values()) == {None}
        yield running


@pytest.fixture(scope="module")
def url(cluster: SparklogCluster) -> Iterator[str]:
    view = BrokerView(cluster.bootstrap_servers, {})
    with served(view) as address:
        yield address
    view.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context()
    yield context.new_page()
    context.close()


def unfold(page: Page, title: str) -> None:
    page.locator("summary", has_text=title).first.click()


def done(page: Page) -> str:
    return page.text_content(".done") or ""


@pytest.mark.parametrize("mode", MODES, ids=MODE_NAMES)
def test_axe_finds_nothing_serious_at_brokers(
    mode: dict[str, Any], chromium: Browser, axe: str, url: str, tmp_path: Path
) -> None:
    check_pages(chromium, mode, [url + path for path in PATHS], axe, tmp_path)


def test_preferred_leaders_are_elected_by_a_form(
    cluster: SparklogCluster, url: str, page: Page
) -> None:
    leader = cluster.leader("flights")
    cluster.restart(leader)
    cluster.wait_until_stable()
    opened(page, f"{url}/topics/flights")
    unfold(page, "Elect leaders")
    page.get_by_role("button", name="Elect").click()
    page.wait_for_load_state("networkidle")
    assert "of 3 partitions have a new leader" in done(page)
    with Admin(cluster.bootstrap_servers) as admin:
        states = admin.listed_topics(["flights"])["flights"].partition_states
    assert [one.leader for one in states] == [one.replicas[0] for one in states]


def test_move_shows_its_progress_until_it_ends(
    cluster: SparklogCluster, url: str, page: Page, tmp_path: Path
) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        state = admin.listed_topics(["flights"])["flights"].partition_states[0]
    (newcomer,) = set(cluster.broker_ids) - set(state.replicas)
    cluster.cut(state.leader, newcomer)
    opened(page, f"{url}/topics/flights")
    unfold(page, "Move a partition")
    page.get_by_label("Brokers", exact=True).fill(f"{state.leader},{newcomer}")
    page.get_by_role("button", name="Move", exact=True).click()
    page.wait_for_url("**/moves")
    assert "flights-0 moves to" in done(page)
    row = page.locator("#moves tbody tr")
    assert "1 of 2" in (row.text_content() or "")
    assert page.locator("progress").get_attribute("value") == "50"
    page.screenshot(path=tmp_path / "move.png", full_page=True)
    cluster.heal()
    page.wait_for_selector("#moves .empty", timeout=60_000)
    with Admin(cluster.bootstrap_servers) as admin:
        state = admin.listed_topics(["flights"])["flights"].partition_states[0]
    assert newcomer in state.replicas


def test_offsets_move_after_their_plan_was_shown(
    cluster: SparklogCluster, url: str, page: Page
) -> None:
    opened(page, f"{url}/groups/readers")
    page.locator("select[name=to]").select_option("earliest")
    page.get_by_role("button", name="Show what would change").click()
    page.wait_for_selector(".plan")
    assert "Nothing has changed yet" in (page.text_content(".plan") or "")
    assert sum(committed(cluster).values()) == 30
    page.get_by_role("button", name="Move 3 offsets").click()
    page.wait_for_selector(".done")
    assert "Moved 3 offsets of group readers" in done(page)
    assert set(committed(cluster).values()) == {0}


def committed(cluster: SparklogCluster) -> dict[TopicPartition, int]:
    with Admin(cluster.bootstrap_servers) as admin:
        found = admin.groups.offsets(["readers"])["readers"]
    assert isinstance(found, dict)
    offsets: dict[TopicPartition, CommittedOffset] = found
    return {tp: one.offset for tp, one in offsets.items()}


def test_quota_is_set_and_removed_by_forms(cluster: SparklogCluster, url: str, page: Page) -> None:
    opened(page, f"{url}/users")
    unfold(page, "Set a quota")
    page.get_by_label("Client id").fill("reports")
    page.locator("select[name=name]").select_option("consumer_byte_rate")
    page.locator("input[name=value]").fill("1048576")
    page.get_by_role("button", name="Set", exact=True).click()
    page.wait_for_selector(".done")
    with Admin(cluster.bootstrap_servers) as admin:
        entity = (("client-id", "reports"),)
        eventually(
            lambda: admin.client_quotas().get(entity) == {"consumer_byte_rate": 1048576},
            "the quota is set",
        )
        opened(page, f"{url}/users")
        page.get_by_role("button", name="Remove consumer_byte_rate").click()
        page.wait_for_selector(".done")
        eventually(lambda: entity not in admin.client_quotas(), "the quota is removed")


def test_open_transaction_is_listed_and_aborted(
    cluster: SparklogCluster, url: str, page: Page
) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "open"}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("flights", b"open", partition=0)
    assert producer.flush(30) == 0
    opened(page, f"{url}/transactions")
    assert "Ongoing" in (page.text_content("table.rows") or "")
    page.wait_for_selector("#hanging")
    producer.abort_transaction(30)
    opened(page, f"{url}/transactions/hanging?minutes=0")
    row = page.locator("#hanging tbody tr")
    assert "billing-0" in (row.text_content() or "")
    row.locator("summary").click()
    button = row.get_by_role("button", name="Abort")
    assert button.is_disabled()
    row.locator("input[name=confirm]").fill("billing")
    button.click()
    page.wait_for_selector(".done")
    assert "Aborted the transaction at offset 2 of billing-0" in done(page)
