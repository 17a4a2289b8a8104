#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The blocks of code in README.md, CONTRIBUTING.md and docs: each is run, or a mark before it says why not.

usage: blocks.py c|sh SOURCES BUILD    compile and run those of this language, in a folder of their own
       blocks.py readme SOURCES        run what README.md says to a shell, on a system where sluice is installed
       blocks.py --marks SOURCES       list the blocks that are not run, with their reasons
       blocks.py --self-test

A block is a whole program, or stands in a context: context.h here for C, the files and servers of make_world() for a
shell, tests/python/test_blocks.py for Python. The mark is a line before the block:

    <!-- not run: it needs a GPU -->
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from typing import Iterator, NamedTuple

MARK = re.compile(r"<!-- not run: (\S.*) -->$")
NO_CODE = {"", "text", "yaml", "fortran"}  # pictures and tables; the program in Fortran is that of examples/


class Block(NamedTuple):
    document: str  # docs/store.md
    line: int  # of its first line
    language: str
    code: str
    mark: str  # why it is not run; "" if it is

    @property
    def name(self) -> str:
        return f"{self.document}:{self.line}"


def blocks_of(document: str, text: str) -> Iterator[Block]:
    lines = text.split("\n")
    begin = language = mark = None
    for number, line in enumerate(lines, 1):
        if not line.startswith("```"):
            continue
        if begin is None:
            begin, language = number + 1, line[3:].strip()
            before = MARK.match(lines[number - 2].strip()) if number > 1 else None
            mark = before.group(1) if before else ""
        else:
            yield Block(document, begin, language, "\n".join(lines[begin - 1:number - 1]) + "\n", mark)
            begin = None
    assert begin is None, f"{document}:{begin}: a block without an end"


def find(sources: str, *languages: str) -> list[Block]:
    documents = ["README.md", "CONTRIBUTING.md"]
    for folder in ("docs", "docs/internals"):
        documents += [f"{folder}/{name}" for name in sorted(os.listdir(f"{sources}/{folder}")) if name.endswith(".md")]
    found = []
    for document in documents:
        with open(f"{sources}/{document}", encoding="utf-8") as file:
            found += blocks_of(document, file.read())
    return [b for b in found if b.language not in NO_CODE and (not languages or b.language in languages)]


# ------------------------------------------------------------------------------------------------------ C

def program_of(block: Block) -> str:
    """A whole program of a block: itself, or what context.h makes of it."""
    if re.search(r"^int main\(", block.code, re.M):
        return block.code
    code = re.sub(r"^\.\.\.", ";", block.code, flags=re.M)
    code = re.sub(r"(\w+)<<<[^;]*?>>>\(", r"\1(", code)
    includes = "".join(line + "\n" for line in code.split("\n") if line.startswith("#include"))
    code = "\n".join("" if line.startswith("#include") else line for line in code.split("\n"))
    name = os.path.splitext(os.path.basename(block.document))[0]
    return (f'#define IN_{name}\n#define CONTINUES {"sluice_writer_open" not in code:d}\n'
            f'#define TWO_BUFFERS {"batch[k]" in code:d}\n{includes}#include "context.h"\n'
            f'static int block(void)\n{{\n#line {block.line} "{block.document}"\n{code}\nreturn 0;\n}}\n')


def run_c(block: Block, world: "World") -> None:
    source, program = "block.c", "./block"
    with open(source, "w", encoding="utf-8") as file:
        file.write(world.here(program_of(block)))
    whole = "int main(" in block.code
    if whole and "mpi.h" in block.code:
        return  # tests/examples/cluster_test.py
    world.run("gcc", "-std=gnu17", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers",
              f"-I{world.sources}/include", f"-I{world.sources}/tests/blocks", source, "-o", program,
              f"-L{world.build}/src", "-lsluice", f"-Wl,-rpath,{world.build}/src", "-lpthread", "-lm")
    world.run(program, *(["weights.bin"] if whole else []))


# -------------------------------------------------------------------------------------------------- shell

def run_sh(block: Block, world: "World") -> None:
    with open("block.sh", "w", encoding="utf-8") as file:
        # The copies of the lines before would be in the way.
        code = re.sub(r"^(?=sluice cp )", "rm -rf DST file; ", world.here(block.code), flags=re.M)
        file.write("set -e\n" + code)
    world.run("bash", "block.sh")


# -------------------------------------------------------------------------------------------------- world

class World:
    """A folder with the files that blocks name, a web server, a service of S3 and a daemon."""

    def __init__(self, sources: str, build: str, folder: str) -> None:
        self.sources, self.build, self.folder, self.children = sources, build, folder, []
        os.environ["PATH"] = f"{build}:{os.environ['PATH']}"
        os.environ["SLUICE_STORE"] = f"{folder}/store.sock"
        os.environ["XDG_RUNTIME_DIR"] = folder
        make_world(self)

    def run(self, *command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{command[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, *command: str) -> subprocess.Popen:
        self.children.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                              stderr=open("children.log", "a", encoding="utf-8"), text=True))
        return self.children[-1]

    def here(self, code: str) -> str:
        """The code with this world's servers and devices for those of the document."""
        code = re.sub(r"https://(host|example\.org)/", self.web + "/", code)
        code = code.replace("https://…", self.web + "/path")
        code = re.sub(r"(--(memory|device)[ =])device(:\d)?", r"\1emulated", code)
        return code.replace("http://127.0.0.1:9000", self.s3)

    def end(self) -> None:
        for child in self.children:
            child.send_signal(signal.SIGTERM)
        for child in self.children:
            child.wait(20)


def make_world(world: World) -> None:
    """The folder `web` is what the web server serves; https://host/path is a tar file."""
    servers = world.start(sys.executable, f"{world.sources}/tests/engine/http/servers.py", ".")
    said = servers.stdout.readline()
    if "nginx=" not in said:
        print(f"skipped: {said.strip()}")
        sys.exit(77)
    ports = dict(word.split("=") for word in said.split())
    world.web, world.s3 = f"http://127.0.0.1:{ports['nginx']}", f"http://127.0.0.1:{ports['s3']}"
    os.environ.update({
        "AWS_ENDPOINT_URL": world.s3, "AWS_ACCESS_KEY_ID": "AKIDTEST", "AWS_SECRET_ACCESS_KEY": "secret/+of=the-test",
        "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"})
    world.start(f"{world.build}/sluiced", "--memory", "256M")
    for name in ("weights.bin", "SRC", "URI", "numbers"):
        with open(name, "wb") as file:
            file.write(os.urandom(1 << 20))
    for name in ("FOLDER", "SRC..."):
        os.mkdir(name)
    header = b'{"w":{"dtype":"F32","shape":[256,256],"data_offsets":[0,262144]}}'
    for name in ("model.safetensors", "FILE"):
        with open(name, "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header + bytes(262144))
    world.run("/usr/bin/python3", "-c", "import h5py, numpy; h5py.File('fields.h5', 'w').create_dataset('u', data=numpy.ones("
              "(8, 480, 640), 'f4'), chunks=(1, 480, 640), shuffle=True, compression='gzip')")
    with open("model.safetensors.index.json", "w", encoding="utf-8") as file:
        file.write('{"weight_map": {"w": "model.safetensors"}}')
    for name in ("path", "key"):
        world.run("tar", "cf", name, "numbers")
    with open("SUMS", "w", encoding="utf-8") as file:
        file.write(world.run("sha256sum", "FILE"))


def each(blocks: list[Block], sources: str, build: str) -> int:
    """Runs the blocks. Returns the number of those that failed."""
    counts = {"ok": 0, "FAILED": 0, "skipped": 0}
    run = {"c": run_c, "cpp": run_c, "sh": run_sh}
    with tempfile.TemporaryDirectory(dir=os.environ.get("SLUICE_TEST_DIR")) as folder:
        sources, build = os.path.abspath(sources), os.path.abspath(build)
        os.chdir(folder)
        world = World(sources, build, folder)
        try:
            for block in blocks:
                verdict, why = "ok", ""
                if block.mark:
                    verdict, why = "skipped", block.mark
                elif of_readme(block):
                    verdict, why = "skipped", "scripts/try-debian runs it, where sluice is installed"
                else:
                    try:
                        run[block.language](block, world)
                    except (AssertionError, subprocess.TimeoutExpired) as error:
                        verdict, why = "FAILED", str(error)
                counts[verdict] += 1
                print(f"{verdict} {block.name} {why}".rstrip(), flush=True)
        finally:
            world.end()
            os.chdir("/")
    print(f"{counts['ok']} passed, {counts['FAILED']} failed, {counts['skipped']} skipped")
    return counts["FAILED"]


def of_readme(block: Block) -> bool:
    """Whether it is a block that readme() runs: it begins with the checkout, and not with the command."""
    return block.document == "README.md" and block.language == "sh" and not block.code.startswith("sluice ")


def readme(sources: str) -> int:
    """What README.md says to a shell, in its order, in the checkout."""
    os.chdir(sources)
    os.environ.setdefault("SLUICE_STORE", os.path.join(tempfile.mkdtemp(), "socket"))  # su has no XDG_RUNTIME_DIR
    failed = 0
    for block in find(".", "sh", "c"):
        if block.document == "README.md" and block.language == "c":
            with open("example.c", "w", encoding="utf-8") as file:
                file.write(block.code)
        if not of_readme(block) or block.mark:
            continue
        folder = "build/examples/gray-scott" if block.code.startswith("../../sluiced") else "."
        script = "trap 'kill $(jobs -p) 2>/dev/null || :' EXIT; set -e\n" + block.code
        if not os.environ.get("CHECK"):
            script = script.replace("make check", "true")
        rc = subprocess.run(["bash", "-c", script], cwd=folder, stdin=subprocess.DEVNULL).returncode
        print(f"{'FAILED' if rc else 'ok'} {block.name}", flush=True)
        failed += rc != 0
    return failed


def self_test() -> int:
    fence = "`" * 3
    text = f"a\n<!-- not run: why -->\n{fence}c\nx;\n{fence}\n{fence}sh\nfalse\n{fence}\n"
    one, two = blocks_of("d.md", text)
    assert (one.line, one.code, one.mark, one.language) == (4, "x;\n", "why", "c")
    assert (two.name, two.mark) == ("d.md:7", "")
    assert "kernel(p)" in program_of(one._replace(code="kernel<<<a, b>>>(p);\n..."))
    return 0


def main() -> int:
    if len(sys.argv) == 4 and sys.argv[1] in ("c", "sh"):
        languages = ("c", "cpp") if sys.argv[1] == "c" else ("sh",)
        return each(find(sys.argv[2], *languages), sys.argv[2], sys.argv[3]) > 0
    if len(sys.argv) == 3 and sys.argv[1] == "readme":
        return readme(sys.argv[2]) > 0
    if len(sys.argv) == 3 and sys.argv[1] == "--marks":
        for block in find(sys.argv[2]):
            if block.mark:
                print(f"{block.name}: {block.mark}")
        return 0
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
