"""Settings of brokers that need a login by SCRAM, and the login of their super user."""

from __future__ import annotations

from typing import Final

from sparklog.core.config.broker import STANDARD_AUTHORIZER

SETTINGS: Final = {
    "listeners": "LOGIN://127.0.0.1:0",
    "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT",
    "inter.broker.listener.name": "LOGIN",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:root",
    "connection.failed.authentication.delay.ms": "0",
}
"""Of an in-process cluster; a wrong login has no delay, so that tests of it are quick."""
ROOT_LOGIN: Final = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "root",
    "sasl.password": "root-secret",
}
