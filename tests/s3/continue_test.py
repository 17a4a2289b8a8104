#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies to S3 with --continue go on where they were interrupted, and send only parts that were not noted:
continue_test.py SLUICE

The moments are of SLUICE_TEST_SEED, or of a seed that is printed; 200 of them with STRESS.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "http"))
import s3_server  # noqa: E402

SLUICE = sys.argv[1]
PART = 64 << 10
PARTS = 120
LENGTH = PARTS * PART - 77
BUCKET = "-".join(["slow"] * 8)
URI = f"s3://{BUCKET}/object"
ROUNDS = 200 if os.environ.get("STRESS") else 3


class Place:
    def __init__(self, root, seed):
        self.root, self.chance = root, random.Random(seed)
        self.server = s3_server.Server(root)
        self.states = f"{root}/home/.local/state/sluice"
        self.source, self.object = f"{root}/source", f"{root}/object"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SLUICE_", "XDG_"))}
        self.environment = {
            **kept, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server.port}", "AWS_ACCESS_KEY_ID": "AKIDTEST",
            "AWS_SECRET_ACCESS_KEY": s3_server.SECRETS["AKIDTEST"], "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "HOME": f"{root}/home", "SLUICE_S3_PART_BYTES": str(PART),
            "SLUICE_S3_UPLOAD_BYTES": "1M", "SLUICE_HTTP_BACKOFF_MS": "5"}
        self.new_source()

    def new_source(self):
        self.data = self.chance.randbytes(LENGTH)
        with open(self.source, "wb") as file:
            file.write(self.data)

    def sent(self, bucket=BUCKET):
        return self.server.counts[bucket]["PUT_partNumber_uploadId"]

    def start(self, *arguments, uri=URI, **more):
        return subprocess.Popen([SLUICE, "cp", *arguments, self.source, uri], env={**self.environment, **more},
                                stderr=subprocess.PIPE, text=True)

    def copy(self, *arguments, status=0, **more):
        copy = self.start(*arguments, **more)
        says = copy.communicate(timeout=60)[1]
        assert copy.returncode == status, (copy.returncode, says)
        return says

    @staticmethod
    def await_quiet():
        """Until the server has handled what a copy that was killed had sent: each connection is a thread."""
        while threading.active_count() > 2:
            time.sleep(0.001)

    def state(self):
        """The path of the only state, or None."""
        names = self.all_states()
        assert len(names) <= 1, names
        return f"{self.states}/{names[0]}" if names else None

    def all_states(self):
        """Without files that do not have their names yet."""
        return [name for name in os.listdir(self.states) if name[0] != "."] if os.path.isdir(self.states) else []

    def noted(self):
        """How many parts the state has."""
        if not self.state():
            return 0
        with open(self.state(), encoding="ascii") as file:
            return file.read().partition("\nsluice upload 1 ")[2].count("\n") - 3

    def await_noted(self, copy, parts):
        while self.noted() < parts:
            assert copy.poll() is None, copy.communicate()
            time.sleep(0.005)

    def interrupted(self, sent=0):
        """Leaves an upload that was interrupted when so many parts had been sent. Returns the message."""
        before = self.sent()
        copy = self.start("--continue")
        self.await_noted(copy, 1)
        while self.sent() - before < sent:
            time.sleep(0.001)
        copy.send_signal(signal.SIGINT)
        says = copy.communicate(timeout=60)[1]
        assert copy.returncode == -signal.SIGINT, says
        self.await_quiet()
        assert not os.path.exists(self.object) and len(self.server.uploads) == 1
        return says

    def is_complete(self, left=0):
        """The object is there, and nothing else. Then it is removed."""
        with open(self.object, "rb") as file:
            assert file.read() == self.data
        assert not self.state() and len(self.server.uploads) == left
        os.unlink(self.object)


def a_copy_that_is_killed_sends_only_what_was_not_noted(place):
    killed = again = 0
    for _ in range(ROUNDS):
        place.new_source()
        for _ in range(3):
            copy = place.start("-q", "--continue")
            try:
                copy.wait(0.1 + 0.7 * place.chance.random())
            except subprocess.TimeoutExpired:
                copy.kill()
            killed += copy.wait() == -9
            copy.stderr.close()
            place.await_quiet()
            if os.path.exists(place.object):
                break
        if os.path.exists(place.object):
            # It may have been killed before it removed the state.
            if place.state():
                os.unlink(place.state())
        else:
            noted, before = place.noted(), place.sent()
            if not noted:
                place.server.uploads.clear()
            says = place.copy("--continue")
            assert ("are there" in says) == (noted > 0), says
            assert place.sent() - before == PARTS - noted, (noted, place.sent() - before)
            again += noted
        place.server.uploads.clear()
        place.is_complete()
    print(f"{killed} copies were killed, and {again} parts not sent again")
    assert killed and again


def an_interrupt_keeps_the_parts(place):
    says = place.interrupted(sent=60)
    # More than were noted in time.
    assert place.noted() >= 30, place.noted()
    assert "interrupted" in says and "are kept, and taken up by the same command" in says, says
    with open(place.state(), "rb") as file:
        assert os.fstat(file.fileno()).st_mode & 0o777 == 0o600
    noted, before = place.noted(), place.sent()
    assert "are there" in place.copy("--continue", "--no-progress")
    assert place.sent() - before == PARTS - noted
    place.is_complete()


def parts_are_noted_when_all_bytes_are_in_memory(place):
    copy = place.start("--continue", SLUICE_S3_UPLOAD_BYTES="64M")
    place.await_noted(copy, 1)
    copy.kill()
    copy.communicate()
    place.await_quiet()
    noted, before = place.noted(), place.sent()
    place.copy("--continue")
    assert place.sent() - before == PARTS - noted
    place.is_complete()


def without_the_option_nothing_is_kept(place):
    copy = place.start()
    while not place.sent():
        time.sleep(0.001)
    before = place.sent()
    while place.sent() == before:
        time.sleep(0.001)
    copy.send_signal(signal.SIGINT)
    assert "kept" not in copy.communicate(timeout=60)[1]
    place.await_quiet()
    assert copy.returncode == -signal.SIGINT and not place.state() and not place.server.uploads


def a_source_that_changed_is_copied_anew(place):
    place.interrupted()
    place.new_source()
    assert "SRC has changed" in place.copy("--continue")
    place.is_complete()
    place.interrupted()
    with open(place.source, "ab") as file:
        file.write(b"x")
    place.data += b"x"
    assert "another length" in place.copy("--continue")
    place.is_complete()
    place.new_source()


def an_upload_that_is_gone_is_begun_anew(place):
    place.interrupted()
    subprocess.run([SLUICE, "s3", "abandoned", "--remove", "--age", "0", f"s3://{BUCKET}"], env=place.environment, check=True,
                   stdout=subprocess.DEVNULL)
    before = place.sent()
    says = place.copy("--continue")
    assert "is copied from the start" in says and "NoSuchUpload" in says, says
    assert place.sent() - before == PARTS
    place.is_complete()


def a_part_that_is_another_is_sent_again(place):
    place.interrupted()
    noted, before = place.noted(), place.sent()
    [upload] = place.server.uploads.values()
    for number in list(upload["parts"])[:2]:
        upload["parts"][number] = ('"another"', b"y" * PART)
    place.copy("--continue")
    assert place.sent() - before == PARTS - noted + 2
    place.is_complete()


def a_state_that_is_damaged_is_not_taken_up(place):
    place.interrupted()
    state = place.state()
    with open(state, "rb") as file:
        good = file.read()
    for damage in (b"", good[:-30], good.replace(b"65536 - ", b"65537 - ", 1), good.replace(URI.encode(), b"s3://x/y"),
                   b"\xff" * 3000):
        with open(state, "wb") as file:
            file.write(damage)
        assert "is damaged, or of another file" in place.copy("--continue")
        place.is_complete(1)
    place.server.uploads.clear()


def a_server_that_refuses_parts_for_a_while_loses_none(place):
    refuses, put = [False], place.server.calls[("PUT", "partNumber", "uploadId")]

    def put_part(server, sock, request):
        if refuses[0]:
            raise s3_server.Refused(403, "AccessDenied", "Access Denied")
        put(server, sock, request)
    place.server.calls = {**place.server.calls, ("PUT", "partNumber", "uploadId"): put_part}
    copy = place.start("--continue")
    place.await_noted(copy, 1)
    refuses[0] = True
    says = copy.communicate(timeout=60)[1]
    assert copy.returncode == 1 and "AccessDenied" in says and "are kept" in says, says
    refuses[0] = False
    place.await_quiet()
    noted, before = place.noted(), place.sent()
    place.copy("--continue")
    assert place.sent() - before == PARTS - noted
    place.is_complete()


def many_files_go_on_each_by_itself(place):
    names = ["a", "b", "c", "short"]
    os.mkdir(f"{place.root}/tree")
    for name in names:
        with open(f"{place.root}/tree/{name}", "wb") as file:
            file.write(place.data[:100] if name == "short" else place.data)
    os.mkdir(f"{place.root}/to")
    command = [SLUICE, "cp", "-r", "--continue", f"{place.root}/tree", f"s3://{BUCKET}/to"]
    copy = subprocess.Popen(command, env=place.environment, stderr=subprocess.DEVNULL)
    while len(place.all_states()) < 3:
        assert copy.poll() is None
        time.sleep(0.005)
    copy.kill()
    copy.wait()
    place.await_quiet()
    there = set(os.listdir(f"{place.root}/to"))
    before = place.sent()
    done = subprocess.run(command, env=place.environment, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == (1 if there else 0), done.stderr
    assert all(f"/to/{name}' exists; use -f to overwrite it" in done.stderr for name in there), done.stderr
    assert place.sent() - before < 3 * PARTS
    for name in names:
        with open(f"{place.root}/to/{name}", "rb") as file, open(f"{place.root}/tree/{name}", "rb") as source:
            assert file.read() == source.read()
    assert not place.state() and not place.server.uploads


def a_source_that_cannot_go_on_is_copied_all_the_same(place):
    with open(place.source, "rb") as file:
        done = subprocess.run([SLUICE, "cp", "--continue", "/dev/fd/9", URI], env=place.environment, stderr=subprocess.PIPE,
                              text=True, check=True, stdin=file, preexec_fn=lambda: os.dup2(file.fileno(), 9),
                              close_fds=False)
    assert "cannot be continued" in done.stderr, done.stderr
    place.is_complete()
    with open(f"{place.root}/none", "wb"):
        pass
    blocked = f"{place.root}/none/x"
    assert "cannot make" in place.copy("--continue", status=1, XDG_STATE_HOME=blocked)


def an_empty_source_is_copied_all_the_same(place):
    place.data = b""
    with open(place.source, "wb"):
        pass
    assert "sluice cp:" not in place.copy("--continue")
    place.is_complete()
    place.new_source()


def a_state_that_cannot_be_saved_leaves_no_upload(place):
    os.mkdir(f"{place.root}/full")
    with open(f"{place.root}/full/sluice", "wb"):
        pass
    assert "cannot be noted" in place.copy("--continue", status=1, XDG_STATE_HOME=f"{place.root}/full")
    place.await_quiet()
    assert not place.server.uploads and not os.path.exists(place.object)


def a_bucket_and_a_prefix_are_directories(place):
    os.mkdir(f"{place.root}/below")
    for to, name in ("", "/source"), ("/", "/source"), ("/below/", "/below/source"):
        done = subprocess.run([SLUICE, "cp", "--dry-run", place.source, f"s3://{BUCKET}{to}"], env=place.environment,
                              stdout=subprocess.PIPE, text=True, check=True)
        assert done.stdout == f"{place.source} -> s3://{BUCKET}{name}\n", done.stdout
    subprocess.run([SLUICE, "cp", "-q", "/dev/stdin", f"s3://{BUCKET}/below/a?b"], input=b"x", env=place.environment, check=True)
    for command in (place.source, f"s3://{BUCKET}/below/"), (f"s3://{BUCKET}/below/a?b", place.root):
        subprocess.run([SLUICE, "cp", "-q", *command], env=place.environment, check=True)
    assert os.path.getsize(f"{place.root}/below/source") == LENGTH and os.path.exists(f"{place.root}/a?b")


def main():
    seed = os.environ.get("SLUICE_TEST_SEED") or str(time.time_ns())
    print(f"seed {seed}; the same again with SLUICE_TEST_SEED={seed}")
    with tempfile.TemporaryDirectory() as root:
        place = Place(root, seed)
        for case in (an_interrupt_keeps_the_parts, a_copy_that_is_killed_sends_only_what_was_not_noted,
                     parts_are_noted_when_all_bytes_are_in_memory, without_the_option_nothing_is_kept, a_source_that_changed_is_copied_anew,
                     an_upload_that_is_gone_is_begun_anew, a_part_that_is_another_is_sent_again,
                     a_state_that_is_damaged_is_not_taken_up, a_server_that_refuses_parts_for_a_while_loses_none,
                     many_files_go_on_each_by_itself, a_source_that_cannot_go_on_is_copied_all_the_same,
                     an_empty_source_is_copied_all_the_same, a_state_that_cannot_be_saved_leaves_no_upload,
                     a_bucket_and_a_prefix_are_directories):
            begun = time.monotonic()
            case(place)
            print(f"ok: {case.__name__} {time.monotonic() - begun:.2f} s", flush=True)


main()
