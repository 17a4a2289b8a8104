# SPDX-License-Identifier: Apache-2.0
"""The page of bench/all: each aim, then for each bench its plot, its tables and its verdicts, in Markdown with plots in SVG."""

import os
import statistics

import report

COLOURS = {"PASS": "#1a7f4b", "MISS": "#c2372b", "INFO": "#666666"}
MARKS = {"PASS": "o", "MISS": "X", "INFO": "."}


def points(rows, figures):
    """What a plot has of each row and figure: title, verdict, the aim, (low, middle, high), and middles of further peers.
    Rows are ratios to the peer's rate. Figures with an aim are the share of what they may be, upside down: less than 1 is a miss."""
    for row in rows:
        if not row.skipped:
            ratios, others = row.ratios(), [side for side in row.sides if side not in ("sluice", "peer")]
            verdict, middle = row.verdict().split()[0], statistics.median(ratios)
            dear = " (missed by processor time)" if verdict == "MISS" and middle >= row.aim else ""
            yield (row.title + dear, verdict, row.aim, (min(ratios), middle, max(ratios)),
                   {side: statistics.median(row.ratios(side)) for side in others})
    for figure in figures:
        if not figure.skipped and figure.most and min(figure.values) > 0:
            yield (f"{figure.title}: limit / measured", figure.verdict().split()[0], 1.0,
                   (figure.most / max(figure.values), figure.most / figure.median, figure.most / min(figure.values)), {})


def plot(name, found, path):
    """Draws the points of a bench. Returns whether there is something to draw."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot, ticker

    found = list(found)[::-1]
    if not found:
        return False
    matplotlib.rcParams["svg.hashsalt"] = "sluice"  # the same file from the same figures
    figure, axes = pyplot.subplots(figsize=(10, 1.2 + 0.34 * len(found)), layout="constrained")
    labelled = set()

    def label(text):
        new = text not in labelled
        labelled.add(text)
        return text if new else None

    for y, (_, verdict, aim, (low, middle, high), others) in enumerate(found):
        for i, ratio in enumerate(others.values()):
            axes.plot(ratio, y, "|", color="#999999", markersize=7, label=label("beside other peers") if not i else None)
        axes.plot([low, high], [y, y], color=COLOURS[verdict], linewidth=1.5, alpha=0.6)
        axes.plot(middle, y, MARKS[verdict], color=COLOURS[verdict], markersize=8, label=label(verdict))
        if aim:
            axes.plot([aim, aim], [y - 0.35, y + 0.35], color="black", linewidth=1.5, label=label("aim"))
    axes.axvline(1, color="#cccccc", linewidth=0.8, zorder=0)
    axes.set_xscale("log")
    axes.set_xlim(min(0.45, axes.get_xlim()[0]), max(2.2, axes.get_xlim()[1]))  # three labels at least
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter("")
    axes.set_yticks(range(len(found)), [title if len(title) < 70 else title[:67] + "..." for title, *_ in found], fontsize=8)
    axes.set_ylim(-0.6, len(found) - 0.4)
    axes.set_xlabel("rate of sluice / rate of the peer: median, lowest and highest round; right is better")
    axes.set_title(f"bench/{name}", loc="left", fontsize=10)
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return True


def measured(aim):
    """Cells of the table of aims."""
    if isinstance(aim, report.Row):
        return [f"{statistics.median(aim.ratios()):.3f}", f"≥ {aim.aim:g}", aim.peer]
    return [f"{aim.median:.4g} {aim.unit}", f"≤ {aim.most:g}", ""]


def write(folder, results, how):
    """Writes page.md. results: for each bench its name, what report.from_json() returns or None, its text, and the seconds."""
    lines, parts = [], []
    for name, found, text, seconds in results:
        parts += [f"## bench/{name}", ""]
        if not found:
            parts += ["```", text.strip(), "```", ""]
            continue
        rows, machine, figures, tables = found
        aims = [aim for aim in [*rows, *figures] if aim.skipped or (aim.aim if isinstance(aim, report.Row) else aim.most)]
        lines += [[aim.verdict().split()[0], f"{name}: {aim.title}", *(["", "", aim.skipped] if aim.skipped else measured(aim))]
                  for aim in aims]
        try:
            if plot(name, points(rows, figures), os.path.join(folder, f"{name}.svg")):
                parts += [f"![the rows of bench/{name} beside their aims]({name}.svg)", ""]
        except ImportError:
            parts += ["No plot: matplotlib is missing (python3-matplotlib of Debian).", ""]
        parts += [report.as_markdown(rows, machine, figures, tables), f"Measured in {seconds:.0f} s.", ""]
    words = [line[0] for line in lines]
    counts = ", ".join(f"{words.count(word)} {word}" for word in ("PASS", "MISS", "SKIP"))
    without = [name for name, found, _, _ in results if not found]
    page = ["# Benches", "", how, "", f"Aims: {counts}." + (f" Not measured, or without aims: {', '.join(without)}." if without else ""), "",
            *(report.markdown_table(["", "row", "measured", "aim", "beside, or why not"], lines) if lines else []), *parts]
    with open(os.path.join(folder, "page.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(page))
    return counts
