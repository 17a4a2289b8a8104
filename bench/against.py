# SPDX-License-Identifier: Apache-2.0
"""--against BUILD: a side that runs a program of the build that is measured runs that of another build as well."""

import os
import statistics
from math import comb

builds = []  # folders: of the one that is measured, and of the other
part = ""  # of the bench
now = used = 0  # whose turn it is, and whether a program of it ran
found, names = {}, {}  # what was measured: cost in this build over cost in the other, in each round


def add_argument(parser):
    parser.add_argument("--against", metavar="BUILD", help="measure the programs of that build as well, in turn")


def begin(build, options):
    if options.against:
        builds.extend([build, options.against])


def program(path):
    """The same program of the build whose turn it is."""
    global used
    if not builds or not path.startswith(builds[0] + os.sep):
        return path
    used = 1
    return builds[now] + path[len(builds[0]):]


def cost(sample):
    if isinstance(sample, dict):
        return sample.get("seconds") or sample["create_seal"]
    return 1 / sample.rate if hasattr(sample, "rate") else sample


def one(side, name, i):
    """The sample of a side in round i. The two builds are in turn the first."""
    global now, used
    taken = {}
    for now in (i % 2, 1 - i % 2) if builds else (0,):
        used = 0
        taken[now] = side()
        if not used:
            break
    if len(taken) == 2:
        if not i:
            names[name] = f"{part}, {name}" + " again" * sum(n.startswith(f"{part}, {name}") for n in found)
        found.setdefault(names[name], []).append(cost(taken[1]) / cost(taken[0]))
    sample, now = taken.get(0, taken[now]), 0
    return sample


def in_turn(rounds, sides):
    """A sample of each side in each round, beginning with another side each time."""
    order = list(sides)
    samples = {name: [] for name in order}
    for i in range(rounds):
        for name in order[i % len(order):] + order[: i % len(order)]:
            samples[name].append(one(sides[name], name, i))
    return samples


def table():
    """The median of the rounds' ratios, and the ranks between which it lies with 95 %."""
    lines = []
    for name, ratios in found.items():
        n, ratios = len(ratios), sorted(ratios)
        out = sum(sum(comb(n, i) for i in range(k + 1)) <= 0.025 * 2**n for k in range(n // 2))
        low, high = ratios[max(out - 1, 0)], ratios[min(n - out, n - 1)]
        lines.append([name, str(n), f"{statistics.median(ratios):.3f}", f"{low:.3f} to {high:.3f}",
                      "SLOWER" if out and high < 0.97 else ""])
    share = "95 %" if lines and int(lines[0][1]) > 5 else "all rounds, too few for 95 %"
    return (f"Speed of this build, of that in {builds[-1] if builds else ''}",
            ["", "rounds", "median", share, ""], lines)
