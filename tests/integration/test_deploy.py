"""What `docker compose up` brings, proven without an engine: the files agree with each other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.inputs.options import parse
from deploy.grafana import build
from server.cli.options import OPTIONS
from telemetry.series.catalog import METRICS, PREFIX, Metric, MetricKind

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROVISIONING = DEPLOY / "grafana/provisioning"
CONTAINERFILE = (ROOT / "Dockerfile").read_text()


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


COMPOSE = load(ROOT / "docker-compose.yml")
SERVICES: dict[str, Any] = COMPOSE["services"]


def mounts(service: str) -> dict[str, str]:
    """Map the paths inside a container to their sources."""
    return {
        target: source
        for source, target in (m.split(":")[:2] for m in SERVICES[service]["volumes"])
    }


def container_ports(service: str) -> set[str]:
    return {mapping.rpartition(":")[2] for mapping in SERVICES[service]["ports"]}


def instructions(word: str) -> list[str]:
    """Give the arguments of a Dockerfile's instruction, wherever it occurs."""
    joined = CONTAINERFILE.replace("\\\n", " ").splitlines()
    return [line.partition(" ")[2].strip() for line in joined if line.startswith(word + " ")]


@pytest.mark.parametrize("name", build.DASHBOARDS)
def test_a_checked_in_dashboard_is_what_the_code_builds(name: str) -> None:
    """`python -m deploy.grafana.build` mends it."""
    assert (build.FOLDER / f"{name}.json").read_text() == build.build(name)


def test_no_dashboard_is_checked_in_that_no_code_builds() -> None:
    assert {path.stem for path in build.FOLDER.glob("*")} == set(build.DASHBOARDS)


def expressions() -> list[str]:
    """List the PromQL of every panel and every alert."""
    boards = [json.loads(path.read_text()) for path in build.FOLDER.glob("*.json")]
    asked = [t["expr"] for board in boards for panel in board["panels"] for t in panel["targets"]]
    groups = load(DEPLOY / "alerts.yml")["groups"]
    return asked + [rule["expr"] for group in groups for rule in group["rules"]]


def samples_of(metric: Metric) -> list[str]:
    endings = ("_bucket", "_sum", "_count") if metric.kind is MetricKind.HISTOGRAM else ("",)
    return [PREFIX + metric.name + ending for ending in endings]


def test_every_metric_and_label_that_is_asked_for_is_exported() -> None:
    exported = {name: metric for metric in METRICS for name in samples_of(metric)}
    selectors = re.findall(r"(floorline_\w+)(?:{(.*?)})?", " ".join(expressions()))
    assert len(selectors) > len(expressions())
    for name, matchers in selectors:
        labels = {label.name: label.values for label in exported[name].labels}
        for label, values in re.findall(r'(\w+)=~?"(.*?)"', matchers):
            if label != "model":
                assert set(values.split("|")) <= set(labels[label]), f"{name}: {label}={values}"


def test_panels_tile_the_grid_without_a_hole_or_an_overlap() -> None:
    for path in build.FOLDER.glob("*.json"):
        places = [panel["gridPos"] for panel in json.loads(path.read_text())["panels"]]
        cells = [
            (x, y)
            for p in places
            for x in range(p["x"], p["x"] + p["w"])
            for y in range(p["y"], p["y"] + p["h"])
        ]
        height = max(y for _, y in cells) + 1
        assert sorted(cells) == [(x, y) for x in range(24) for y in range(height)], path.name


def test_prometheus_scrapes_the_server_where_it_listens() -> None:
    (group,) = load(DEPLOY / "targets.yml")
    (target,) = group["targets"]
    service, _, port = target.partition(":")
    assert port in container_ports(service)
    assert port in instructions("EXPOSE")
    assert f"127.0.0.1:{port}/" in instructions("HEALTHCHECK")[0]


def test_grafana_asks_the_prometheus_of_the_same_compose_file() -> None:
    (source,) = load(PROVISIONING / "datasources/prometheus.yml")["datasources"]
    service, _, port = source["url"].removeprefix("http://").partition(":")
    assert port in container_ports(service)
    for path in build.FOLDER.glob("*.json"):
        dashboard = json.loads(path.read_text())
        asking = [*dashboard["panels"], *dashboard["templating"]["list"]]
        assert {item["datasource"]["uid"] for item in asking} == {source["uid"]}


def test_the_rate_interval_rests_on_the_scrape_interval() -> None:
    (source,) = load(PROVISIONING / "datasources/prometheus.yml")["datasources"]
    interval = load(DEPLOY / "prometheus.yml")["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == interval


def test_the_provisioned_dashboards_are_mounted_where_grafana_looks() -> None:
    inside = mounts("grafana")
    (provider,) = load(PROVISIONING / "dashboards/floorline.yml")["providers"]
    assert (ROOT / inside[provider["options"]["path"]]).resolve() == build.FOLDER
    assert (ROOT / inside["/etc/grafana/provisioning"]).resolve() == PROVISIONING
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (ROOT / inside[str(home.parent)] / home.name).is_file()


def test_prometheus_reads_the_config_that_is_mounted() -> None:
    flags = dict(flag.lstrip("-").split("=", 1) for flag in SERVICES["prometheus"]["command"])
    config = Path(flags["config.file"])
    assert (ROOT / mounts("prometheus")[str(config.parent)] / config.name).is_file()
    assert flags["storage.tsdb.path"] in mounts("prometheus")


def test_every_mount_is_a_folder_of_ours_or_a_declared_volume() -> None:
    for service in SERVICES:
        for source in mounts(service).values():
            assert source in COMPOSE["volumes"] or (ROOT / source).is_dir(), source


def test_images_are_pinned_and_ports_stay_on_this_machine() -> None:
    for name, service in SERVICES.items():
        tag = service["image"].partition(":")[2]
        assert tag.lstrip("v")[:1].isdigit(), name
        assert all(mapping.startswith("127.0.0.1:") for mapping in service["ports"]), name


def test_every_setting_of_the_containers_is_one_that_the_server_takes() -> None:
    settings = dict(SERVICES["server"]["environment"])
    words = " ".join(instructions("ENV")).split()
    settings |= dict(word.split("=", 1) for word in words if word.startswith("FLOORLINE_"))
    assert settings
    options = {option.variable: option for option in OPTIONS}
    for variable, value in settings.items():
        default = value.partition(":-")[2].rstrip("}") if value.startswith("$") else value
        parse(options[variable], default, variable)


def test_the_image_runs_the_command_as_nobody_special() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (entry,) = instructions("ENTRYPOINT")
    assert json.loads(entry)[0] in project["scripts"]
    assert instructions("USER") == ["floorline"]
    assert project["version"] == SERVICES["server"]["image"].partition(":")[2]


def packaged() -> set[str]:
    """Name the folders that the wheel is made of."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    return set(tool["scikit-build"]["wheel"]["packages"].values())


def test_an_installed_package_lacks_no_module() -> None:
    """An image installs the wheel; a checkout in editable mode would not notice."""
    tops = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "bench", "deploy"}
    assert packaged() == tops


def test_the_build_context_holds_all_that_the_package_is_made_of() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    ignored = set((ROOT / ".dockerignore").read_text().split())
    needed = {*packaged(), "constraints.txt", "pyproject.toml"}
    needed |= {pyproject["project"]["readme"], *pyproject["project"]["license-files"]}
    assert not {name.partition(".")[0] for name in needed} & ignored
    assert not needed & ignored
    assert all((ROOT / name).exists() for name in needed)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (Debian: prometheus)")
@pytest.mark.parametrize("command", ["check config prometheus.yml", "test rules alerts_test.yml"])
def test_promtool_passes(command: str) -> None:
    run = subprocess.run(["promtool", *command.split()], cwd=DEPLOY, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_alert_is_seen_firing() -> None:
    rules = [rule for group in load(DEPLOY / "alerts.yml")["groups"] for rule in group["rules"]]
    cases = [
        c for test in load(DEPLOY / "alerts_test.yml")["tests"] for c in test["alert_rule_test"]
    ]
    fired = {case["alertname"] for case in cases if case["exp_alerts"]}
    assert fired == {rule["alert"] for rule in rules}
