"""Messages about brokers as they come and go."""

from __future__ import annotations

from typing import Any

from sparklog.spark.serve.broker_task import KILLED
from sparklog.spark.serve.state import Notice, Serving


def started(serving: Serving, broker: int, pid: int = 100) -> list[Notice]:
    return serving.handle(broker, {"event": "started", "pid": pid, "executor_host": "h"})


def ready(serving: Serving, broker: int, port: int = 9092, **more: Any) -> list[Notice]:
    fields = {"incarnation": 1, "host": "h", "port": port, "metrics_port": None, **more}
    return serving.handle(broker, {"event": "ready", **fields})


def texts(notices: list[Notice]) -> list[str]:
    return [notice.text for notice in notices]


def test_readiness_of_all_brokers_is_announced_once() -> None:
    serving = Serving([1, 2])
    assert started(serving, 1) == []
    assert texts(ready(serving, 1)) == ["broker 1: ready at h:9092 (pid 100)"]
    started(serving, 2, 200)
    first, second = ready(serving, 2, 9093, metrics_port=9404)
    assert first.text == ("broker 2: ready at h:9093 (pid 200), metrics at http://h:9404/metrics")
    assert second.text == "serving: h:9092,h:9093"
    assert second.document["bootstrap_servers"] == "h:9092,h:9093"
    assert [one["state"] for one in second.document["brokers"]] == ["ready", "ready"]


def test_pages_for_prometheus_are_those_of_brokers_that_serve() -> None:
    serving = Serving([1, 2])
    started(serving, 1)
    started(serving, 2)
    assert serving.metrics_pages == {}
    ready(serving, 1, metrics_port=9404)
    ready(serving, 2, 9093)
    assert serving.metrics_pages == {"broker 1 (h:9404)": "h:9404"}
    serving.handle(1, {"event": "hung up"})
    assert serving.metrics_pages == {}


def test_new_log_in_an_empty_root_is_reported() -> None:
    serving = Serving([1])
    started(serving, 1)
    new_log = ready(serving, 1, cluster_id="c" * 22, began_log=True)[1]
    assert new_log.text.startswith("broker 1: began a new log")
    assert new_log.document == {"event": "new_log", "broker": 1, "cluster_id": "c" * 22}
    assert serving.document()["brokers"][0]["cluster_id"] == "c" * 22


def test_killed_broker_and_its_return_are_reported() -> None:
    serving = Serving([1])
    started(serving, 1)
    ready(serving, 1)
    (lost,) = serving.handle(1, {"event": "hung up"})
    assert lost.document == {"event": "lost", "broker": 1}
    assert not serving.all_ready
    started(serving, 1, 101)
    assert texts(ready(serving, 1)) == ["broker 1: ready at h:9092 (pid 101, start 2)"]


def test_killed_broker_is_reported_once_in_any_order_of_events() -> None:
    killed = {"event": "ended", "outcome": KILLED, "message": "Lost task", "again_in_s": 0.0}
    for first, second in ((killed, {"event": "hung up"}), ({"event": "hung up"}, killed)):
        serving = Serving([1])
        started(serving, 1)
        ready(serving, 1)
        assert texts(serving.handle(1, first)) == [
            "broker 1: its process has ended; it is started again"
        ]
        assert serving.handle(1, second) == []
        assert serving.waits
        started(serving, 1, 101)
        assert not serving.waits


def test_an_address_that_changed_is_announced_again() -> None:
    serving = Serving([1])
    started(serving, 1)
    ready(serving, 1)
    serving.handle(1, {"event": "hung up"})
    started(serving, 1)
    assert texts(ready(serving, 1, 9999))[1:] == ["serving: h:9999"]


def test_events_of_an_earlier_process_are_ignored() -> None:
    """A broker cut off from the driver may be replaced before its own line breaks."""
    serving = Serving([1])
    serving.handle(1, {"event": "started", "pid": 1, "line": 1})
    serving.handle(1, {"event": "started", "pid": 2, "line": 2})
    assert ready(serving, 1, line=1) == []
    assert ready(serving, 1, line=2)
    assert serving.handle(1, {"event": "hung up", "line": 1}) == []
    assert serving.all_ready
    assert serving.handle(1, {"event": "hung up", "line": 2})


def test_failed_broker_is_reported_with_reason_and_next_try() -> None:
    serving = Serving([1])
    started(serving, 1)
    ended = {"event": "ended", "outcome": "failed", "message": "port in use", "again_in_s": 0.5}
    (notice,) = serving.handle(1, ended)
    assert notice.text == "broker 1: port in use; again in 0.5 s"
    assert notice.document == {"event": "failed", "broker": 1, "message": "port in use"}
    assert not serving.refused


def test_a_refused_setting_ends_it() -> None:
    serving = Serving([1])
    ended = {"event": "ended", "outcome": "refused", "message": "no such setting", "again_in_s": 1}
    (notice,) = serving.handle(1, ended)
    assert notice.text == "broker 1: no such setting"
    assert serving.refused


def test_drained_broker_is_reported_as_drained() -> None:
    serving = Serving([1, 2])
    for broker in (1, 2):
        started(serving, broker)
        ready(serving, broker)
    serving.stopping = True
    assert serving.handle(1, {"event": "hung up"}) == []
    (drained,) = serving.handle(1, {"event": "ended", "outcome": "drained", "message": ""})
    assert drained.document == {"event": "stopped", "broker": 1, "drained": True}
    (cut,) = serving.handle(2, {"event": "ended", "outcome": "failed", "message": "cancelled"})
    assert cut.text == "broker 2: ended without draining: cancelled"
    assert [one.drained for one in serving.brokers.values()] == [True, False]


def test_a_broker_that_drains_at_a_signal_is_not_lost() -> None:
    serving = Serving([1])
    started(serving, 1)
    ready(serving, 1)
    assert serving.handle(1, {"event": "drained"}) == []
    assert serving.handle(1, {"event": "hung up"}) == []
    (notice,) = serving.handle(1, {"event": "ended", "outcome": "drained", "again_in_s": 0.0})
    assert notice.document == {"event": "drained", "broker": 1}
    assert not serving.all_ready


def test_events_of_an_unknown_broker_are_dropped() -> None:
    assert ready(Serving([1]), 9) == []
