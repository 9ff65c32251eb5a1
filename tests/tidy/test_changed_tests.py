"""`make test-fast` picks the unit tests of what changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.changed_tests import unit_tests_for


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("tests/tidy", "tests/unit/broker/wal", "tests/unit/log", "tests/golden"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tests/unit/log/test_view.py").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ([], ["tests/tidy"]),
        (["README.md"], ["tests/tidy"]),
        (["sparklog/broker/wal/appender.py"], ["tests/tidy", "tests/unit/broker/wal"]),
        (["sparklog/broker/main.py"], ["tests/tidy", "tests/unit/broker"]),
        (["tests/unit/log/test_view.py"], ["tests/tidy", "tests/unit/log/test_view.py"]),
        (
            ["sparklog/broker/main.py", "sparklog/broker/wal/appender.py"],
            ["tests/tidy", "tests/unit/broker"],
        ),
        (["tests/unit/gone/test_x.py", "sparklog/gone/x.py"], ["tests/tidy"]),
    ],
)
def test_changed_packages_select_their_unit_tests(
    changed: list[str], tests: list[str], tree: Path
) -> None:
    assert unit_tests_for(changed, tree) == tests
