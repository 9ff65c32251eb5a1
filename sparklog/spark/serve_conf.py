"""Spark's settings for an application that runs brokers; spark-submit's own go before them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from sparklog.broker.listening import EVERY_INTERFACE
from sparklog.spark.broker_jobs import group_of
from sparklog.spark.broker_slots import RESOURCE, RESOURCE_AMOUNT
from sparklog.spark.jvm import QUICK_JVM
from sparklog.spark.low_priority import POOL as JOBS_POOL
from sparklog.spark.session import WAITING_JVM

SERVE_CONF: Mapping[str, str] = {
    # Brokers and queries side by side: without it, jobs are served first come, first served.
    "spark.scheduler.mode": "FAIR",
    # A second copy of a broker is of no use.
    "spark.speculation": "false",
    # What ends an executor once would end the next one, too. Brokers are started again by us.
    "spark.task.maxFailures": "1",
}
ONE_MACHINE_CONF: Mapping[str, str] = {
    # The application's own shares processors with brokers: where it compiled twice and collected
    # beside its work, their clients waited for that whenever a job began.
    **WAITING_JVM,
    # The JVM of an executor does nothing but start its broker, which lives outside of its heap.
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.driver.memory": "1g",
    # All three would have a tab of the same application.
    "spark.ui.enabled": "false",
}
_POOL = """\
  <pool name="{name}">
    <schedulingMode>FIFO</schedulingMode><weight>1</weight><minShare>{share}</minShare>
  </pool>
"""
DISCOVERY = f"""#!/bin/sh
echo '{{"name": "{RESOURCE}", "addresses": ["{RESOURCE}"]}}'
"""
"""Tells Spark that an executor's machine has one broker to give away."""


def pools_conf(folder: Path, broker_ids: Iterable[int]) -> dict[str, str]:
    """Return settings that give every broker a FAIR pool, whose first slot goes before queries'.

    Upkeep jobs have one, too, so that they share what is left with queries.
    """
    pools = "".join(_POOL.format(name=group_of(one), share=1) for one in broker_ids)
    pools += _POOL.format(name=JOBS_POOL, share=0)
    path = folder / "pools.xml"
    path.write_text(f'<?xml version="1.0"?>\n<allocations>\n{pools}</allocations>\n')
    return {"spark.scheduler.allocation.file": path.as_uri()}


def connect_conf(port: int, host: str) -> dict[str, str]:
    """Return settings that let Spark Connect's clients in, whose queries run beside the brokers."""
    # Without an address it listens on every interface, for IPv4 and IPv6.
    where = {} if host in EVERY_INTERFACE else {"spark.connect.grpc.binding.address": host}
    return {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.port": str(port),
        **where,
    }


def one_machine_conf(folder: Path) -> dict[str, str]:
    """Return settings for executors on this machine that have room for one broker each."""
    script = folder / "discover-broker.sh"
    script.write_text(DISCOVERY)
    script.chmod(0o700)
    return {
        **ONE_MACHINE_CONF,
        f"spark.worker.resource.{RESOURCE}.amount": "1",
        f"spark.worker.resource.{RESOURCE}.discoveryScript": str(script),
        RESOURCE_AMOUNT: "1",
    }
