"""The system's Chromium, driven by Playwright, and axe-core, which npm fetches once."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

AXE = "axe-core@4.14.1"
MODES: tuple[dict[str, Any], ...] = (
    {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
    {"color_scheme": "light", "viewport": {"width": 640, "height": 450}},  # 200 % zoom of the first
)
PATIENCE_MS = 150_000
"""On a busy machine a screenshot takes longer than the 30 s of the library."""
MODE_NAMES = ("light", "dark", "phone", "zoomed")


@contextmanager
def launched() -> Iterator[Browser]:
    """Run Chromium without a window."""
    path = shutil.which("chromium")
    assert path is not None, "install chromium, on Debian with apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def axe_script(folder: Path) -> str:
    """Return the script of axe-core, which npm fetches into a folder."""
    subprocess.run(["npm", "pack", AXE], cwd=folder, check=True, capture_output=True)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as packed:
        script = packed.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


def opened(page: Page, address: str) -> list[str]:
    """Open an address, and return the list to which the page's later complaints go."""
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(address)
    page.wait_for_load_state("networkidle")
    return problems


def faults(page: Page, axe: str) -> list[str]:
    """Return the serious findings of axe on a page, and whether it is wider than its window."""
    page.evaluate(axe)
    found = page.evaluate("axe.run().then(result => result.violations)")
    serious = [one for one in found if one["impact"] in {"serious", "critical"}]
    wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    words = [json.dumps(one, indent=1)[:1500] for one in serious]
    return [*words, "wider than the window"] if page.evaluate(wider) > 0 else words


def check_pages(
    chromium: Browser, mode: dict[str, Any], addresses: Sequence[str], axe: str, folder: Path
) -> None:
    """Open pages in a mode, leave screenshots in a folder, and check that no page has a fault."""
    context = chromium.new_context(**mode, bypass_csp=True)
    context.set_default_timeout(PATIENCE_MS)
    for number, address in enumerate(addresses):
        page = context.new_page()
        opened(page, address)
        page.screenshot(path=folder / f"{number:02}.png", full_page=True)
        assert faults(page, axe) == [], address
        page.close()
    context.close()
