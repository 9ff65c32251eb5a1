"""Protobuf schemas: from a `.proto` text, or a serialized descriptor in base64, to a descriptor.

Google's compiler reads texts, in a process of its own with a time limit. A descriptor pool then
checks the file and those it imports, as a client's library would.
"""

from __future__ import annotations

import base64
import binascii
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from sparklog.registry.formats.proto_text import proto_text
from sparklog.registry.model.refusal import RegistryRefused, invalid_schema

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

DEFAULT_NAME: Final = "default.proto"
COMPILER_TIMEOUT_S: Final = 20.0
MESSAGE_LENGTH_MAX: Final = 1000
_WELL_KNOWN: Final = ("google/protobuf/", "google/type/")


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """A parsed schema."""

    file: FileDescriptorProto
    """The descriptor, without comments, and without JSON names that are the usual ones."""
    referred: tuple[FileDescriptorProto, ...]
    """The files that it imports from other subjects, each after those it needs."""
    canonical: str
    """The text as the registry prints it."""

    @property
    def serialized(self) -> str:
        """Return the descriptor in base64, as clients exchange it."""
        return base64.b64encode(self.file.SerializeToString(deterministic=True)).decode()


def parse_protobuf(text: str, referred: Mapping[str, str]) -> ProtobufSchema:
    """Return a parsed schema.

    Args:
        text: a `.proto` file, or a serialized `FileDescriptorProto` in base64.
        referred: the texts of the files it imports, directly or not, by the name of the import.
            Each stands after those it needs.

    Raises:
        RegistryRefused: no valid schema.
    """
    others = {name: _descriptor(other) for name, other in referred.items()}
    file = _descriptor(text)
    if file is None or None in others.values():
        compiled = _compiled(text, referred)
        file = compiled.pop(DEFAULT_NAME)
        others = {name: compiled[name] for name in referred}
    files = tuple(_plain(one, name) for name, one in others.items() if one is not None)
    file = _plain(file, DEFAULT_NAME)
    _pool(file, files)
    return ProtobufSchema(file, files, proto_text(file))


def _descriptor(text: str) -> FileDescriptorProto | None:
    """Return a serialized descriptor; None if the text is something else."""
    from google.protobuf import descriptor_pb2, message  # noqa: PLC0415 - of the extra `registry`

    try:
        data = base64.b64decode("".join(text.split()), validate=True)
        found = descriptor_pb2.FileDescriptorProto.FromString(data)
    except (binascii.Error, ValueError, message.DecodeError):
        return None
    return found


def _plain(file: FileDescriptorProto, name: str) -> FileDescriptorProto:
    found = type(file)()
    found.CopyFrom(file)
    found.name = name
    found.ClearField("source_code_info")
    waiting = list(found.message_type)
    fields = list(found.extension)
    while waiting:
        message = waiting.pop()
        waiting += message.nested_type
        fields += [*message.field, *message.extension]
    for field in fields:
        if field.json_name == _json_name(field.name):
            field.ClearField("json_name")
    return found


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def pool_of(schema: ProtobufSchema) -> DescriptorPool:
    """Return a descriptor pool with a schema and the files it imports.

    Raises:
        RegistryRefused: they do not fit together.
    """
    return _pool(schema.file, schema.referred)


def _pool(file: FileDescriptorProto, referred: tuple[FileDescriptorProto, ...]) -> DescriptorPool:
    from google.protobuf import descriptor_pool  # noqa: PLC0415

    pool = descriptor_pool.DescriptorPool()
    known: set[str] = set()
    for one in (*referred, file):
        for name in one.dependency:
            if name not in known:
                _add_well_known(pool, name, known)
        try:
            pool.AddSerializedFile(one.SerializeToString())
            pool.FindFileByName(one.name)
        except (TypeError, KeyError, ValueError) as error:
            raise invalid_schema(f"Protobuf: {str(error)[:MESSAGE_LENGTH_MAX]}") from None
        known.add(one.name)
    return pool


def _add_well_known(pool: DescriptorPool, name: str, known: set[str]) -> None:
    from google.protobuf import descriptor_pb2, descriptor_pool  # noqa: PLC0415

    _load_well_known(name)
    try:
        found = descriptor_pool.Default().FindFileByName(name)
    except KeyError:
        raise invalid_schema(f"Protobuf: an import leads nowhere: {name[:200]!r}") from None
    copy = descriptor_pb2.FileDescriptorProto()
    found.CopyToProto(copy)
    for other in copy.dependency:
        if other not in known:
            _add_well_known(pool, other, known)
    pool.AddSerializedFile(copy.SerializeToString())
    known.add(name)


def _load_well_known(name: str) -> None:
    from importlib import import_module  # noqa: PLC0415

    if not name.startswith(_WELL_KNOWN) or ".." in name:
        raise invalid_schema(f"Protobuf: an import that is no reference: {name[:200]!r}")
    parts = PurePosixPath(name).with_suffix("").parts
    if all(part.isidentifier() for part in parts):
        try:
            import_module(".".join(parts) + "_pb2")
        except ImportError:
            return


def _compiled(text: str, referred: Mapping[str, str]) -> dict[str, FileDescriptorProto]:
    """Return the descriptors of a text and of the texts it refers to.

    Raises:
        RegistryRefused: the compiler rejects them, or takes too long.
    """
    from google.protobuf import descriptor_pb2  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="sparklog-proto-") as folder:
        root = Path(folder)
        for name, other in {**referred, DEFAULT_NAME: text}.items():
            file = root / _safe(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            encoded = _descriptor(other)
            file.write_text(other if encoded is None else proto_text(encoded), encoding="utf-8")
        made = root / "made.bin"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{root}", f"-I{_includes()}"]
        command += ["--include_imports", f"--descriptor_set_out={made}", DEFAULT_NAME, *referred]
        try:
            done = subprocess.run(  # noqa: S603 - names are checked, texts are files
                command, capture_output=True, timeout=COMPILER_TIMEOUT_S, check=False, cwd=root
            )
        except subprocess.TimeoutExpired:
            raise invalid_schema("Protobuf: the compiler took too long") from None
        if done.returncode != 0:
            why = done.stderr.decode("utf-8", "replace").strip()[:MESSAGE_LENGTH_MAX]
            raise invalid_schema(f"Protobuf: {why.replace(f'{root}/', '')}")
        found = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes())
    return {one.name: one for one in found.file}


def _safe(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or name.startswith("-") or not path.suffix:
        raise invalid_schema(f"Protobuf: no name of a file: {name[:200]!r}")
    return path


def _includes() -> Path:
    try:
        import grpc_tools  # noqa: PLC0415
    except ModuleNotFoundError:
        raise RegistryRefused(
            42201, "Invalid schema: texts of Protobuf need pip install 'sparklog[registry]'"
        ) from None
    return Path(grpc_tools.__file__).parent / "_proto"
