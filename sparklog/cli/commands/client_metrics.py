"""`sparklog client-metrics`: the metrics that clients push to brokers, from the brokers' pages.

Clients of librdkafka and Java push them by themselves (KIP-714), each to one broker at a time.
"""

from __future__ import annotations

from sparklog.cli.arguments import Arguments, CommandParser
from sparklog.cli.metrics_pages import page_url, samples_of
from sparklog.cli.output import Output

METRIC = "sparklog_client_metric"

_EPILOG = """
Give the page of each broker: `sparklog serve` prints them, and metrics.port sets them.
"""


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--page", action="append", required=True, metavar="HOST:PORT",
        help="a broker's page for Prometheus, or its URL; may be given more than once",
    )  # fmt: skip
    parser.add_argument(
        "--client", metavar="ID", help="of clients with this client.id; all without"
    )
    parser.add_argument("--name", default="", metavar="PREFIX", help="of metrics that begin so")
    parser.epilog = _EPILOG


def run(args: Arguments, output: Output) -> int:
    """Print one line per number of each client."""
    for page in args.page:
        for sample in samples_of(page_url(page), METRIC):
            labels = sample.labels
            if args.client is not None and labels.get("client_id") != args.client:
                continue
            if not labels.get("name", "").startswith(args.name):
                continue
            output.put(
                f"Client: {labels.get('client_id')}\tInstance: {labels.get('instance_id')}\t"
                f"{labels.get('name')}{{{labels.get('attributes', '')}}}\t{sample.value:g}",
                {"page": page, **labels, "value": sample.value},
            )
    return 0
