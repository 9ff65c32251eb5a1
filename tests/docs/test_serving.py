"""The commands of README, the pages and SERVING as printed, in a user's environment.

That is the wheel as pip installs it, without the repository. No variable of Spark's is set, and the
machine has a network besides loopback.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.find_spark_home import _find_spark_home as find_spark_home

from sparklog.core.shipped_files import JOB_NAMES
from tests.asyncio_errors import OpenLogs
from tests.docs.test_readme import blocks
from tests.peers.bare import ADDRESS, BareShell, bare_shell
from tests.peers.wheel import PROJECT, install_wheel

EXAMPLE = PROJECT / "tests" / "example"
DAEMON = "spark-class org.apache.spark.deploy"
FLIGHTS = "tailnum,year\nN14228,2013\nN24211,2013\nN14228,2014\n"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareShell]:
    """A user's shell."""
    folder = tmp_path_factory.mktemp("user")
    with bare_shell(folder / "home", install_wheel(folder, ["testing"])) as one:
        for line in one.run("sparklog warm-up", folder).splitlines():
            assert f" are kept in {folder}" in line, "beside what was installed"
        yield one


def commands(first_word: str) -> list[str]:
    """Return the pages' commands that begin so, with the lines that go on."""
    return re.findall(rf"^{first_word} (?:.*\\\n)*.*", "\n".join(blocks("sh")), re.MULTILINE)


def test_readmes_examples_print_their_records_after_pip_install(
    shell: BareShell, tmp_path: Path
) -> None:
    (example,) = [block for block in blocks("python") if "open_log" in block]
    (tmp_path / "example.py").write_text(f"{example}\nprint(sparklog.__file__)\n")
    record, module = shell.run("python example.py", tmp_path).splitlines()
    assert record == "{'offset': 0, 'key': b'ann', 'value': b'hello'}".join("[]")
    assert not Path(module).is_relative_to(PROJECT), "the wheel is what runs"
    (example,) = [block for block in blocks("sh") if "export SPARKLOG_ROOT" in block]
    assert "ann\thello" in shell.run(example, tmp_path).splitlines()


@pytest.mark.parametrize(
    "names",
    [("produce", "consume"), pytest.param(JOB_NAMES, marks=pytest.mark.soak)],
    ids=["some", "all"],
)
def test_readmes_jobs_run_after_pip_install(
    shell: BareShell, tmp_path: Path, names: tuple[str, ...]
) -> None:
    (tmp_path / "flights.csv").write_text(FLIGHTS)
    jobs = commands("sparklog run")
    assert {*(shlex.split(job)[2] for job in jobs), "serve"} == set(JOB_NAMES)
    for job in jobs:
        if shlex.split(job)[2] in names:
            printed = shell.run(f"({job}\n) 2>&1", tmp_path)
            assert "starting Spark, whose log is " in printed
            assert "SPARK_LOCAL_IP" not in printed, "Spark's own output is in its log"
    assert list((tmp_path / "since-july").glob("*.parquet"))
    (submit,) = [line for line in commands("spark-submit") if "compact" in line]
    assert "would keep 0 of 0 records" in shell.run(submit, tmp_path), "it is not compacted"
    made = {"flights.csv", "my-log", "since-july"}
    made |= {"flights-table"} if "materialize" in names else set()
    assert set(os.listdir(tmp_path)) == made, "nothing else is left"


def test_example_project_passes_with_the_extra_testing(shell: BareShell, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "project")
    ran = "python -m pytest -q -W error -p no:cacheprovider --strict-markers project"
    assert re.search(r"^5 passed", shell.run(ran, tmp_path), re.MULTILINE)


def test_each_example_of_the_test_kit_is_in_the_project() -> None:
    page = (PROJECT / "sparklog/docs/TESTING.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    project = "\n".join(file.read_text(encoding="utf-8") for file in EXAMPLE.glob("*.py"))
    assert len(examples) >= 3
    assert [text for text in examples if text not in project] == []


def test_jobs_and_presets_are_in_the_wheel(shell: BareShell, tmp_path: Path) -> None:
    helped = " && ".join(f"sparklog run {name} --help" for name in JOB_NAMES)
    assert set(re.findall(r"^usage: (\w+)\.py", shell.run(helped, tmp_path), re.MULTILINE)) == set(
        JOB_NAMES
    )
    copied = shell.run("sparklog conf --copy conf", tmp_path).splitlines()
    ours = subprocess.check_output(["git", "ls-files", "conf"], cwd=PROJECT, text=True)
    assert sorted(copied) == sorted(set(ours.split()) - {"conf/constraints.txt"})
    listing = "sparklog jobs --root my-log --list --file conf/jobs.toml"
    assert "compaction" in shell.run(listing, tmp_path)


def test_readmes_command_serves_clients_beside_another_network(
    shell: BareShell, tmp_path: Path
) -> None:
    (serve,) = [line for line in commands("sparklog serve") if "--port 9092" in line]
    texts = [b for b in blocks("sh") if "localhost:9092" in b]
    ours = re.findall(r"^sparklog (?:.*\\\n)*.*", "\n".join(texts), re.MULTILINE)
    work_before = sorted(Path(find_spark_home()).glob("work/*"))
    logs = OpenLogs()
    with shell.running(serve, tmp_path) as served:
        log = Path(served.until("starting Spark").rpartition(" ")[2])
        told = served.until("serving: ")
        assert log.is_file()
        assert any((log.parent / "scratch").iterdir()), "Java's temporary files, too"
        assert told.endswith("serving: 127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"), told
        logs.open([log, *(log.parent / "spark").glob("work/*/*/stderr")])
        assert len(logs.paths) == 4, "Spark's, and one of each executor"
        said = "".join(shell.run(command, tmp_path) for command in ours)
        assert served.end(signal.SIGINT) == 130
    assert len(ours) == 19
    assert "billing         orders          2 " in said, "where a group would go on"
    assert said.count("Topic: orders") >= 3, "described, partition by partition"
    assert not [line for line in served.lines if "note:" in line]
    assert served.lines[-1].endswith("3 of 3 brokers drained")
    assert not [line for line in served.lines if "WARN" in line], "that is for Spark's log"
    assert not log.parent.exists()
    assert not logs.close()
    assert sorted(Path(find_spark_home()).glob("work/*")) == work_before


def test_documented_cluster_command_serves_at_the_host_address(
    shell: BareShell, tmp_path: Path
) -> None:
    serving = (PROJECT / "sparklog/spark/SERVING.md").read_text(encoding="utf-8")
    (submit,) = re.findall(r"^spark-submit (?:.*\\\n)+.*?(?=\s+#)", serving, re.MULTILINE)
    with ExitStack() as stack:
        words = f"{DAEMON}.master.Master --webui-port 0"
        master = stack.enter_context(shell.running(words, tmp_path)).until("Starting Spark master")
        url = master.split()[-1]
        # Slots for the four executors of the preset, with any number of processors.
        # Spark's worker leaves its own folder for temporary files behind, so it is one of the test.
        local = f"env SPARK_LOCAL_DIRS={tmp_path}/local"
        words = f"{DAEMON}.worker.Worker --webui-port 0 -c 12 -m 4g -d {tmp_path}/work {url}"
        words = f"{local} {words}"
        stack.enter_context(shell.running(words, tmp_path)).until("registered with master")
        command = submit.replace("spark://host:7077", url)
        command = command.replace("s3://bucket/log", (tmp_path / "log").as_uri())
        shell.run("sparklog conf --copy conf", tmp_path)
        served = stack.enter_context(shell.running(command, tmp_path))
        bootstrap = served.until("serving: ").rpartition(" ")[2]
        shell.run(
            f"sparklog topics --bootstrap-server {bootstrap} --create --topic orders"
            " --partitions 3 --replication-factor 3",
            tmp_path,
        )
        served.end(signal.SIGTERM)
    notes = [line for line in served.lines if "note:" in line]
    # A very slow machine may start no executor for a minute: serve says how many there are now.
    assert not [line for line in notes if " now" not in line], notes
    if shell.has_own_network:
        assert {one.split(":")[0] for one in bootstrap.split(",")} == {ADDRESS}
    assert served.lines[-1].endswith("3 of 3 brokers drained")
