"""Escaping of foreign text for a terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.cli.output import Output, say
from sparklog.core.terminal_text import printable, printable_bytes, printable_json

EVIL = "\x1b]0;title\x07\x1b[2J\r\x7f\x9b31m\u202egnp.exe"


def controls(text: str) -> list[str]:
    return [c for c in text if (ord(c) < 0x20 and c not in "\t\n") or 0x7F <= ord(c) < 0xA0]


@given(st.text())
def test_escaped_text_has_no_control_sequence(text: str) -> None:
    shown = printable(text)
    assert controls(shown) == []
    shown.encode()


@given(st.binary())
def test_any_bytes_are_shown_as_text(data: bytes) -> None:
    assert controls(printable_bytes(data).decode()) == []


@given(st.text())
def test_json_means_the_same(text: str) -> None:
    written = json.dumps({"value": text}, ensure_ascii=False)
    shown = printable_json(written)
    assert json.loads(shown) == {"value": text}
    assert controls(shown) == []


def test_harmless_text_is_shown_unchanged() -> None:
    for text in ("a\tb\n", "größe", "日本語", "👩\u200d🚀", ""):
        assert printable(text) == text
    assert printable("\x1b[2J") == "\\x1b[2J"
    assert printable_bytes(b"\xff\x9b") == b"\\xff\\x9b"


def on_a_terminal(write: Callable[[Output], None], *, as_json: bool = False) -> bytes:
    """Return what a terminal gets."""
    seen, shown = os.openpty()
    with os.fdopen(seen, "rb", 0) as terminal, os.fdopen(shown, "wb", 0) as stream:
        write(Output(stream, as_json=as_json))
        return terminal.read(4096)


@pytest.mark.parametrize(
    "write",
    [
        lambda output: output.line(EVIL),
        lambda output: output.line(EVIL.encode()),
        lambda output: output.raw(EVIL.encode() + b"\xff"),
        lambda output: output.fields("record", "record", {"value": EVIL}),
    ],
)
def test_a_terminal_gets_no_control_character_and_a_pipe_gets_all(
    write: Callable[[Output], None],
) -> None:
    shown = on_a_terminal(write).replace(b"\r\n", b"")
    assert b"\\x1b[2J" in shown
    assert controls(shown.decode()) == []
    out, into = os.pipe()
    with os.fdopen(out, "rb") as pipe:
        with os.fdopen(into, "wb") as stream:
            write(Output(stream, as_json=False))
        assert EVIL.encode() in pipe.read()


def test_json_on_a_terminal_is_escaped_and_still_json() -> None:
    shown = on_a_terminal(lambda output: output.document({"value": EVIL}), as_json=True)
    assert json.loads(shown) == {"value": EVIL}
    assert controls(shown.decode().replace("\r\n", "")) == []


def test_messages_beside_results_are_always_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"error: {EVIL}")
    assert capsys.readouterr().err.startswith("error: \\x1b]0;title")
