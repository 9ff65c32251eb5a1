"""The site: all pages, changes and streams in tables, and the navigation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparklog.console import (
    access_pages,
    bill_page,
    cluster_pages,
    dead_letter_pages,
    group_pages,
    operation_pages,
    overview_page,
    query_pages,
    record_pages,
    schema_pages,
    search_page,
    share_pages,
    spark_queries,
    topic_pages,
)
from sparklog.console.access_changes import ACCESS_CHANGES
from sparklog.console.changes import CHANGES
from sparklog.console.live_tail import TAIL_PARAMETERS
from sparklog.console.openapi import StreamDescription
from sparklog.console.record_copies import COPY_CHANGES
from sparklog.console.record_export import RECORD_EXPORTS
from sparklog.console.resources import ChangeAction, PageResource
from sparklog.console.result_files import RESULT_PARAMETERS

ALL_PAGES: Final[tuple[PageResource, ...]] = (
    *overview_page.PAGES,
    *topic_pages.PAGES,
    *record_pages.PAGES,
    *search_page.PAGES,
    *query_pages.PAGES,
    *schema_pages.PAGES,
    *group_pages.PAGES,
    *share_pages.PAGES,
    *dead_letter_pages.PAGES,
    *spark_queries.PAGES,
    *operation_pages.PAGES,
    *cluster_pages.PAGES,
    *access_pages.PAGES,
    *bill_page.PAGES,
)
ALL_CHANGES: Final[tuple[ChangeAction, ...]] = (
    *CHANGES,
    *ACCESS_CHANGES,
    *COPY_CHANGES,
    *cluster_pages.CLUSTER_CHANGES,
    *query_pages.QUERY_ACTIONS,
    *schema_pages.SCHEMA_CHANGES,
)

ALL_STREAMS: Final[tuple[StreamDescription, ...]] = (
    StreamDescription(
        "/topics/{topic}/tail", "tail", "Send new records as server-sent events.", TAIL_PARAMETERS
    ),
    *RECORD_EXPORTS,
    StreamDescription(
        "/sql/export", "exportResult", "Send the rows of a query as CSV, JSON lines or Parquet.",
        RESULT_PARAMETERS,
    ),
)  # fmt: skip


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
    NavigationEntry("/sql", "SQL", "q"),
    NavigationEntry("/schemas", "Schemas", "c"),
    NavigationEntry("/brokers", "Brokers", "b"),
    NavigationEntry("/jobs", "Jobs", "j"),
    NavigationEntry("/snapshots", "Snapshots", "s", "root"),
    NavigationEntry("/transactions", "Transactions", "x", "brokers"),
    NavigationEntry("/bill", "Bill", "m"),
    NavigationEntry("/users", "Users", "u"),
    NavigationEntry("/acls", "ACLs", "a"),
)
