"""The few shapes that a panel of ours takes: a number, lines, a stack, a heat map."""

from __future__ import annotations

from grafana_foundation_sdk.builders import common as options
from grafana_foundation_sdk.builders import dashboard as board
from grafana_foundation_sdk.builders import heatmap, stat, timeseries
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="prometheus")
GREEN, BLUE, ORANGE, RED, PURPLE, YELLOW, CYAN, GREY = (
    "#73BF69", "#5794F2", "#FF9830", "#F2495C", "#B877D9", "#FADE2A", "#5AC8C8", "#7B8087",
)  # fmt: skip
NUMBER_WIDTH, NUMBER_HEIGHT = 4, 4  # grid units; a dashboard is 24 wide
GRAPH_WIDTH, GRAPH_HEIGHT = 12, 8

Queries = dict[str, str]  # legend → PromQL; {{label}} in a legend is that label's value
Colors = dict[str, str]  # regular expression over legends → color


def number(
    title: str, text: str, unit: str, promql: str, color: str = GREEN, alarm_at: float | None = None
) -> stat.Panel:
    """Show the latest value, large, over its own course; it turns red from `alarm_at` on."""
    steps = [dashboard.Threshold(value=None, color=color)]
    if alarm_at is not None:
        steps.append(dashboard.Threshold(value=alarm_at, color=RED))
    return (
        stat.Panel()
        .title(title)
        .description(text)
        .datasource(DATASOURCE)
        .span(NUMBER_WIDTH)
        .height(NUMBER_HEIGHT)
        .unit(unit)
        .decimals(0 if unit == "none" else 1)
        .graph_mode(common.BigValueGraphMode.AREA)
        .reduce_options(options.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(board.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps))
        .with_target(_target("A", promql, title))
    )


def lines(
    title: str, text: str, unit: str, queries: Queries, colors: Colors, log: bool = False
) -> timeseries.Panel:
    """Draw one line a series, dashed where its legend says `floor` or `peak`."""
    panel = _graph(title, text, unit, queries, colors).fill_opacity(0).line_width(2)
    panel = panel.override_by_regexp(
        ".*(floor|peak).*", [_property("custom.lineStyle", {"fill": "dash", "dash": [8, 6]})]
    )
    if log:
        scale = options.ScaleDistributionConfig().type(common.ScaleDistribution.LOG).log(10)
        return panel.scale_distribution(scale)
    return panel.min(0)


def stack(
    title: str, text: str, unit: str, queries: Queries, colors: Colors, roof: str = ""
) -> timeseries.Panel:
    """Pile the series up; the one named `roof` stays a dashed line outside the pile."""
    pile = options.StackingConfig().mode(common.StackingMode.NORMAL).group("A")
    panel = _graph(title, text, unit, queries, colors).min(0)
    panel = panel.fill_opacity(65).line_width(1).stacking(pile)
    if roof:
        panel = panel.override_by_name(
            roof,
            [
                _property("custom.stacking", {"mode": "none", "group": "A"}),
                _property("custom.fillOpacity", 0),
                _property("custom.lineWidth", 2),
                _property("custom.lineStyle", {"fill": "dash", "dash": [8, 6]}),
            ],
        )
    return panel


def heat(title: str, text: str, unit: str, promql: str) -> heatmap.Panel:
    """Shade a histogram's buckets over time by their share of the observations."""
    return (
        heatmap.Panel()
        .title(title)
        .description(text)
        .datasource(DATASOURCE)
        .span(GRAPH_WIDTH)
        .height(GRAPH_HEIGHT)
        .y_axis(heatmap.YAxisConfig().unit(unit))
        .color(
            heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Viridis").steps(64)
        )
        .with_target(_target("A", promql, "{{le}}").format(PromQueryFormat.HEATMAP))
    )


def _graph(title: str, text: str, unit: str, queries: Queries, colors: Colors) -> timeseries.Panel:
    panel = (
        timeseries.Panel()
        .title(title)
        .description(text)
        .datasource(DATASOURCE)
        .span(GRAPH_WIDTH)
        .height(GRAPH_HEIGHT)
        .unit(unit)
        .show_points(common.VisibilityMode.NEVER)
        .tooltip(options.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
        .legend(options.VizLegendOptions().placement(common.LegendPlacement.BOTTOM))
    )
    for letter, (legend, promql) in zip("ABCDEFGH", queries.items(), strict=False):
        panel = panel.with_target(_target(letter, promql, legend))
    for pattern, color in colors.items():
        fixed = _property("color", {"mode": "fixed", "fixedColor": color})
        panel = panel.override_by_regexp(pattern, [fixed])
    return panel


def _target(letter: str, promql: str, legend: str) -> Dataquery:
    return Dataquery().ref_id(letter).expr(promql).legend_format(legend).range()


def _property(name: str, value: object) -> dashboard.DynamicConfigValue:
    return dashboard.DynamicConfigValue(id_val=name, value=value)
