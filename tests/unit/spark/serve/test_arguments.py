"""From words to the brokers that are to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from sparklog.broker.runtime.identity import Ready
from sparklog.spark.serve.arguments import connect_conf, parse_serve, pools_conf
from sparklog.spark.serve.broker_plan import BrokerPlan, ControlPoint

ROOT = ("--root", "/log")
CONTROL = ControlPoint("h", 1, "t")


def no_broker(
    root: str,
    configs: Mapping[str, str],
    *,
    stop: Callable[[], bool],
    ready: Callable[[Ready], None],
    note: Callable[[str], None],
) -> None:
    raise AssertionError("nothing is run here")


def plans(*words: str, master: str = "local-cluster[3,2,1024]") -> list[BrokerPlan]:
    return parse_serve([*ROOT, *words]).plans(no_broker, CONTROL, master)


def settings(plan: BrokerPlan, **environment: str) -> dict[str, str]:
    return plan.settings("10.0.0.7", environment)


def test_three_brokers_on_this_machine_need_no_words() -> None:
    job = parse_serve(ROOT)
    assert job.default_master == "local-cluster[3,2,1024]"
    with_queries = replace(job, connect_port=15002)
    assert with_queries.default_master == "local-cluster[4,2,1024]", "one for jobs and queries"
    found = [settings(plan) for plan in plans()]
    assert [one["node.id"] for one in found] == ["1", "2", "3"]
    assert [one["listeners"] for one in found] == [
        f"PLAINTEXT://127.0.0.1:{port}" for port in (9092, 9093, 9094)
    ]
    assert found[0]["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert found[0]["metrics.port"] == "0"
    assert "broker.rack" not in found[0]


def test_brokers_on_other_machines_listen_everywhere() -> None:
    (plan,) = plans("--brokers", "1", master="yarn")
    found = settings(plan)
    assert found["listeners"] == "PLAINTEXT://:9092"
    assert found["advertised.listeners"] == "PLAINTEXT://10.0.0.7:9092"


def test_every_option_arrives() -> None:
    words = "--brokers 2 --first-broker-id 10 --port 7000 --listen-host ::1 --metrics-port 9404"
    more = "--advertised-host kafka.example --rack a --rack-variable ZONE --config wal.linger.ms=5"
    _, second = plans(*words.split(), *more.split())
    assert settings(second, ZONE="b") == {
        "node.id": "11",
        "listeners": "PLAINTEXT://[::1]:7001",
        "advertised.listeners": "PLAINTEXT://kafka.example:7001",
        "metrics.port": "9405",
        "broker.rack": "b",
        "wal.linger.ms": "5",
    }
    assert settings(second)["broker.rack"] == "a"


def test_free_ports_stay_free_ports() -> None:
    found = [settings(plan)["listeners"] for plan in plans("--port", "0", "--metrics-port", "-1")]
    assert set(found) == {"PLAINTEXT://127.0.0.1:0"}


def test_run_options_are_parsed() -> None:
    job = parse_serve(
        [*ROOT, "--ready-file", "/r.json", "--drain-timeout", "5", "--control-port", "7"]
    )
    assert job.connect_port is None
    assert (job.ready_file, job.drain_timeout_s, job.control_port) == (Path("/r.json"), 5, 7)


def test_queries_come_in_where_brokers_listen() -> None:
    job = parse_serve([*ROOT, "--connect-port", "15002"])
    assert job.connect_port == 15002
    hosts = [job.place(master).listen_host for master in ("local-cluster[3,2,1024]", "yarn")]
    found = [connect_conf(15002, host).get("spark.connect.grpc.binding.address") for host in hosts]
    assert found == ["127.0.0.1", None], "without an address it is every interface"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--brokers 0", "at least 1"),
        ("--port 70000", "from 0 to 65535"),
        ("--port 65534", "counts on to more than 65535"),
        ("--metrics-port -2", "from -1 to 65535"),
        ("--config node.id=4", "use --first-broker-id"),
        ("--config listeners=x", "use --listen-host, --port and --listener"),
        ("--config x", "takes key=value"),
        ("--config flush.mss=2", "unknown setting"),
        ("--config broker.session.timeout.ms=1", "broker.session.timeout.ms"),
        ("--first-broker-id 2147483647", "choose a lower first one"),
        ("--root memory://x", "lives in one process"),
        ("--root s3://b/x --config wal.fsync=false", "only for roots that are folders"),
        ("--ready-file no/such/folder/ready.json", "no such folder"),
    ],
)
def test_a_wrong_call_is_refused_with_its_reason(
    words: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        parse_serve([*ROOT, *words.split()])
    assert stop.value.code == 2
    assert why in capsys.readouterr().err


def test_schedule_is_read_before_brokers_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "jobs.toml"
    words = ["--root", str(tmp_path), "--jobs", str(path)]
    assert parse_serve(words[:2]).schedule is None
    path.write_text('[jobs.a]\nkind = "retain"\ncron = "@daily"\n')
    schedule = parse_serve(words).schedule
    assert schedule is not None
    assert [job.name for job in schedule.jobs] == ["a"]
    path.write_text('[jobs.a]\nkind = "retain"\ncron = "daily"\n')
    with pytest.raises(SystemExit):
        parse_serve(words)
    assert f"file={path} table=jobs.a key=cron" in capsys.readouterr().err
    path.unlink()
    with pytest.raises(SystemExit):
        parse_serve(words)
    assert "No such file" in capsys.readouterr().err


def test_upkeep_jobs_have_a_pool_beside_the_brokers(tmp_path: Path) -> None:
    (url,) = pools_conf(tmp_path, [1, 2]).values()
    pools = ET.parse(url.removeprefix("file://")).getroot()
    shares = {pool.get("name"): pool.findtext("minShare") for pool in pools}
    assert shares == {"sparklog-broker-1": "1", "sparklog-broker-2": "1", "jobs": "0"}
