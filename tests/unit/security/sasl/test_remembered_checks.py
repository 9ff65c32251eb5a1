"""Remembered checks: how long, for which addresses, and how many."""

from __future__ import annotations

import pytest

from sparklog.security.sasl.mechanism import Authenticated, SaslFailure, Step
from sparklog.security.sasl.remembered_checks import (
    RIGHT_MAX,
    RIGHT_S,
    WRONG_MAX,
    WRONG_S,
    RememberedChecks,
)

ALICE = Step(b"", Authenticated("alice"))
WRONG = SaslFailure("wrong password. user='alice'", client_message="no")


def test_a_right_password_is_remembered_while_it_is_used() -> None:
    remembered = RememberedChecks()
    assert remembered.find("a", b"key", 0.0) is None
    remembered.proved(b"key", ALICE, 0.0)
    assert remembered.find("a", b"key", RIGHT_S) == ALICE
    assert remembered.find("b", b"key", 2 * RIGHT_S) == ALICE
    assert remembered.find("b", b"other", 2 * RIGHT_S) is None
    assert remembered.find("b", b"key", 3 * RIGHT_S + 1) is None
    assert len(remembered) == 0


def test_a_wrong_password_is_remembered_for_its_address_and_a_while() -> None:
    remembered = RememberedChecks()
    remembered.failed("a", b"key", WRONG, 0.0)
    for now_s in (0.0, WRONG_S / 2, WRONG_S):
        with pytest.raises(SaslFailure, match="user='alice'") as failed:
            remembered.find("a", b"key", now_s)
        assert failed.value.client_message == "no"
        assert failed.value is not WRONG
    assert remembered.find("b", b"key", 0.0) is None
    assert remembered.find("a", b"key", WRONG_S + 1) is None
    assert len(remembered) == 0


def test_memory_is_bounded_and_guesses_push_out_guesses_only() -> None:
    remembered = RememberedChecks()
    remembered.proved(b"first", ALICE, 0.0)
    for number in range(2 * WRONG_MAX):
        remembered.failed("a", b"%d" % number, WRONG, 1.0)
    assert len(remembered) == WRONG_MAX + 1
    assert remembered.find("a", b"first", 1.0) == ALICE
    for number in range(RIGHT_MAX):
        remembered.proved(b"%d" % number, ALICE, 2.0)
    assert len(remembered) == WRONG_MAX + RIGHT_MAX
    assert remembered.find("a", b"first", 2.0) is None
