"""Plots of measurements in one style: panels of lines or points over sizes, and points over names.

Input is tidy data: one row per measurement, with parameters as columns. `panels` groups rows; `lines` and `points`
draw, with the first series on top; `save` writes files. matplotlib is imported when something is drawn (``pip install
'symshape[bench]'``).
"""

from __future__ import annotations

import base64
import importlib
import io
import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symshape.errors import OptionError

# The palette of Okabe and Ito, safe for colour-blind readers; markers differ too.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DPI = 110
_CHARACTER, _HANDLE = 0.085, 0.5  # width in inches of a legend's character, and of a handle with its padding
_NARROW = 6  # a logarithmic axis whose ends have a smaller ratio gets a number at every minor tick

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Series:
    """Values ``y`` over ``x``. ``low`` and ``high`` are the bounds of a range around each ``y``, or empty."""

    label: str
    x: Sequence[Any]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class Panel:
    """One plot of a figure."""

    title: str
    series: Sequence[Series]


@dataclass(frozen=True)
class Axes:
    """Labels and scales of the axes. ``reference`` is a value of y marked by a line; ``limits`` are the bounds of y;
    ``whole_x`` restricts ticks of x to integers."""

    x: str
    y: str
    log_x: bool = False
    log_y: bool = False
    reference: float | None = None
    limits: tuple[float, float] | None = None
    whole_x: bool = False


def panels(
    rows: Iterable[Row],
    *,
    panel: str,
    series: str,
    x: str | Callable[[Row], Any],
    y: str | Callable[[Row], float],
    merged: bool = True,
) -> list[Panel]:
    """One panel per value of column ``panel``, with one series per value of column ``series``. ``x`` and ``y`` name
    columns, or compute from a row. If ``merged``, rows with equal x become their median with minimum and maximum as its
    range; otherwise each row is a point."""
    found: dict[str, dict[str, list[tuple[Any, float]]]] = {}
    for row in rows:
        line = found.setdefault(str(row[panel]), {}).setdefault(str(row[series]), [])
        line.append((_value(row, x), float(_value(row, y))))
    make = _merged if merged else _single
    return [Panel(title, [make(label, pairs) for label, pairs in each.items()]) for title, each in found.items()]


def _value(row: Row, column: str | Callable[[Row], Any]) -> Any:
    return column(row) if callable(column) else row[column]


def _single(label: str, pairs: Sequence[tuple[Any, float]]) -> Series:
    ordered = sorted(pairs)
    return Series(label, [x for x, _ in ordered], [y for _, y in ordered])


def _merged(label: str, pairs: Sequence[tuple[Any, float]]) -> Series:
    found: dict[Any, list[float]] = {}
    for x, y in sorted(pairs):
        found.setdefault(x, []).append(y)
    middle = [statistics.median(values) for values in found.values()]
    return Series(label, list(found), middle, [v[0] for v in found.values()], [v[-1] for v in found.values()])


def lines(shown: Sequence[Panel], axes: Axes, *, columns: int = 4, joined: bool = True) -> Any:
    """A figure with one plot per panel, in at most ``columns`` columns, with shared axes and one legend. ``joined``
    connects the points by lines."""
    columns = max(min(columns, len(shown)), 1)
    down = -(-len(shown) // columns) or 1
    figure = _library("matplotlib.figure").Figure(
        figsize=(max(4.0 * columns, 6.0), 2.8 * down + 0.6), layout="constrained"
    )
    places = list(figure.subplots(down, columns, squeeze=False, sharex=True, sharey=True).flat)
    styles = _styles(one.label for panel in shown for one in panel.series)
    for place in places[len(shown) :]:
        place.set_visible(False)
    for place, panel in zip(places, shown):
        for above, one in zip(itertools.count(len(styles) + 2, -1), panel.series):
            colour, marker = styles[one.label]
            style = {"color": colour, "marker": marker, "markersize": 4, "linestyle": "-" if joined else "none"}
            place.plot(one.x, one.y, label=one.label, zorder=above, **style)
            if one.low:
                place.fill_between(one.x, one.low, one.high, color=colour, alpha=0.15, linewidth=0)
        _decorate(place, axes, panel.title)
    figure.supxlabel(axes.x)
    figure.supylabel(axes.y)
    _legend(figure, places, styles)
    return figure


def points(names: Sequence[str], series: Sequence[Series], axes: Axes) -> Any:
    """A dot plot: one row per name from the top down, with one point per series; ``x`` of a series holds names. Values
    are on the horizontal axis, which ``axes.y`` labels."""
    figure = _library("matplotlib.figure").Figure(figsize=(8.0, 0.21 * len(names) + 1.4), layout="constrained")
    place = figure.subplots()
    styles = _styles(one.label for one in series)
    lines_of = {name: -position for position, name in enumerate(names)}
    for above, one in zip(itertools.count(len(series) + 2, -1), series):
        colour, marker = styles[one.label]
        heights = [lines_of[name] for name in one.x]
        style = {"color": colour, "marker": marker, "markersize": 5, "linestyle": "none"}
        place.plot(one.y, heights, label=one.label, zorder=above, **style)
    place.set_yticks(list(lines_of.values()), list(lines_of))
    place.set_ylim(0.7 - len(names), 0.7)
    if axes.reference is not None:
        place.axvline(axes.reference, color="black", linewidth=0.8)
    if axes.log_y:
        place.set_xscale("log")
        low, high = place.get_xlim()
        if high > _NARROW * low:
            place.xaxis.set_major_locator(_library("matplotlib.ticker").LogLocator(subs=(1, 2, 5)))
        place.xaxis.set_major_formatter("{x:g}")
        place.xaxis.set_minor_formatter("" if high > _NARROW * low else "{x:g}")
    if axes.limits is not None:
        place.set_xlim(*axes.limits)
    place.set_xlabel(axes.y)
    place.grid(alpha=0.3)
    _legend(figure, [place], styles)
    return figure


def _styles(labels: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each label, in order of first appearance."""
    distinct = list(dict.fromkeys(labels))
    return {label: (_COLOURS[i % len(_COLOURS)], _MARKERS[i % len(_MARKERS)]) for i, label in enumerate(distinct)}


def _decorate(place: Any, axes: Axes, title: str) -> None:
    place.set_title(title, fontsize=10)
    if axes.log_x:
        place.set_xscale("log")
    if axes.log_y:
        place.set_yscale("log")
    if axes.reference is not None:
        place.axhline(axes.reference, color="black", linewidth=0.8)
    if axes.limits is not None:
        place.set_ylim(*axes.limits)
    if axes.whole_x:
        place.xaxis.get_major_locator().set_params(integer=True)
    place.grid(alpha=0.3)


def _legend(figure: Any, places: Sequence[Any], styles: Mapping[str, Any]) -> None:
    handles: dict[str, Any] = {}
    for place in places:
        for handle, label in zip(*place.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    if handles:
        order = [label for label in styles if label in handles]
        columns = min(4, len(order), int(figure.get_figwidth() / (_CHARACTER * max(map(len, order)) + _HANDLE)))
        shown = [handles[label] for label in order]
        figure.legend(shown, order, loc="outside upper center", ncols=max(columns, 1))


def save(figure: Any, path: str | Path) -> Path:
    """Writes the figure as PNG or SVG, by the suffix of ``path``, and returns the path. Creates missing folders."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=_DPI, facecolor="white", metadata=_undated(target.suffix))
    return target


def as_uri(figure: Any) -> str:
    """The figure as an SVG ``data:`` URI, to be embedded in an HTML page."""
    text = io.BytesIO()
    with _library("matplotlib").rc_context({"svg.hashsalt": "symshape"}):
        figure.savefig(text, format="svg", facecolor="white", metadata=_undated(".svg"))
    return "data:image/svg+xml;base64," + base64.b64encode(text.getvalue()).decode()


def _undated(suffix: str) -> dict[str, None]:
    """Metadata without the date, so that equal figures are equal files."""
    return {"Date": None} if suffix == ".svg" else {}


def _library(name: str) -> Any:
    """Imports a module of matplotlib. OptionError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise OptionError(
            "plots need matplotlib, which is not installed", next_step="pip install 'symshape[bench]'"
        ) from error
