#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""examples/gray-scott as its users see it. A case is a function whose name is the sentence that it
proves. usage: gray_scott_test.py GRAY_SCOTT REFERENCE [RENDER DECODE_PNG]; 77 is a skip."""

import contextlib
import itertools
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib

sys.dont_write_bytecode = True
from cases import Skip, run, run_all  # noqa: E402

try:
    import h5py
    import numpy
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

program, reference = sys.argv[1:3]
render, decode_png = sys.argv[3:5] if len(sys.argv) > 3 else (None, None)
STORAGES = [("sluice", "deflate"), ("sluice", "none"), ("plain", "gzip"), ("plain", "none"),
            ("sync", "gzip")]
os.environ["HDF5_USE_FILE_LOCKING"] = "FALSE"
# What a job in the background inherits would make the program ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def checksums(path):
    with open(path, encoding="ascii") as file:
        lines = [line.split() for line in file]
    assert [int(number) for number, _ in lines] == list(range(len(lines)))
    return [int(crc, 16) for _, crc in lines]


def check_frames(file, sums, least=None):
    """Each frame in the file is the one that was computed; all of them, or the least first."""
    with h5py.File(file, "r") as opened:
        frames = opened["matrix"]
        assert frames.dtype == numpy.float32
        assert (len(frames) == len(sums)) if least is None else least <= len(frames) <= len(sums)
        for frame, expected in zip(frames, sums):
            assert zlib.crc32(frame.tobytes()) == expected
        return frames.shape


# ------------------------------------------------------------------------------------------ results


def images_are_those_of_a_plain_implementation_but_for_rounding():
    sizes = [(61, 97), (48, 64), (17, 130), (5, 3), (1, 40), (33, 1), (1, 1)]
    threads = itertools.cycle([1, 2, 5])
    for (rows, columns), (storage, codec) in zip(sizes, itertools.cycle(STORAGES)):
        images, steps, feed, kill, deltat = 6, 21, 0.03, 0.06, 1.1
        run(program, "--nbrow", rows, "--nbcol", columns, "--nbimage", images, "--nbextrastep",
            steps - 1, "--feed-rate", feed, "--kill-rate", kill, "--deltat", deltat, "--threads",
            next(threads), "--storage", storage, "--codec", codec, "--output", "out.h5")
        plain = subprocess.run(
            list(map(str, [reference, rows, columns, images, steps, feed, kill, deltat])),
            check=True, capture_output=True,
        ).stdout
        expected = numpy.frombuffer(plain, numpy.float32).reshape(images, rows, columns)
        with h5py.File("out.h5", "r") as file:
            got = file["matrix"][...]
            assert file["matrix"].attrs["steps_per_image"] == steps
        assert got.shape == expected.shape
        assert numpy.abs(got - expected).max() < 2e-5, numpy.abs(got - expected).max()
        assert rows * columns < 1000 or expected.max() > 0.1  # there is something to compare


def threads_and_storage_do_not_change_a_bit_of_an_image():
    sums = []
    for threads, (storage, codec) in zip([1, 2, 3, 7, 2], STORAGES):
        run(program, "--nbrow", 301, "--nbcol", 203, "--nbimage", 5, "--blocks", 4, "--threads",
            threads, "--storage", storage, "--codec", codec, "--output", "out.h5", "--checksums",
            "sums")
        sums.append(checksums("sums"))
        assert check_frames("out.h5", sums[-1]) == (5, 301, 203)
    assert all(s == sums[0] for s in sums) and len(set(sums[0])) == 5


def the_summary_says_what_was_stored_and_how_long_it_waited():
    for storage, codec in STORAGES:
        text = run(program, "--nbrow", 100, "--nbcol", 160, "--nbimage", 7, "--storage", storage,
                   "--codec", codec, "-o", "out.h5").stdout
        assert text.startswith("7 images of 100 x 160 in "), text
        assert "waited for storage for " in text and f" with {codec}, " in text, text
        with h5py.File("out.h5", "r") as file:
            stored = file["matrix"].id.get_storage_size()
        assert f"stored 0.4 MB as {stored / 1e6:.1f} MB" in text, (stored, text)


# ------------------------------------------------------------------------------------------ endings


def grown(path, size):
    for _ in range(3000):
        with contextlib.suppress(FileNotFoundError):
            if os.path.getsize(path) >= size:
                return
        time.sleep(0.02)
    raise AssertionError(f"{path} does not grow")


def ctrl_c_ends_in_order_and_keeps_the_images_until_then():
    grid = ["--nbrow", "200", "--nbcol", "320", "--nbextrastep", "300"]
    for storage, codec in STORAGES:
        with contextlib.suppress(FileNotFoundError):
            os.unlink("out.h5")
        with subprocess.Popen(
            [program, *grid, "--nbimage", "2000", "--storage", storage, "--codec", codec, "-o",
             "out.h5", "--checksums", "sums"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        ) as running:
            try:
                grown("out.h5", 1 << 14)
                time.sleep(0.1)
                running.send_signal(signal.SIGINT)
                message = running.communicate(timeout=60)[1]
            finally:
                running.kill()
        assert running.returncode == -signal.SIGINT, running.returncode  # 130 in a shell
        assert "interrupted; 'out.h5' has the " in message, message
        sums = checksums("sums")
        assert sums and f"the {len(sums)} images until then" in message, message
        check_frames("out.h5", sums)
    run(program, *grid, "--nbimage", len(sums), "-o", "out.h5", "--checksums", "sums")
    assert checksums("sums") == sums  # the last one is complete, too


def a_deleted_file_is_told_and_not_said_to_have_images():
    with contextlib.suppress(FileNotFoundError):
        os.unlink("out.h5")
    with subprocess.Popen(
        [program, "--nbrow", "200", "--nbcol", "320", "--nbimage", "100000", "-o", "out.h5"],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    ) as running:
        try:
            grown("out.h5", 1 << 14)
            os.unlink("out.h5")
            message = running.communicate(timeout=60)[1]
        finally:
            running.kill()
    assert running.returncode == 1, running.returncode
    assert "it was deleted or replaced" in message and "images" not in message, message


def a_full_disk_is_told_and_the_images_until_then_stay():
    os.mkdir("full")
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode:
        raise Skip("no mount namespaces here")
    for storage, codec in STORAGES:
        script = f"""mount -t tmpfs -o size=4m none full || exit 77
            timeout 60 {program} --nbrow 200 --nbcol 320 --nbimage 1000000 --blocks 20 --storage {storage} \
                --codec {codec} --output full/out.h5 --checksums sums
            status=$?; cp full/out.h5 out.h5; exit $status"""
        # HDF5 does not give everything back when it cannot close a file.
        own = {"ASAN_OPTIONS": "detect_leaks=0"} if storage != "sluice" else {}
        done = subprocess.run(["unshare", "-rm", "bash", "-c", script], capture_output=True,
                              text=True, check=False, timeout=120, env=os.environ | own)
        if done.returncode == 77:
            raise Skip("no mounts in a namespace here")
        assert done.returncode == 1, done
        assert "full/out.h5" in done.stderr and "No space left on device" in done.stderr, done
        if storage == "sluice":  # H5Dwrite promises nothing
            check_frames("out.h5", checksums("sums"), least=1)


def wrong_input_is_refused_with_a_sentence():
    wrong = {
        "--nbrow": ["0", "-1", "x", "", " 5", "-18446744073709551611", "99999999999999999999"],
        "--nbcol": ["0", "1.5"],
        "--nbimage": ["0", "-3"],
        "--nbextrastep": ["-1", "many"],
        "--feed-rate": ["nan", "2", "-0.1", "", "0.1x"],
        "--kill-rate": ["inf", "x"],
        "--deltat": ["0", "100", "-1"],
        "--codec": ["", "gzap", "deflate:0", "deflate:99", "deflate:", ":1", "none:1"],
        "--storage": ["", "tape"],
        "--storage-buffer-len": ["-1", "x", "100000"],
        "--threads": ["0", "x"],
        "--blocks": ["0"],
        "--publish": [""],
        "--publish-every": ["0"],
        "--output": [""],
        "--checksums": [""],
    }
    for option, value in [(o, v) for o, values in wrong.items() for v in values]:
        message = run(program, f"{option}={value}", status=2).stderr
        assert message.splitlines()[0].count(" ") > 3, message
        assert option in message, message
    for arguments in [["rest"], ["--nothing"], ["--storage", "plain", "--codec", "deflate"]]:
        run(program, *arguments, status=2)
    for storage in "sluice", "plain", "sync":
        why = run(program, "--storage", storage, "-o", "none/out.h5", status=1).stderr.splitlines()
        assert len(why) == 1 and "none/out.h5" in why[0], why
        assert "there is no folder 'none'" in why[0] or why[0].endswith("No such file or directory"), why
    assert not os.listdir()


def the_bar_is_drawn_on_a_terminal_only():
    command = [program, "--nbrow", "200", "--nbcol", "320", "-o", "out.h5", "--nbimage"]
    assert run(*command, 20).stderr == ""
    ours, theirs = pty.openpty()
    with subprocess.Popen([*command, "5000"], stderr=theirs, stdout=subprocess.DEVNULL,
                          env={**os.environ, "TERM": "xterm"}) as running:
        os.close(theirs)
        drawn, ended = b"", False
        with contextlib.suppress(OSError):  # the end of a terminal
            while select.select([ours], [], [], 60)[0]:
                drawn += os.read(ours, 4096)
                if drawn.count(b"images/s") > 1 and not ended:
                    ended = True  # a second one would end it at once
                    running.send_signal(signal.SIGINT)
        running.kill()
    bar, after = drawn.rsplit(b"\r\x1b[K", 1)
    assert b"% " in bar and b" left" in bar and b"\n" not in bar, drawn
    assert after.startswith(b"gray-scott: interrupted"), drawn


# ----------------------------------------------------------------------------------------- pictures


def decoded(paths):
    lines = run(decode_png, *paths).stdout.splitlines()
    return [(int(rows), int(columns), crc) for rows, columns, crc in map(str.split, lines)]


def chunks(data):
    at = 8
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", data, at + 8 + size)[0] == zlib.crc32(kind + body)
        yield kind, body
        at += 12 + size


def still(kinds):
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in kinds
    )


def pictures_of_animation(path):
    """Each as a PNG of its own: what a program that plays it sees."""
    with open(path, "rb") as file:
        parts = list(chunks(file.read()))
    head = [part for part in parts if part[0] in (b"IHDR", b"PLTE")]
    numbers = [body[:4] for kind, body in parts if kind in (b"fcTL", b"fdAT")]
    assert numbers == [struct.pack(">I", i) for i in range(len(numbers))]
    pictures = []
    for kind, body in parts:
        if kind == b"fcTL":
            assert body[4:12] == head[0][1][:8] and struct.unpack(">HH", body[20:24]) == (5, 100)
            pictures.append([])
        elif kind in (b"IDAT", b"fdAT"):
            pictures[-1].append((b"IDAT", body[4:] if kind == b"fdAT" else body))
    told = [struct.unpack(">II", body) for kind, body in parts if kind == b"acTL"]
    assert told == [(len(pictures), 0)]
    names = []
    for number, picture in enumerate(pictures):
        names.append(f"part{number}.png")
        with open(names[-1], "wb") as file:
            file.write(still(head + picture + [(b"IEND", b"")]))
    return names


def a_picture_is_made_of_each_image_and_an_animation_of_all():
    if not render:
        raise Skip("built without libpng")
    run(program, "--nbrow", 90, "--nbcol", 160, "--nbimage", 10, "--blocks", 3, "-o", "out.h5")
    said = run(render, "out.h5", "--output-dir", "all", "--rate", 20).stdout
    names = [f"all/matrix_{i:06}.png" for i in range(10)]
    assert sorted(os.listdir("all")) == ["animation.png"] + [os.path.basename(n) for n in names]
    assert "all: 10 images" in said, said
    pictures = decoded(names)
    assert [p[:2] for p in pictures] == [(90, 160)] * 10 and len(set(pictures)) == 10
    assert decoded(["all/animation.png"]) == pictures[:1]
    assert decoded(pictures_of_animation("all/animation.png")) == pictures

    run(render, "out.h5", "-o", "few", "--every", 4, "--width", 40, "--rate", 20)
    few = [f"few/matrix_{i:06}.png" for i in (0, 4, 8)]
    assert sorted(os.listdir("few")) == ["animation.png"] + [os.path.basename(n) for n in few]
    small = decoded(pictures_of_animation("few/animation.png"))
    assert [p[:2] for p in small] == [(22, 40)] * 3 or [p[:2] for p in small] == [(23, 40)] * 3
    run(render, "out.h5", "-o", "last", "--last")
    assert os.listdir("last") == ["matrix_000009.png"]
    run(render, "out.h5", "-o", "none", "--no-images")
    assert os.listdir("none") == ["animation.png"]


def colours_follow_the_values_of_any_dataset():
    if not render:
        raise Skip("built without libpng")
    ramp = numpy.arange(512, dtype="i2").reshape(1, 2, 256).repeat(2, 0)
    odd = ramp.astype("f8")
    odd[0, 0, 0], odd[0, 0, 1], odd[0, 1, 255] = numpy.nan, -numpy.inf, numpy.inf
    with h5py.File("own.h5", "w") as file:
        file["fields/ramp"] = ramp
        file["odd"] = odd
        file["flat"] = numpy.zeros((2, 3, 5))
        file["list"] = numpy.zeros(7)
        file["text"] = "text"
        file["empty"] = numpy.zeros((0, 3, 5))
    common = ["--no-animation", "--range", "0:511", "--gamma", 1]
    run(render, "own.h5", "--dataset", "fields/ramp", "-o", "ramp", *common)
    run(render, "own.h5", "--dataset", "odd", "-o", "odd", *common)
    with open("ramp/ramp_000000.png", "rb") as file:
        parts = dict(chunks(file.read()))
    table = numpy.frombuffer(parts[b"PLTE"], "u1").reshape(256, 3).astype(int)
    light = (table / 255) ** 2.2 @ [0.2126, 0.7152, 0.0722]
    assert (numpy.diff(light[::4]) > 0).all()  # the higher, the lighter
    assert light[0] < 0.01 and light[-1] > 0.9
    steps = (ramp[0] * (65535 / 511) + 0.5).astype(int)
    pixels = table[numpy.rint(steps * (255 / 65535)).astype(int)]
    pixels = numpy.concatenate([pixels, numpy.full((2, 256, 1), 255)], 2).astype("u1")
    expected = (2, 256, f"{zlib.crc32(pixels.tobytes()):08x}")
    assert decoded(["ramp/ramp_000000.png", "ramp/ramp_000001.png"]) == [expected] * 2
    assert decoded(["odd/odd_000000.png", "odd/odd_000001.png"]) == [expected] * 2
    run(render, "own.h5", "--dataset", "odd", "-o", "odd")
    run(render, "own.h5", "--dataset", "flat", "-o", "flat")
    for name, why in [("list", "1 dimension"), ("text", "no numbers"), ("empty", "is empty"),
                      ("none", "there is no dataset 'none'")]:
        assert why in run(render, "own.h5", "--dataset", name, status=1).stderr
    assert "'none.h5'" in run(render, "none.h5", status=1).stderr
    assert "HDF5" in run(render, __file__, status=1).stderr


# -------------------------------------------------------------------------------------------- store

GRID = ["--nbrow", "90", "--nbcol", "160", "--blocks", "3"]


@contextlib.contextmanager
def store():
    """A daemon for this folder."""
    with tempfile.TemporaryDirectory() as folder:  # a socket's path is short
        path = os.environ["SLUICE_STORE"] = os.path.join(folder, "socket")
        with subprocess.Popen([os.environ["SLUICED"], "--memory", "64M"]) as daemon:
            try:
                for _ in range(500):
                    if os.path.exists(path):
                        break
                    time.sleep(0.02)
                yield daemon
            finally:
                daemon.terminate()
                assert daemon.wait(timeout=30) == 0
                del os.environ["SLUICE_STORE"]


def started(*arguments):
    return subprocess.Popen(
        list(map(str, arguments)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process, status):
    out, errors = process.communicate(timeout=60)
    assert process.returncode == status, (process.args, process.returncode, errors)
    return out, errors


def pictures_from_the_store_are_those_from_the_file():
    if not render:
        raise Skip("built without libpng")
    with store():
        live = started(render, "--store", "a/b", "-o", "live", "--range", "0:0.3", "--wait", 50)
        said = run(program, *GRID, "--nbimage", 12, "-o", "out.h5", "--publish", "a/b",
                   "--publish-every", 3).stdout
        assert "published 5 of them in the store as a/b/..." in said, said
        out, _ = ended(live, 0)
        assert "live: 5 images from the store" in out, out
        # After the simulation is gone, too, and each for itself.
        run(render, "--store", "a/b", "-o", "late")
    run(render, "out.h5", "-o", "file", "--no-animation", "--range", "0:0.3")
    numbers = [0, 3, 6, 9, 11]
    names = [f"b_{i:06}.png" for i in numbers]
    assert sorted(os.listdir("live")) == sorted(os.listdir("late")) == names
    shown = decoded([f"live/{name}" for name in names])
    assert shown == decoded([f"file/matrix_{i:06}.png" for i in numbers])
    assert shown != decoded([f"late/{name}" for name in names])


def a_simulation_that_is_killed_ends_its_pictures():
    if not render:
        raise Skip("built without libpng")
    with store():
        live = started(render, "--store", "x", "-o", "live", "--wait", 50)
        killed = started(program, *GRID, "--nbimage", 1000000, "-o", "out.h5", "--publish", "x")
        for _ in range(3):
            assert "while the next one" in live.stdout.readline()
        taken = run(program, *GRID, "--nbimage", 2, "-o", "no.h5", "--publish", "x", status=1)
        assert f"process {killed.pid} publishes under 'x' already" in taken.stderr, taken.stderr
        killed.kill()
        ended(killed, -signal.SIGKILL)
        assert "images from the store" in ended(live, 0)[0]
        # What it has left does not come again.
        run(program, *GRID, "--nbimage", 2, "-o", "out.h5", "--publish", "x")
        run(render, "--store", "x", "-o", "next")
        assert sorted(os.listdir("next")) == ["x_000000.png", "x_000001.png"]
        why = run(render, "--store", "y", "-o", "none", "--wait", 1, status=1).stderr
        assert "'y': no image came for 1 s" in why, why


def a_simulation_goes_on_when_the_store_is_gone():
    options = [*GRID, "--nbimage", 300, "-o", "out.h5", "--checksums", "sums", "--publish", "x"]
    assert "no store at" in run(program, *options, status=1, env={**os.environ,
                                "SLUICE_STORE": "none/socket"}).stderr
    with store() as daemon:
        running = started(program, *options)
        grown("out.h5", 1 << 14)
        daemon.terminate()
        why = ended(running, 1)[1]
    assert "images are missing in the store: " in why, why
    assert check_frames("out.h5", checksums("sums")) == (300, 90, 160)


def wrong_input_of_render_is_refused_with_a_sentence():
    if not render:
        raise Skip("built without libpng")
    for arguments in [[], ["a", "b"], ["a", "--every", "0"], ["a", "--range", "1"],
                      ["a", "--range", "2:1"], ["a", "--range", "x:1"], ["a", "--gamma", "0"],
                      ["a", "--width", "0"], ["a", "--rate", "101"], ["a", "--last", "--no-images"],
                      ["a", "--no-images", "--no-animation"], ["--store", ""], ["a", "--store", "a"],
                      ["--store", "a", "--last"], ["--store", "a", "--wait", "0"]]:
        message = run(render, *arguments, status=2).stderr
        assert message.splitlines()[0].count(" ") > 1, message
    assert not os.listdir()


program, reference = map(os.path.abspath, (program, reference))
if render:
    render, decode_png = map(os.path.abspath, (render, decode_png))
run_all([
    images_are_those_of_a_plain_implementation_but_for_rounding,
    threads_and_storage_do_not_change_a_bit_of_an_image,
    the_summary_says_what_was_stored_and_how_long_it_waited,
    ctrl_c_ends_in_order_and_keeps_the_images_until_then,
    a_deleted_file_is_told_and_not_said_to_have_images,
    a_full_disk_is_told_and_the_images_until_then_stay,
    wrong_input_is_refused_with_a_sentence,
    the_bar_is_drawn_on_a_terminal_only,
    a_picture_is_made_of_each_image_and_an_animation_of_all,
    colours_follow_the_values_of_any_dataset,
    pictures_from_the_store_are_those_from_the_file,
    a_simulation_that_is_killed_ends_its_pictures,
    a_simulation_goes_on_when_the_store_is_gone,
    wrong_input_of_render_is_refused_with_a_sentence,
])
