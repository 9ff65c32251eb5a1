"""The medians as a picture: one panel per group of measures, whiskers from lowest to highest."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import EngFormatter

from tests.bench.common.report import amount, systems_of
from tests.bench.common.results import Measure, Results

COLOURS = {"sparklog": "#1b6ca8", "kafka": "#444444", "parquet": "#c9a227", "spark": "#bbbbbb"}
ANY_COLOUR = "#8c6bb1"
"""Of a system that is none of those."""
WIDTH_IN = 10.0
BAR_IN = 0.2
FRAME_IN = 1.0
"""Height of a bar, and of what surrounds the bars of a panel."""


def draw(results: Results, path: Path, title: str) -> None:
    """Write the picture as PNG; nothing when there is nothing to show."""
    groups = {
        group: [m for m in results.measures if m.group == group]
        for group in dict.fromkeys(m.group for m in results.measures if m.group)
    }
    if not groups:
        return
    heights = [FRAME_IN + BAR_IN * _lines(results, group) for group in groups.values()]
    figure, grid = plt.subplots(
        *(len(groups), 1),
        figsize=(WIDTH_IN, sum(heights) + FRAME_IN),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    for panel, (group, measures) in zip(grid.flat, groups.items(), strict=True):
        _draw_group(panel, results, measures)
        panel.set_title(group, loc="left")
    systems = systems_of(results)
    handles = [Rectangle((0, 0), 1, 1, color=COLOURS.get(system, ANY_COLOUR)) for system in systems]
    figure.legend(handles, systems, loc="outside lower center", ncol=len(systems), frameon=False)
    figure.suptitle(title)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _lines(results: Results, measures: list[Measure]) -> int:
    """Return how many lines the bars of a panel take, a gap below each measure included."""
    return sum(len(results.medians(measure.name)) + 1 for measure in measures)


def _draw_group(panel: Axes, results: Results, measures: list[Measure]) -> None:
    line, middles = 0, []
    for measure in measures:
        medians = results.medians(measure.name)
        present = [system for system in systems_of(results) if system in medians]
        middles.append(line + (len(present) - 1) / 2)
        for system in present:
            values, middle = results.values(measure.name, system), medians[system]
            colour = COLOURS.get(system, ANY_COLOUR)
            around = [[middle - min(values)], [max(values) - middle]]
            panel.barh(line, middle, 0.85, color=colour, xerr=around, ecolor="#999999")
            panel.annotate(
                amount(middle),
                (max(values), line),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize="small",
            )
            line += 1
        line += 1
    panel.set_yticks(middles, [f"{m.name} [{m.unit}]" for m in measures])
    panel.set_ylim(line - 1, -1)
    panel.margins(x=0.1)
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.spines[["top", "right"]].set_visible(False)
