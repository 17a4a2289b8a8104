#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sluice sync and cp -r, of trees that are drawn at random, against the rule in words: sync_test.py SLUICE

What is missing, has another length or is newer in the source is copied, and with --delete the rest is removed, unless a list or
a copy failed. Each round has a direction, options and perhaps an accident: a server that breaks a list or refuses an object, a
FIFO, or SIGKILL or SIGINT at a request. A run after one that succeeded copies nothing. The rounds are of SLUICE_TEST_SEED, or of a seed
that is printed; with STRESS 1000 of them.
"""

import fnmatch
import hashlib
import html
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
import s3_server  # noqa: E402

SLUICE = os.path.realpath(sys.argv[1])
ROUNDS = 1000 if os.environ.get("STRESS") else 20
THEN = 1_600_000_000  # seconds since 1970
NAMES = ["a", "a b", "c+d%41", "ü/é+", "x", "x/y", "x/y z/%", "deep/er/z", ".hidden", "[b]", "*", "q?w", "nl\nx", "tail ", "\U0001d11e",
         "back\\slash", "x.txt", "deep/x.txt", "b&<>\"'", "#", "bad\udcff"]
PATTERNS = ["*", "x*", "*.txt", "deep/*", "a?b", "[a-c]*", "[!a-c]*", "*/é+", "[[]b]", "back\\slash", "x/y", "y", "bad*", "?"]


class Object:
    def __init__(self, data, at, parts=""):
        self.data, self.at, self.etag = data, at, hashlib.md5(data).hexdigest() + parts


class Server(s3_server.Server):
    """Objects in memory. accident: of a round, and the object or request that it is of."""

    def __init__(self):
        self.buckets, self.accident, self.which, self.process, self.bulk = {}, None, None, None, True
        super().__init__("/nowhere")
        self.begin({}, {})

    def begin(self, source, target):
        with self.mutex:
            self.buckets, self.accident, self.asked, self.moved = {"source": source, "target": target}, None, 0, 0

    def give(self, sock, request):
        with self.mutex:
            self.asked += 1
            kills = self.accident == "kill" and self.asked == self.which
        if kills:
            self.process.send_signal(self.how)
            time.sleep(0.02)
        super().give(sock, request)

    def body(self, request):
        found = self.buckets[request.bucket].get(self.key(request))
        if not found:
            raise s3_server.Refused(404, "NoSuchKey")
        if request.method == "GET":
            self.move(request)
        return None, found.data, found.etag

    @staticmethod
    def key(request):
        return request.key.decode(errors="surrogateescape")

    def modified(self, request, path):
        return self.buckets[request.bucket][self.key(request)].at

    def move(self, request):
        with self.mutex:
            self.moved += 1
        if self.accident == "refuse" and self.key(request) == self.which:
            raise s3_server.Refused(403, "AccessDenied")

    def put(self, sock, request):
        self.move(request)
        data, source = request.body, request.field("x-amz-copy-source")
        if source:
            bucket, _, key = urllib.parse.unquote(source, errors="surrogateescape").partition("/")
            data = self.buckets[bucket][key].data
        made = Object(data, int(time.time()))
        with self.mutex:
            self.buckets[request.bucket][self.key(request)] = made
        if source:
            return self.xml(sock, request, f'<CopyObjectResult><ETag>"{made.etag}"</ETag></CopyObjectResult>')
        return self.send(sock, request, 200, [("ETag", f'"{made.etag}"')], b"", 0)

    def remove(self, sock, request):
        with self.mutex:
            self.buckets[request.bucket].pop(self.key(request), None)
        self.send(sock, request, 204, [], b"", 0)

    def remove_many(self, sock, request):
        if not self.bulk:
            raise s3_server.Refused(501, "NotImplemented")
        keys = [html.unescape(key) for key in re.findall("<Object><Key>([^<]*)</Key></Object>", request.body.decode())]
        with self.mutex:
            for key in keys:
                self.buckets[request.bucket].pop(key, None)
        self.xml(sock, request, "<DeleteResult>" + "".join(f"<Deleted><Key>{html.escape(key)}</Key></Deleted>" for key in keys) +
                 "</DeleteResult>")

    def list(self, sock, request):
        """Three on a page."""
        prefix = urllib.parse.unquote_plus(request.query.partition("prefix=")[2].partition("&")[0], errors="surrogateescape")
        with self.mutex:
            found = sorted((os.fsencode(key), each) for key, each in self.buckets[request.bucket].items() if key.startswith(prefix))
        at = int(request.asked.get("continuation-token", "0"))
        if self.accident == "list " + request.bucket and at // 3 >= self.which:
            raise s3_server.Refused(403, "AccessDenied")
        more = f"<NextContinuationToken>{at + 3}</NextContinuationToken>" if at + 3 < len(found) else ""
        entries = "".join(
            f"<Contents><Key>{urllib.parse.quote(key, safe='/')}</Key><LastModified>"
            f"{time.strftime('%Y-%m-%dT%H:%M:%S.000Z', time.gmtime(each.at))}</LastModified><ETag>&quot;{each.etag}&quot;</ETag>"
            f"<Size>{len(each.data)}</Size></Contents>" for key, each in found[at:at + 3])
        self.xml(sock, request, f"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>{str(bool(more)).lower()}"
                 f"</IsTruncated>{more}{entries}</ListBucketResult>")

    calls = {**s3_server.Server.calls, ("PUT",): put, ("DELETE",): remove, ("POST", "delete"): remove_many}


def clashes(name, names):
    """Whether a folder cannot have the name beside one of the others."""
    return any(each.startswith(name + "/") or name.startswith(each + "/") for each in names if each != name)


def environment(server):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SLUICE_"))}
    return {**kept, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}", "AWS_ACCESS_KEY_ID": "AKIDTEST",
            "AWS_SECRET_ACCESS_KEY": s3_server.SECRETS["AKIDTEST"], "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "SLUICE_HTTP_BACKOFF_MS": "2", "LC_ALL": "C.UTF-8"}


class Round:
    def __init__(self, chance, server):
        self.chance, self.server = chance, server
        self.way = chance.choice(["up", "down", "across", "local"])
        self.kind = chance.choice(["sync"] * 6 + ["--update", "--skip-existing"])
        self.from_s3, self.to_s3 = self.way in ("down", "across"), self.way in ("up", "across")
        self.delete = self.kind == "sync" and chance.random() < 0.5
        self.etag = self.kind == "sync" and chance.random() < 0.3
        count = chance.choice([0, 0, 1, 2, 3]) if self.kind == "sync" else 0
        self.patterns = [(chance.random() < 0.5, chance.choice(PATTERNS)) for _ in range(count)]
        self.source = self.tree(self.from_s3, {})
        self.target = self.tree(self.to_s3, self.source)
        if self.from_s3 and not self.source:
            self.source["a"] = Object(b"", THEN)  # a prefix without objects is an error
        self.accident = chance.choice([None] * 4 + ["kill", "refuse", "list source", "list target", "fifo"])
        self.which = chance.randint(1, 12) if self.accident == "kill" else chance.randint(0, 2)
        if self.accident == "refuse":
            self.which = "p/" + chance.choice(list(self.source) or [""])

    def tree(self, on_s3, other):
        """A tree. Of files that the other has, some are the same, some have the same length."""
        found = {}
        for name in NAMES:
            if self.chance.random() < 0.5 or (not on_s3 and clashes(name, found)):
                continue
            like = other.get(name)
            data = self.chance.randbytes(self.chance.choice([0, 1, 5, 1000]))
            if like and self.chance.random() < 0.7:
                data = like.data if self.chance.random() < 0.5 else self.chance.randbytes(len(like.data))
            at = (like.at if like else THEN) + self.chance.choice([-1000, -1, 0, 0, 1, 1000])
            # A time within a second, where the other end has whole seconds.
            found[name] = Object(data, at if on_s3 else at + self.chance.choice([0, 0, 0.5]), self.chance.choice(["", "", "-2"]))
            if on_s3:
                found[name].at = int(found[name].at)
        return found

    def includes(self, name):
        taken = True
        for includes, pattern in self.patterns:
            if fnmatch.fnmatchcase(name, pattern):
                taken = includes
        return taken

    def takes(self, name):
        mine, there = self.source[name], self.target.get(name)
        if not self.includes(name) or (there and self.kind == "--skip-existing"):
            return False
        if not there:
            return True
        if self.kind == "--update" or len(mine.data) == len(there.data):
            if self.kind == "sync" and self.etag and self.way == "across" and ("-" in mine.etag) == ("-" in there.etag):
                return mine.etag != there.etag
            return mine.at > there.at
        return True

    def failures(self, taken):
        """Names whose copies fail, and whether others may be missing, too."""
        failed = {name for name in taken if self.accident == "refuse" and "p/" + name == self.which and self.way != "local"}
        if not self.to_s3:
            failed |= {name for name in taken if clashes(name, self.target) or clashes(name, filter(self.includes, self.source))}
            if self.way == "local":  # whose folders are made, whatever is taken of them
                failed |= {name for name in self.source if any(name.startswith(each + "/") for each in self.target)}
            else:
                failed |= {name for name in filter(self.includes, self.source) if clashes(name, filter(self.includes, self.source))}
        return failed

    def run(self, folder):
        server, chance = self.server, self.chance
        ends = [folder + "/source", folder + "/target"]
        for end, tree, on_s3 in zip(ends, (self.source, self.target), (self.from_s3, self.to_s3), strict=True):
            os.mkdir(end)
            for name, each in tree.items() if not on_s3 else ():
                path = os.path.join(end, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(each.data)
                os.utime(path, ns=(int(each.at * 1e9), int(each.at * 1e9)))
        server.begin(*({"p/" + name: each for name, each in tree.items()} if on_s3 else {}
                       for tree, on_s3 in ((self.source, self.from_s3), (self.target, self.to_s3))))
        # Of others nothing is touched, and a marker of a folder is no file.
        for bucket in server.buckets.values():
            bucket |= {"p2": Object(b"p2", THEN), "q/a": Object(b"q", THEN), "p/marker/": Object(b"", THEN)}
        fifo = self.accident == "fifo" and not self.from_s3
        if fifo:
            os.mkfifo(ends[0] + "/fifo")
        uris = [chance.choice([f"s3://{bucket}/p", f"s3://{bucket}/p/"]) if on_s3 else end for bucket, end, on_s3 in
                zip(("source", "target"), ends, (self.from_s3, self.to_s3), strict=True)]
        if self.kind != "sync" and not self.from_s3:
            uris[0] += "/."
        words = ["sync"] if self.kind == "sync" else ["cp", "-r", self.kind, *(["-p"] if not self.to_s3 else [])]
        words += ["--delete"] * self.delete + ["--etag"] * self.etag
        for includes, pattern in self.patterns:
            words += ["--include" if includes else "--exclude", pattern]
        words += uris
        taken = {name for name in self.source if self.takes(name)}
        failed = self.failures(taken)
        removed = {name for name in self.target if self.delete and name not in self.source and self.includes(name)}
        # A run without effect says what the next does.
        before = self.state(ends[1])
        done = self.sluice(*words, "--dry-run")
        if not fifo and not failed:
            assert done.returncode == 0, done.stderr
            assert sorted(re.findall("^delete |(?= -> )", done.stdout, re.M)) == [""] * len(taken) + ["delete "] * len(removed), \
                (done.stdout, taken, removed)
        assert self.state(ends[1]) == before, "a dry run has changed something"
        server.bulk, server.how = chance.random() < 0.7, chance.choice([signal.SIGKILL, signal.SIGINT])
        server.accident, server.which, server.asked, server.moved = self.accident, self.which, 0, 0
        done = self.sluice(*words, "-q")
        killed = done.returncode < 0
        broken = fifo and self.includes("fifo")
        if self.accident in ("list source", "list target") and {"list source": self.from_s3, "list target": self.to_s3}[self.accident]:
            pages = (len([key for key in before if key.startswith("p/")]) if self.to_s3 and self.accident == "list target"
                     else len(self.source) + 1) + 2
            broken |= self.which <= (pages - 2 - 1) // 3 if pages > 2 else self.which == 0
        server.accident = None
        if killed:
            self.check(ends, taken, failed, removed, partly=True)
            there = {key.removeprefix("p/") if self.to_s3 else key: data for key, (data, _) in self.state(ends[1]).items()}
            missing = {name for name in taken if there.get(name) != self.source[name].data}
            assert not missing or removed <= there.keys(), "something was removed before all was copied"
            done = self.sluice(*words, "-q")
        if broken or failed:
            assert done.returncode == 1, "it should have failed"
            self.check(ends, taken, failed if not broken else taken, set() if not killed else removed, partly=broken or killed)
            return
        assert done.returncode == 0, done.stderr
        self.check(ends, taken, set(), removed, killed=killed)
        if self.way == "local":
            return
        server.moved = 0
        done = self.sluice(*words, "-q")
        assert done.returncode == 0 and (server.moved == 0 or self.etag), f"{server.moved} were copied again: {done.stderr}"

    def sluice(self, *words):
        process = subprocess.Popen([SLUICE, *words], env=environment(self.server), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   errors="surrogateescape")
        self.server.process = process
        out, error = process.communicate(timeout=60)
        self.words = words
        return subprocess.CompletedProcess(words, process.returncode, out, error)

    def state(self, folder):
        """Of the target: the bytes and the time of each file."""
        if self.to_s3:
            with self.server.mutex:
                return {key: (each.data, each.at) for key, each in self.server.buckets["target"].items()}
        found = {}
        for root, _, names in os.walk(folder):
            for path in (os.path.join(root, name) for name in names):
                with open(path, "rb") as file:
                    found[os.path.relpath(path, folder)] = file.read(), os.stat(path).st_mtime
        return found

    def check(self, ends, taken, failed, removed, partly=False, killed=False):
        """partly: what should be copied or removed may be, or not."""
        found = self.state(ends[1])
        if self.to_s3:
            for key in ("p2", "q/a", "p/marker/"):
                del found[key]
            found = {key.removeprefix("p/"): each for key, each in found.items()}
        for name in list(found):
            if re.fullmatch(r"(.*/)?\..*\.sluice", name):  # SIGKILL may leave it
                assert partly or killed, name
                del found[name]
        for name in {*self.source, *self.target}:
            old, new = self.target.get(name), self.source.get(name)
            there, at = found.pop(name, (None, None))
            allowed = []
            if name not in removed and (name not in taken or name in failed or partly):
                allowed.append(old and old.data)
            if name in removed:
                allowed += [None, old.data] if partly else [None]
            if name in taken and (name not in failed or partly or clashes(name, self.source)):
                allowed.append(new.data)
            assert there in allowed, (name, there, allowed, name in taken, name in failed, name in removed)
            if self.way == "down" and name in taken and name not in failed and not partly and not killed:
                assert at == new.at, f"{name!r} has the time {at}, and the object {new.at}"
        assert not found, f"there is more: {list(found)}"


def check_alone(server):
    """A large object that is a folder's only one comes in as few requests as by its name: each costs a server time."""
    server.begin({"p/large": Object(bytes(96 << 20), THEN)}, {})
    counts = []
    with tempfile.TemporaryDirectory() as scratch:
        for words in (["s3://source/p/large", f"{scratch}/1"], ["-r", "s3://source/p/", f"{scratch}/2"]):
            before = server.moved
            subprocess.run([SLUICE, "cp", "-q", *words], env=environment(server), check=True)
            counts.append(server.moved - before)
    assert counts[1] < 1.5 * counts[0], f"{counts} requests"


def main():
    seed = os.environ.get("SLUICE_TEST_SEED") or str(time.time_ns())
    print(f"seed {seed}; the same again with SLUICE_TEST_SEED={seed}")
    chance, server = random.Random(seed), Server()
    check_alone(server)
    with tempfile.TemporaryDirectory() as scratch:
        for i in range(ROUNDS):
            this, folder = Round(random.Random(chance.random()), server), f"{scratch}/{i}"
            os.mkdir(folder)
            try:
                this.run(folder)
            except AssertionError as why:
                raise AssertionError(f"round {i}: {why}, {this.way}, {this.accident} {this.which}, {this.words}") from why
            shutil.rmtree(folder)
    print(f"{ROUNDS} trees are as the rule says")


main()
