"""The dashboard's page: one HTML file with embedded plots; each plot is also written as PNG beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from symshape.tools import plots
from symshape.tools.dashboard import history
from symshape.tools.dashboard.charts import charts
from symshape.tools.dashboard.figures import FIGURES, OURS, TITLES, TOLERANCE, ModelFigures, at_sizes, means, passes
from symshape.tools.dashboard.operator_databases import OperatorResult
from symshape.tools.html_report.libraries import template_environment

_TEMPLATES = Path(__file__).parent / "templates"
_REPORT_STYLES = Path(__file__).parents[1] / "html_report" / "templates" / "page.css"
_FILE = "dashboard.html"


def write_page(
    rows: Sequence[ModelFigures], runs: Sequence[history.Run], operators: Sequence[OperatorResult], folder: Path
) -> Path:
    """Writes the page and returns its path. ``runs`` is the history; its last run is that of ``rows``. OptionError if
    jinja2 or matplotlib is missing."""
    new = runs[-1]
    shown = charts(rows, history.trend(runs, new))
    for chart in shown:
        plots.save(chart.figure, folder / f"dashboard-{chart.name}.png")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _FILE
    path.write_text(html(rows, runs, operators, shown), encoding="utf-8")
    return path


def html(
    rows: Sequence[ModelFigures], runs: Sequence[history.Run], operators: Sequence[OperatorResult], shown: Sequence[Any]
) -> str:
    """The page as HTML."""
    environment = template_environment(_TEMPLATES)
    environment.filters["figure"] = _three_digits
    new = runs[-1]
    old = history.before(runs, new)
    values = {
        "run": new,
        "old": old,
        "comparison": _comparison(old, new),
        "operators": operators,
        "passes": passes(rows),
        "means": means(rows),
        "figures": FIGURES,
        "groups": {group: at_sizes(rows, group) for group in dict.fromkeys(row.group for row in rows)},
        "rows": rows,
        "failed": [row for row in rows if not row.passed],
        "ways": list(dict.fromkeys(row.way for row in rows)),
        "titles": TITLES,
        "ours": OURS,
        "tolerance": TOLERANCE,
        "charts": [(chart, plots.as_uri(chart.figure)) for chart in shown],
        "styles": _REPORT_STYLES.read_text(encoding="utf-8"),
    }
    return str(environment.get_template("dashboard.html").render(values))


def _comparison(old: history.Run | None, new: history.Run) -> dict[str, Any] | None:
    """What changed since the run ``old``; None without one."""
    if old is None:
        return None
    found = history.changes(old, new)
    limits = {f.title: history.noise(f, old, new) for f in FIGURES if f.compared and not f.exact}
    both = (old.models.keys() | old.failed.keys()) & (new.models.keys() | new.failed.keys())
    return {
        "worse": _by_figure([change for change in found if change.after > change.before]),
        "better": _by_figure([change for change in reversed(found) if change.after < change.before]),
        "unmeasured": [title for title, limit in limits.items() if limit is None],
        "noises": {title: limit for title, limit in limits.items() if limit is not None},
        "both": len(both),
    }


def _by_figure(changes: Sequence[history.Change]) -> dict[str, list[history.Change]]:
    found: dict[str, list[history.Change]] = {}
    for change in changes:
        found.setdefault(change.what, []).append(change)
    return found


def _three_digits(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
