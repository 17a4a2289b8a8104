# SPDX-License-Identifier: Apache-2.0
"""Which function of src/ calls which, by gcc's -fcallgraph-info.

calls(ROOT, BUILD) compiles each source of src/ that BUILD/compile_commands.json names, without optimisation and without
an object, and reads the file that gcc writes beside it. These stay in BUILD/calls; a source is compiled again after it
or a header of its own has changed. A call through a pointer is none here.

A function of a header lies in each file that calls it: its own calls count as calls of that file, and a call of it is none.
"""

import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys
from typing import NamedTuple

NODE = re.compile(r'node: \{ title: "([^"]+)" label: "([^\\"]+)\\n([^"]+?):\d+:\d+[^"]*"( shape : ellipse)?')
EDGE = re.compile(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)" label: "([^"]+?):(\d+):\d+"')
WITH_VALUE = ("-o", "-MF", "-MQ", "-MT")
LEFT_OUT = re.compile(r"-(c|g|O\d?|MD|MMD|flto.*|Werror.*|fsanitize.*|W[a-z-]+)$")


class Function(NamedTuple):
    file: str  # relative to the root
    name: str


class Call(NamedTuple):
    caller: Function
    callee: Function
    line: int  # of the caller's file, or of the header between


def compiler_call(entry, output):
    """The command of gcc that writes OUTPUT.ci, and the headers into OUTPUT.d."""
    words, kept, skip = shlex.split(entry["command"]), [], False
    while words and not words[0].startswith("-"):
        words.pop(0)
    for word in words:
        if not skip and word not in WITH_VALUE and not LEFT_OUT.match(word):
            kept.append(word)
        skip = not skip and word in WITH_VALUE
    return ["gcc", *kept, "-O0", "-w", "-fcallgraph-info", "-MMD", "-MF", output + ".d", "-S", "-o", output + ".s"]


def is_stale(entry, output):
    try:
        made = os.path.getmtime(output + ".ci")
        with open(output + ".d", encoding="utf-8") as file:
            needed = re.sub(r"\\\n", " ", file.read()).split(":", 1)[1].split()
        return any(os.path.getmtime(os.path.join(entry["directory"], name)) >= made for name in needed)
    except OSError:
        return True


def graph_of(entry, output):
    """The text of gcc's graph of one source."""
    if is_stale(entry, output):
        subprocess.run(compiler_call(entry, output), cwd=entry["directory"], check=True)
        os.remove(output + ".s")
    with open(output + ".ci", encoding="utf-8") as file:
        return file.read()


def read_graphs(graphs, root):
    """The calls between functions below src/. graphs: [(folder of the compiler, text of the graph)]."""
    here, edges, outside = {}, [], {}
    for folder, text in graphs:

        def path_of(name, folder=folder):
            return os.path.relpath(os.path.join(folder, name), root)

        source = path_of(re.match(r'graph: \{ title: "([^"]+)"', text).group(1))
        for title, name, file, elsewhere in NODE.findall(text):
            if not elsewhere:
                # A static function has its source before its name; that of a header is known in this source only.
                key = title if ":" not in title else (source, title)
                (here if ":" in title else outside)[key] = Function(path_of(file), name)
        edges += [(source, *edge) for edge in EDGE.findall(text)]

    def function(source, title):
        return here.get((source, title)) or outside.get(title)

    below = {}
    for source, caller, callee, _, line in edges:
        if function(source, callee):
            below.setdefault((source, caller), []).append((callee, int(line)))

    def through(source, title, line, seen):
        """The functions of sources that a call of TITLE ends in."""
        callee = function(source, title)
        if not callee.file.endswith(".h"):
            yield callee, line
        elif title not in seen:
            for other, at in below.get((source, title), ()):
                yield from through(source, other, line, seen | {title})

    found = set()
    for (source, title), callees in below.items():
        caller = function(source, title)
        if caller.file == source:
            for callee, line in callees:
                found |= {Call(caller, *end) for end in through(source, callee, line, set())}
    return sorted(call for call in found if call.callee.file.startswith("src" + os.sep))


def sources(root, build):
    """The sources of src/ that this build compiles, each with how."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    known = {}
    for entry in entries:
        path = os.path.relpath(os.path.join(entry["directory"], entry["file"]), root)
        # Tests compile some sources once more, and those that this build replaces.
        if path.startswith("src" + os.sep) and not entry["output"].startswith("tests" + os.sep):
            known[path] = entry
    return known


def calls(root, build):
    folder = os.path.abspath(os.path.join(build, "calls"))
    os.makedirs(folder, exist_ok=True)

    def graph(item):
        path, entry = item
        return entry["directory"], graph_of(entry, os.path.join(folder, path.replace(os.sep, "+")))

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        try:
            return read_graphs(list(threads.map(graph, sorted(sources(root, build).items()))), os.path.abspath(root))
        except subprocess.CalledProcessError as error:
            sys.exit(f"gcc fails: {shlex.join(error.cmd)}")
