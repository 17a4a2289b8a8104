# SPDX-License-Identifier: Apache-2.0
"""An origin behind the store: models that a node lacks come from S3, once for each node."""
import collections
import errno
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
import urllib.parse

import numpy
import pytest
import sluice

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "engine/http"))
import s3_server  # noqa: E402

ORIGIN = "s3://bucket/models"
CHILD = """import sys, sluice
with sluice.Store(sys.argv[1]) as store:
    model = sluice.attach("m", 60, origin=sys.argv[2], framework="np", store=store)
    print(model.version, float(model["a"].sum()))
    model.close()
"""


def arrays(seed, n=300_000):
    return {"a": numpy.full(n, seed, "f4"), "b": numpy.arange(n // 3, dtype="i8") + seed,
            "none": numpy.zeros((0, 3), "u1")}


def same(model, seed, n=300_000):
    return all((model[name] == array).all() for name, array in arrays(seed, n).items()) and len(model) == 3


class Counting(s3_server.Server):
    """Counts the bytes of GETs by object. before: called with each request."""

    def __init__(self, root):
        self.bytes, self.requests, self.before = collections.Counter(), collections.Counter(), lambda request: None
        self.folder = root
        super().__init__(root)

    def give_alone(self, sock, request):
        key = request.key.decode()
        self.before(request)
        with self.mutex:
            self.requests[request.method, key] += 1
            form = re.fullmatch(r"bytes=(\d+)-(\d+)", request.field("range"))
            path = self.folder / key
            if request.method == "GET" and path.exists():
                first, last = (int(form[1]), int(form[2])) if form else (0, path.stat().st_size)
                self.bytes[key] += min(last + 1, path.stat().st_size) - first
        super().give_alone(sock, request)

    def put_model(self, name, seed, n=300_000):
        file = self.folder / "models" / name
        other = file.with_name("." + file.name)
        sluice_file(other, arrays(seed, n))
        os.replace(other, file)
        return file


def sluice_file(path, tensors, metadata=""):
    """A .safetensors file, as its format says."""
    words, at, head = {"f4": "F32", "i8": "I64", "u1": "U8"}, 0, []
    for name, array in tensors.items():
        word = words[array.dtype.str[1:]]
        place = f'"shape":{list(array.shape)},"data_offsets":[{at},{at + array.nbytes}]'
        head.append(f'"{name}":{{"dtype":"{word}",{place}}}')
        at += array.nbytes
    text = ("{" + metadata + ",".join(head) + "}").encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for array in tensors.values()))


@pytest.fixture
def server(tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    made = Counting(tmp_path)
    for name, value in {"ACCESS_KEY_ID": "AKIDTEST", "SECRET_ACCESS_KEY": s3_server.SECRETS["AKIDTEST"],
                        "ENDPOINT_URL": f"http://127.0.0.1:{made.port}", "CONFIG_FILE": "/dev/null",
                        "SHARED_CREDENTIALS_FILE": "/dev/null"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("SLUICE_HTTP_BACKOFF_MS", "1")
    return made


@pytest.fixture
def context(server):
    return sluice.Context(http_attempts=3)


@pytest.fixture
def at(store, context):
    return {"store": store, "framework": "np", "context": context}


def content(daemon, name, context, options=""):
    with sluice.open(f"store://{name}?socket={urllib.parse.quote(daemon.path)}{options}", context=context) as file:
        return bytes(file.read(file.stat().size))


def mapping(array):
    """How the memory of an array is mapped, such as r--s."""
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        begin, end, kind = re.match("([0-9a-f]+)-([0-9a-f]+) (....)", line).groups()
        if int(begin, 16) <= array.ctypes.data < int(end, 16):
            return kind


def nothing_is_left(store):
    """Neither a lease nor a blob that is not sealed, once the daemon has heard of releases."""
    end = time.monotonic() + 20
    while any(blob.state != "sealed" or blob.name.startswith(".sluice/") for blob in store.list()):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def test_a_model_that_is_missing_is_fetched_once(server, at, store):
    file = server.put_model("m", 1)
    with pytest.raises(FileNotFoundError):
        sluice.attach("m", 0, origin=ORIGIN, **at)  # a time-out of 0 asks nobody
    with pytest.raises(TimeoutError):
        sluice.attach("m", 0.01, origin="", **at)
    assert not server.requests
    with sluice.attach("m", 10, origin=ORIGIN, **at) as model:
        assert same(model, 1) and mapping(model["a"]).startswith("r-")
        asked = sum(server.requests.values())
        assert file.stat().st_size <= server.bytes["models/m"] <= file.stat().st_size + (256 << 10)
        with sluice.attach("m", 10, origin=ORIGIN, **at) as again:
            assert again.version == model.version
    assert sum(server.requests.values()) == asked and nothing_is_left(store)  # a hit asks S3 nothing


def test_the_environment_names_an_origin(server, at, monkeypatch):
    server.put_model("dir name.safetensors", 2)
    monkeypatch.setenv("SLUICE_STORE_ORIGIN", ORIGIN + "//")
    with sluice.attach("dir name.safetensors", 10, **at) as model:
        assert same(model, 2)
    monkeypatch.setenv("SLUICE_STORE_ORIGIN", "http://127.0.0.1/models")
    with pytest.raises(OSError, match="SLUICE_STORE_ORIGIN"):
        sluice.attach("m", 10, **at)
    sluice.attach("dir name.safetensors", 10, **at).close()
    with pytest.raises(FileNotFoundError):
        sluice.attach("m", 0, **at)


@pytest.mark.parametrize("name", ["m", "n" * 250], ids=["short", "long"])
def test_eight_that_ask_at_once_have_each_byte_once(name, server, daemon, context):
    file = server.put_model(name, 3)
    barrier, found = threading.Barrier(8), []

    def run():
        with daemon.open() as store:
            barrier.wait()
            with sluice.attach(name, 60, origin=ORIGIN, framework="np", store=store, context=context) as model:
                found.append((model.version, same(model, 3)))
    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1 and found[0][1]
    assert server.bytes[f"models/{name}"] <= file.stat().st_size + (256 << 10)


def test_a_leader_that_dies_is_followed(server, daemon, store, tmp_path):
    file = server.put_model("m", 4, 2_000_000)
    stuck, go = threading.Event(), threading.Event()

    def before(request):
        if request.method == "GET" and not go.is_set() and server.requests["GET", "models/m"] > 1:
            stuck.set()
            go.wait(60)
    server.before = before
    command = [sys.executable, "-c", CHILD, daemon.path, ORIGIN]
    leader = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert stuck.wait(60)
    with store.watch(".sluice/fetch/m") as watch:
        follower = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        time.sleep(0.3)
        leader.kill()
        leader.wait()
        assert watch.next(60).kind == "deleted"
        go.set()
        version, total = follower.communicate(timeout=60)[0].split()
    assert float(total) == 4 * 2_000_000 and store.stat("m").id == int(version) and nothing_is_left(store)
    assert server.bytes["models/m"] < 2 * file.stat().st_size + (1 << 20)


def test_an_index_is_read_with_its_files(server, at, store):
    told = '"__metadata__":{"sluice.version":"v5"},'
    sluice_file(server.folder / "models/x.safetensors", {"a": arrays(5)["a"]}, told)
    sluice_file(server.folder / "models/y.safetensors", {k: v for k, v in arrays(5).items() if k != "a"})
    index = server.folder / "models/m.index.json"
    text = '{"weight_map": {"a": "x.safetensors", "b": "y.safetensors", "none": "y.safetensors"}}'
    index.write_text(text)
    changes = []

    def before(request):
        if request.key == b"models/y.safetensors" and not changes:
            changes.append(index.write_text(text + " "))
    server.before = before
    with sluice.attach("m.index.json", 10, origin=ORIGIN, **at) as model:
        assert same(model, 5) and changes
        assert model.newer(origin=True).wait() is None
        index.write_text(text + "  ")
        with model.newer(origin=True).wait() as newer:
            assert same(newer, 5) and newer.version != model.version
    with pytest.raises(OSError, match="not pushed"):
        store.push("m.index.json", ORIGIN, context=at["context"])
    (server.folder / "models/plain").write_text(text)
    with pytest.raises(OSError, match="index.json"):
        sluice.attach("plain", 10, origin=ORIGIN, **at)


@pytest.mark.parametrize("times", [1, 3, 4])
def test_an_object_that_changes_is_begun_anew_three_times(times, server, at, store):
    server.put_model("m", 0, 2_000_000)
    changes, one = [], threading.Lock()

    def before(request):  # at the first request of an attempt that is of a version
        with one:
            if len(changes) < times and request.field("if-match") == f'"{server.body(request)[2]}"':
                changes.append(1)
                server.put_model("m", len(changes), 2_000_000)
    server.before = before
    if times == 4:
        with pytest.raises(OSError) as failed:
            sluice.attach("m", 60, origin=ORIGIN, **at)
        assert failed.value.errno == errno.ESTALE and not store.list()
    else:
        with sluice.attach("m", 60, origin=ORIGIN, **at) as model:
            assert len(changes) == times and same(model, times, 2_000_000)


def test_a_local_publish_that_is_faster_wins(server, daemon, at, store):
    server.put_model("m", 6)
    local = []

    def before(request):
        if request.method == "GET" and not local:
            local.append(sluice.publish("m", arrays(7), framework="np", store=store))
    server.before = before
    with sluice.attach("m", 10, origin=ORIGIN, **at) as model:
        assert same(model, 7) and model.version == local[0].version
        before_that = server.requests["HEAD", "models/m"]
        assert model.newer(origin=True).wait() is None and store.refresh("m") == model.version
        assert server.requests["HEAD", "models/m"] == before_that  # of what was published here S3 is not asked


def test_one_that_waits_for_the_leader_takes_a_local_publish_at_once(server, daemon, at, store):
    server.put_model("m", 6)
    stuck, go, found = threading.Event(), threading.Event(), []

    def before(request):
        if request.method == "GET":
            stuck.set()
            go.wait(60)

    def run():
        with daemon.open() as opened, sluice.attach("m", 60, origin=ORIGIN, **{**at, "store": opened}) as model:
            found.append(same(model, 7))
    server.before = before
    threads = [threading.Thread(target=run) for _ in range(3)]
    threads[0].start()
    assert stuck.wait(60)
    with pytest.raises(TimeoutError, match="another process fetches"):
        sluice.attach("m", 0.05, origin=ORIGIN, **at)
    for thread in threads[1:]:
        thread.start()
    time.sleep(0.2)
    sluice.publish("m", arrays(7), framework="np", store=store).close()
    begun = time.monotonic()
    for thread in threads[1:]:
        thread.join(60)
    assert found == [True, True] and time.monotonic() - begun < 8  # they look again after 10 s
    go.set()
    threads[0].join(60)
    assert found == [True] * 3 and nothing_is_left(store)


def test_a_name_that_a_local_process_has_reserved_is_waited_for(server, daemon, at, store, context):
    server.put_model("m", 6)
    file = sluice.open(f"store://m?socket={urllib.parse.quote(daemon.path)}", "x", expected_size=8, context=context)
    with pytest.raises(TimeoutError):
        sluice.attach("m", 0.05, origin=ORIGIN, **at)
    found = []
    thread = threading.Thread(target=lambda: found.append(sluice.attach("m", 60, origin=ORIGIN, **at)))
    thread.start()
    time.sleep(0.2)
    assert not server.requests
    file.discard()
    thread.join(60)
    assert same(found[0], 6) and nothing_is_left(store)


def test_a_model_that_is_replaced_as_soon_as_it_is_there_is_not_missed(server, daemon, at, store):
    server.put_model("m", 6)
    end = threading.Event()

    def replace():
        with daemon.open() as other, other.watch("m") as watch:
            while not end.is_set():
                if watch.next(60).kind == "sealed":
                    sluice.publish("m", arrays(7), replace=True, framework="np", store=other).close()
                    return
    thread = threading.Thread(target=replace)
    thread.start()
    time.sleep(0.1)
    with sluice.attach("m", 10, origin=ORIGIN, **at) as model:
        assert same(model, 6) or same(model, 7)
    end.set()
    thread.join(60)


def test_a_blob_that_has_the_name_of_a_reservation_is_named(server, daemon, at, store, context):
    server.put_model("m", 1)
    store.put(".sluice/fetch/m", b"x").release()
    with pytest.raises(FileExistsError, match="'.sluice/fetch/m' is a blob"):
        sluice.attach("m", 10, origin=ORIGIN, **at)
    store.delete(".sluice/fetch/m")
    sluice.attach("m", 10, origin=ORIGIN, **at).close()
    server.put_model("m", 2)
    uri = f"store://.sluice/fetch/m?socket={urllib.parse.quote(daemon.path)}"
    lease, found = sluice.open(uri, "x", expected_size=1, context=context), []

    def run():
        with pytest.raises(FileExistsError, match="'.sluice/fetch/m' is a blob"):
            store.refresh("m", context=context)
        found.append(True)
    thread = threading.Thread(target=run, daemon=True)  # it had no end
    thread.start()
    time.sleep(0.2)
    lease.write(b"x", 0)
    lease.close()
    thread.join(10)
    assert found


def test_what_does_not_fit_is_refused_before_a_byte(server, at, store):
    server.put_model("large", 1, 20_000_000)
    with pytest.raises(OSError, match="'large' needs 1[0-9]{8} bytes: .*") as failed:
        sluice.attach("large", 10, origin=ORIGIN, **at)
    assert failed.value.errno == errno.ENOSPC and server.bytes["models/large"] <= 512 << 10 and not store.list()


def test_what_was_fetched_gives_way_when_memory_is_short(server, at, store):
    server.put_model("m", 1, 5_000_000)
    sluice.attach("m", 10, origin=ORIGIN, **at).close()
    for number in range(4):
        store.put(f"local {number}", numpy.zeros(3_000_000, "f4")).release()
    assert len(store.list("local")) == 4 and not store.list("m")
    for number in range(4):
        store.delete(f"local {number}")
    with sluice.attach("m", 10, origin=ORIGIN, **at) as model:
        assert same(model, 1, 5_000_000)


def test_errors_are_those_of_the_server_and_nothing_is_left(server, at, store):
    with pytest.raises(FileNotFoundError):
        sluice.attach("m", 10, origin="s3://none/models", **at)

    def before(request):
        raise s3_server.Refused(403, "AccessDenied")
    server.before = before
    with pytest.raises(PermissionError):
        sluice.attach("m", 10, origin=ORIGIN, **at)

    def gone(request):
        raise s3_server.Refused(503, "SlowDown")
    server.before = gone
    with pytest.raises(OSError, match="503"):
        sluice.attach("m", 10, origin=ORIGIN, **at)
    server.before = lambda request: None
    with pytest.raises(FileNotFoundError):
        sluice.attach("m", 10, origin=ORIGIN, **at)
    asked = sum(server.requests.values())
    with pytest.raises(FileNotFoundError, match="second"):
        sluice.attach("m", 10, origin=ORIGIN, **at)
    assert sum(server.requests.values()) == asked
    time.sleep(1.1)
    server.put_model("m", 9)
    with sluice.attach("m", 10, origin=ORIGIN, **at) as model:
        assert same(model, 9)
    (server.folder / "models/bad").write_bytes(b"\xff" * 1000)
    with pytest.raises(OSError, match="bad"):
        sluice.attach("bad", 10, origin=ORIGIN, **at)
    server.put_model("cut", 3, 2_000_000)
    with sluice.attach("cut", 10, origin="s3://halves/models", **at) as model:
        assert same(model, 3, 2_000_000)
    with pytest.raises(TimeoutError):
        sluice.attach(".sluice/m", 0.01, origin=ORIGIN, **at)
    assert nothing_is_left(store) and not any(".sluice" in key for _, key in server.requests)


def test_newer_replaces_what_was_fetched_from_there(server, at, store, context):
    server.put_model("m", 1)
    model = sluice.attach("m", 10, origin=ORIGIN, **at)
    asked = server.requests["GET", "models/m"]
    assert model.newer(origin=True).wait() is None and server.requests["GET", "models/m"] == asked
    server.put_model("m", 2)
    newer = model.newer(origin=True).wait()
    assert same(newer, 2) and same(model, 1) and newer.version > model.version
    server.put_model("m", 3)
    assert store.refresh("m", "s3://other/models", context=context) == newer.version
    local = []

    def before(request):
        if request.method == "GET" and not local:
            local.append(sluice.publish("m", arrays(4), replace=True, store=store, framework="np"))
    server.before = before
    assert store.refresh("m", ORIGIN, context=context) == local[0].version == store.stat("m").id
    with model.newer(origin=True).wait() as latest:
        assert same(latest, 4)
    store.delete("m")
    with pytest.raises(FileNotFoundError):
        store.refresh("m", context=context)


def test_eight_that_refresh_read_it_once(server, daemon, at, context):
    server.put_model("m", 1, 2_000_000)
    first = sluice.attach("m", 10, origin=ORIGIN, **at)
    size, read = server.put_model("m", 2, 2_000_000).stat().st_size, server.bytes["models/m"]
    barrier, found = threading.Barrier(8), []

    def run():
        with daemon.open() as store:
            barrier.wait()
            found.append(store.refresh("m", context=context))
    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1 and found[0] != first.version
    assert server.bytes["models/m"] - read <= size + (512 << 10)


def test_push_uploads_what_is_published(server, at, store, daemon, context):
    made = sluice.publish("m", arrays(1), push=True, origin=ORIGIN, files={"config.json": "{}"}, **at)
    assert (server.folder / "models/m").read_bytes() == content(daemon, "m", context)
    with pytest.raises(FileExistsError):
        store.push("m", ORIGIN, exclusive=True, context=context)
    store.delete("m")
    made.close()
    with sluice.attach("m", 10, origin=ORIGIN, **at) as model:
        assert same(model, 1) and model.files == {}
    with pytest.raises(ValueError, match="origin"):
        sluice.publish("n", arrays(1), push=True, **at)
    with pytest.raises(OSError, match="origin"):
        store.push(".sluice/n", ORIGIN, context=context)
    assert not store.list("n")
    store.put("bytes", b"some bytes").release()
    store.put("nothing", b"").release()
    store.push("bytes", ORIGIN, context=context)
    store.push("nothing", ORIGIN, context=context)
    assert (server.folder / "models/bytes").read_bytes() == b"some bytes"
    assert (server.folder / "models/nothing").read_bytes() == b""

    def before(request):
        raise s3_server.Refused(403, "AccessDenied")
    server.before = before
    with pytest.raises(PermissionError):
        store.push("bytes", ORIGIN, context=context)
    assert bytes(store.get("bytes")) == b"some bytes"


def test_a_file_of_the_store_is_fetched_as_it_is(server, daemon, at, store, context):
    file = server.put_model("m", 5)
    (server.folder / "models/nothing").write_bytes(b"")
    origin = urllib.parse.quote(ORIGIN)
    with pytest.raises(FileNotFoundError):
        content(daemon, "m", context, f"&origin={origin}")
    assert content(daemon, "m", context, f"&origin={origin}&wait_ms=10000") == file.read_bytes()
    assert content(daemon, "nothing", context, f"&origin={origin}&wait_ms=10000") == b""
    # The bytes give way to the collection.
    with sluice.attach("m", 10, origin=ORIGIN, **at) as model:
        assert same(model, 5)
    store.put("bytes", b"other").release()
    server.put_model("bytes", 5)
    with pytest.raises(OSError) as failed:
        sluice.attach("bytes", 10, origin=ORIGIN, **at)
    assert failed.value.errno == errno.EPROTO
    (server.folder / "models/nothing").write_bytes(b"now")
    assert store.get("nothing").id != store.refresh("nothing", context=context)
    assert bytes(store.get("nothing")) == b"now"


def test_device(server, at, store, context):
    server.put_model("m", 6)
    with sluice.attach("m", 10, origin=ORIGIN, device="emulated:0", **{**at, "framework": "dlpack"}) as model:
        assert model["a"].__cuda_array_interface__["shape"] == (1_200_000,)
        server.put_model("m", 7)
        with model.newer(origin=True).wait() as newer:
            assert newer["a"].__cuda_array_interface__["data"][1]
        store.push("m", ORIGIN, context=context)
    with sluice.attach("m", 10, origin="", store=store, context=context) as model:
        pass
    assert (sluice.load(server.folder / "models/m", framework="np", device="cpu")["a"] == 7).all()


def test_the_command(server, at, store, daemon, tmp_path):
    program = pathlib.Path(sluice._core.__file__).parents[2] / "sluice"

    def run(command, *arguments):
        ran = subprocess.run([program, "store", command, "--socket", daemon.path, *arguments],
                             capture_output=True, text=True)
        return ran.returncode, ran.stdout + ran.stderr
    server.put_model("m", 1)
    sluice.attach("m", 10, origin=ORIGIN, **at).close()
    sluice.publish("local", arrays(2), **at).close()
    assert run("refresh", "m", "local") == (0, "m: unchanged\nlocal: was published here\n")
    server.put_model("m", 3)
    assert run("refresh", "m") == (0, "m: replaced\n")
    status, text = run("refresh", "none")
    assert status == 1 and "none" in text
    assert run("push", "--origin", ORIGIN, "local") == (0, "")
    status, text = run("push", "--origin", ORIGIN, "--exclusive", "local")
    assert status == 1 and "local" in text
    assert run("rm", "--origin", ORIGIN, "local", "m") == (0, "")
    assert not store.list() and not os.listdir(server.folder / "models")
    (server.folder / "models/bytes").write_bytes(b"bytes")
    status, text = run("get", "--origin", ORIGIN, "bytes", tmp_path / "out")
    assert status == 1 and "bytes" in text
    assert run("get", "--origin", ORIGIN, "--wait", "10", "bytes", tmp_path / "out")[0] == 0
    assert (tmp_path / "out").read_bytes() == b"bytes"
