"""Fixtures that unit tests of several packages share."""

from __future__ import annotations

import pytest

from sparklog.core.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """Time that passes only when the test lets it."""
    return ManualClock()
