"""The image, the manifests and the chart of conf/: what can be checked without a registry.

No image is built and no cluster runs here. Helm itself renders the chart in the soak test, which
compares the manifests with what it renders.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from sparklog.core.config.broker import parse_broker_configs
from tests.tidy.tree import ROOT

CONF = ROOT / "conf"
START = runpy.run_path(str(CONF / "docker" / "start_broker.py"))
DOCKERFILE = (CONF / "docker" / "Dockerfile").read_text()
MANIFESTS = [CONF / "kubernetes" / name for name in ("brokers.yaml", "spark-driver.yaml")]
HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
POD = {
    "SPARKLOG_ROOT": "s3://bucket/log",
    "POD_NAME": "sparklog-broker-2",
    "SPARKLOG_SERVICE": "sparklog-brokers.log.svc",
}


def objects(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def pods(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the template of each pod in a file."""
    for one in objects(path):
        spec = one.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            yield spec["template"]


def settings_of(words: list[str]) -> dict[str, str]:
    given = [words[at + 1] for at, word in enumerate(words) if word == "--config"]
    return dict(one.split("=", 1) for one in given)


def test_a_pod_gives_its_broker_an_id_an_address_and_a_rack() -> None:
    words = START["command"](POD, ["--config", "default.replication.factor=3"], "zone-b")
    assert words[1:9] == [
        *("-m", "sparklog.broker.main", "--root", "s3://bucket/log"),
        *("--broker-id", "3", "--listener", "0.0.0.0:9092"),
    ]
    assert settings_of(words) == {
        "metrics.port": "9404",
        "advertised.listeners": "PLAINTEXT://sparklog-broker-2.sparklog-brokers.log.svc:9092",
        "broker.rack": "zone-b",
        "default.replication.factor": "3",
    }
    parse_broker_configs(settings_of(words))
    moved = {**POD, "SPARKLOG_FIRST_BROKER_ID": "101", "SPARKLOG_ADVERTISED_HOST": "kafka.example"}
    assert START["command"](moved, [], None)[6] == "103"
    alone = {"SPARKLOG_ROOT": "/log", "SPARKLOG_BROKER_ID": "7"}
    assert settings_of(START["command"](alone, [], None)) == {"metrics.port": "9404"}


@pytest.mark.parametrize("missing", ["SPARKLOG_ROOT", "POD_NAME"])
def test_a_container_without_a_needed_variable_says_which(missing: str) -> None:
    variables = {name: value for name, value in POD.items() if name != missing}
    with pytest.raises(SystemExit, match=missing):
        START["command"](variables, [], None)


class NodeApi(BaseHTTPRequestHandler):
    """Answers for one node of Kubernetes' API."""

    def do_GET(self) -> None:
        assert self.headers["Authorization"] == "Bearer secret-token"
        assert self.path == "/api/v1/nodes/node-1"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"metadata": {"labels": {"topology.kubernetes.io/zone": "eu-west-1b"}}}')

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        """Print nothing."""


def test_the_zone_of_a_node_is_asked_for_with_the_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret-token")
    with HTTPServer(("127.0.0.1", 0), NodeApi) as server:
        Thread(target=server.handle_request).start()
        found = START["zone_of"]("node-1", f"http://127.0.0.1:{server.server_port}", tmp_path)
    assert found == "eu-west-1b"


def test_images_take_existing_files_and_run_as_another_user_than_root() -> None:
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources), line
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
    bases = {stage.split()[0] for stage in stages}
    assert bases == {"python:${PYTHON}-slim", "build"}
    for stage in stages:
        if stage.split()[2] in {"broker", "spark"}:
            assert re.findall(r"^USER (.+)$", stage, re.MULTILINE) == ["10001:10001"]
            assert re.findall(r"^ENTRYPOINT \[", stage, re.MULTILINE)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_pods_are_restricted_and_name_existing_objects(path: Path) -> None:
    found = list(pods(path))
    assert found
    accounts = {o["metadata"]["name"] for o in objects(path) if o["kind"] == "ServiceAccount"}
    for pod in found:
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["serviceAccountName"] in accounts
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            ports = {one["name"] for one in container.get("ports", ())}
            probes = [value for name, value in container.items() if name.endswith("Probe")]
            assert all(probe["httpGet"]["port"] in ports for probe in probes)
    labels = [pod["metadata"]["labels"].items() for pod in found]
    for one in objects(path):
        if one["kind"] in {"Service", "PodDisruptionBudget"}:
            selector = one["spec"]["selector"]
            wanted = selector.get("matchLabels", selector).items()
            assert any(wanted <= have for have in labels), one["metadata"]["name"]


def test_brokers_are_replaced_one_at_a_time_when_in_sync() -> None:
    found = {one["kind"]: one for one in objects(MANIFESTS[0])}
    assert found["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    spec = found["StatefulSet"]["spec"]
    assert spec["updateStrategy"] == {"type": "RollingUpdate"}
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > 60, "a drain's longest"
    (broker,) = spec["template"]["spec"]["containers"]
    assert broker["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert broker["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert broker["securityContext"]["readOnlyRootFilesystem"] is True
    parse_broker_configs(settings_of(broker["args"]))


def test_jobs_of_the_chart_exist() -> None:
    jobs = [pod["spec"]["containers"][0] for pod in pods(MANIFESTS[0])]
    names = [one["args"][1] for one in jobs if one["args"][0] == "run"]
    assert names == ["retain", "compact", "verify"]
    assert all((ROOT / "jobs" / f"{name}.py").is_file() for name in names)


@pytest.mark.soak
def test_helm_accepts_the_chart_and_renders_the_manifests(tmp_path: Path) -> None:
    """Compiles Helm, which takes a minute or two."""
    go = shutil.which("go")
    assert go is not None, "Go compiles Helm"
    environment = {**os.environ, "GOBIN": str(tmp_path), "HELM_CACHE_HOME": str(tmp_path)}
    subprocess.run([go, "install", HELM], env=environment, check=True)
    chart, helm = str(CONF / "helm" / "sparklog"), str(tmp_path / "helm")
    subprocess.run([helm, "lint", "--strict", chart], env=environment, check=True)
    words = [helm, "template", "sparklog", chart, "--namespace", "default"]
    words += ["--kube-version", "1.30.0"]
    for more in ([], ["--set", "secretName=store"], ["--set", "brokers.zones=false"]):
        rendered = subprocess.run(
            [*words, *more], env=environment, check=True, capture_output=True, text=True
        ).stdout
        assert [one["kind"] for one in yaml.safe_load_all(rendered) if one]
        if not more:
            manifest = MANIFESTS[0].read_text()
            assert manifest[manifest.index("---\n") :] == rendered
