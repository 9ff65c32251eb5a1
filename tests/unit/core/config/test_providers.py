"""Secrets that settings refer to: files, folders and the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.core.config.providers import FILE_BYTES_MAX, SecretReader, read_properties
from sparklog.core.errors import InvalidConfig

FILE_CLASS = "org.apache.kafka.common.config.provider.FileConfigProvider"


def test_each_provider_returns_its_secret(tmp_path: Path) -> None:
    (tmp_path / "kafka.properties").write_text("password = p w\n")
    (tmp_path / "token").write_text("abc\n")
    reader = SecretReader(environment={"NAME": "alice"})
    settings = {
        "a": f"${{file:{tmp_path}/kafka.properties:password}}",
        "b": f"<${{dir:{tmp_path}:token}}>",
        "c": "${env:NAME}",
        "d": "plain",
    }
    assert reader.values(settings) == {"a": "p w", "b": "<abc>", "c": "alice", "d": "plain"}


def test_declared_provider_is_known_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("k=v")
    declared = {"config.providers": "vault", "config.providers.vault.class": FILE_CLASS}
    settings = {**declared, "a": f"${{vault:{tmp_path}/f:k}}"}
    assert SecretReader(declared).values(settings) == {"a": "v"}


@pytest.mark.parametrize(
    "declared",
    [
        {"config.providers": "v"},
        {"config.providers": "v", "config.providers.v.class": "com.example.Vault"},
        {
            "config.providers": "v",
            "config.providers.v.class": FILE_CLASS,
            "config.providers.v.param.allowed.paths": "/run",
        },
    ],
)
def test_declaration_is_refused_when_it_cannot_be_kept(declared: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig, match=r"config\.providers\.v\."):
        SecretReader(declared)


@pytest.mark.parametrize(
    "reference",
    [
        "${file:FOLDER/f:absent}",
        "${file:FOLDER/absent:k}",
        "${file:k}",
        "${file:FOLDER/large:k}",
        "${file:FOLDER/binary:k}",
        "${dir:FOLDER:absent}",
        "${dir:FOLDER:../f}",
        "${dir:FOLDER:..}",
        "${env:ABSENT}",
        "${env:path:NAME}",
        "${vault:/a:b}",
        "${file:FOLDER:k}",
        "${file:\0:k}",
    ],
)
def test_missing_secret_is_an_error_that_names_the_setting(tmp_path: Path, reference: str) -> None:
    (tmp_path / "f").write_text("k=marked-secret")
    (tmp_path / "large").write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    (tmp_path / "binary").write_bytes(b"k=\xff")
    reader = SecretReader(environment={"NAME": "marked-secret"})
    text = reference.replace("FOLDER", str(tmp_path))
    with pytest.raises(InvalidConfig, match=r"setting=sasl\.password") as caught:
        reader.value("sasl.password", text)
    assert "marked-secret" not in str(caught.value)


def test_properties_file_keeps_its_references(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a=${env:X}\n")
    assert read_properties(tmp_path / "f", "--command-config") == {"a": "${env:X}"}
    with pytest.raises(InvalidConfig, match=r"setting=--command-config .*problem=No such file"):
        read_properties(tmp_path / "absent", "--command-config")
