"""The command line of `jobs/serve.py` and `sparklog serve`: from words to a `ServeJob`.

It also has Spark's settings for an application that runs brokers; spark-submit's own go before
them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sparklog.broker.network.listener_sockets import EVERY_INTERFACE
from sparklog.broker.network.listeners import PORT_MAX
from sparklog.broker.runtime.async_store import unforced_store
from sparklog.broker.runtime.diagnostics import LOG_VARIABLE, parse_log_levels
from sparklog.core.application_names import BROKER_ID_MAX, check_application
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.config.security import refuse_inline_secrets
from sparklog.core.errors import InvalidRequest
from sparklog.spark.jobs.arguments import (
    JobParser,
    add_log_options,
    counting_number,
    key_values,
    log_root,
)
from sparklog.spark.jobs.low_priority import POOL as JOBS_POOL
from sparklog.spark.jobs.session import QUICK_JVM, WAITING_JVM
from sparklog.spark.schedule.file import read_schedule
from sparklog.spark.schedule.schedule import Schedule
from sparklog.spark.serve.broker_jobs import group_of
from sparklog.spark.serve.broker_slots import RESOURCE, RESOURCE_AMOUNT
from sparklog.spark.serve.job import ServeJob
from sparklog.spark.serve.security import add_security_options, serve_security
from sparklog.store.open import open_store
from sparklog.store.root_url import refuse_memory

DEFAULTS = ServeJob(root="")
"""The job without options: its fields say every default, here and in the help."""
OWN_CONFIGS = {
    "node.id": "--first-broker-id",
    "broker.id": "--first-broker-id",
    "listeners": "--listen-host, --port and --listener",
    "advertised.listeners": "--advertised-host, --port and --listener",
    "listener.security.protocol.map": "--protocol and --listener",
    "inter.broker.listener.name": "--protocol",
    "security.inter.broker.protocol": "--protocol",
    "broker.rack": "--rack",
    "metrics.port": "--metrics-port",
}
"""Settings that differ from broker to broker, and the options that set them for all."""

EXAMPLES = """
examples:
  sparklog serve --root s3://bucket/log --brokers 3
  spark-submit --master spark://host:7077 --conf spark.executor.cores=3 \\
      jobs/serve.py --root s3://bucket/log --brokers 3 --port 9092
  spark-submit jobs/serve.py --brokers 3 --config default.replication.factor=3 \\
      --rack-variable ZONE --ready-file /run/sparklog.json
  sparklog serve --root s3://bucket/log --jobs conf/jobs.toml
  sparklog serve --root s3://bucket/log --tls-cert broker.pem --tls-key broker.key --sasl scram

One broker is one task of a job of its own. Broker i (counted from 0) listens at --port + i.
Ctrl-C or SIGTERM lets every broker hand over its partitions before it ends.
"""


def parse_serve(argv: Sequence[str], program: str = "serve.py") -> ServeJob:
    """Return the job that the words describe; a wrong call ends the process with code 2."""
    parser = JobParser(program, "Run brokers as tasks of a Spark application.", EXAMPLES)
    add_serve_options(parser)
    return parser.parsed(argv, serve_job)


def add_serve_options(parser: argparse.ArgumentParser) -> None:
    """Declare every option."""
    add_log_options(parser)
    parser.add_argument(
        "--brokers",
        type=counting_number,
        default=DEFAULTS.brokers,
        metavar="N",
        help="how many (default %(default)s)",
    )
    parser.add_argument(
        "--first-broker-id", type=_broker_id, metavar="ID",
        help="the next ones count on; applications that serve one log need ids of their own "
        f"(default {DEFAULTS.first_broker_id})",
    )  # fmt: skip
    parser.add_argument(
        "--application", metavar="NAME",
        help="take ids for this application's brokers from the log, in place of --first-broker-id; "
        "the same ones whenever it starts again. Without --rack NAME is the rack, too",
    )  # fmt: skip
    parser.add_argument(
        "--master", metavar="URL",
        help="where Spark runs, unless spark-submit says it (default local-cluster[N,2,1024]: an "
        "executor per broker on this machine)",
    )  # fmt: skip
    network = parser.add_argument_group("network")
    _add_port(
        network, "--port", DEFAULTS.port,
        "of the first broker; the next ones count on, 0 takes free ports (default %(default)s)",
    )  # fmt: skip
    network.add_argument(
        "--listen-host", metavar="HOST",
        help="interface to listen on, 0.0.0.0 for all (default: loopback where all executors are "
        "on this machine and nothing else is advertised, else all)",
    )  # fmt: skip
    network.add_argument(
        "--advertised-host", metavar="HOST",
        help="what clients and other brokers are told (default: the --listen-host; where that is "
        "all, this machine's address, on a cluster that by which an executor reaches the driver)",
    )  # fmt: skip
    _add_port(
        network, "--control-port", DEFAULTS.control_port,
        "where the driver hears its brokers, for firewalls (default: a free one)",
    )  # fmt: skip
    _add_port(
        network, "--metrics-port", DEFAULTS.metrics_port,
        "of the first broker's page for Prometheus; counts on as --port does, -1: no page "
        "(default: free ports)", lowest=-1,
    )  # fmt: skip
    _add_port(
        network, "--connect-port", DEFAULTS.connect_port,
        "let Spark Connect's clients in there: their queries run beside the brokers, in the same "
        "application (default: nobody)",
    )  # fmt: skip
    add_security_options(parser)
    _add_broker_options(parser)
    _add_upkeep_options(parser)


def _add_broker_options(parser: argparse.ArgumentParser) -> None:
    brokers = parser.add_argument_group("brokers")
    brokers.add_argument("--rack", metavar="NAME", help="broker.rack of every broker")
    brokers.add_argument(
        "--rack-variable", metavar="NAME",
        help="environment variable of executors that names their rack; goes before --rack",
    )  # fmt: skip
    brokers.add_argument(
        "--config", action="append", default=[], metavar="K=V",
        help="setting of every broker under Kafka's name; may be given more than once",
    )  # fmt: skip
    brokers.add_argument(
        "--log-level", choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        default=DEFAULTS.log_level,
        help="of what brokers write to their executor's log (default %(default)s)",
    )  # fmt: skip
    brokers.add_argument(
        "--ready-file", type=Path, metavar="PATH",
        help="write addresses there as JSON once all brokers serve, and whenever that changes",
    )  # fmt: skip
    brokers.add_argument(
        "--drain-timeout", type=counting_number, default=DEFAULTS.drain_timeout_s, metavar="S",
        help="seconds for brokers to hand over at the end (default %(default)s)",
    )  # fmt: skip


def _add_upkeep_options(parser: argparse.ArgumentParser) -> None:
    upkeep = parser.add_argument_group("upkeep")
    upkeep.add_argument(
        "--jobs", type=Path, metavar="FILE",
        help="run the upkeep jobs of this schedule beside the brokers, for example conf/jobs.toml "
        "(default: none)",
    )  # fmt: skip
    _add_port(
        upkeep, "--jobs-metrics-port", DEFAULTS.jobs_metrics_port,
        "of the page for Prometheus about these jobs, at the driver, -1: no page (default: a free "
        "port)", lowest=-1,
    )  # fmt: skip


def _add_port(
    group: argparse._ArgumentGroup,
    option: str,
    default: int | None,
    help_text: str,
    lowest: int = 0,
) -> None:
    def port(text: str) -> int:
        return _number(text, lowest, PORT_MAX)

    group.add_argument(option, type=port, default=default, metavar="PORT", help=help_text)


def _schedule(path: Path | None) -> Schedule | None:
    if path is None:
        return None
    try:
        return read_schedule(path)
    except OSError as error:
        raise InvalidRequest(f"--jobs {path}: {error.strerror}") from None


def serve_job(given: argparse.Namespace) -> ServeJob:
    """Return the job that parsed options describe.

    Raises:
        InvalidRequest: options that do not go together.
    """
    root = log_root(given)
    refuse_memory(root)
    configs = key_values(given.config, "--config")
    for name, option in OWN_CONFIGS.items():
        if name in configs:
            raise InvalidRequest(f"--config {name} is not for all brokers: use {option}")
    refuse_inline_secrets(configs)
    security = serve_security(given, configs)
    configs = {**configs, **security.configs}
    # Brokers would refuse it as well, but only once Spark has started them.
    config = parse_broker_configs(configs)
    if not config.flag("wal.fsync"):
        unforced_store(open_store(root), config)
    log_levels = os.environ.get(LOG_VARIABLE, "")  # noqa: TID251 - this is the edge
    parse_log_levels(log_levels)
    if given.ready_file is not None and not given.ready_file.absolute().parent.is_dir():
        raise InvalidRequest(f"--ready-file {given.ready_file}: there is no such folder")
    first_broker_id = 1 if given.first_broker_id is None else given.first_broker_id
    if given.application is not None:
        check_application(given.application)
        if given.first_broker_id is not None:
            raise InvalidRequest("--application takes ids from the log: omit --first-broker-id")
    last = given.brokers - 1
    ports = [("--listener", one.port) for one in security.more_listeners]
    for name, port in (("--port", given.port), ("--metrics-port", given.metrics_port), *ports):
        if port > 0 and port + last > PORT_MAX:
            raise InvalidRequest(f"{name} counts on to more than {PORT_MAX}: choose a lower one")
    if first_broker_id + last > BROKER_ID_MAX:
        raise InvalidRequest(f"broker ids go up to {BROKER_ID_MAX}: choose a lower first one")
    return ServeJob(
        root=root,
        brokers=given.brokers,
        first_broker_id=first_broker_id,
        application=given.application,
        listen_host=given.listen_host,
        port=given.port,
        advertised_host=given.advertised_host,
        rack=given.rack or given.application,
        rack_variable=given.rack_variable,
        metrics_port=given.metrics_port,
        log_level=given.log_level,
        log_levels=log_levels,
        configs=configs,
        master=given.master,
        ready_file=given.ready_file,
        drain_timeout_s=given.drain_timeout,
        control_port=given.control_port,
        connect_port=given.connect_port,
        schedule=_schedule(given.jobs),
        jobs_metrics_port=given.jobs_metrics_port,
        json=given.json,
        protocol=security.protocol,
        more_listeners=security.more_listeners,
    )


def _broker_id(text: str) -> int:
    return _number(text, 0, BROKER_ID_MAX)


def _number(text: str, at_least: int, at_most: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = at_least - 1
    if not at_least <= value <= at_most:
        raise argparse.ArgumentTypeError(f"must be from {at_least} to {at_most}: {text!r}")
    return value


SERVE_CONF: Mapping[str, str] = {
    # Brokers and queries side by side: without it, jobs are served first come, first served.
    "spark.scheduler.mode": "FAIR",
    # A second copy of a broker is of no use.
    "spark.speculation": "false",
    # A task that ends an executor once would end the next one, too. The driver starts brokers
    # again.
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
"""Reports to Spark that an executor's machine has one broker to give away."""


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
    """Return settings for executors on this machine that have slots for one broker each."""
    script = folder / "discover-broker.sh"
    script.write_text(DISCOVERY)
    script.chmod(0o700)
    return {
        **ONE_MACHINE_CONF,
        f"spark.worker.resource.{RESOURCE}.amount": "1",
        f"spark.worker.resource.{RESOURCE}.discoveryScript": str(script),
        RESOURCE_AMOUNT: "1",
    }
