# SPDX-License-Identifier: Apache-2.0
"""What bench/device says in microseconds: submission, latency, and what waiting streams do to others."""

import statistics

import report
from device_run import ORDERS, Program, Skipped, size_text
from peers import GIB, KIB, MIB, Failed
from report import say

WAITING = (1, 3, 8, 64)  # streams that wait
NOISE_US = 3  # of a median that counts as no delay


def ask_in_turn(b, asks):
    """What bench_device answers to each, in each round; those that fail are left out, and said."""
    found = {name: [] for name in asks}
    for _ in range(b.rounds):
        for name, (verb, options) in asks.items():
            if name in b.failures:
                continue
            try:
                found[name].append(b.program.ask(verb, **options))
            except (Failed, Skipped) as why:
                b.failures[name] = str(why)
                say(f"  {name}: {why}")
    return found


def figure(b, found, name, key, title, pick, most=None, how=""):
    """One number of each answer."""
    if name in b.failures:
        return report.Figure(key, title, "us", skipped=b.failures[name])
    return report.Figure(key, title, "us", b.aim(most), how, [pick(f) for f in found[name]])


def submission(b):
    part, slot = min(b.size, GIB), 8 * MIB
    chunks = max(1, part // slot)
    common = {"path": b.source.path, "count": 5, "stream": 1}
    b.source.warm()
    found = ask_in_turn(b, {
        "submit": ("submit", common | {"bytes": b.size}),
        "submit chunks": ("submit", common | {"bytes": part, "settings": "slots"}),
        "submit many": ("move", {"path": b.source.path, "bytes": MIB, "count": min(1000, b.size // MIB),
                                 "stream": 1, "streams": 2}),
    })
    return [
        figure(b, found, "submit", "submit-4g", f"submission of {size_text(b.size)} in stream order",
               lambda f: f["p50"], 5000, "The call, with nothing else in flight."),
        figure(b, found, "submit chunks", "submit-chunk", "submission of one chunk in stream order",
               lambda f: f["p50"] / chunks,
               how=f"A call of {size_text(part)} with SLUICE_SLOT_BYTES=8M, divided by {chunks}."),
        figure(b, found, "submit many", "submit-1m", "submission of one of 1,000 x 1M in stream order",
               lambda f: f["submit_us"],
               how="All calls together, divided by their number; they wait for pinned memory."),
    ]


def steady(b):
    """How far the slowest of 20 passes, after one that does not count, lies below the median of them."""
    orders = {f"steady-{order}": b.move(b.source.path, (1, b.size), order) for order in ORDERS}
    b.source.warm()
    peers = {"copies": b.ceiling(0), "16 preads": b.peer("storage", b.source.path, 16),
             "pipeline": b.peer("pipeline", b.source.path, 16)}
    samples = b.in_turn(peers | orders, 6 if b.quick else 20)
    below = {}
    for name, some in samples.items():
        rates = sorted(sample.rate for sample in some)
        if rates:
            below[name] = 100 * (1 - rates[0] / statistics.median(rates))
            say(f"  {name}: {', '.join(f'{sample.rate / 1e9:.1f}' for sample in some)} GB/s")
    most = max(20, min(below.get(peer, 0) for peer in ("copies", "pipeline")))  # no further than both of them
    how = "In turn with bare copies of 64 MiB from pinned memory, threads that pread, and threads that pread and copy."
    return [report.Figure(key, f"the slowest pass below the median, {key}", "%", skipped=b.failures.get(key, ""),
                          most=b.aim(most) if key in orders else None, how=how, values=[below[key]] if key in below else [])
            for key in [*orders, *peers]]


def latency(b):
    common = {"path": b.source.path, "count": 200 if b.quick else 1000}
    asks, figures = {}, []
    for name, size in (("4K", 4 * KIB), ("1M", MIB)):
        more = common | {"bytes": size}
        asks[f"{name} host"] = ("latency", more | {"kind": "poll"})
        asks[f"{name} stream"] = ("latency", more | {"kind": "poll", "stream": 1})
        asks[f"{name} write"] = ("latency", more | {"kind": "write", "stream": 1})
        asks[f"{name} kernel"] = ("latency", more | {"kind": "kernel", "stream": 1})
        asks[f"{name} peer"] = ("small_latency", more)
    for name, size in (("4K", 4 * KIB), ("64K", 64 * KIB), ("1M", MIB)):
        more = common | {"bytes": size, "settings": "waiting"}
        for kind in ("write", "kernel"):
            asks[f"release {name} {kind}"] = ("release", more | {"kind": kind, "stream": 1})
        asks[f"release {name} host"] = ("release", more | {"kind": "poll"})
    b.source.warm()
    found = ask_in_turn(b, asks)

    def add(name, suffix, title, part, point="p50", most=None, how=""):
        key = name.lower().replace(" ", "-") + suffix
        figures.append(figure(b, found, name, key, title, lambda f: f[part][point], most, how))

    for name, aim in (("4K", 15), ("1M", None)):
        for order in ORDERS:
            title = f"read {name} resident, {order} order"
            add(f"{name} {order}", "-submit", f"{title}: submitted", "submit")
            add(f"{name} {order}", "", f"{title}: over", "end", most=aim,
                how="Until sluice_poll() says so, which is asked in a loop.")
            add(f"{name} {order}", "-p99", f"{title}: over, p99", "end", "p99")
        add(f"{name} write", "", f"{title}: a write behind it is seen", "end",
            how="The stream's next command writes a word that the host looks at.")
        add(f"{name} kernel", "", f"{title}: a kernel behind it is seen", "end",
            how="The stream's next command is a kernel that writes a word that the host looks at.")
        add(f"{name} peer", "", f"pread and cuMemcpyHtoD of {name}", "end",
            how="Into and from ordinary memory, by one thread.")
    for name, aim in (("4K", 20), ("64K", None), ("1M", None)):
        for kind in ("write", "kernel"):
            add(f"release {name} {kind}", "",
                f"the stream goes on after the last byte of {name}: a {kind} is seen", "release",
                most=aim if kind == "write" else None,
                how="From when the result of the last system call is back in sluice, which is held "
                "there until 50 us after the submission, until the host sees the word that the "
                "stream's next command writes. The copy to the device lies between.")
        add(f"release {name} host", "", f"host order: over after the last byte of {name}", "release")
    return figures


# Bytes, and how many times the time and the processor time of the peer a read may take.
ALONE = {"4K": (4 * KIB, 1.4, 2), "64K": (64 * KIB, 1.2, 1.5), "256K": (256 * KIB, 1.1, 1.3), "1M": (MIB, None, None)}


def one_at_a_time(b):
    asks, figures = {}, []
    for name, (size, _, _) in ALONE.items():
        more = {"path": b.source.path, "bytes": size, "count": (100 if b.quick else 2000) * 4 * KIB // size or 50}
        if not b.quick:
            more["count"] = max(more["count"], 500)
        asks[name] = ("alone", more)
        asks[f"{name} stream"] = ("alone", more | {"stream": 1})
        asks[f"{name} peer"] = ("small_alone", more)
        asks[f"{name} waits"] = ("small_alone", more | {"kind": "waits"})
    b.source.warm()
    found = ask_in_turn(b, asks)
    for name, (_, time, cpu) in ALONE.items():
        for suffix, title in (("", "read"), (" stream", "read in stream order"), (" peer", "pread and cuMemcpyHtoD"),
                              (" waits", "pread, cuMemcpyHtoD and a wait for its stream")):
            for key, what in (("us", "time"), ("cpu_us", "processor time")):
                figures.append(figure(
                    b, found, name + suffix, f"alone-{name}{suffix.replace(' ', '-')}-{key.replace('_', '-')}".lower(),
                    f"{title} of {name}, one at a time: {what}", lambda f, key=key: f[key]))
        if {name, f"{name} peer", f"{name} waits"} & set(b.failures):
            continue
        for key, what, most, peer in (("us", "time", time, "peer"), ("cpu_us", "processor time", cpu, "peer"),
                                      ("us", "time", None, "waits")):
            key_of = f"alone-{name.lower()}-{key.replace('_', '-')}-ratio"
            figures.append(report.Figure(
                key_of if peer == "peer" else f"{key_of}-waits", f"read of {name}, one at a time: {what}",
                "% of the peer" + ("" if peer == "peer" else " that waits"), b.aim(most and 100 * most),
                "Each read is awaited before the next; the peer is pread and cuMemcpyHtoD by one thread, which may return "
                "before the bytes are there; the peer that waits awaits them. Processor time is that of the process.",
                [100 * ours[key] / max(other[key], 0.001) for ours, other in zip(found[name], found[f"{name} {peer}"])]))
    return figures


# ------------------------------------------------------------------------------- what is held up


KINDS = {"sluice": "sluice", "event": "an event, a copy behind", "word": "a word, a copy behind",
         "function": "a host function, a copy behind"}
PROBES = {"copy_in": "copy in", "copy_out": "copy out", "kernel": "kernel"}


def held_cases(b, connections):
    """{(kind, N): what the probes found}; of two tries the longer delay."""
    found = {}
    for kind in KINDS:
        settings = {"CUDA_DEVICE_MAX_CONNECTIONS": connections} if connections else {}
        program = Program(b.program.arguments[0], b.device, 256 * MIB, **settings)
        try:
            for n in (0, *WAITING) * (1 if b.quick else 2):
                if b.size < 64 * MIB and n > 8:
                    continue
                new = program.ask("held", 30, kind=kind, streams=n, path=b.source.path,
                                  bytes=min(256 * KIB, b.size // 64),
                                  limit_ms=200 if b.quick else 400)
                old = found.get((kind, n), new)
                found[kind, n] = {
                    probe: max(new[probe], old[probe], key=lambda x: (x["held"], x["p50"]))
                    for probe in new}
        except (Failed, Skipped) as why:
            say(f"  {kind}: {why}")
        finally:
            program.stop()
    return found


def held(b):
    """A table, and two figures for each setting of the driver."""
    lines, figures = [], []
    for connections in (None, "32"):
        name = connections or "unset"
        found = held_cases(b, connections)

        def added(kind, n, probe, found=found):
            """Microseconds that a median grew by; None: it was held up."""
            case, base = found[kind, n][probe], found[kind, 0][probe]
            return None if case["held"] else case["p50"] - base["p50"]

        for (kind, n), case in found.items():
            cells = [name, KINDS[kind] if n else "nothing", str(n)]
            for probe in PROBES:
                if probe not in case:
                    cells.append("")
                elif case[probe]["held"]:
                    cells.append("held up")
                else:
                    cells.append(f"{case[probe]['p50']:.1f}" +
                                 (f" ({added(kind, n, probe):+.1f})" if n else ""))
            lines.append(cells)
        few = report.Figure(
            f"held-few-{name}", f"delay by 1 and 3 streams that wait, connections {name}", "us",
            b.aim(NOISE_US), "The most that a median on an unrelated stream grew by.")
        more = report.Figure(
            f"held-peer-{name}", f"delay beyond that of event waits, connections {name}", "us",
            b.aim(NOISE_US),
            "The same, less what as many streams add that wait for an event with a copy behind.")
        ours = [(n, p) for n in WAITING for p in PROBES if p in found.get(("sluice", n), {})]
        values = [added("sluice", n, p) for n, p in ours if n <= 3]
        few.values = [max(report.NEVER if v is None else v for v in values)] if values else []
        pairs = [(added("sluice", n, p), added("event", n, p)) for n, p in ours
                 if p in found.get(("event", n), {})]
        # What is held up by both is no difference.
        more.values = [max(0 if e is None else report.NEVER if a is None else a - max(e, 0)
                           for a, e in pairs)] if pairs else []
        for one in (few, more):
            one.skipped = "" if one.values else "was not measured"
            figures.append(one)
    header = ["connections", "what streams wait for", "streams", *[f"{p}, us" for p in PROBES.values()]]
    return figures, ("What streams that wait add to others", header, lines)
