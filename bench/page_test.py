#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of bench/all: of rows with all verdicts, and of benches that run with tiny sizes, or cannot. Usage: page_test.py BUILD"""

import json
import os
import subprocess
import sys
import tempfile

import page
import report
from peers import Sample

HERE = os.path.dirname(os.path.abspath(__file__))


def samples(*rates):
    return [Sample(1000, 1000 / rate, 0.1) for rate in rates]


def made():
    """What a bench writes by --json, and the page reads: the aims of these keys are in aims.txt."""
    sides = {"sluice": samples(100, 200, 99), "fio": samples(100, 100, 100), "dd": samples(50, 50, 50)}
    slow = {**sides, "sluice": samples(10, 20, 9)}
    rows = [report.row("mixed", "good", None, "fio", "", sides, ["fio", "dd"]),
            report.row("write-over", "bad", None, "fio", "", slow, ["fio"]),
            report.row("random-cold", "dear", None, "fio", "", sides, ["fio"], most_cpu=1.0),
            report.row("no-such-key", "plain", None, "fio", "", slow, ["fio"]),
            report.Row("cached-hot", "absent", None, "fio", "", None, {}, skipped="no fio here")]
    figures = [report.Figure("save-memory-call", "quick", "ms", values=[0.4, 0.5, 2.0, 0.8]),
               report.Figure("save-memory-snapshot", "late", "of a copy", values=[1.2, 1.3, 1.0])]
    return json.loads(json.dumps(report.as_json(rows, {"cores": 2}, figures, [("more", ["a", "b"], [["1", "2"]])])))


def check_made(folder):
    counts = page.write(folder, [("local", report.from_json(made()), "", 1.0), ("http", None, "not measured: nginx is missing", 0.1)],
                        "How.")
    with open(os.path.join(folder, "page.md"), encoding="utf-8") as file:
        text = file.read()
    assert counts == "2 PASS, 3 MISS, 1 SKIP", counts
    for line in ("| PASS | local: good | 1.000 | ≥ 0.95 | fio |", "| MISS | local: bad | 0.100 | ≥ 0.95 | fio |", "| MISS | local: dear |",
                 "| SKIP | local: absent |  |  | no fio here |", "| PASS | local: quick | 0.65 ms | ≤ 1 |  |",
                 "| MISS | local: late | 1.2 of a copy | ≤ 1.1 |  |", "Not measured, or without aims: http", "not measured: nginx is missing",
                 "INFO no-such-key: 0.100 of fio", "against dd", "more:"):
        assert line in text, (line, text)
    found = list(page.points(*report.from_json(made())[::2]))
    assert [point[1] for point in found] == ["PASS", "MISS", "MISS", "INFO", "PASS", "MISS"], found
    assert found[2][0] == "dear (missed by processor time)" and found[4][3] == (0.5, 1 / 0.65, 2.5), found
    assert found[0][2:4] == (0.95, (0.99, 1.0, 2.0)) and found[0][4] == {"dd": 2.0}, found[0]
    if "No plot" not in text:
        assert os.path.getsize(os.path.join(folder, "local.svg")) > 5000 and "](local.svg)" in text


def check_run(build, folder):
    """bench/store runs, bench/mpi has no such option: its sentence is on the page."""
    subprocess.run([sys.executable, os.path.join(HERE, "all"), "--build", build, "--only", "store,mpi", "--out", folder, "--flags",
                    "--rows put --large 2 --rounds 1 --without-iceoryx"], check=True, stdout=subprocess.PIPE)
    with open(os.path.join(folder, "page.md"), encoding="utf-8") as file:
        text = file.read()
    assert "store: 2 MiB: memory that was used, 1 thread |" in text and "not measured: mpi: error: " in text, text


def check_ended(build, folder):
    """A bench that takes too long is ended, and leaves no file."""
    files = os.path.join(folder, "files")
    os.mkdir(files)
    subprocess.run([sys.executable, os.path.join(HERE, "all"), "--build", build, "--only", "store", "--out", folder, "--flags",
                    "--rounds 9999", "--minutes", "0.02"], check=True, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": files})
    with open(os.path.join(folder, "page.md"), encoding="utf-8") as file:
        assert "not measured: ended after 0.02 minutes" in file.read()
    assert not os.listdir(files), os.listdir(files)


def check_missing(folder):
    """Each bench looks for its programs in the folder that is given."""
    ran = subprocess.run([sys.executable, os.path.join(HERE, "all"), "--build", folder, "--only", "local,http,python", "--out",
                          os.path.join(folder, "out")], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert ran.stdout.count(f"{folder}/sluice is missing") == 2, ran.stdout
    assert "No module named 'sluice'" in ran.stdout, ran.stdout


if __name__ == "__main__":
    for check in (check_made, check_missing, lambda to: check_run(sys.argv[1], to), lambda to: check_ended(sys.argv[1], to)):
        with tempfile.TemporaryDirectory() as made_folder:
            check(made_folder)
