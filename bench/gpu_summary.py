"""Summary of rows of bench/gpu.py: a line for each, the figures that count, a plot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from gpu_run import Row

from symshape.tools.measure import geometric_mean
from symshape.tools.terminal import heading, table

# For each part whose rows have ratios: what of the time they are (on the GPU, or as the caller sees it).
KINDS: Final = {
    "kernels": "device",
    "masks": "device",
    "padding": "device",
    "inference": "call",
    "training": "call",
    "decode": "call",
}


def text(row: Row) -> str:
    """The name of a row."""
    shape = "x".join(map(str, row["shape"]))
    return " ".join(filter(None, (row["name"], row["dtype"], shape)))


def line(row: Row) -> str:
    """A row in one line."""
    if "failed" in row:
        return f"FAILED: {row['failed'].splitlines()[0]}"
    notes = "" if row["accurate"] and row.get("repeats", True) else "  INACCURATE"
    notes += f"  WAITS: {row['waits']}" if row.get("waits") else ""
    if row["part"] == "splits":
        return f"{row['variant']}, {row['over_best']:.2f}x the best of {row['best']} parts{notes}"
    if row["part"] == "variants":
        return f"{row['variant']}, {row['over_best']:.2f}x {row['best']}{notes}"
    if row["part"] == "bandwidth":
        shares = ", ".join(f"{value:.0%} of the {peak}'s" for peak, value in row["over_peak"].items())
        return f"{row['bytes_per_second'] / 1e9:.0f} GB/s, {shares}{notes}"
    if row["part"] == "compile":
        share = "unknown" if row["share"] is None else f"{row['share']:.2f}"
        return f"share of compile time {share}, first call {row['first_call']['symshape']:.1f} s{notes}"
    if row["part"] == "mixed":
        return f"off by {row['error']:.1e}{notes}"
    kind = KINDS[row["part"]]
    return ", ".join(f"{v[kind]:.2f}x {name}" for name, v in row["ratios"].items()) + notes


def summary(rows: Iterable[Row]) -> dict[str, Any]:
    """The figures that count: geometric means and the worst of each part against each other way."""
    every = list(rows)
    good = [row for row in every if "failed" not in row]
    return {
        "failed": [f"{row['part']}: {text(row)}" for row in every if "failed" in row],
        "inaccurate": [f"{row['part']}: {text(row)}" for row in good if not row["accurate"]],
        "not repeated": [text(row) for row in good if not row.get("repeats", True)],
        "waiting": [text(row) for row in good if row.get("waits")],
        "ratios": ratios(good),
        **_single(good),
    }


def ratios(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """``part over other`` (kernels by dtype): the geometric mean of symshape's time over theirs, and the worst."""
    values: dict[str, dict[str, float]] = {}
    for row in rows:
        for other, found in row.get("ratios", {}).items():
            part = f"kernels {row['dtype']}" if row["part"] == "kernels" else row["part"]
            values.setdefault(f"{part} over {other}", {})[text(row)] = found[KINDS[row["part"]]]
    result = {}
    for name, own in values.items():
        worst = max(own, key=lambda key: own[key])
        result[name] = {"mean": geometric_mean(own.values()), "worst": own[worst], "worst_at": worst, "rows": len(own)}
    return result


def _single(rows: Iterable[Row]) -> dict[str, Any]:
    """Figures of parts that compare with no other way."""
    found: dict[str, Any] = {}
    splits = [row["over_best"] for row in rows if row["part"] == "splits"]
    swept = [row["over_best"] for row in rows if row["part"] == "variants"]
    shares = [row["share"] for row in rows if row["part"] == "compile" and row["share"]]
    least = [row["over_peak"]["copy"] for row in rows if row["part"] == "bandwidth"]
    found |= {"splits over best": max(splits)} if splits else {}
    found |= {"variants over best": geometric_mean(swept)} if swept else {}
    found |= {"share of compile time": geometric_mean(shares)} if shares else {}
    found |= {"least share of the bandwidth of a copy": min(least)} if least else {}
    mixed = [row["accurate"] for row in rows if row["part"] == "mixed"]
    return found | ({"mixed programs that equal eager mode": f"{sum(mixed)} of {len(mixed)}"} if mixed else {})


def report(rows: list[Row], notes: Iterable[str]) -> str:
    """All of it as text."""
    found = summary(rows)
    lines = [heading("symshape's time over theirs")]
    body = [[name, *one.values()] for name, one in found["ratios"].items()]
    lines.append(table(["", "geometric mean", "worst", "at", "rows"], body) if body else "no ratios yet")
    for name, value in found.items():
        if name == "ratios" or value == []:
            continue
        lines += [f"{name}:", *(f"  {one}" for one in value)] if isinstance(value, list) else [f"{name}: {value}"]
    return "\n".join([*lines, *notes, f"{len(rows)} measurements"])


def plot(rows: Iterable[Row], path: Path) -> None:
    """Time on the GPU over Inductor static for each kernel and shape."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    wanted = [row for row in rows if (row["part"], row["dtype"]) == ("kernels", "float32") and "failed" not in row]
    kernels = list(dict.fromkeys(row["name"] for row in wanted))
    if not kernels:
        return
    columns = min(4, len(kernels))
    figure = Figure(figsize=(4 * columns, 3 * -(-len(kernels) // columns)), layout="constrained")
    panels = list(figure.subplots(-(-len(kernels) // columns), columns, squeeze=False, sharey=True).flat)
    for panel in panels[len(kernels) :]:
        panel.set_visible(False)
    for panel, kernel in zip(panels, kernels):
        _draw(panel, kernel, [row for row in wanted if row["name"] == kernel])
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.supylabel("time over Inductor static")
    figure.savefig(path, dpi=110)


def _draw(panel: Any, kernel: str, rows: list[Mapping[str, Any]]) -> None:
    for name, colour in (("eager", "0.6"), ("inductor_dynamic", "tab:orange"), ("symshape", "tab:blue")):
        values = [row["seconds"][name]["device"] / row["seconds"]["inductor_static"]["device"] for row in rows]
        panel.plot(range(len(rows)), values, "o", color=colour, label=name.replace("_", " "))
    panel.axhline(1.0, color="black", linewidth=0.8)
    panel.set(yscale="log", title=kernel.replace("_", " "), xticks=range(len(rows)))
    labels = ["x".join(map(str, row["shape"])) for row in rows]
    panel.set_xticklabels(labels, rotation=60, ha="right", fontsize=7)
    panel.grid(alpha=0.3)
