"""Whole tasks in Chromium: each page by axe, the round trip by keyboard, phone width, and policy.

`make soak` runs them. They need the system's Chromium and `npm`, which fetches axe once. The
screenshots of all pages are in pytest's folder.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from sparklog.console.page_templates import STATIC
from sparklog.console.root_view import RootView
from sparklog.console.vendored import CODEMIRROR
from tests.harness.chromium import MODE_NAMES, MODES, check_pages, opened
from tests.harness.console_browser import served

pytestmark = pytest.mark.soak
ROOT = Path(__file__).parents[2]

PATHS = (
    "/", "/topics", "/topics/flights", "/topics/flights/records", "/topics/nasty/records",
    "/topics/nasty/partitions/0/records/6", "/topics/flights/partitions/0/files",
    "/topics/flights/search?key=N25&everywhere=1", "/groups", "/brokers", "/jobs", "/snapshots",
    "/snapshots/kept", "/topics/none", "/users", "/acls",
    "/acls?principal=User:ann&name=flights&operation=read", "/sql",
    "/topics/flights/find?name=n&text=25", "/schemas", "/schemas/flights-value", "/jobs/runs/r1",
    "/bill?flush=30000", "/jobs/tidy/dry-run", "/spark-queries", "/spark-queries/q1",
    "/share-groups/g", "/dead-letters/g",
)  # fmt: skip


@pytest.fixture(scope="module")
def url(filled_root: str) -> Iterator[str]:
    view = RootView(filled_root)
    with served(view) as address:
        yield address
    view.close()


@pytest.mark.parametrize("mode", MODES, ids=MODE_NAMES)
def test_axe_finds_nothing_serious(
    mode: dict[str, Any], chromium: Browser, axe: str, url: str, tmp_path: Path
) -> None:
    check_pages(chromium, mode, [url + path for path in PATHS], axe, tmp_path)


def test_pages_work_under_the_strict_policy(chromium: Browser, url: str) -> None:
    context = chromium.new_context()
    alerts: list[str] = []
    for path in PATHS:
        page = context.new_page()
        page.on("dialog", lambda dialog: alerts.append(dialog.message))
        problems = opened(page, url + path)
        assert [one for one in problems if "404" not in one] == [], path
        assert alerts == []
        page.close()
    context.close()


def test_round_trip_by_keyboard_alone(chromium: Browser, url: str) -> None:
    context = chromium.new_context(timezone_id="Europe/Berlin", locale="en-GB")
    page = context.new_page()
    opened(page, url)
    keys = page.keyboard
    keys.press("?")
    assert page.locator("dialog[open]").is_visible()
    keys.press("Escape")
    keys.press("g")
    keys.press("t")
    page.wait_for_url("**/topics")
    keys.press("/")
    keys.type("fli")
    page.wait_for_url("**filter=fli*")
    page.wait_for_selector("#topics tbody tr:only-child")
    keys.press("Escape")
    keys.press("j")
    keys.press("Enter")
    page.wait_for_url("**/topics/flights")
    assert page.locator("figure canvas").count() == 1
    keys.press("j")
    keys.press("Enter")
    page.wait_for_url("**/topics/flights/records?partition=0")
    assert page.locator("#records tbody tr").count() == 40
    assert page.locator("#records time").first.text_content() == "21/09/2026, 16:13:59"
    keys.press("j")
    keys.press("j")
    keys.press("Enter")
    page.wait_for_url("**/partitions/0/records/38")

    opened(page, f"{url}/topics")
    page.fill("#filter", "/(/")
    page.wait_for_selector("#trouble:not([hidden])")
    assert "no regular expression" in (page.text_content("#trouble") or "")
    assert page.locator("#topics tbody tr").count() > 1
    page.fill("#filter", "fli")
    page.wait_for_selector("#topics tbody tr:only-child")
    assert page.locator("#trouble").is_hidden()
    context.close()


def test_live_tail_and_typed_name_of_a_deletion(chromium: Browser, url: str) -> None:
    context = chromium.new_context()
    page = context.new_page()
    opened(page, f"{url}/topics")
    page.get_by_text("Create a topic").click()
    page.get_by_label("Name").fill("temporary")
    page.get_by_role("button", name="Create").click()
    page.wait_for_url("**/topics/temporary")
    assert "Created topic temporary" in (page.text_content(".done") or "")

    page.goto(f"{url}/topics/temporary/records")
    page.get_by_role("button", name="Follow live").click()
    other = context.new_page()
    other.goto(f"{url}/topics/temporary/records")
    other.get_by_text("Produce a record").click()
    other.get_by_label("Value", exact=True).fill("<b>hello</b>")
    other.get_by_role("button", name="Produce").click()
    other.wait_for_url("**/records/0")
    page.wait_for_selector("#records tbody tr", timeout=15_000)
    assert "<b>hello</b>" in (page.text_content("#records tbody tr") or "")
    assert page.text_content("#tail-state") == "Live: 1 records."

    page.goto(f"{url}/topics/temporary")
    page.locator("summary", has_text="Delete the topic").click()
    button = page.get_by_role("button", name="Delete the topic")
    assert button.is_disabled()
    page.locator("details[open] input[name=confirm]").fill("temporary")
    button.click()
    page.wait_for_url("**/topics")
    assert "Deleted topic temporary" in (page.text_content(".done") or "")
    context.close()


def test_sql_editor_completes_topics_and_runs_by_keyboard(chromium: Browser, url: str) -> None:
    context = chromium.new_context()
    page = context.new_page()
    problems = opened(page, f"{url}/sql")
    keys = page.keyboard
    keys.press("/")
    keys.type("SELECT offset FROM fli")
    page.get_by_role("option", name="flights").wait_for()
    page.wait_for_timeout(200)  # the editor ignores Enter just after its list opened
    keys.press("Enter")
    keys.type(" WHERE partition = 0 ORDER BY ALL LIMIT 2 -- g t")
    editor = page.get_by_role("textbox", name="Statement")
    assert "flights" in editor.inner_text()
    coloured = editor.locator("span", has_text="SELECT").first
    plain = editor.evaluate("one => getComputedStyle(one).color")
    assert coloured.evaluate("one => getComputedStyle(one).color") != plain
    assert page.url == f"{url}/sql", "keys of the console are letters here"
    keys.press("Control+Enter")
    page.wait_for_url("**/sql?run=*")
    page.wait_for_selector("#result table.records tbody tr:nth-child(2)")
    cells = page.locator("#result table.records tbody td").all_text_contents()
    assert [cell for cell in cells if cell in {"0", "1"}] == ["0", "1"]
    assert problems == []
    keys.press("/")
    keys.press("Escape")
    keys.press("g")
    keys.press("t")
    page.wait_for_url("**/topics")
    context.close()


def test_sql_runs_from_a_text_area_without_scripts(chromium: Browser, url: str) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{url}/sql")
    page.get_by_label("Statement").fill("SELECT 7 AS seven")
    page.get_by_role("button", name="Run").click()
    page.wait_for_url("**/sql?run=*")
    assert "SELECT 7 AS seven" in page.get_by_label("Statement").input_value()
    context.close()


def test_build_makes_the_vendored_editor_byte_for_byte(tmp_path: Path) -> None:
    made = tmp_path / "codemirror.js"
    subprocess.run([ROOT / ".ci/editor/build", made], check=True)
    assert made.read_bytes() == (STATIC / "vendor" / CODEMIRROR.name).read_bytes()
