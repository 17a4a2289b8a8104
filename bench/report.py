# SPDX-License-Identifier: Apache-2.0
"""What a comparison found, as a table for a terminal, for Markdown, and as JSON."""

import argparse
import fnmatch
import functools
import json
import os
import platform
import statistics
import sys
from dataclasses import asdict, dataclass, field

import against
from peers import Sample


@functools.cache
def aims():
    """Rows of aims.txt: (pattern of keys, number)."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "aims.txt"), encoding="utf-8") as file:
        lines = [line.split() for line in file if line.strip() and not line.startswith("#")]
    return [(line[0], float(line[1])) for line in lines]


def aim_of(key, given):
    """The aim of a row or figure: that of the bench, if it depends on the machine, or that of the table."""
    return next((aim for pattern, aim in aims() if fnmatch.fnmatchcase(key, pattern)), None) if given is None else given


@dataclass
class Row:
    """One thing that is measured with sluice and with peers, in turn."""

    key: str
    title: str
    aim: float  # of the peer's rate, in the median; None: that of aims.txt; 0: none
    peer: str  # what the peer is and how it was asked
    how: str  # what was alike on both sides
    prepare: object  # called before each run
    sides: dict  # name to a function that makes one Sample; "sluice", "peer", maybe more
    samples: dict = field(default_factory=dict)
    skipped: str = ""  # why it was not measured
    most_cpu: float = None  # processor seconds per GB that sluice may take
    no_more_cpu: bool = False  # it may take as many as the peer,
    times_cpu: float = 1  # or so many times as many

    def __post_init__(self):
        self.aim = aim_of(self.key, self.aim) or 0

    def rates(self, side):
        return [sample.rate for sample in self.samples[side]]

    def ratios(self, side="peer"):
        """sluice's rate over that of another, round by round: what disturbs one round, disturbs
        both sides of it, so that the rounds' ratios vary less than the rates do."""
        return [a / b for a, b in zip(self.rates("sluice"), self.rates(side))]

    @property
    def passed(self):
        enough = statistics.median(self.ratios()) >= self.aim
        return enough and (self.cpu_limit() is None or self.cpu() <= self.cpu_limit())

    def cpu_limit(self):
        return self.times_cpu * self.cpu("peer") if self.no_more_cpu else self.most_cpu

    def cpu(self, side="sluice"):
        return statistics.median(x.cpu_per_gb for x in self.samples[side])

    def verdict(self):
        if self.skipped:
            return f"SKIP {self.key}: {self.skipped}"
        ratio = statistics.median(self.ratios())
        word = "PASS" if self.passed else "MISS"
        if not self.aim:
            return f"INFO {self.key}: {ratio:.3f} of {self.peer}"
        text = f"{word} {self.key}: {ratio:.3f} of {self.peer} (aim {self.aim:.2f})"
        if self.cpu_limit() is not None:
            text += f", {self.cpu():.3f} CPU s/GB (at most {self.cpu_limit():.3f})"
        return text


def row(key, title, aim, peer, how, samples, sides, most_cpu=None):
    """A row of samples that are there: sluice against the first of the sides, and against the others."""
    chosen = {"sluice": samples["sluice"], "peer": samples[sides[0]]}
    chosen |= {name: samples[name] for name in sides[1:]}
    return Row(key, title, aim, peer, how, None, {name: None for name in chosen}, chosen, most_cpu=most_cpu)


# Stands for what never ran.
NEVER = 1e6


def figure(value):
    return "held up" if value >= NEVER else f"{value:.1f}"


@dataclass
class Figure:
    """One number, measured several times."""

    key: str
    title: str
    unit: str
    most: float = None  # what it may be, in the median; None: that of aims.txt, if it is there
    how: str = ""
    values: list = field(default_factory=list)
    skipped: str = ""

    def __post_init__(self):
        self.most = aim_of(self.key, self.most)

    @property
    def median(self):
        return statistics.median(self.values)

    @property
    def passed(self):
        return self.most is None or self.median <= self.most

    def verdict(self):
        if self.skipped:
            return f"SKIP {self.key}: {self.skipped}"
        word = "INFO" if self.most is None else "PASS" if self.passed else "MISS"
        aim = "" if self.most is None else f" (at most {self.most:g})"
        return f"{word} {self.key}: {self.title}: {figure(self.median)} {self.unit}{aim}"

    def cells(self):
        return [self.title, figure(self.median), f"{figure(min(self.values))} to {figure(max(self.values))}",
                self.unit, "" if self.most is None else f"{self.most:g}"]


FIGURE_HEADER = ["", "median", "min to max", "", "at most"]


HEADER = ["", "sluice GB/s", "peer GB/s", "ratio", "min to max", "sluice CPU s/GB", "peer CPU s/GB"]


def number(value):
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def cells(row, side="peer"):
    """One line of the table: a row against one of the sides that it is compared with."""
    ratios = row.ratios(side)
    cpu = {s: row.cpu(s) for s in ("sluice", side)}
    return [
        row.title if side == "peer" else f"  against {side}",
        number(statistics.median(row.rates("sluice")) / 1e9),
        number(statistics.median(row.rates(side)) / 1e9),
        f"{statistics.median(ratios):.3f}",
        f"{min(ratios):.2f} to {max(ratios):.2f}",
        f"{cpu['sluice']:.3f}",
        f"{cpu[side]:.3f}",
    ]


def table(rows):
    lines = []
    for row in rows:
        if not row.skipped:
            lines += [cells(row, side) for side in row.sides if side != "sluice"]
    return lines


def as_text(header, lines):
    lines = [header] + lines
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(line[1:], widths[1:])])
        for line in lines
    )


def markdown_table(header, lines):
    out = ["| " + " | ".join(header) + " |", "|---" + "|--:" * (len(header) - 1) + "|"]
    return out + ["| " + " | ".join(line) + " |" for line in lines] + [""]


def all_tables(rows, figures, tables):
    """Title, header and lines of each that is not empty."""
    known = [f.cells() for f in figures if not f.skipped]
    found = [("", HEADER, table(rows)), ("", FIGURE_HEADER, known), *tables]
    return [t for t in found if t[2]]


def as_markdown(rows, machine, figures=(), tables=()):
    out = [", ".join(f"{name}: {value}" for name, value in machine.items()) + ".", ""]
    for title, header, lines in all_tables(rows, figures, tables):
        out += ([title + ":", ""] if title else []) + markdown_table(header, lines)
    for row in rows:
        if not row.skipped:
            out.append(f"- **{row.title}**: peer {row.peer}. {row.how}")
    out += [f"- **{f.title}**: {f.how}" for f in figures if f.how and not f.skipped]
    out.append("")
    out += [f"    {row.verdict()}" for row in [*rows, *figures]]
    return "\n".join(out) + "\n"


def as_json(rows, machine, figures=(), tables=()):
    return {
        "machine": machine,
        "figures": [{**asdict(f), "verdict": f.verdict().split()[0]} for f in figures],
        "tables": [{"title": t[0], "header": t[1], "lines": t[2]} for t in tables],
        "rows": [
            {
                "key": row.key,
                "title": row.title,
                "aim": row.aim,
                "peer": row.peer,
                "how": row.how,
                "most_cpu": None if row.skipped else row.cpu_limit(),
                "skipped": row.skipped or None,
                "verdict": row.verdict().split()[0],
                "ratios": [] if row.skipped else row.ratios(),
                "sides": {
                    side: [sample._asdict() for sample in samples]
                    for side, samples in row.samples.items()
                },
            }
            for row in rows
        ],
    }


def from_json(found):
    """Rows, the machine, figures and tables of what as_json() made."""
    rows = []
    for r in found["rows"]:
        sides = {side: [Sample(*(s[k] for k in Sample._fields)) for s in samples] for side, samples in r["sides"].items()}
        rows.append(Row(r["key"], r["title"], r["aim"], r["peer"], r["how"], None, dict.fromkeys(sides), sides,
                        r["skipped"] or "", r["most_cpu"]))
    figures = [Figure(**{k: v for k, v in f.items() if k != "verdict"}) for f in found["figures"]]
    return rows, found["machine"], figures, [(t["title"], t["header"], t["lines"]) for t in found["tables"]]


def say(text):
    print(text, flush=True)


def parser(about, quick, rounds=5, rows=()):
    """With the options that every bench has. quick: what --quick makes; rows: those that --rows chooses of."""
    made = argparse.ArgumentParser(description=about.strip())
    made.add_argument("--rounds", type=int, metavar="N", help=f"rounds of each row (default: {rounds})")
    made.add_argument("--quick", action="store_true", help=f"{quick}, for a first look")
    if rows:
        made.add_argument("--rows", metavar="KEY,...", help=f"only these of {', '.join(rows)}")
    made.add_argument("--markdown", metavar="FILE", help="write the table there")
    made.add_argument("--json", metavar="FILE", help="write every sample there")
    made.add_argument("--gate", action="store_true", help="exit with 1 if an aim is missed")
    return made


def parse(made, rows=()):
    """The options; keys are the rows that are chosen."""
    options = made.parse_args()
    if options.rounds is not None and options.rounds < 1:
        made.error("--rounds: must be 1 or more")
    options.keys = options.rows.split(",") if rows and options.rows else list(rows)
    for key in options.keys:
        if key not in rows:
            made.error(f"--rows: '{key}' is none of {', '.join(rows)}")
    return options


def conclude(rows, machine_is, options, figures=(), tables=()):
    """What every bench prints and writes at its end."""
    tables = [*tables, against.table()]
    for title, header, lines in all_tables(rows, figures, tables):
        print("\n" + (title + "\n" if title else "") + as_text(header, lines))
    print()
    if options.quick:
        print("Measured with --quick: files and rounds too small for figures to be quoted.")
    aims = [*rows, *figures]
    for row in aims:
        print(row.verdict())
    if options.markdown:
        with open(options.markdown, "w", encoding="utf-8") as file:
            file.write(as_markdown(rows, machine_is, figures, tables))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(as_json(rows, machine_is, figures, tables), file, indent=1)
    if options.gate and any(not row.skipped and not row.passed for row in aims):
        sys.exit(1)


def nvidia_driver():
    """The version of the kernel's module."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            return next(word for word in file.readline().split() if word[:1].isdigit() and "." in word)
    except (OSError, StopIteration):
        return "unknown"


def machine(folder, versions):
    """What the figures depend on."""
    model = "unknown processor"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    filesystem, longest = "unknown", ""
    with open("/proc/self/mounts", encoding="utf-8") as file:
        for line in file:
            _, place, kind = line.split()[:3]
            inside = os.path.realpath(folder).startswith(place.rstrip("/") + "/")
            if inside and len(place) >= len(longest):
                longest, filesystem = place, kind
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory": f"{memory / (1 << 30):.0f} GiB",
        "kernel": platform.release(),
        "file system": filesystem,
        **versions,
    }
