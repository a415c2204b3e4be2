"""Two runs side by side, and whether their difference is more than noise."""

from __future__ import annotations

from typing import Any

ROW = "{:<12} {:>5} {:>11} {:>11} {:>9}  {}"


def render(a: dict[str, Any], b: dict[str, Any]) -> str:
    """Compare percentiles. They differ where their 95 % intervals do not overlap."""
    lines = []
    if a["plan"]["sha256"] != b["plan"]["sha256"]:
        lines.append("the plans differ: these are two loads")
    lines += [f"run {name} is not valid" for name, run in (("A", a), ("B", b)) if not run["valid"]]
    lines.append(ROW.format("ms", "", "A", "B", "change", ""))
    for metric in a["metrics"]:
        for quantile in ("p50", "p90", "p95", "p99"):
            left, right = a["metrics"][metric][quantile], b["metrics"][metric][quantile]
            if left and right:
                lines.append(_row(metric, quantile, left, right))
    return "\n".join(lines)


def _row(metric: str, quantile: str, left: dict[str, Any], right: dict[str, Any]) -> str:
    before, after = left["value"], right["value"]
    change = f"{after / before - 1:+.1%}" if before else "n/a"
    return ROW.format(
        metric, quantile, f"{before:.1f}", f"{after:.1f}", change, _differs(left, right)
    ).rstrip()


def _differs(left: dict[str, Any], right: dict[str, Any]) -> str:
    if left["lo"] is None or right["lo"] is None:
        return ""
    apart = left["hi"] < right["lo"] or right["hi"] < left["lo"]
    return "differs" if apart else "within noise"
