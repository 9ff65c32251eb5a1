"""Executors that may run brokers, and messages to the operator about them."""

from __future__ import annotations

import pytest

from sparklog.spark.serve.broker_slots import (
    RESOURCE_AMOUNT,
    SlotClaim,
    Slots,
    StartPatience,
    advice,
    claim_of,
    cluster_in_one_machine,
    sharing_claim,
    slots_each,
)


@pytest.mark.parametrize(
    ("master", "conf", "claim"),
    [
        ("local[4]", {RESOURCE_AMOUNT: "1"}, SlotClaim()),
        ("local-cluster[3,2,1024]", {RESOURCE_AMOUNT: "1"}, SlotClaim(resource=True)),
        ("spark://host:7077", {RESOURCE_AMOUNT: "1"}, SlotClaim(resource=True)),
        ("yarn", {"spark.executor.cores": "3"}, SlotClaim(cores=2)),
        ("k8s://https://host", {"spark.executor.cores": "4"}, SlotClaim(cores=3)),
        ("yarn", {"spark.executor.cores": "2"}, SlotClaim()),
        ("yarn", {}, SlotClaim()),
        ("local-cluster[4,2,1024]", {RESOURCE_AMOUNT: "1"}, SlotClaim(resource=True, cores=2)),
        (
            "yarn",
            {"spark.executor.cores": "3", "spark.executor.instances": "4"},
            SlotClaim(cores=3),
        ),
        (
            "spark://host:7077",
            {"spark.executor.cores": "2", "spark.cores.max": "8"},
            SlotClaim(cores=2),
        ),
        (
            "yarn",
            {"spark.executor.cores": "3", "spark.dynamicAllocation.enabled": "true"},
            SlotClaim(),
        ),
    ],
)
def test_a_broker_claims_an_executor_where_the_master_allows_it(
    master: str, conf: dict[str, str], claim: SlotClaim
) -> None:
    assert claim_of(master, conf, 3) == claim


def test_slots_come_from_the_configuration_when_it_has_them() -> None:
    assert slots_each("local-cluster[1,1,1024]", {"spark.executor.cores": "3"}) == 1
    assert slots_each("spark://host:7077", {"spark.executor.cores": "3"}) == 3
    assert slots_each("spark://host:7077", {}) is None


@pytest.mark.parametrize("cores", range(3, 20))
def test_executor_never_fits_two_brokers_and_always_fits_a_query(cores: int) -> None:
    claim = claim_of("yarn", {"spark.executor.cores": str(cores)}, 3)
    assert claim.cores is not None
    assert claim.cores < cores < 2 * claim.cores


def test_one_broker_shares_only_executors_that_brokers_claim_whole() -> None:
    assert sharing_claim(SlotClaim(cores=3), 3) == SlotClaim(cores=1)
    assert sharing_claim(SlotClaim(resource=True, cores=2), 2) == SlotClaim(resource=True, cores=1)
    assert sharing_claim(SlotClaim(resource=True), 2) is None, "all leave a slot"
    assert sharing_claim(SlotClaim(cores=1), 1) is None
    assert sharing_claim(SlotClaim(), None) is None


def test_advice_is_empty_when_brokers_and_queries_fit() -> None:
    assert advice(3, Slots(3, 2), SlotClaim(resource=True), {}) == []
    assert advice(3, Slots(3, 3), SlotClaim(cores=2), {}) == []


def test_advice_names_brokers_that_have_to_wait() -> None:
    (text,) = advice(3, Slots(2, 2), SlotClaim(resource=True), {})
    assert text.startswith("Spark has room for 2 of 3 brokers now")


def test_advice_warns_when_queries_have_no_slot() -> None:
    texts = advice(3, Slots(3, 1), SlotClaim(), {})
    assert any("would wait for ever" in text for text in texts)
    assert any(
        "would wait for ever" in t for t in advice(3, Slots(3, 1), SlotClaim(resource=True), {})
    )


def test_starting_executors_do_not_count_as_missing_slots() -> None:
    claim = SlotClaim(cores=3)
    (text,) = advice(3, Slots(1, 3), claim, {}, expected=4)
    assert text.startswith("Spark has room for 1 of 3 brokers now")
    (text,) = advice(3, Slots(3, 3), claim, {}, expected=4)
    assert text.startswith("Spark has 3 of 4 executors now")
    assert advice(3, Slots(4, 3), claim, {}, expected=4) == []
    (text,) = advice(3, Slots(3, 3), claim, {}, expected=3)
    assert "would wait for ever" in text


def test_patience_begins_anew_with_each_executor_and_broker() -> None:
    patience = StartPatience(30.0)
    assert not patience.is_over(0.0, 1, 0)
    assert not patience.is_over(29.0, 2, 0)
    assert not patience.is_over(58.0, 3, 3), "more brokers"
    assert not patience.is_over(88.0, 3, 3)
    assert patience.is_over(88.5, 3, 3)
    assert not patience.is_over(89.0, 4, 3), "the last executor has come"


def test_advice_warns_when_brokers_may_share_an_executor() -> None:
    (text,) = advice(3, Slots(3, 2), SlotClaim(), {})
    assert "would be lost together" in text
    assert advice(3, Slots(1, 4), SlotClaim(), {}) == [], "one executor is known to be one"


def test_advice_names_settings_that_harm_brokers() -> None:
    conf = {"spark.speculation": "true", "spark.dynamicAllocation.enabled": "true"}
    texts = advice(3, Slots(3, 2), SlotClaim(resource=True), conf)
    assert [text.split()[0] for text in texts] == [
        "spark.speculation",
        "spark.dynamicAllocation.enabled",
    ]


def test_a_cluster_in_one_machine_is_recognised() -> None:
    assert cluster_in_one_machine("local-cluster[3, 2, 1024]") == (3, 2, 1024)
    assert cluster_in_one_machine("local[3]") is None
