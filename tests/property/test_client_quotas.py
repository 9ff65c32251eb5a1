"""Quotas of users and client ids, against a plain model: which one applies, and its sharers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from sparklog.broker.network.quotas import ClientQuotas
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.request import RequestContext
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    USER,
    Limit,
    QuotaEntity,
    Quotas,
    entity_of,
    limit_of,
)
from sparklog.security.principal import Principal

NAMES = st.sampled_from(["a", "b", "ANONYMOUS"])
ENTITIES = st.dictionaries(
    st.sampled_from([USER, CLIENT_ID]), st.none() | NAMES, min_size=1
).map(entity_of)  # fmt: skip
RATES = st.dictionaries(
    st.sampled_from([PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE]),
    st.sampled_from([50.0, 100.0]),
    min_size=1,
)
QUOTAS = st.dictionaries(ENTITIES, RATES, max_size=9)
SECONDS_AT_ONCE = 10
"""By the defaults of quota.window.num and quota.window.size.seconds."""
OWN, DEFAULT, ABSENT = range(3)


def rank(entity: QuotaEntity, client: Mapping[str, str]) -> tuple[int, ...] | None:
    """Return how specific an entity is, lower being more so; None: it is another client's."""
    parts, found = dict(entity), []
    for kind in (USER, CLIENT_ID):
        if kind not in parts:
            found.append(ABSENT)
        elif parts[kind] is None:
            found.append(DEFAULT)
        elif parts[kind] == client[kind]:
            found.append(OWN)
        else:
            return None
    return tuple(found)


def modelled(quotas: Quotas, key: str, user: str, client_id: str) -> Limit | None:
    client = {USER: user, CLIENT_ID: client_id}
    ranked = [(rank(entity, client), entity) for entity, rates in quotas.items() if key in rates]
    applying = [(place, entity) for place, entity in ranked if place is not None]
    if not applying:
        return None
    _, entity = min(applying, key=lambda each: each[0])
    kinds = dict(entity).keys()
    shared_by = (user if USER in kinds else None, client_id if CLIENT_ID in kinds else None)
    return Limit(quotas[entity][key], shared_by)


@given(QUOTAS, NAMES, NAMES)
def test_first_of_eight_levels_applies(
    quotas: dict[QuotaEntity, dict[str, float]], user: str, client_id: str
) -> None:
    for key in (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE):
        found = limit_of(quotas, key, user, client_id)
        assert found == modelled(quotas, key, user, client_id)


CHARGES = st.lists(st.tuples(NAMES, NAMES, st.integers(0, 5000), st.booleans()), max_size=20)


@given(QUOTAS, CHARGES)
def test_clients_that_share_a_quota_pay_for_each_other(
    quotas: Quotas, charges: list[tuple[str, str, int, bool]]
) -> None:
    async def story() -> None:
        newest = quotas
        throttle = ClientQuotas(parse_broker_configs({"node.id": "1"}), BrokerMetrics())
        spent: Counter[tuple[str | None, str | None]] = Counter()
        for user, client_id, size, is_replaced in charges:
            newest = dict(newest) if is_replaced else newest
            context = RequestContext(client_id, "", Principal("User", user))
            wait = throttle.charge(newest, PRODUCER_BYTE_RATE, context, size)
            limit = modelled(quotas, PRODUCER_BYTE_RATE, user, client_id)
            if limit is None:
                assert not wait
                continue
            spent[limit.shared_by] += size
            owed_s = spent[limit.shared_by] / limit.per_s - SECONDS_AT_ONCE
            assert abs(wait.total_seconds() - max(0.0, owed_s)) < 1.0

    asyncio.run(story())
