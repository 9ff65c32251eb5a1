"""`sparklog pipeline`: a new project, and how far its flows have come."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml

from sparklog.cli.main import main
from sparklog.core.errors import InvalidRequest
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.pipeline.run import PipelineJob
from sparklog.spark.pipeline.scheduled import parse_pipeline, pipeline
from sparklog.spark.schedule.job_kinds import kind_of


def test_a_new_project_reads_its_topics_and_is_made_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "it's a pipeline"
    words = ["pipeline", "init", str(folder), "--root", str(tmp_path / "log")]
    assert main(words) == 1
    assert main([*words, "--topic", "shop.orders", "--topic", "2nd"]) == 0
    assert "spark-pipeline.yml" in capsys.readouterr().out
    spec = yaml.safe_load((folder / "spark-pipeline.yml").read_text())
    assert spec["name"] == folder.name
    assert spec["storage"] == (folder / "storage").as_uri()
    sources = (folder / "transformations" / "sources.py").read_text()
    compile(sources, "sources.py", "exec")
    assert "def shop_orders():" in sources
    assert "records('2nd')" in sources
    assert "FROM STREAM shop_orders" in (folder / "transformations" / "tables.sql").read_text()
    assert main([*words, "--topic", "orders"]) == 1
    assert "not empty" in capsys.readouterr().err


def test_status_lists_the_newest_batch_of_each_flow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "p"
    assert main(["pipeline", "init", str(folder), "--root", str(tmp_path), "--topic", "t"]) == 0
    assert main(["pipeline", "status", str(folder)]) == 0
    for version, batches in (("0", 9), ("1", 11)):
        flow = folder / "storage" / "_checkpoints" / "out" / "to_out" / version
        for kind in ("offsets", "commits"):
            (flow / kind).mkdir(parents=True)
        (flow / "metadata").write_text('{"id":"abc"}')
        for batch in range(batches):
            line = json.dumps({"t": {"0": 10 * (batch + 1)}})
            (flow / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{line}\n-\n")
        (flow / "commits" / str(batches - 2)).write_text("v1\n{}")
    capsys.readouterr()
    assert main(["pipeline", "status", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "target": "out", "flow": "to_out", "query_id": "abc", "batch": 10, "committed": 9,
        "from": [{"t": {"0": 100}}, None], "until": [{"t": {"0": 110}}, None],
        "written": None,
    }  # fmt: skip
    assert main(["pipeline", "status", str(folder)]) == 0
    assert capsys.readouterr().out == (
        'Target: out\tFlow: to_out\tBatch: 10\tCommitted: 9\tFrom: {"t":{"0":100}} null\t'
        'Until: {"t":{"0":110}} null\tWritten: -\n'
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["status", "."], 1, "no pipeline here"),
        (["run", ".", "--interval", "5"], 2, "--interval is for --continuous"),
        (["dry-run", ".", "--continuous"], 2, "--continuous is for run"),
        (["run", ".", "--full-refresh-all", "--refresh", "a"], 2, "no other refresh"),
    ],
)
def test_wrong_calls_are_refused_in_one_line(
    words: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["pipeline", *words]) == code
    assert message in capsys.readouterr().err


def test_schedule_may_name_a_continuous_pipeline(tmp_path: Path) -> None:
    log = ["--root", "file:///log", "/srv/p"]
    assert kind_of("pipeline").parsed(log) == PipelineJob(Path("/srv/p"))
    assert parse_pipeline([*log, "--continuous", "30"]).interval_s == 30
    assert parse_pipeline([*log, "--continuous"]).interval_s == 5
    with pytest.raises(InvalidRequest, match="seconds from 0"):
        kind_of("pipeline").parsed([*log, "--continuous", "-1"])
    job = PipelineJob(tmp_path)
    with pytest.raises(InvalidRequest, match="no pipeline here"):
        pipeline(job, lambda _: pytest.fail("it needs no session"), JobProgress(io.StringIO()))
