"""Checks of passwords outside of brokers: right and wrong ones, and how often they are derived."""

from __future__ import annotations

import pytest

from sparklog.core.clock import ManualClock
from sparklog.core.entropy import SeededEntropy
from sparklog.core.errors import SaslAuthenticationFailed
from sparklog.security.sasl.credentials import ScramCredential, ScramMechanism, new_credential
from sparklog.security.sasl.password_check import Credentials, PasswordCheck
from sparklog.security.sasl.remembered_checks import RIGHT_S

SHA_512 = ScramMechanism.SHA_512
derived: list[str] = []


class CountedCredential(ScramCredential):
    """A credential that records each derivation."""

    __slots__ = ()

    def proves(self, mechanism: ScramMechanism, password: str) -> bool:
        derived.append(password)
        return super().proves(mechanism, password)


def users(password: str) -> Credentials:
    made = new_credential(SHA_512, password, SeededEntropy(1))
    counted = CountedCredential(made.salt, made.stored_key, made.server_key, made.iterations)
    return {"alice": {SHA_512: counted}}


def test_a_right_password_is_derived_once_and_wrong_ones_each_time() -> None:
    derived.clear()
    known, clock = users("right"), ManualClock()
    check = PasswordCheck(lambda: known, SeededEntropy(2), clock)
    for _ in range(3):
        check.check("alice", "right")
    assert derived == ["right"]
    for name, password in (("alice", "wrong"), ("alice", "wrong"), ("mallory", "right")):
        with pytest.raises(SaslAuthenticationFailed, match="the user or the password is wrong"):
            check.check(name, password)
    assert derived == ["right", "wrong", "wrong"]
    clock.sleep_s(RIGHT_S + 1)
    check.check("alice", "right")
    assert derived[3:] == ["right"]


def test_a_remembered_password_ends_with_its_credential() -> None:
    images = [users("old")]
    check = PasswordCheck(lambda: images[-1], SeededEntropy(2))
    check.check("alice", "old")
    for image in (users("new"), {}):
        images.append(image)
        with pytest.raises(SaslAuthenticationFailed):
            check.check("alice", "old")
