"""`sparklog features`: kafka-features, the levels that brokers support and the finalized ones."""

from __future__ import annotations

from sparklog.cli.arguments import Arguments, CommandParser, UsageError
from sparklog.cli.output import Output
from sparklog.cli.target import add_broker_options, connected
from sparklog.client.features import FeatureLevels


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--describe", action="store_true", help="show the levels")
    which.add_argument(
        "--upgrade",
        metavar="NAME=LEVEL",
        help="finalize a level, which cannot be undone: first every broker must support it",
    )
    add_broker_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Print one line per feature, or finalize one level."""
    if args.upgrade is not None:
        name, level = _wanted(args.upgrade)
        with connected(args) as admin:
            admin.finalize_feature(name, level)
        output.put(f"{name} was upgraded to {level}.", {"feature": name, "finalized": level})
        return 0
    with connected(args) as admin:
        found = admin.features()
    for one in found:
        output.put(_line(one), _document(one))
    return 0


def _wanted(text: str) -> tuple[str, int]:
    """Return the feature and the level of a text such as `sparklog.version=2`.

    Raises:
        UsageError: it has another form.
    """
    name, _, level = text.partition("=")
    if not (name and level.isascii() and level.isdigit()):
        raise UsageError(f"--upgrade takes NAME=LEVEL such as sparklog.version=2, not {text!r}")
    return name, int(level)


def _line(one: FeatureLevels) -> str:
    finalized = "-" if one.finalized is None else one.finalized
    return (
        f"Feature: {one.name}\tSupportedMinVersion: {one.lowest}\t"
        f"SupportedMaxVersion: {one.highest}\tFinalizedVersionLevel: {finalized}"
    )


def _document(one: FeatureLevels) -> dict[str, object]:
    return {
        "feature": one.name,
        "supported_min": one.lowest,
        "supported_max": one.highest,
        "finalized": one.finalized,
    }
