"""The site: all pages in one table, and the navigation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparklog.console import (
    group_pages,
    operation_pages,
    overview_page,
    record_pages,
    topic_pages,
)
from sparklog.console.resources import PageResource

ALL_PAGES: Final[tuple[PageResource, ...]] = (
    *overview_page.PAGES,
    *topic_pages.PAGES,
    *record_pages.PAGES,
    *group_pages.PAGES,
    *operation_pages.PAGES,
)


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """One link of the navigation; `key` opens it after `g`."""

    path: str
    title: str
    key: str
    needs: str = ""
    """`root` or `brokers`, if only that has the page."""


NAVIGATION: Final = (
    NavigationEntry("/", "Overview", "o"),
    NavigationEntry("/topics", "Topics", "t"),
    NavigationEntry("/groups", "Groups", "g"),
    NavigationEntry("/brokers", "Brokers", "b"),
    NavigationEntry("/jobs", "Jobs", "j"),
    NavigationEntry("/snapshots", "Snapshots", "s", "root"),
    NavigationEntry("/transactions", "Transactions", "x", "brokers"),
)
