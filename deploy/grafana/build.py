"""Write the dashboards as JSON: `python -m deploy.grafana.build`. No Grafana is asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from grafana_foundation_sdk.builders.dashboard import Dashboard, DashboardLink, QueryVariable
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    VariableOption,
    VariableRefresh,
)

from deploy.grafana import floor, service
from deploy.grafana.panels import DATASOURCE
from deploy.grafana.promql import PREFIX

FOLDER = Path(__file__).parent / "dashboards"
DASHBOARDS: dict[str, Callable[[Dashboard], Dashboard]] = {
    "floor": floor.add_panels,
    "service": service.add_panels,
}


def build(name: str) -> str:
    """Give the JSON text of one dashboard."""
    frame = (
        Dashboard(f"Floorline: {name}")
        .uid(f"floorline-{name}")
        .tags(["floorline"])
        .time("now-15m", "now")
        .timezone("browser")
        .refresh("5s")
        .readonly()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(_siblings())
        .with_variable(_model())
    )
    dashboard = DASHBOARDS[name](frame).build()
    return JSONEncoder(sort_keys=True, indent=2).encode(dashboard) + "\n"


def _model() -> QueryVariable:
    return (
        QueryVariable("model")
        .label("Model")
        .datasource(DATASOURCE)
        .query(f"label_values({PREFIX}model_info, model)")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


def _siblings() -> DashboardLink:
    return (
        DashboardLink("Floorline")
        .type(DashboardLinkType.DASHBOARDS)
        .tags(["floorline"])
        .include_vars(True)
        .keep_time(True)
    )


def main() -> None:
    for name in DASHBOARDS:
        (FOLDER / f"{name}.json").write_text(build(name))


if __name__ == "__main__":
    main()
