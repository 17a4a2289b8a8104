#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Files of frames on a server: the object is the file that a local path would get, is there as a whole or not at all, and
each error names the local file, which stays.
usage: remote_copy_test.py WRITE_SMALL
"""

import io
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "engine", "http"))
import s3_server  # noqa: E402

try:
    import h5py
    import numpy
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

PROGRAM = sys.argv[1]
SERIES = {"frames": 9, "rows": 300, "columns": 100, "codec": "none", "chunk_frames": 1}


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def frames_in(found):
    """How many frames a file of bytes has, all of which are right."""
    with h5py.File(io.BytesIO(found), "r") as file:
        data = file["s"][...]
    cells = numpy.arange(data[0].size).reshape(data[0].shape) / 4096
    assert (data == numpy.arange(len(data)).reshape(-1, 1, 1) + cells).all()
    return len(data)


class Place:
    """A server, and a folder for local files."""

    def __init__(self, root):
        self.objects, self.local = f"{root}/objects", f"{root}/local"
        for folder in (self.objects, self.local):
            os.mkdir(folder)
        self.server = s3_server.Server(self.objects)
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self.environment = {
            **kept, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server.port}", "AWS_ACCESS_KEY_ID": "AKIDTEST",
            "AWS_SECRET_ACCESS_KEY": s3_server.SECRETS["AKIDTEST"], "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "SLUICE_S3_PART_BYTES": "64K", "TMPDIR": self.local,
            "SLUICE_HTTP_RETRY_MS": "500"}  # fmt: skip

    def start(self, path, limit=None, **options):
        return subprocess.Popen(
            [PROGRAM, path, *(f"{k}={v}" for k, v in {**SERIES, **options}.items())], env=self.environment,
            stderr=subprocess.PIPE, text=True,
            preexec_fn=limit and (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))))

    def write(self, path, **options):
        program = self.start(path, **options)
        _, said = program.communicate(timeout=60)
        return program.returncode, said

    def refused(self, path, *words, **options):
        status, said = self.write(path, **options)
        assert status == 1 and all(word in said for word in words), (status, said)
        return said

    def left(self):
        """The one local file, which is removed."""
        names = os.listdir(self.local)
        assert len(names) == 1 and names[0].startswith("run.h5."), names
        os.rename(f"{self.local}/{names[0]}", f"{self.local}/../left")
        return f"{self.local}/{names[0]}", contents(f"{self.local}/../left")


def the_object_is_the_file(place, whole):
    for word in ("fast", "hurried", "lost-hashed", "checked"):
        status, said = place.write(f"s3://{word}/run.h5")
        assert (status, said) == (0, ""), (status, said)
        # The word of the flushes is a number that is drawn.
        found = contents(f"{place.objects}/run.h5")
        assert found[:128] + found[144:] == whole[:128] + whole[144:], word
        assert not os.listdir(place.local)
        os.unlink(f"{place.objects}/run.h5")


def a_web_server_gets_it_by_put(place, whole):
    uri = f"http://127.0.0.1:{place.server.port}/public/run.h5"
    assert place.write(uri + "?key=secret") == (0, "")
    assert frames_in(contents(f"{place.objects}/run.h5")) == SERIES["frames"]
    said = place.refused(uri + "?key=secret", "exists", new=1)
    assert "secret" not in said and not os.listdir(place.local), said


def a_name_that_is_taken_is_refused_at_once(place, whole):
    with open(f"{place.objects}/run.h5", "w") as file:
        file.write("old")
    place.refused("s3://fast/run.h5", "run.h5", new=1)
    assert contents(f"{place.objects}/run.h5") == b"old" and not os.listdir(place.local)
    os.unlink(f"{place.objects}/run.h5")
    assert place.write("s3://fast/run.h5", new=1) == (0, "")
    os.unlink(f"{place.objects}/run.h5")


def a_name_that_is_taken_meanwhile_stays(place, whole):
    program = place.start("s3://fast/run.h5", new=1, pause=150, flush=1)
    while not os.listdir(place.local):
        time.sleep(0.01)
    with open(f"{place.objects}/run.h5", "w") as file:
        file.write("other")
    _, said = program.communicate(timeout=60)
    path, found = place.left()
    assert program.returncode == 1 and path in said and len(found) == len(whole), said
    assert contents(f"{place.objects}/run.h5") == b"other"
    os.unlink(f"{place.objects}/run.h5")


def what_cannot_be_is_refused_before_the_first_frame(place, whole):
    place.refused("s3://none/run.h5", "bucket")
    place.refused("s3://fast/run.h5", "sluice cp", append=1)
    place.refused("s3://fast", "s3://fast")
    place.refused("store://x", "no local path")
    place.environment["TMPDIR"] = f"{place.local}/none"
    place.refused("s3://fast/run.h5", f"{place.local}/none")
    place.environment["TMPDIR"] = place.local
    assert not os.listdir(place.local)


def a_failed_upload_names_the_file_that_stays(place, whole):
    said = place.refused("s3://denied/run.h5", "cannot upload 's3://denied/run.h5'", "Access Denied", flush=2)
    path, found = place.left()
    assert f"'{path}', which stays" in said and len(found) == len(whole), said
    assert not os.path.exists(f"{place.objects}/run.h5")


def a_job_that_dies_leaves_the_local_file(place, whole):
    program = place.start("s3://fast/run.h5", pause=500, flush=1)
    while not os.listdir(place.local):
        time.sleep(0.01)
    program.send_signal(signal.SIGKILL)
    program.communicate()
    assert frames_in(place.left()[1]) and not os.listdir(place.objects)


def a_full_disk_is_an_error_that_names_the_file(place, whole):
    status, said = place.write("s3://fast/run.h5", limit=len(whole) // 2, flush=1)
    path, found = place.left()
    assert status == 1 and path in said and not os.listdir(place.objects), said


def uploads_at_checkpoints_are_whole_files(place, whole):
    program = place.start("s3://slow/run.h5", pause=100, flush=1, upload=50)
    seen = set()
    while program.poll() is None:
        if os.path.exists(f"{place.objects}/run.h5"):
            found = contents(f"{place.objects}/run.h5")
            assert int.from_bytes(found[136:144], "little") % 2 == 0
            seen.add(frames_in(found))
        time.sleep(0.005)
    _, said = program.communicate()
    assert program.returncode == 0 and not said, said
    assert len(seen) > 1 and seen <= set(range(1, SERIES["frames"] + 1)), seen
    assert not os.listdir(place.local) and len(contents(f"{place.objects}/run.h5")) == len(whole)
    assert not place.server.uploads, place.server.uploads


def main():
    with tempfile.TemporaryDirectory() as root:
        place = Place(root)
        assert place.write(f"{root}/whole.h5") == (0, "")
        whole = contents(f"{root}/whole.h5")
        for case in (the_object_is_the_file, a_web_server_gets_it_by_put, a_name_that_is_taken_is_refused_at_once,
                     a_name_that_is_taken_meanwhile_stays,
                     what_cannot_be_is_refused_before_the_first_frame, a_failed_upload_names_the_file_that_stays,
                     a_job_that_dies_leaves_the_local_file, a_full_disk_is_an_error_that_names_the_file,
                     uploads_at_checkpoints_are_whole_files):  # fmt: skip
            print(case.__name__)
            for name in os.listdir(place.objects):
                os.unlink(f"{place.objects}/{name}")
            case(place, whole)


main()
