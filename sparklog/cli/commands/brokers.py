"""`sparklog brokers`: lists the brokers of the log."""

from __future__ import annotations

from sparklog.cli.arguments import Arguments, CommandParser
from sparklog.cli.output import Output, say
from sparklog.cli.target import add_log_options, administered


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    add_log_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Print one line per broker; under a root, for each registered one."""
    with administered(args) as log:
        brokers = log.brokers()
    if not brokers:
        say("note: no broker is registered here; `sparklog serve --root URL` starts some")
    for broker in brokers:
        rack = "null" if broker.rack is None else broker.rack
        controller = str(broker.controller).lower()
        output.put(
            f"Broker: {broker.broker_id}\tHost: {broker.host}\tPort: {broker.port}"
            f"\tRack: {rack}\tController: {controller}",
            {
                "broker": broker.broker_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "controller": broker.controller,
            },
        )
    return 0
