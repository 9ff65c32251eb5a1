"""How sparklog's own short-lived or waiting JVMs are started."""

from __future__ import annotations

from typing import Final

QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""Compiles once and simply; with the room for code that Java otherwise gives, not the 48 MiB that
go with simple compilation: Spark's generated code fills these in some hundred queries."""
