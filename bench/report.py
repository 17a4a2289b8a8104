# SPDX-License-Identifier: Apache-2.0
"""What a comparison found, as a table for a terminal, for Markdown, and as JSON."""

import json
import os
import platform
import statistics
import sys
from dataclasses import dataclass, field


@dataclass
class Row:
    """One thing that is measured with sluice and with peers, in turn."""

    key: str
    title: str
    aim: float  # of the peer's rate, in the median
    peer: str  # what the peer is and how it was asked
    how: str  # what was alike on both sides
    prepare: object  # called before each run
    sides: dict  # name to a function that makes one Sample; "sluice", "peer", maybe more
    samples: dict = field(default_factory=dict)
    skipped: str = ""  # why it was not measured
    most_cpu: float = None  # processor seconds per GB that sluice may take

    def rates(self, side):
        return [sample.rate for sample in self.samples[side]]

    def ratios(self, side="peer"):
        """sluice's rate over that of another, round by round: what disturbs one round, disturbs
        both sides of it, so that the rounds' ratios vary less than the rates do."""
        return [a / b for a, b in zip(self.rates("sluice"), self.rates(side))]

    @property
    def passed(self):
        enough = statistics.median(self.ratios()) >= self.aim
        return enough and (self.most_cpu is None or self.cpu() <= self.most_cpu)

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
        if self.most_cpu is not None:
            text += f", {self.cpu():.3f} CPU s/GB (at most {self.most_cpu:.2f})"
        return text


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


def as_text(rows):
    lines = [HEADER] + table(rows)
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(line[1:], widths[1:])])
        for line in lines
    )


def as_markdown(rows, machine):
    out = [", ".join(f"{name}: {value}" for name, value in machine.items()) + ".", ""]
    out += ["| " + " | ".join(HEADER) + " |", "|---" + "|--:" * (len(HEADER) - 1) + "|"]
    out += ["| " + " | ".join(line) + " |" for line in table(rows)]
    out.append("")
    for row in rows:
        if not row.skipped:
            out.append(f"- **{row.title}**: peer {row.peer}. {row.how}")
    out.append("")
    out += [f"    {row.verdict()}" for row in rows]
    return "\n".join(out) + "\n"


def as_json(rows, machine):
    return {
        "machine": machine,
        "rows": [
            {
                "key": row.key,
                "title": row.title,
                "aim": row.aim,
                "peer": row.peer,
                "how": row.how,
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


def conclude(rows, machine_is, options):
    """What every bench prints and writes at its end."""
    print("\n" + as_text(rows) + "\n")
    if options.quick:
        print("Measured with --quick: files and rounds too small for figures to be quoted.")
    for row in rows:
        print(row.verdict())
    if options.markdown:
        with open(options.markdown, "w", encoding="utf-8") as file:
            file.write(as_markdown(rows, machine_is))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(as_json(rows, machine_is), file, indent=1)
    if options.gate and any(not row.skipped and not row.passed for row in rows):
        sys.exit(1)


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
