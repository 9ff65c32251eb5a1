"""From a URL, the environment and settings to a store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.core.errors import InvalidConfig
from sparklog.store.base import ObjectStore
from sparklog.store.open import open_store
from sparklog.store.settings import S3Access, StoreSettings

ROOT = Path(__file__).parents[3]


def test_a_path_and_its_file_url_are_the_same_root(tmp_path: Path) -> None:
    by_path = open_store(str(tmp_path / "with space"))
    by_url = open_store((tmp_path / "with space").as_uri())
    by_path.put_if_absent("a", b"x")
    assert by_url.get("a") == b"x"
    assert by_path.url == by_url.url == (tmp_path / "with space").as_uri()


AWKWARD = [
    "#",
    "?",
    "a#b",
    "a?b",
    "a?b#c",
    "a;b",
    "a%b",
    "a%23b",
    "a b",
    "a\tb",
    "a:b",
    "é",
    "[x",
    "~",
]


@pytest.mark.parametrize("name", AWKWARD)
def test_no_character_of_a_file_root_is_dropped(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "logs" / name
    open_store(str(folder)).put_if_absent("by", b"path")
    assert [path.name for path in (tmp_path / "logs").iterdir()] == [name]
    by_url = open_store(folder.as_uri())
    assert by_url.get("by") == b"path"
    assert open_store(by_url.url).get("by") == b"path", "what the store calls itself leads back"


@pytest.mark.parametrize("end", ["#b", "?b", "?b=c#d", "%23b", "%3Fb", "%ff", "%fe"])
def test_file_urls_that_differ_are_different_logs(end: str, tmp_path: Path) -> None:
    plain = f"{tmp_path.as_uri()}/log"
    open_store(plain + end).put_if_absent("a", b"x")
    same = {"%23b": "#b", "%3Fb": "?b"}.get(end, end)
    others = {"", "#b", "?b", "?b=c#d", "%ff", "%fe"}
    assert all(not list(open_store(plain + other).list("")) for other in others - {same})
    assert [info.key for info in open_store(plain + same).list("")] == ["a"]


@pytest.mark.parametrize("name", ["a#b", "a?b", "a/b#c", "[x", "a%23b"])
def test_no_character_of_a_memory_root_is_dropped(name: str) -> None:
    store = open_store(f"memory://dropped-{name}")
    store.put_if_absent("a", b"x")
    assert store.url == f"memory://dropped-{name}"
    for shorter in ("dropped-a", "dropped-", "dropped-a/b", "dropped-a#b/"):
        assert list(open_store(f"memory://{shorter}").list("")) == []


@pytest.mark.parametrize(
    "root",
    [
        "s3://b#x/log",
        "s3://b?x/log",
        "s3://b/log#x",
        "s3://b/log?x",
        "s3://b/log%23x",
        "s3://b/log%ff",
        "s3://user:secret@b/log",
        "s3://b:9000/log",
        "s3://b//log",
        "s3://b/log//",
        "s3:b/log",
        "s3://b/lo\tg",
        "gs://b#x/log",
        "gs://b/log?x",
        "gs://b//log",
        "gs://",
        "abfs://c/log",
        "abfs://@a/log",
        "abfs://c@/log",
        "abfs://c@a:10000/log",
        "abfs://c@a#x/log",
        "abfs://c@A/log",
        "abfs://c@a@b/log",
        "abfs://c@a/log#x",
        "abfs://c@a//log",
        "file://host/log",
        "file:log",
        "file:///lo\ng",
        "file:///lo%00g",
        "memory://lo\rg",
        "lo\0g",
        " log",
        "log\n",
    ],
)
def test_a_root_that_cannot_be_kept_whole_is_refused(root: str) -> None:
    with pytest.raises(InvalidConfig, match="root="):
        open_store(root, environment={})


@pytest.mark.parametrize("root", ["file:/tmp/log", "file://localhost/tmp/log", "FILE:///tmp/log"])
def test_other_forms_of_a_file_url_name_the_same_folder(root: str) -> None:
    assert open_store(root).url == "file:///tmp/log"


def test_memory_roots_are_shared_by_name() -> None:
    one: ObjectStore = open_store("memory://shared/name")
    one.put_if_absent("a", b"x")
    assert open_store("memory://shared/name").get("a") == b"x"
    assert list(open_store("memory://shared/other").list("")) == []


def test_each_opening_counts_for_itself_by_label() -> None:
    one = open_store("memory://counted", label_of=lambda key: key.split("/")[0])
    other = open_store("memory://counted")
    one.put_if_absent("a/0", b"xyz")
    one.get("a/0")
    one.get("a/0", 0, 1)
    assert {k: (c.requests, c.bytes) for k, c in one.counters.snapshot().items()} == {
        ("put", "a"): (1, 3),
        ("get", "a"): (2, 4),
    }
    assert other.counters.snapshot() == {}


@pytest.mark.parametrize("root", ["", "az://bucket/x", "http://host/x", "s4://x"])
def test_an_unknown_kind_of_root_is_refused(root: str) -> None:
    with pytest.raises(InvalidConfig, match="use a path, file://, s3://bucket/prefix"):
        open_store(root)


def test_a_root_where_a_file_is_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for root in (str(file), file.as_uri()):
        with pytest.raises(InvalidConfig, match="a root is a folder"):
            open_store(root)


@pytest.mark.parametrize(
    "root",
    ["s3://", "s3:///prefix", "s3://x--use1-az4--x-s3/p", "s3://b/a//b", "s3://b/" + "x" * 201],
)
def test_an_s3_root_that_cannot_work_is_refused(root: str) -> None:
    with pytest.raises(InvalidConfig, match="root=s3:"):
        open_store(root, environment={})


@pytest.mark.parametrize(
    ("root", "url"),
    [
        ("s3://b", "s3://b"),
        ("s3://b/a/c/", "s3://b/a/c"),
        ("gs://b/a/c/", "gs://b/a/c"),
        ("abfs://c@a", "abfs://c@a"),
        ("abfss://c@a.dfs.core.windows.net/p/", "abfs://c@a/p"),
        ("abfs://c@a.blob.core.windows.net/p", "abfs://c@a/p"),
        ("abfs://c@a.dfs.core.chinacloudapi.cn/p", "abfs://c@a.dfs.core.chinacloudapi.cn/p"),
    ],
)
def test_a_cloud_root_has_one_url_without_a_slash_at_its_end(root: str, url: str) -> None:
    assert open_store(root, environment={}).url == url


@pytest.mark.parametrize(
    ("root", "module", "extra"),
    [("gs://b/log", "google.auth", "gcs"), ("abfs://c@a/log", "azure.identity", "azure")],
)
def test_a_root_without_its_libraries_names_the_extra(root: str, module: str, extra: str) -> None:
    code = f"""
import sys
sys.modules[{module!r}] = None
from sparklog.store.open import open_store
try:
    open_store({root!r}, environment={{}})
except Exception as error:
    print(type(error).__name__, error)
"""
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert shown.startswith("InvalidConfig")
    assert f"pip install 'sparklog[{extra}]'" in shown


@pytest.mark.parametrize(
    "wrong",
    [
        {"retry_deadline_s": 0.0},
        {"connections_max": -1},
        {"hedge_percentile": 1.5},
        {"hedge_share_max": 2.0},
        {"read_timeout_s": float("nan")},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidConfig, match=next(iter(wrong))):
        StoreSettings(**wrong)  # type: ignore[arg-type]


def test_access_comes_from_amazons_variables() -> None:
    assert S3Access.from_environment({}) == S3Access()
    assert S3Access.from_environment(
        {
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_SESSION_TOKEN": "token",
            "AWS_DEFAULT_REGION": "",
        }
    ) == S3Access("http://127.0.0.1:9000", "us-east-1", "key", "secret", "token")
    specific = {"AWS_ENDPOINT_URL_S3": "http://s3", "AWS_ENDPOINT_URL": "http://all"}
    assert S3Access.from_environment(specific).endpoint_url == "http://s3"
    assert S3Access.from_environment({"AWS_REGION": "eu-west-1"}).region == "eu-west-1"


def test_access_takes_encryption_and_key_of_new_objects() -> None:
    assert S3Access.from_environment({}).put_arguments == {}
    named = {"SPARKLOG_S3_ENCRYPTION": "aws:kms", "SPARKLOG_S3_KMS_KEY_ID": "alias/log"}
    assert S3Access.from_environment(named).put_arguments == {
        "ServerSideEncryption": "aws:kms",
        "SSEKMSKeyId": "alias/log",
        "BucketKeyEnabled": True,
    }
    plain = S3Access.from_environment({"SPARKLOG_S3_ENCRYPTION": "AES256"})
    assert plain.put_arguments == {"ServerSideEncryption": "AES256"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"SPARKLOG_S3_ENCRYPTION": "kms"},
        {"SPARKLOG_S3_KMS_KEY_ID": "k"},
        {"SPARKLOG_S3_ENCRYPTION": "AES256", "SPARKLOG_S3_KMS_KEY_ID": "k"},
    ],
)
def test_access_rejects_unknown_encryption_and_keys_without_kms(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig, match="SPARKLOG_S3_ENCRYPTION"):
        S3Access.from_environment(wrong)


def test_access_does_not_show_its_secrets() -> None:
    shown = repr(S3Access("http://s3", "r", "key-id", "the-secret", "the-token"))
    assert "http://s3" in shown
    assert not any(secret in shown for secret in ("key-id", "the-secret", "the-token"))


def test_s3_libraries_load_only_for_an_s3_root(tmp_path: Path) -> None:
    script = (
        "import sys; from sparklog.store.open import open_store; "
        f"open_store({str(tmp_path)!r}).put_if_absent('a', b''); open_store('memory://x');"
        "assert not {'aiobotocore', 'botocore', 'aiohttp', 'fsspec'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)
