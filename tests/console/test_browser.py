"""Whole tasks in Chromium: each page by axe, the round trip by keyboard, phone width, and policy.

`make soak` runs them. They need the system's Chromium and `npm`, which fetches axe once. The
screenshots of all pages are in pytest's folder.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from sparklog.console.app import ConsoleApp
from sparklog.console.resources import ConsoleRole
from sparklog.console.root_view import RootView
from sparklog.console.sessions import ConsoleSessions, ConsoleUser
from sparklog.core.web_requests import LOOPBACK_NAMES
from tests.harness.waiting import eventually

pytestmark = pytest.mark.soak

AXE = "axe-core@4.14.1"
PATHS = (
    "/", "/topics", "/topics/flights", "/topics/flights/records", "/topics/nasty/records",
    "/topics/nasty/partitions/0/records/6", "/topics/flights/partitions/0/files",
    "/topics/flights/search?key=N25&everywhere=1", "/groups", "/brokers", "/jobs", "/snapshots",
    "/snapshots/kept", "/topics/none", "/users", "/acls",
    "/acls?principal=User:ann&name=flights&operation=read", "/sql",
    "/topics/flights/find?name=n&text=25", "/schemas", "/schemas/flights-value", "/jobs/runs/r1",
    "/bill?flush=30000",
)  # fmt: skip
MODES: tuple[dict[str, Any], ...] = (
    {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
    {"color_scheme": "light", "viewport": {"width": 640, "height": 450}},  # 200 % zoom of the first
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium")
    assert path is not None, "install chromium, on Debian with apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, fetched with npm."""
    folder = tmp_path_factory.mktemp("axe")
    subprocess.run(["npm", "pack", AXE], cwd=folder, check=True, capture_output=True)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as packed:
        script = packed.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


@pytest.fixture(scope="module")
def url(filled_root: str) -> Iterator[str]:
    view = RootView(filled_root)
    sessions = ConsoleSessions(ConsoleUser("", ConsoleRole.ADMIN, view), None)
    app = ConsoleApp(sessions, version="0.0", secure=False, hosts=LOOPBACK_NAMES)
    server = uvicorn.Server(uvicorn.Config(app.starlette, port=0, log_level="error"))
    app.is_stopping = lambda: server.should_exit
    thread = threading.Thread(target=server.run)
    thread.start()
    eventually(lambda: server.started, "the console serves")
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()
    view.close()


def opened(page: Page, address: str) -> list[str]:
    """Open an address, and return the list to which the page's later complaints go."""
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(address)
    page.wait_for_load_state("networkidle")
    return problems


@pytest.mark.parametrize("mode", MODES, ids=["light", "dark", "phone", "zoomed"])
def test_axe_finds_nothing_serious(
    mode: dict[str, Any], chromium: Browser, axe: str, url: str, tmp_path: Path
) -> None:
    context = chromium.new_context(**mode, bypass_csp=True)
    for number, path in enumerate(PATHS):
        page = context.new_page()
        opened(page, url + path)
        page.screenshot(path=tmp_path / f"{number:02}.png", full_page=True)
        page.evaluate(axe)
        found = page.evaluate("axe.run().then(result => result.violations)")
        serious = [one for one in found if one["impact"] in {"serious", "critical"}]
        assert serious == [], f"{path}: {json.dumps(serious, indent=1)[:2000]}"
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(overflow) <= 0, path
        page.close()
    context.close()


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
