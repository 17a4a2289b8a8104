# SPDX-License-Identifier: Apache-2.0
"""The rows of bench/http at the end of long roads: latency, stalls, a limit for each connection, loss."""

import json
import os
import statistics
import subprocess

import against
import report
from peers import Failed, Sample, add_up, run

SEED = 20
NEAR_AND_FAR = [0, 5, 20, 50, 100]  # ms from a request to the first byte of its answer
USUAL = 20  # of the rows that are not about latency
STALL = 5000  # ms
MB = 1000000
CURLS = [(1, 16), (1, 64), (2, 32), (4, 32), (4, 64)]  # processes, ranges in flight in each


class Relay:
    """A road of bench/relay.c to the server. Each measurement begins with the same series of stalls."""

    def __init__(self, b, latency=0, rate=0, every=0, port=None):
        self.process = subprocess.Popen(
            [b.path("relay"), *map(str, (port or b.plain, latency, rate, every, STALL, SEED))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        b.children.append(self.process)
        self.port = int(self.process.stdout.readline())
        self.url = b.url(port=self.port)

    def counters(self):
        """What passed since the last call."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def counted(self, counts, side):
        """That side, whose counters are appended to counts."""
        def measure():
            self.counters()
            sample = side()
            counts.append(self.counters())
            return sample

        return measure


class Lossy:
    """A road of bench/lossy.c, which only root can make."""

    def __init__(self, b, index, one_in):
        network = f"198.18.{os.getpid() % 250}.{4 * index}"
        self.process = subprocess.Popen(
            [b.path("lossy"), str(USUAL), str(one_in), str(SEED), network],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise Failed(self.process.stderr.read().strip())
        b.children.append(self.process)
        self.device, self.near, self.far = line.split()
        self.url = b.url(host=self.far)


def start_lossy(b):
    """The roads of the row "loss" by packets of which one is lost; none where the system has no such devices."""
    try:
        return {one_in: Lossy(b, i, one_in) for i, one_in in enumerate((0, 1000))}
    except Failed as failure:
        b.no_loss = str(failure)
        return {}


def curls(b, name, url, size=None):
    """The best curl on a road, and how it is called."""
    eighth = lambda c: b.passes(f"{name}, {c}", lambda n: b.curl(url, c, n, size)) // 8 + 1
    best = b.best(f"curl (processes, ranges in each), {name}", CURLS, lambda c: b.curl(url, c, eighth(c), size))
    return (f"curl, {best[0]} x {best[1]} ranges, {name}",
            b.filled(f"{name}, {best}", lambda n: b.curl(url, best, n, size)))


def sluice(b, name, url, *options, **settings):
    return b.filled(name, lambda n: b.read(url, *options, loops=n, **settings))


def first(b):
    """A new process, which knows nothing of the origin yet, beside its own third pass."""
    rows, processes = [], 2 if b.seconds < 10 else 5
    for key, title, url, aim in (("0", "0 ms", b.url(), 0.75),
                                 ("20", f"{USUAL} ms", Relay(b, USUAL).url, 0.75),
                                 ("40", f"{USUAL} ms, connections of 40 MB/s", Relay(b, USUAL, 40 * MB).url, 0)):

        def nth(n):
            return add_up(b.sluice.passes("read", url, "--repeat", str(n))[-1] for _ in range(processes))

        samples = against.in_turn(b.rounds, {"sluice": lambda: nth(1), "third": lambda: nth(3)})
        rows.append(report.row(
            f"http-first-{key}", f"first pass, {title}", aim, "the third pass of such a process",
            f"{processes} processes one after the other, {b.size >> 20} MiB in a pass. Opening is not counted.",
            samples, ["third"]))
    return rows


def distance(b):
    """Latency alone."""
    roads = {latency: Relay(b, latency) for latency in NEAR_AND_FAR}
    sides = {f"{latency} ms": sluice(b, f"{latency} ms", road.url) for latency, road in roads.items()}
    peers = {}
    for latency in (0, 20, 50):
        name, side = curls(b, f"{latency} ms", roads[latency].url)
        sides[name], peers[latency] = side, [name]
    connections = b.best("connections of the sink, 0 ms", [2, 4, 8, 16], lambda n: b.sink(n, roads[0].port))
    sides["recv() alone, 0 ms"] = b.filled("sink", lambda n: b.sink(connections, roads[0].port, n))
    sides["aria2c, 20 ms"] = b.filled("aria2c", lambda n: b.aria2c(roads[20].url, n))
    peers[0].append("recv() alone, 0 ms")
    peers[20].append("aria2c, 20 ms")
    samples = against.in_turn(b.rounds, sides)
    rows = []
    for latency in NEAR_AND_FAR:
        samples["sluice"] = samples[f"{latency} ms"]
        others = peers.get(latency, [])
        limit = ["0 ms"] if latency else []
        rows.append(report.row(
            f"http-{latency}ms", f"http, {latency} ms away", None,
            "the same road at 0 ms" if latency else others[0],
            "Through bench/relay.c.", samples, limit + others))
    return rows


def stalls(b):
    """One of 100 requests stands still for 5 s."""
    near, far, stalled = Relay(b), Relay(b, USUAL), Relay(b, USUAL, every=100)
    counts = {"sluice": [], "unstalled": []}
    name, curl = curls(b, f"{USUAL} ms, stalls", stalled.url)
    samples = against.in_turn(b.rounds, {
        "sluice": stalled.counted(counts["sluice"], sluice(b, "stalls", stalled.url)),
        "0 ms": sluice(b, "stalls, 0 ms", near.url),
        "unstalled": far.counted(counts["unstalled"], sluice(b, "stalls, none", far.url)),
        "stall time-out 1 s": sluice(b, "stalls, 1 s", stalled.url, SLUICE_HTTP_STALL_MS="1000"),
        name: curl,
    })

    def requests_per_gb(side):
        return statistics.median(c["requests"] / (c["bytes"] / 1e9) for c in counts[side])

    how = (f"Through bench/relay.c, {USUAL} ms away; one of 100 requests stands still for {STALL // 1000} s, before "
           f"its answer or behind the first 64 KiB. Requests for each GB: {requests_per_gb('sluice'):.0f}, without "
           f"stalls {requests_per_gb('unstalled'):.0f}.")
    rows = [report.row("http-stalls", "http, 1 % of the requests stall", None, "the same road at 0 ms without stalls",
                       how, samples, ["0 ms", "unstalled", name])]
    samples["sluice"] = samples["stall time-out 1 s"]
    rows.append(report.row("http-stalls-1s", "the same, SLUICE_HTTP_STALL_MS=1000", 0,
                           "the same road at 0 ms without stalls", how, samples, ["0 ms", "unstalled", name]))
    return rows


def limit(b):
    """Each connection has a limit, as object stores have."""
    # Fewer where the processor would be the limit: client, server and relay share it.
    rows, fixed = [], 16 if len(os.sched_getaffinity(0)) >= 4 else 8
    for latency, rate, aim in ((0, 80, 0.95), (USUAL, 40, 0)):
        road = Relay(b, latency, rate * MB)
        samples = against.in_turn(b.rounds, {
            "sluice": sluice(b, f"{fixed} x {rate}", road.url, SLUICE_MAX_CONNECTIONS=str(fixed)),
            "limit": lambda: Sample(fixed * rate * MB, 1, 0),
        })
        rows.append(report.row(
            f"http-limit-{rate}", f"http, {fixed} connections of {rate} MB/s, {latency} ms away", aim,
            "connections times limit",
            f"Through bench/relay.c, {latency} ms away, with SLUICE_MAX_CONNECTIONS={fixed}.", samples, ["limit"]))
    near = Relay(b)
    name, curl = curls(b, f"{USUAL} ms, 40 MB/s", road.url)
    samples = against.in_turn(b.rounds, {
        "sluice": sluice(b, "defaults x 40", road.url),
        "0 ms": sluice(b, "limit, 0 ms", near.url),
        name: curl,
    })
    rows.append(report.row("http-limit-free", f"http, connections of 40 MB/s, {USUAL} ms away", None, name,
                           "Through bench/relay.c; sluice with its defaults.", samples, [name, "0 ms"]))
    return rows


def loss(b):
    """Real TCP connections over a device that loses one packet of 1000."""
    title = f"http, 0.1 % of the packets lost, {USUAL} ms away"
    if not b.lossy:
        return [report.Row("http-loss", title, None, "", "", None, {}, skipped=f"no TUN device here: {b.no_loss}")]
    for road in b.lossy.values():
        # BBR, which some systems have for all connections, takes little notice of lost packets.
        run(["ip", "route", "replace", f"{road.far}/32", "dev", road.device, "congctl", "cubic"])
    part = b.size // 4  # of the object, because it takes long
    name, curl = curls(b, "loss", b.lossy[1000].url, part)
    samples = against.in_turn(b.rounds, {
        "sluice": sluice(b, "loss", b.lossy[1000].url, "--size", str(part)),
        "no loss": sluice(b, "no loss", b.lossy[0].url, "--size", str(part)),
        name: curl,
    })
    return [report.row("http-loss", title, None, name,
                       "Through bench/lossy.c: packets of 1500 bytes and cubic on both sides, with sluice's defaults.",
                       samples, [name, "no loss"])]
