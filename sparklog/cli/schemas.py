"""Schemas for commands: the registry's log that the options name, and records decoded by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from sparklog.cli.arguments import Arguments, CommandParser
from sparklog.cli.output import say
from sparklog.cli.target import bootstrap_of, client_settings_of, opened_log
from sparklog.core.types import TopicPartition
from sparklog.registry.decoder import ValueDecoder
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema_log import RootSchemaLog, SchemaLog
from sparklog.registry.wire_format import KEY_HEADER, VALUE_HEADER

FORMATS = ("bytes", "schema")
NOTES_MAX = 5
"""Values that do not decode are counted; the first ones are named."""
_HEADERS = {"key": KEY_HEADER, "value": VALUE_HEADER}


@contextmanager
def schema_log(args: Arguments) -> Iterator[SchemaLog]:
    """Open the topic of schemas under the root, or behind the brokers, that the options name.

    Raises:
        UsageError, InvalidConfig, InvalidRequest: as `target.opened_log` and `target.connected`.
    """
    bootstrap = bootstrap_of(args)
    if bootstrap is None:
        with opened_log(args) as log:
            yield RootSchemaLog(log)
        return
    from sparklog.client.registry_log import BrokerSchemaLog  # noqa: PLC0415 - a root needs no client

    made = BrokerSchemaLog(bootstrap, client_settings_of(args))
    try:
        yield made
    finally:
        made.close()


def add_format_options(parser: CommandParser) -> None:
    """Declare the options that select decoding of keys and values."""
    for name in _HEADERS:
        parser.add_argument(
            f"--{name}-format",
            choices=FORMATS,
            default=FORMATS[0],
            help=f"schema: print each {name} as JSON, by the schema whose id it carries "
            f"(default {FORMATS[0]})",
        )


@contextmanager
def decoded_records(args: Arguments) -> Iterator[RecordDecoding | None]:
    """Open the schemas, if an option selects decoding. Raises as `schema_log`."""
    fields = tuple(name for name in _HEADERS if getattr(args, f"{name}_format") == FORMATS[1])
    if not fields:
        yield None
        return
    with schema_log(args) as log:
        yield RecordDecoding(fields, ValueDecoder(SchemaRegistry(log)))


@dataclass(slots=True)
class RecordDecoding:
    """Decodes fields of records for print."""

    fields: tuple[str, ...]
    decoder: ValueDecoder
    failed: int = 0

    def columns(self, printed: tuple[str, ...]) -> tuple[str, ...]:
        """Return the columns to read: those to print, and those that decoding needs."""
        decodes = set(self.fields) & set(printed)
        return tuple(dict.fromkeys((*printed, *(("offset", "headers") if decodes else ()))))

    def decoded(self, tp: TopicPartition, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with its fields as JSON; null where one does not decode, with a note.

        Raises:
            SparklogError: the schemas cannot be read now.
        """
        for field in self.fields:
            if field not in batch.schema.names:
                continue
            texts, reasons = self.decoder.json_texts(
                batch.column(field), batch.column("headers"), name=_HEADERS[field]
            )
            for row in reasons.is_valid().to_numpy(zero_copy_only=False).nonzero()[0].tolist():
                self.failed += 1
                if self.failed <= NOTES_MAX:
                    offset = batch.column("offset")[row].as_py()
                    say(f"note: {tp} offset={offset}: the {field} does not decode: {reasons[row]}")
            index = batch.schema.get_field_index(field)
            batch = batch.set_column(index, field, texts.cast(pa.binary()))
        return batch
