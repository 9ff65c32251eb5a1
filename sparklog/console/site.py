"""The site: all pages and changes in one table, and the navigation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparklog.console import (
    access_pages,
    group_pages,
    operation_pages,
    overview_page,
    record_pages,
    search_page,
    topic_pages,
)
from sparklog.console.access_changes import ACCESS_CHANGES
from sparklog.console.changes import CHANGES
from sparklog.console.resources import ChangeAction, PageResource

ALL_PAGES: Final[tuple[PageResource, ...]] = (
    *overview_page.PAGES,
    *topic_pages.PAGES,
    *record_pages.PAGES,
    *search_page.PAGES,
    *group_pages.PAGES,
    *operation_pages.PAGES,
    *access_pages.PAGES,
)
ALL_CHANGES: Final[tuple[ChangeAction, ...]] = (*CHANGES, *ACCESS_CHANGES)


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
    NavigationEntry("/users", "Users", "u"),
    NavigationEntry("/acls", "ACLs", "a"),
)
