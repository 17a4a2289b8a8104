# SPDX-License-Identifier: Apache-2.0
"""The file systems for fsspec, and the libraries that read through them."""
import asyncio
import errno
import http.server
import io
import multiprocessing
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import pattern

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
import sluice.fsspec  # noqa: E402

DATA = pattern(100_000)


@pytest.fixture(params=["sluice+http", "sluice+file"])
def there(request, path, file_server):
    """A file system, and the file of the pattern in it."""
    where = f"sluice+{file_server.uri}/pattern" if request.param == "sluice+http" else f"sluice+file://{path}"
    return fsspec.url_to_fs(where)


def test_bytes_are_those_of_a_slice(there):
    fs, name = there
    for bounds in ((None, None), (10, 20), (-5, None), (0, -1), (99_990, 200_000), (200_000, 300_000), (20, 10)):
        assert fs.cat_file(name, *bounds) == DATA[slice(*bounds)]
    assert fs.cat(name) == DATA and fs.info(name)["size"] == 100_000 and fs.info(name)["type"] == "file"
    assert fs.exists(name) and not fs.exists(name + "-not") and fs.isfile(name) and not fs.isdir(name)
    assert fs.head(name, 5) == DATA[:5] and fs.tail(name, 5) == DATA[-5:]


def test_ranges_of_several_files_come_at_their_places(there, path):
    fs, name = there
    (path.parent / "other").write_bytes(b"other")
    other = name.replace("pattern", "other")
    assert fs.cat_ranges([name, other, name], [5, 1, -3], [9, 3, None]) == [DATA[5:9], b"th", DATA[-3:]]
    assert fs.cat_ranges([name, name], 2, 4) == [DATA[2:4]] * 2
    found = fs.cat_ranges([name, name + "-not"], 0, 3)
    assert found[0] == DATA[:3] and isinstance(found[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError, match="pattern-not"):
        fs.cat_ranges([name, name + "-not"], 0, 3, on_error="raise")
    with pytest.raises(ValueError, match="2 paths, 1 starts"):
        fs.cat_ranges([name, name], [0], [1, 2])
    with pytest.raises(TypeError):
        fs.cat_ranges(name, 0, 1)


def test_a_file_object_has_the_bytes_of_the_file(there):
    fs, name = there
    for options in ({}, {"block_size": 1000}, {"cache_type": "none"}):
        plain = io.BytesIO(DATA)
        with fs.open(name, **options) as f:
            assert f.size == 100_000
            for at, whence, n in ((0, 0, 10), (0, 1, 500), (-30, 2, 100), (70_000, 0, 1), (69_000, 0, 300), (3, 0, -1)):
                assert f.seek(at, whence) == plain.seek(at, whence)
                assert f.read(n) == plain.read(n)
            for at in range(0, 99_000, 3000):  # a column of an array
                f.seek(at)
                assert f.read(100) == DATA[at:at + 100]
            f.seek(1)
            assert f.readline() == io.BytesIO(DATA[1:]).readline()
            again = pickle.loads(pickle.dumps(f))
            assert again.read(7) == f.read(7)
        with pytest.raises(ValueError, match="closed"):
            f.read(1)
    with pytest.raises(FileNotFoundError):
        fs.open(name + "-not")


def test_large_reads_go_past_the_cache(tmp_path, file_server):
    data = pattern(100_000) * 30
    (tmp_path / "large").write_bytes(data)
    with fsspec.open(f"sluice+{file_server.uri}/large") as f:
        buffer = bytearray(2 << 20)
        f.seek(1000)
        assert f.readinto(buffer) == len(buffer) and buffer == data[1000:1000 + len(buffer)]
        assert f.tell() == 1000 + len(buffer) and not f.cache.parts
        assert f.read() == data[1000 + len(buffer):]


def test_reads_that_follow_each_other_are_few_requests(tmp_path, file_server):
    data = pattern(100_000) * 40
    (tmp_path / "large").write_bytes(data)
    with fsspec.open(f"sluice+{file_server.uri}/large") as f:
        assert b"".join(iter(lambda: f.read(10_000), b"")) == data
    assert len(file_server.asked) < 20


@pytest.fixture
def no_length():
    """A server that gives no length, and no ranges."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for at in range(0, len(DATA) if self.path == "/pattern" else 0, 8000):
                part = DATA[at:at + 8000]
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_):
            pass

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_):  # the client has read enough
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def put_server():
    """A server that keeps bodies of PUT, which need a length: its URI, and the bodies by path."""
    stored = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, status, body=b""):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if self.command == "GET" else b"")

        def do_GET(self):
            self.answer(200 if self.path in stored else 404, stored.get(self.path, b""))

        do_HEAD = do_GET

        def do_PUT(self):
            stored[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(201)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", stored
        server.shutdown()


def test_objects_of_a_web_server_are_written_with_their_length(put_server, tmp_path):
    uri, stored = put_server
    fs = fsspec.filesystem("sluice+http")
    (tmp_path / "file").write_bytes(DATA)
    fs.pipe_file(f"{uri}/pipe", DATA)
    fs.put_file(str(tmp_path / "file"), f"{uri}/put")
    for name, options in ("whole", {}), ("sized", {"size": 2 * len(DATA)}):
        with fs.open(f"{uri}/{name}", "wb", **options) as f:
            f.write(DATA)
            f.write(DATA)
    with fs.open(f"{uri}/empty", "wb"):
        pass
    with pytest.raises(FileExistsError):
        fs.open(f"{uri}/put", "xb")
    with sluice.open(f"{uri}/file", "w", expected_size=len(DATA)) as f:
        assert f.write(DATA) == len(DATA)
    with pytest.raises(OSError, match="expected_size") as caught, sluice.open(f"{uri}/none", "w") as f:
        f.write(DATA)
    assert caught.value.errno == errno.ENOTSUP
    assert stored == {"/pipe": DATA, "/put": DATA, "/whole": 2 * DATA, "/sized": 2 * DATA, "/empty": b"", "/file": DATA}


def test_an_object_without_a_length_is_read_to_its_end(no_length, tmp_path):
    name, copy = no_length + "/pattern", str(tmp_path / "copy")
    fs = fsspec.filesystem("sluice+http")
    assert fs.info(name)["size"] is None and fs.size(name) is None
    assert fs.cat(name) == fs.cat_file(name) == fs.read_bytes(name) == DATA
    for options in ({}, {"block_size": 1000}, {"cache_type": "none"}, {"size": 5}):
        with fs.open(name, **options) as f:
            assert f.size is None and f.read(10) == DATA[:10] and f.seek(500) == 500 and f.read(7) == DATA[500:507]
            assert f.read() == DATA[507:] and f.read() == b""
            with pytest.raises(OSError, match="no length"):  # not 0
                f.seek(0, io.SEEK_END)
            f.seek(3)
            with pytest.raises(OSError, match="front to back"):
                f.read(2)
    with fsspec.open(f"sluice+{name}", "rt", encoding="latin-1", newline="") as text:
        assert text.read() == DATA.decode("latin-1")
    with fsspec.open(f"sluice+{name}") as f:
        assert list(f) == list(io.BytesIO(DATA))
    fs.get(name, copy)
    assert Path(copy).read_bytes() == DATA
    with fsspec.open(f"simplecache::sluice+{name}", simplecache={"cache_storage": str(tmp_path / "cache")}) as f:
        assert f.read() == DATA
    assert fs.cat_ranges([name] * 3, [0, 5, -5], [10, None, None]) == [DATA[:10], DATA[5:], DATA[-5:]]
    assert fs.head(name, 5) == DATA[:5] and fs.read_block(name, 0, 50) == DATA[:50]
    with pytest.raises(OSError, match="no length"):
        fs.tail(name, 5)
    fs.get(no_length + "/empty", copy)
    assert Path(copy).read_bytes() == b"" == fs.open(no_length + "/empty").read()
    assert fsspec.open("sluice+file:///proc/self/status").open().read().startswith(b"Name:")


def test_an_object_that_changes_is_read_anew_by_calls_and_not_by_files(path, file_server):
    fs, name = fsspec.url_to_fs(f"sluice+{file_server.uri}/pattern")
    large = path.parent / "large"
    large.write_bytes(DATA * 30)
    assert fs.cat_file(name) == DATA and len(file_server.asked) == 1
    assert fs.cat_file(name, 3, 6) == DATA[3:6] and len(file_server.asked) == 3
    assert fs.cat_file(name, 6, 9) == DATA[6:9] and len(file_server.asked) == 4  # it was still open
    with fs.open(name) as f:
        path.write_bytes(b"new")
        assert fs.cat_file(name, 1, 3) == b"ew" and fs.cat_file(name) == b"new" and fs.info(name)["size"] == 3
        assert f.read(10) == DATA[:10]  # as it was opened
    with fs.open(f"{file_server.uri}/large") as f:
        large.write_bytes(b"new")
        f.seek(2_000_000)
        with pytest.raises(OSError, match="chang"):
            f.read(10)


def test_coroutines_run_in_any_loop(path, file_server):
    fs = sluice.fsspec.HTTPFileSystem(asynchronous=True)
    uri = f"{file_server.uri}/pattern"

    async def reads():
        parts = await asyncio.gather(*(fs._cat_file(uri, i, i + 10) for i in range(100)))
        assert parts == [DATA[i:i + 10] for i in range(100)]
        assert await fs._cat_ranges([uri] * 2, [0, 5], [5, 9]) == [DATA[:5], DATA[5:9]]
        assert (await fs._info(uri))["size"] == 100_000
        with pytest.raises(FileNotFoundError):
            await fs._info(uri + "-not")
        # A call that waits may be made here, too.
        assert fsspec.filesystem("sluice+http").cat_file(uri, 1, 4) == DATA[1:4]

    asyncio.run(reads())
    asyncio.run(reads())


def test_the_thread_of_the_loop_copies_no_large_object(tmp_path, file_server, monkeypatch):
    fs, copied, threads = sluice.fsspec.HTTPFileSystem(asynchronous=True), [], {}
    for size in (5, 256 << 10, 3 << 20, 9 << 20):
        (tmp_path / str(size)).write_bytes(pattern(100_000) * (size // 100_000) + pattern(size % 100_000))
    read = sluice.File.read

    def reads(file, n, offset=0):
        copied.append((n, offset))
        threads[threading.current_thread()] = True
        return read(file, n, offset)

    monkeypatch.setattr(sluice.fsspec._Shared, "read", reads)

    async def all_of(size, *bounds):
        there = (tmp_path / str(size)).read_bytes()
        return await fs._cat_file(f"{file_server.uri}/{size}", *bounds) == there[slice(*(bounds or (None,)))]

    async def sizes():
        for size, bounds in ((5, ()), (256 << 10, ()), (3 << 20, ()), (3 << 20, (0, 2 << 20)),
                             (3 << 20, (0, 100)), (3 << 20, (7, None)), (9 << 20, ()), (3 << 20, (-5, None))):
            assert await all_of(size, *bounds), (size, bounds)

    asyncio.run(sizes())
    # Others are small, or have to be asked for yet, which no thread waits for.
    assert copied == [(256 << 10, 0), (3 << 20, 0), (2 << 20, 0)]
    assert threading.main_thread() not in threads


def test_objects_are_written_and_copied(tmp_path, file_server):
    fs, name = fsspec.url_to_fs(f"sluice+{file_server.uri}/new")
    fs.pipe_file(name, b"written")
    assert (tmp_path / "new").read_bytes() == b"written"
    fs.get(name, str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == b"written"
    with fs.open(name, "wb", size=14) as f:
        f.write(b"through a file")
    assert fs.cat(name) == b"through a file"
    with pytest.raises(NotImplementedError, match="lists"):
        fs.ls(name)
    local = fsspec.filesystem("sluice+file")
    with local.open(str(tmp_path / "local"), "wb") as f:
        f.write(b"local")
    assert sorted(map(str, tmp_path.iterdir())) == sorted(local.ls(str(tmp_path), detail=False))


def test_universal_pathlib_takes_our_names(there):
    upath = pytest.importorskip("upath", reason="universal_pathlib is not installed")
    fs, name = there
    path = upath.UPath(fs.unstrip_protocol(name))
    assert path.fs is fs and path.read_bytes() == DATA and path.exists() and path.name == "pattern"
    if fs.protocol[0] == "sluice+file":
        assert path in list(path.parent.iterdir()) and (path.parent / path.name).stat().st_size == len(DATA)
    with pytest.raises(ValueError, match="incompatible"):
        upath.UPath("sluice+s3://bucket", protocol="file")
    with pytest.raises(ImportError, match="sluice alone"):
        fsspec.filesystem("sluice")


def test_blobs_are_files(daemon, store):
    fs = fsspec.filesystem("store", socket=daemon.path)
    fs.pipe_file("of/a 100%?", DATA)
    store.put("of/deep/b", b"deep")
    store.put("c", b"c")
    assert fs.cat_file("store://of/a 100%?", 5, 9) == DATA[5:9] == fs.cat("of/a 100%?")[5:9]
    assert store.stat("of/a 100%?").nbytes == 100_000
    assert sorted(fs.ls("", detail=False)) == ["c", "of"] and sorted(fs.find("")) == ["c", "of/a 100%?", "of/deep/b"]
    assert [(entry["name"], entry["size"], entry["type"]) for entry in sorted(fs.ls("of"), key=str)] == [
        ("of/a 100%?", 100_000, "file"), ("of/deep", 0, "directory")]
    assert fs.isdir("of") and fs.isfile("c") and not fs.exists("d") and fs.ls("c", detail=False) == ["c"]
    with fs.open("of/deep/b") as f:
        assert f.read() == b"deep" and store.stat("of/deep/b").holders == 1
    assert store.stat("of/deep/b").holders == 0
    fs.rm("c")
    with pytest.raises(FileNotFoundError):
        fs.ls("c")
    fs.rm("of", recursive=True)
    assert fs.find("") == []


def read_in_child(fs, name, results):
    results.put((fs.cat_file(name, 0, 5), fs.exists(name), fs.cat_ranges([name, name], [1, 2], 4)))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_file_system_goes_to_another_process(there, method):
    fs, name = there
    assert fs.cat_file(name, 0, 5) == DATA[:5] and pickle.loads(pickle.dumps(fs)) == fs
    context = multiprocessing.get_context(method)
    results = context.Queue()
    child = context.Process(target=read_in_child, args=(fs, name, results), daemon=True)
    child.start()
    assert results.get(timeout=60) == (DATA[:5], True, [DATA[1:4], DATA[2:4]])
    child.join(60)
    assert child.exitcode == 0


def test_headers_and_settings_are_those_of_each_file_system(path, file_server):
    uri = f"{file_server.uri}/pattern"
    with pytest.raises(OSError, match="Range"):
        fsspec.filesystem("sluice+http", headers={"Range": "bytes=0-1"}).cat_file(uri)
    assert fsspec.filesystem("sluice+http", headers={"X-Key": "a"}, settings={"workers": 2}).cat_file(uri) == DATA


# ----------------------------------------------------------------------------------------- libraries


def test_pandas_and_dask_read(tmp_path, file_server):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    table = pandas.DataFrame({"a": range(5000), "b": [i * 0.5 for i in range(5000)]})
    table.to_csv(tmp_path / "table.csv", index=False)
    uri = f"sluice+{file_server.uri}/table.csv"
    assert pandas.read_csv(uri).equals(table)
    dask = pytest.importorskip("dask.bag", reason="dask is not installed")
    assert dask.read_text(uri, blocksize=10_000).count().compute(scheduler="threads") == 5001


def test_h5py_reads(tmp_path, file_server):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    numpy = pytest.importorskip("numpy")
    values = numpy.arange(600_000, dtype="i4").reshape(600, 1000)
    with h5py.File(tmp_path / "data.h5", "w") as h:
        h["whole"] = values
        h.create_dataset("chunks", data=values, chunks=(50, 100), compression="gzip")
    with fsspec.open(f"sluice+{file_server.uri}/data.h5") as f, h5py.File(f, "r") as h:
        assert (h["whole"][:] == values).all() and (h["chunks"][:, 300:400] == values[:, 300:400]).all()


@pytest.mark.parametrize("sharded", [False, True])
def test_zarr_and_xarray_read(tmp_path, file_server, sharded):
    zarr = pytest.importorskip("zarr", "3", reason="zarr 3 is not installed")
    numpy = pytest.importorskip("numpy")
    values = numpy.arange(40_000, dtype="i4").reshape(200, 200)
    group = zarr.create_group(tmp_path / "group")
    array = group.create_array("a", shape=(200, 200), chunks=(20, 50), shards=(100, 100) if sharded else None,
                               dtype="i4", dimension_names=("y", "x"))
    array[:100] = values[:100]  # the rest is missing
    zarr.consolidate_metadata(tmp_path / "group")
    uri = f"sluice+{file_server.uri}/group"
    found = zarr.open_group(uri, mode="r")["a"]
    assert (found[:100] == values[:100]).all() and not found[100:].any()
    assert (found[10:30, 60] == values[10:30, 60]).all()
    xarray = pytest.importorskip("xarray", "2024", reason="a recent xarray is not installed")
    store = zarr.storage.FsspecStore.from_url(uri, read_only=True)  # xarray takes no + in a protocol
    assert int(xarray.open_zarr(store, chunks=None)["a"][:100].sum()) == values[:100].sum()


def test_the_protocols_are_entry_points():
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for protocol, place in project["entry-points"]["fsspec.specs"].items():
        module, _, kind = place.partition(":")
        assert module == "sluice.fsspec" and protocol in getattr(sluice.fsspec, kind).protocol
        assert fsspec.get_filesystem_class(protocol) is getattr(sluice.fsspec, kind)


def test_a_program_ends_while_a_server_is_silent(mute_server):
    program = """
import fsspec, sluice.fsspec, pathlib, sys, threading
fs = fsspec.filesystem("sluice+http")
threading.Thread(target=fs.cat, args=([sys.argv[1], sys.argv[1] + "2"],), daemon=True).start()
while not any("sluice-http" in comm.read_text() for comm in pathlib.Path("/proc/self/task").glob("*/comm")):
    pass
"""
    assert subprocess.run([sys.executable, "-c", program, mute_server], timeout=50).returncode == 0


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A file system of S3, a server that checks signatures, and a folder with its objects."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "engine/http"))
    import s3_server

    for name in s3_server.LISTED:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(name.encode())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDTEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.SECRETS["AKIDTEST"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{s3_server.start(tmp_path)}")
    return fsspec.filesystem("sluice+s3", skip_instance_cache=True), s3_server.LISTED


def test_objects_of_s3_are_listed_and_read(bucket):
    fs, names = bucket
    assert fs.ls("sluice+s3://bucket", detail=False) == [f"bucket/{name}" for name in
                                                         ("a", "a b", "b&<>", "c+d%", "nl\nx", "z")]
    assert fs.ls("bucket/a/", detail=False) == ["bucket/a/1", "bucket/a/2"]
    assert fs.find("bucket") == [f"bucket/{name}" for name in names]
    assert fs.glob("bucket/*/*") == ["bucket/a/1", "bucket/a/2", "bucket/z/deep"]
    assert fs.glob("bucket/**/er") == ["bucket/z/deep/er"]
    for name in names:
        assert fs.cat_file(f"bucket/{name}") == name.encode()
        assert fs.info(f"bucket/{name}")["size"] == len(name) == fs.find(f"bucket/{name}", detail=True)[
            f"bucket/{name}"]["size"]
    assert fs.isdir("bucket/z") and fs.isdir("bucket") and not fs.exists("bucket/not")
    with pytest.raises(FileNotFoundError, match="NoSuchKey"):
        fs.ls("bucket/not")
    with pytest.raises(FileNotFoundError, match="NoSuchBucket"):
        fs.ls("none")
    with fsspec.open("sluice+s3://bucket/z/deep/er") as file:
        assert file.read() == b"z/deep/er"
    fs.pipe_file("bucket/new", b"new")
    assert fs.cat("bucket/new") == b"new"


def test_an_object_beside_a_folder_of_its_name_is_listed(bucket, monkeypatch):
    import s3_server

    fs, _ = bucket
    monkeypatch.setattr(s3_server, "LISTED", ["p/ab", "p/b", "p/b/a/x", "same", "same/inner", "same/inner/x", "z"])
    entries = [(entry["name"], entry["type"]) for entry in fs.ls("echo")]
    assert entries == [("echo/p", "directory"), ("echo/same", "file"), ("echo/same", "directory"), ("echo/z", "file")]
    assert fs.ls("echo/same", detail=False) == ["echo/same/inner", "echo/same/inner"]
    assert fs.find("echo", maxdepth=1) == ["echo/same", "echo/z"] and fs.glob("echo/sam*") == ["echo/same"]
    assert fs.find("echo/same") == fs.find("echo/same", maxdepth=2) == ["echo/same/inner", "echo/same/inner/x"]
    assert next(fs.walk("echo")) == ("echo", ["p", "same"], ["same", "z"])
    # A prefix is of the names that are found, and of no more.
    for prefix, names in (("b", ["b", "b/a/x"]), ("b/", ["b/a/x"]), ("a", ["ab"]), ("z", [])):
        assert fs.find("echo/p", prefix=prefix) == [f"echo/p/{name}" for name in names]
    assert fs.find("echo/p", prefix="b", maxdepth=1) == ["echo/p/b"]
    assert fs.find("echo/p", prefix="b", withdirs=True) == ["echo/p/b", "echo/p/b/a", "echo/p/b/a/x"]
    assert fs.find("echo/p", prefix="b", maxdepth=2, detail=True).keys() == {"echo/p/b"}
    assert fs.find("echo", prefix="s", maxdepth=2) == ["echo/same", "echo/same/inner"]


def test_a_version_is_read_where_it_is_asked_for(bucket, tmp_path):
    fs, _ = bucket
    name = "echo/object"
    for version, data in (("1+/", b"object1+/"), (None, b"object"), ("2", b"object2")):
        assert fs.cat_file(name, version_id=version) == fs.cat(name, version_id=version) == data
        assert fs.cat_file(name, 1, -1, version_id=version) == data[1:-1]
        assert fs.info(name, version_id=version)["size"] == len(data)
        with fs.open(name, version_id=version) as file:
            again = pickle.loads(pickle.dumps(file))
            assert file.read() == again.read() == data and file.info()["size"] == len(data)
        fs.get(name, str(tmp_path / "copy"), version_id=version)
        assert (tmp_path / "copy").read_bytes() == data
    assert asyncio.run(fs._cat_file(name, version_id="3")) == b"object3"
    with pytest.raises(FileNotFoundError):
        fs.info("bucket/a", version_id="1")  # a folder has none
    with pytest.raises((TypeError, OSError), match="version"):
        fs.open(name, "wb", version_id="1")


def test_options_that_are_not_known_are_refused(bucket, path, file_server):
    fs, _ = bucket
    for kind in ("sluice+http", "sluice+s3", "sluice+file", "store"):
        for option in ("key", "endpoint_url", "version_id", "acl", "context")[2 * (kind == "sluice+s3"):]:
            with pytest.raises(TypeError, match=option):
                fsspec.filesystem(kind, **{option: "x"})
        fsspec.filesystem(kind, skip_instance_cache=True, use_listings_cache=False, listings_expiry_time=1, max_paths=3)
    fsspec.filesystem("sluice+s3", asynchronous=True, loop=None, batch_size=3)
    for client in ({"colour": 1}, {"config": None, "use_ssl": True}, {"endpoint_url": "http://127.0.0.1:1"}):
        with pytest.raises(TypeError, match=r"colour|use_ssl|endpoint_url"):
            fsspec.filesystem("sluice+s3", endpoint_url="http://localhost", client_kwargs=client)
    for own, name in ((fs, "echo/a"), fsspec.url_to_fs(f"sluice+{file_server.uri}/pattern"),
                      fsspec.url_to_fs(f"sluice+file://{path}")):
        for call in (own.cat_file, own.cat, own.open, own.info)[:3 if "file" in own.protocol[0] else 4]:
            with pytest.raises(TypeError, match="colour"):
                call(name, colour=1)
    for call in (fs.ls, fs.find, fs.rm, fs.exists, lambda name, **o: fs.pipe_file(name, b"", **o),
                 lambda name, **o: fs.open(name, "wb", **o), lambda name, **o: fs.get(name, "to", **o)):
        with pytest.raises(TypeError, match="colour"):
            call("echo/a", colour=1)
    assert fs.ls("echo/a", detail=False, refresh=True) == ["echo/a/1", "echo/a/2"]


def test_options_are_those_of_s3fs_and_stay_with_their_file_system(bucket, monkeypatch, tmp_path):
    import s3_server

    keys = {name: {"key": name, "secret": secret} for name, secret in s3_server.SECRETS.items()}
    keys["ASIATEST"]["token"] = "token"
    places = []
    for name in "ab":
        root = tmp_path / f"root-{name}"
        root.mkdir()
        (root / "object").write_bytes(name.encode())
        places.append(f"http://127.0.0.1:{s3_server.start(root)}")
    profile = tmp_path / "credentials"
    profile.write_text("[mine]\naws_access_key_id = AKIDTEST\naws_secret_access_key = " + keys["AKIDTEST"]["secret"])
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profile))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")  # which a request must not use
    client = {"endpoint_url": places[0], "aws_access_key_id": "AKIDTEST", "region_name": "us-east-1",
              "aws_secret_access_key": keys["AKIDTEST"]["secret"]}
    given = [({"endpoint_url": places[0], **keys["AKIDTEST"]}, "bucket", b"a"),
             ({"endpoint_url": places[1], **keys["AKIDTEST"]}, "bucket", b"b"),
             ({"endpoint_url": places[1], **keys["ASIATEST"]}, "bucket", b"b"),
             ({"endpoint_url": places[1], **keys["ASIATEST"], "secret": "wrong"}, "bucket", None),
             ({"endpoint_url": places[0], **keys["AKIDTEST"], "anon": True}, "bucket", None),
             ({"endpoint_url": places[0], **keys["AKIDTEST"], "anon": True}, "public", b"a"),
             ({"client_kwargs": client}, "bucket", b"a"), ({"client_kwargs": client, "anon": True}, "public", b"a"),
             ({"client_kwargs": {**client, "endpoint_url": places[1]}}, "bucket", b"b"),
             ({"endpoint_url": places[0], "client_kwargs": {**client, "verify": False}}, "bucket", b"a"),
             ({"profile": "mine", "endpoint_url": places[1]}, "bucket", b"b"),
             ({"endpoint_url": places[0], **keys["AKIDTEST"], "requester_pays": True}, "payer", b"a"),
             ({"endpoint_url": places[0], **keys["AKIDTEST"]}, "payer", None),
             ({"endpoint_url": places[0], **keys["AKIDTEST"], "headers": {"x-amz-request-payer": "requester"}}, "payer",
              b"a")]

    def finds(fs, word, expected):
        if expected is None:
            with pytest.raises(PermissionError):
                fs.cat_file(f"{word}/object")
            with pytest.raises(PermissionError):
                fs.ls(word)
        else:
            assert fs.cat_file(f"{word}/object") == expected and fs.ls(f"{word}/a", detail=False)
            fs.pipe_file(f"{word}/new", b"")
            fs.rm_file(f"{word}/new")

    made = [(fsspec.filesystem("sluice+s3", **options), word, expected) for options, word, expected in given]
    for _ in range(2):
        for fs, word, expected in made:
            finds(fs, word, expected)
            finds(pickle.loads(pickle.dumps(fs)), word, expected)
            finds(fsspec.AbstractFileSystem.from_json(fs.to_json()), word, expected)
        # The caller changes what it has given: file systems stay what they were made as.
        client["endpoint_url"] = "http://127.0.0.1:1"
        client.pop("aws_access_key_id", None)
        given[-1][0]["headers"].clear()
    fs.clear_instance_cache()
    finds(pickle.loads(pickle.dumps(made[6][0])), "bucket", b"a")
    assert fsspec.filesystem("sluice+s3", **given[0][0]) is fsspec.filesystem("sluice+s3", **given[0][0])

    ca = sluice._context._CA_BUNDLES[0]
    for verify, settings in ((False, {"tls_insecure": "1"}), (ca, {"ca_bundle": ca}), (True, {}), (None, {})):
        fs = fsspec.filesystem("sluice+s3", client_kwargs={"verify": verify}, settings={"workers": 2})
        assert fs._options["context"]._given == {"workers": 2, **settings}


def test_objects_of_s3_are_written_in_parts(bucket, tmp_path):
    fs, _ = bucket
    body = bytes(range(256)) * 2000 + b"end"
    context = sluice.Context(s3_part_bytes="64 KiB")
    with sluice.open("s3://bucket/large", "w", context=context) as file:
        file.write(body)
        assert not (tmp_path / "large").exists()
    assert (tmp_path / "large").read_bytes() == body
    fs = fsspec.filesystem("sluice+s3", settings={"s3_part_bytes": "64 KiB"}, skip_instance_cache=True)
    with fs.open("bucket/large 2", "wb") as file:
        for at in range(0, len(body), 10000):
            file.write(body[at:at + 10000])
    assert (tmp_path / "large 2").read_bytes() == body
    with pytest.raises(RuntimeError), sluice.open("s3://bucket/none", "w", context=context) as file:
        file.write(body)
        raise RuntimeError
    assert not (tmp_path / "none").exists()
    assert fs.cat("state/bucket").split().count(b"PUT_partNumber_uploadId") == 1
    assert b"\nopen 0\n" in fs.cat("state/bucket")


def test_archives_are_written_to_s3_front_to_back(bucket, tmp_path):
    import zipfile

    fs, _ = bucket
    with fs.open("bucket/a.zip", "wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("name", b"text")
    assert zipfile.ZipFile(tmp_path / "a.zip").read("name") == b"text"
    with fs.open("bucket/b", "wb") as file:
        file.write(b"ab")
        with pytest.raises(OSError, match="not seekable"):
            file.seek(0)


def test_objects_of_s3_are_removed(bucket, tmp_path):
    fs, _ = bucket
    assert fs.cat("bucket/a b") == b"a b"
    fs.rm("bucket/a b")
    fs.rm_file("sluice+s3://bucket/b&<>")
    fs.rm(["bucket/nl\nx", "bucket/c+d%"])
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "z"]
    for call in (fs.rm, fs.rm_file, fs.cat):
        with pytest.raises(FileNotFoundError):
            call("bucket/a b")
    with pytest.raises(FileNotFoundError):
        fs.rm("bucket/none", recursive=True)
    for call in (fs.rm, fs.rm_file):
        with pytest.raises(IsADirectoryError, match="recursive=True"):
            call("bucket/a")
    (tmp_path / "b").write_bytes(b"b")
    fs.rm("bucket/b", recursive=True)  # an object, and nothing below it
    fs.rm("bucket/a", recursive=True)
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == ["er"]
    fs.rm("bucket", recursive=True, batch_size=3)
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]
    for gone in ({"path": "none/x", "recursive": True}, {"path": "none"}):
        with pytest.raises(FileNotFoundError, match="NoSuchBucket"):
            fs.rm(**gone)
    with pytest.raises(IsADirectoryError, match="recursive=True"):
        fs.rm("bucket")


def test_many_objects_of_s3_are_removed_by_a_request(bucket, tmp_path):
    fs, _ = bucket
    before = fs.cat("state/bucket").split()
    fs.rm("bucket", recursive=True)
    assert not [each for each in tmp_path.rglob("*") if each.is_file()]
    after = fs.cat("state/bucket").split()
    assert after.count(b"POST_delete") == 1 and before.count(b"POST_delete") == 0
    # Names that servers may read differently.
    assert int(after[after.index(b"DELETE") + 1]) == 3


def test_s3_without_credentials_says_what_is_missing(bucket, monkeypatch):
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(PermissionError, match="AWS_SECRET_ACCESS_KEY is missing"):
        bucket[0].ls("bucket")


def test_blobs_are_found_by_a_prefix(daemon):
    fs = fsspec.filesystem("store", socket=daemon.path, skip_instance_cache=True)
    for name in "a/x1", "a/x2", "a/y1":
        fs.pipe_file(name, b"1")
    assert fs.find("a", prefix="x") == ["a/x1", "a/x2"]
    assert sorted(fs.find("a", prefix="x", detail=True)) == ["a/x1", "a/x2"]
    assert fs.glob("a/x*") == ["a/x1", "a/x2"]


def test_a_bucket_is_not_made(bucket):
    fs, _ = bucket
    assert fs.exists("bucket") and not fs.exists("none") and not fs.isdir("none")
    fs.mkdir("bucket/folder")
    fs.makedirs("bucket", exist_ok=True)
    for call in (fs.makedirs, fs.mkdir):
        with pytest.raises(FileExistsError):
            call("bucket")
    with pytest.raises(PermissionError, match="no buckets"):
        fs.mkdir("none")


def test_a_folder_goes_with_the_last_file_in_it(bucket, daemon):
    store = fsspec.filesystem("store", socket=daemon.path, skip_instance_cache=True)
    store.pipe_file("bucket/a/1", b"1")
    for fs in (bucket[0], store):
        for folder in ("bucket", "bucket/a"):
            with pytest.raises(FileExistsError, match="last file"):
                fs.rmdir(folder)
        with pytest.raises(FileNotFoundError):
            fs.rmdir("bucket/none")
        with pytest.raises(NotADirectoryError):
            fs.rmdir("bucket/a/1")
        with pytest.raises(IsADirectoryError):
            fs.modified("bucket/a")
        assert fs.find("bucket/a", prefix=None) == fs.find("bucket/a") != []


def test_s3_is_a_protocol_where_a_program_registers_it(bucket):
    """In a process of its own, since fsspec forgets no protocol."""
    program = """
import fsspec, sluice.fsspec
assert "s3" not in fsspec.registry or fsspec.registry["s3"].__module__ != "sluice.fsspec"
fsspec.register_implementation("s3", sluice.fsspec.S3FileSystem, clobber=True)
with fsspec.open("s3://bucket/a/1") as file:
    assert file.read() == b"a/1"
fs, path = fsspec.url_to_fs("s3://bucket/a")
assert type(fs) is sluice.fsspec.S3FileSystem and fs.ls(path, detail=False) == ["bucket/a/1", "bucket/a/2"]
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=50).returncode == 0


def test_a_size_that_is_given_bounds_a_file_object(there):
    fs, where = there
    with fs.open(where, size=100) as file:
        assert file.read() == DATA[:100] and file.size == 100
    with fs.open(where, size=100) as file:  # also where a read goes past the cache, right into its buffer
        file.seek(10)
        assert [file.readinto(bytearray(2 << 20)) for _ in range(2)] == [90, 0]
    with fs.open(where, size=1 << 40) as file:
        assert file.read() == DATA


def test_the_cache_that_dask_names_is_no_option_of_a_file(there):
    fs, where = there
    with fs.open(where, default_cache="none") as file:
        assert file.read() == DATA
    with pytest.raises(TypeError):
        fs.open(where, default_caches="none")


def test_pyarrow_reads_local_files_by_sluice(path):
    pyarrow = pytest.importorskip("pyarrow.fs", reason="pyarrow is not installed")
    kept = pyarrow._ensure_filesystem(fsspec.filesystem("sluice+file"))
    assert isinstance(kept, pyarrow.PyFileSystem) and kept.open_input_file(str(path)).read() == DATA
