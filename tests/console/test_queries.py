"""SQL in the console: runs with progress and cost, their ends, exports, and searches by a field."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from pyarrow import parquet

from tests.harness.console_browser import NASTY, Browser, ended, run_ended

Opens = Callable[..., Browser]

ENDLESS = "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"
ALL_FLIGHTS = "SELECT partition, offset, value FROM flights ORDER BY partition, offset"


def texts(run: Any) -> list[list[str]]:
    return [[cell["text"] for cell in row["cells"]] for row in run["records"]]


def test_query_has_rows_cost_and_history(root_browser: Opens, filled_root: str) -> None:
    browser = root_browser(filled_root)
    statement = "SELECT partition, count(*) AS n FROM flights WHERE offset >= 20 GROUP BY ALL"
    run = ended(browser, f"{statement} ORDER BY ALL")
    assert (run["state"], run["columns"], run["truncated"]) == ("done", ["partition", "n"], False)
    assert texts(run) == [["0", "20"], ["1", "20"], ["2", "20"]]
    assert (run["cost"]["segments"], run["cost"]["skipped"], run["cost"]["percent"]) == (12, 6, 100)
    text = browser.page(f"/sql?run={run['run']}")
    assert "Skipped <strong>6 of 12</strong> segments" in text
    failed = ended(browser, "SELECT nothing FROM flights")
    assert failed["state"] == "failed"
    assert "nothing" in failed["message"]
    assert [one["state"] for one in browser.get("/sql")["history"]] == ["failed", "done"]
    wrote = ended(browser, "DROP TABLE flights")
    assert wrote["state"] == "failed"
    files = "SELECT * FROM read_csv('/etc/passwd')"
    assert ended(browser, files)["state"] == "failed"
    assert "is needed" in browser.post("/sql/run", 400, statement=" ")["message"]


def test_limits_of_rows_and_time_hold(root_browser: Opens, filled_root: str) -> None:
    browser = root_browser(filled_root)
    few = ended(browser, ALL_FLIGHTS, rows=7)
    assert (few["rows"], few["truncated"]) == (7, True)
    whole = browser.client.get(f"/api/v1/sql/export?run={few['run']}&format=json")
    assert len(whole.text.splitlines()) == 120
    slow = ended(browser, ENDLESS, seconds=1)
    assert (slow["state"], "time limit" in slow["message"]) == ("failed", True)
    large = ended(browser, "SELECT value FROM nasty, range(9)")
    assert large["truncated"]
    assert all(len(cell["text"]) <= 512 for row in large["records"] for cell in row["cells"])
    assert "outside" in browser.post("/sql/run", 400, statement="x", rows=10_001)["message"]


def test_cancel_ends_a_query_of_its_session_only(root_browser: Opens, filled_root: str) -> None:
    browser = root_browser(filled_root)
    other = root_browser(filled_root)
    started = browser.post("/sql/run", statement=ENDLESS, seconds=600)
    page = browser.page(f"/sql?run={started['run']}")
    assert 'hx-trigger="every 700ms"' in page
    assert "Cancel" in page
    other.get(f"/sql?run={started['run']}", 404)
    browser.client.cookies.clear()
    browser.get(f"/sql?run={started['run']}", 404)
    browser.post("/sql/cancel", 404, run=started["run"])
    assert browser.get("/sql")["history"] == []


def test_cancelled_query_ends_at_once(root_browser: Opens, filled_root: str) -> None:
    browser = root_browser(filled_root)
    runs = [browser.post("/sql/run", statement=ENDLESS, seconds=600) for _ in range(4)]
    assert "too many queries" in browser.post("/sql/run", 503, statement=ENDLESS)["message"]
    assert "still runs" in browser.get(f"/sql/export?run={runs[0]['run']}", 400)["message"]
    for run in runs:
        browser.post("/sql/cancel", run=run["run"])
    assert {run_ended(browser, run)["state"] for run in runs} == {"cancelled"}


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"name": "n", "text": "25"}, [("0", "25"), ("1", "25"), ("2", "25")]),
        ({"name": "/n", "text": "25", "partition": "1"}, [("1", "25")]),
        ({"name": "n", "how": "greater", "text": "38.5", "partition": "0"}, [("0", "39")]),
        ({"place": "value", "how": "contains", "text": ": 39}", "partition": "2"}, [("2", "39")]),
        ({"place": "key", "text": "N7", "partition": "2"}, [("2", "7")]),
        ({"place": "key", "how": "starts", "text": "N3", "since": "2026-09-21T14:13:58",
          "until": "2026-09-21T14:13:59", "partition": "0"}, [("0", "38")]),
        ({"name": "absent", "how": "exists"}, []),
        ({"name": "n", "text": "' OR 1=1 --"}, []),
    ],
    ids=["field", "pointer", "number", "text", "key", "time", "exists", "quoted"],
)  # fmt: skip
def test_search_by_a_field_finds_records(
    fields: dict[str, Any], found: list[tuple[str, str]], root_browser: Opens, filled_root: str
) -> None:
    browser = root_browser(filled_root)
    run = run_ended(browser, browser.post("/topics/flights/find", **fields))
    assert run["message"] == ""
    assert sorted((row[0], row[1]) for row in texts(run)) == found
    assert [row["link"] for row in run["records"]] == [
        f"/topics/flights/partitions/{row[0]}/records/{row[1]}" for row in texts(run)
    ]
    if fields.get("place") == "key":
        assert run["cost"]["skipped"] >= 11
    again = browser.client.get("/api/v1/topics/flights/find", params=fields).json()
    assert again["statement"] == run["statement"]


def test_search_of_headers_and_wrong_words(root_browser: Opens, filled_root: str) -> None:
    browser = root_browser(filled_root)
    fields: dict[str, Any] = {"place": "header", "name": "t\x1b", "text": "<u>"}
    run = run_ended(browser, browser.post("/topics/nasty/find", **fields))
    assert run["rows"] == len(NASTY)
    page = browser.page(f"/sql?run={run['run']}")
    assert "<script>alert" not in page
    assert "\x1b" not in page
    wrongs: list[tuple[dict[str, Any], str]] = [
        ({"place": "field", "text": "x"}, "name is needed"),
        ({"name": "n", "how": "less", "text": "x"}, "compares with a number"),
        ({"name": "n", "how": "less", "text": "inf"}, "finite"),
        ({"name": "n", "text": "x", "since": "soon"}, "a time is written as"),
    ]
    for wrong, words in wrongs:
        assert words in browser.post("/topics/flights/find", 400, **wrong)["message"]
    browser.post("/topics/gone/find", 404, name="n", text="x")


def test_exports_have_the_whole_result(root_browser: Opens, filled_root: str) -> None:
    browser = root_browser(filled_root)
    run = ended(browser, ALL_FLIGHTS)
    expected: list[dict[str, Any]] = [
        {"partition": p, "offset": n, "value": json.dumps({"n": n})}
        for p in range(3)
        for n in range(40)
    ]
    answers = {
        form: browser.client.get(f"/api/v1/sql/export?run={run['run']}&format={form}")
        for form in ("csv", "json", "parquet")
    }
    rows = list(csv.DictReader(io.StringIO(answers["csv"].text)))
    assert rows == [{name: str(value) for name, value in row.items()} for row in expected]
    assert [json.loads(line) for line in answers["json"].text.splitlines()] == expected
    table = parquet.read_table(io.BytesIO(answers["parquet"].content))
    assert table.to_pylist() == [{**row, "value": row["value"].encode()} for row in expected]
    name = answers["parquet"].headers["content-disposition"]
    assert name == 'attachment; filename="result.parquet"'
