"""The medians as a picture: one panel per group of measures, whiskers from lowest to highest."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from tests.bench.log.report import SYSTEMS, amount
from tests.bench.log.results import Measure, Results

COLOURS = {"sparklog": "#1b6ca8", "kafka": "#444444", "parquet": "#c9a227", "spark": "#bbbbbb"}
BAR = 0.8


def draw(results: Results, path: Path, title: str) -> None:
    """Write the picture as PNG."""
    groups = list(dict.fromkeys(m.group for m in results.measures if m.group))
    if not groups:
        return
    columns = min(2, len(groups))
    lines = -(-len(groups) // columns)
    figure, grid = plt.subplots(lines, columns, figsize=(7.5 * columns, 3.6 * lines), squeeze=False)
    panels = list(grid.flat)
    for panel, group in zip(panels, groups, strict=False):
        _draw_group(panel, results, [m for m in results.measures if m.group == group])
        panel.set_title(group)
    for panel in panels[len(groups) :]:
        panel.axis("off")
    handles = [Rectangle((0, 0), 1, 1, color=COLOURS[s]) for s in SYSTEMS]
    figure.legend(handles, SYSTEMS, loc="lower center", ncol=len(SYSTEMS), frameon=False)
    figure.suptitle(title)
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _draw_group(panel: Axes, results: Results, measures: list[Measure]) -> None:
    present = [s for s in SYSTEMS if any(results.values(m.name, s) for m in measures)]
    height = BAR / max(1, len(present))
    for line, measure in enumerate(measures):
        medians = results.medians(measure.name)
        for place, system in enumerate(present):
            if system not in medians:
                continue
            values, middle = results.values(measure.name, system), medians[system]
            at = line + place * height - BAR / 2 + height / 2
            around = [[middle - min(values)], [max(values) - middle]]
            panel.barh(at, middle, height * 0.9, color=COLOURS[system], xerr=around, ecolor="#888")
            panel.annotate(
                amount(middle), (max(values), at), (3, 0), textcoords="offset points", va="center"
            )
    panel.set_yticks(range(len(measures)), [m.name for m in measures])
    panel.invert_yaxis()
    panel.margins(x=0.15)
    panel.set_xlabel(measures[0].unit)
    panel.spines[["top", "right"]].set_visible(False)
