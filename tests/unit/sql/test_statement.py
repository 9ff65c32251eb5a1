from __future__ import annotations

import pytest

from sparklog.core.errors import InvalidRequest
from sparklog.sql.statement import TableName, parse_statement, tokens_of, unknown_table
from sparklog.sql.topics import Moment

TOPICS = {"orders", "a.b-c", "offset", "Case", "case"}


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("select offset from orders", 'select "offset" from orders'),
        ("select o.offset, max(offset) from orders o", None),
        ("select 1 limit 5 offset 2", "select 1 limit 5 offset 2"),
        ("select 1 limit all offset 2", "select 1 limit all offset 2"),
        ("select (1) offset 2", "select (1) offset 2"),
        ("select * from orders offset 2;", "select * from orders offset 2"),
        ("from orders where offset > 5 and offset<7", None),
        (
            "select 'é', offset -- offset\n from orders",
            "select 'é', \"offset\" -- offset\n from orders",
        ),
        ("select 'offset', \"offset\"", "select 'offset', \"offset\""),
        (
            "select x from orders order by offset desc",
            'select x from orders order by "offset" desc',
        ),
    ],
)
def test_offset_is_a_column_where_an_expression_begins(text: str, sql: str | None) -> None:
    found = parse_statement(text, TOPICS).sql
    expected = sql
    if expected is None:
        expected = text.replace("offset", '"offset"')
    assert found == expected


def test_topics_are_found_by_name_wherever_they_stand() -> None:
    found = parse_statement("with x as (from orders) select * from x, \"a.b-c\", 'orders'", TOPICS)
    assert set(found.tables) == {TableName("orders", "orders"), TableName("a.b-c", "a.b-c")}
    (decoded,) = parse_statement("select * from json.orders", TOPICS).tables
    assert decoded.formats == {"json"}
    (both,) = parse_statement("select * from json.orders, text . orders", TOPICS).tables
    assert both.formats == {"json", "text"}


@pytest.mark.parametrize(
    ("text", "moment", "alias"),
    [
        ("from orders VERSION AS OF 'x'", Moment(snapshot="x"), ' AS "orders"'),
        ("from orders AT (VERSION => 'x') o", Moment(snapshot="x"), ""),
        (
            "from orders TIMESTAMP AS OF '1970-01-01 00:00:02' AS o",
            Moment(timestamp_ms=2000),
            "",
        ),
        (
            "from orders at (timestamp => timestamp '1970-01-01T00:00:02+01:00')",
            Moment(timestamp_ms=-3_598_000),
            ' AS "orders"',
        ),
    ],
)
def test_a_table_may_name_a_moment(text: str, moment: Moment, alias: str) -> None:
    found = parse_statement(text, TOPICS)
    table = next(one for one in found.tables if one.moment == moment)
    assert table.topic == "orders"
    assert f'from "{table.name}"{alias}' in found.sql


def test_explain_is_taken_off() -> None:
    found = parse_statement("EXPLAIN ANALYZE select 1", TOPICS)
    assert (found.sql, found.explains, found.analyzes) == ("select 1", True, True)
    assert parse_statement("explain from orders", TOPICS).sql == "from orders"
    assert parse_statement("show tables", TOPICS).shows_all


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" ; ", "empty"),
        ("explain", "only read"),
        ("select 1; select 2", "one statement"),
        ("set x = 1", "only read"),
        ("copy orders to 'x'", "only read"),
        ("attach 'x'", "only read"),
        ("from orders timestamp as of 'soon'", "takes a time"),
        ("from orders version as of 5", "write VERSION AS OF"),
        ('select * from "Case" join "case" using (key)', "ignores the case"),
        ("select " + "1," * (1 << 20) + "1", "longer than"),
    ],
)
def test_other_statements_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        parse_statement(text, TOPICS)


def test_tokens_have_byte_positions() -> None:
    data = 'select \'é\' -- c\n, "a""b"'
    found = list(tokens_of(data))
    assert [t.text for t in found] == ["select", "'é'", ",", '"a""b"']
    assert found[-1].name == 'a"b'
    assert data.encode()[found[-1].start : found[-1].end].decode() == '"a""b"'


def test_a_missing_topic_is_named_with_its_nearest() -> None:
    assert unknown_table("ORDERS", TOPICS) == "did you mean orders?"
    assert "topics --list" in unknown_table("zzzzzz", TOPICS)
