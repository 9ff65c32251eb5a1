"""Two registries behind brokers: each append is at the offset that its decision was made at."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from sparklog.client.admin import Admin
from sparklog.client.registry_log import BrokerSchemaLog
from sparklog.registry import decisions
from sparklog.registry.model.schema import read_content
from sparklog.registry.registry import SchemaRegistry
from sparklog.testing.cluster import SparklogCluster


def test_registries_behind_brokers_fence_each_other_and_agree() -> None:
    with SparklogCluster(brokers=1) as cluster:
        logs = [BrokerSchemaLog(cluster.bootstrap_servers) for _ in range(2)]
        assert logs[0].read(0)[0] == 0, "no topic yet"
        assert logs[0].append_at([(b"a", b"1")], 0) == 2, "a record and a marker"
        assert logs[1].append_at([(b"b", b"2")], 0) is None, "it had not read the first one"
        assert list(logs[1].read(0)[1]) == [(b"a", b"1")]
        assert logs[1].append_at([(b"b", None), (b"c", b"3")], 2) == 5
        assert logs[0].append_at([(b"d", b"4")], 2) is None
        assert logs[0].append_at([(b"d", b"4")], 5) == 7
        end, rows = logs[1].read(2)
        assert (end, list(rows)) == (7, [(b"b", None), (b"c", b"3"), (b"d", b"4")])
        registries = [SchemaRegistry(log) for log in logs]

        def register(number: int) -> int:
            registry = registries[number % 2]
            text = json.dumps({"type": "record", "name": f"R{number}", "fields": []})
            made = registry.candidate(f"s{number}", read_content({"schema": text}))
            found = registry.change(lambda state, parsed: decisions.register(state, made, parsed))
            return int(found.schema_id)

        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(register, range(4))) == list(range(1, 5))
        states = [one.query(lambda state: dict(state.subjects)) for one in registries]
        assert states[0] == states[1]
        with Admin(cluster.bootstrap_servers) as admin:
            assert admin.topic("_schemas").settings["cleanup.policy"] == "compact"
        for registry in registries:
            registry.close()
