# SPDX-License-Identifier: Apache-2.0
"""Files of other programs, as h5py makes them: those that a writer refuses, or of which it refuses a series, stay as
they are."""

import os
import shutil
import subprocess

import numpy
import pytest
import sluice

h5py = pytest.importorskip("h5py", reason="h5py, which makes the files, is missing")

FRAMES = numpy.arange(7 * 20 * 30, dtype="f4").reshape(7, 20, 30)
EARLIEST = {"libver": ("earliest", "v110")}


@pytest.fixture
def file(tmp_path):
    return str(tmp_path / "x.h5")


def frames(how=EARLIEST, data=FRAMES, **options):
    """A program that makes a file with frames; without chunks by default."""

    def make(path):
        with h5py.File(path, "w", **how) as f:
            f.create_dataset("u", data=data, **options)

    return make


def chunked(how=EARLIEST, data=FRAMES, chunks=(1, 20, 30), most=None, **options):
    return frames(how, data, chunks=chunks, maxshape=(most, 20, 30), **options)


def early(path):
    """Chunks that take their space before they are written."""
    with h5py.File(path, "w", **EARLIEST) as f:
        how = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        how.set_chunk((1, 20, 30))
        how.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        space = h5py.h5s.create_simple(FRAMES.shape, (h5py.h5s.UNLIMITED, 20, 30))
        h5py.h5d.create(f.id, b"u", h5py.h5t.IEEE_F32LE, space, how)
        f["u"][...] = FRAMES


def external_link(path):
    with h5py.File(path + ".other", "w") as f:
        f["u"] = FRAMES
    with h5py.File(path, "w", **EARLIEST) as f:
        f["u"] = h5py.ExternalLink(os.path.basename(path) + ".other", "/u")


def external_bytes(path):
    with h5py.File(path, "w", **EARLIEST) as f:
        f.create_dataset("u", shape=FRAMES.shape, dtype="f4", external=[(path + ".raw", 0, h5py.h5f.UNLIMITED)])
        f["u"][...] = FRAMES


def virtual(path):
    external_link(path)
    layout = h5py.VirtualLayout(FRAMES.shape, dtype="f4")
    layout[...] = h5py.VirtualSource(path + ".other", "u", shape=FRAMES.shape)
    with h5py.File(path, "w", **EARLIEST) as f:
        f.create_virtual_dataset("u", layout)


def group(path):
    with h5py.File(path, "w", **EARLIEST) as f:
        f.create_group("u")["v"] = FRAMES


def ordered(path):
    """The order of attributes is kept in another format of headers."""
    with h5py.File(path, "w", **EARLIEST) as f:
        f.create_dataset("u", data=FRAMES, chunks=(1, 20, 30), maxshape=(None, 20, 30), track_order=True)


def companion(path):
    chunked()(path)
    with h5py.File(path, "r+") as f:
        f["u_time"] = numpy.arange(7)


def nothing(path):
    with open(path, "wb"):
        pass


def text(path):
    with open(path, "w", encoding="ascii") as f:
        f.write("this is no file of HDF5" * 100)


def cut(path):
    chunked()(path)
    os.truncate(path, os.path.getsize(path) // 2)


# How the file is made; then options of the series that differ from those that would be right.
REFUSED = {
    "no fletcher32": (chunked(), {"fletcher32": True, "continue_at": 3}),
    "strings of UTF-8": (chunked(data=FRAMES.astype("S8").astype(h5py.string_dtype("utf-8", 8))), {"dtype": "S8"}),
    "shorter strings": (chunked(data=FRAMES.astype("S7")), {"dtype": "S8"}),
    "lzf": (chunked(compression="lzf"),),
    "scaleoffset": (chunked(data=FRAMES.astype("i4"), scaleoffset=0), {"dtype": "i4"}),
    "contiguous": (frames(),),
    "big endian": (chunked(data=FRAMES.astype(">f4")),),
    "latest": (chunked({"libver": "latest"}),),
    "v110": (chunked({"libver": ("v110", "v110")}),),
    "user block, shared chunks": (chunked({**EARLIEST, "userblock_size": 1024}, chunks=(4, 20, 30)),),
    "user block, shared chunks, back": (
        chunked({**EARLIEST, "userblock_size": 1024}, chunks=(4, 20, 30)), {"continue_at": 5}),
    "page strategy": (chunked({**EARLIEST, "fs_strategy": "page", "fs_persist": True}),),
    "track_order": (ordered,),
    "early": (early,),
    "external link": (external_link,),
    "external bytes": (external_bytes,),
    "virtual": (virtual,),
    "a group": (group,),
    "other scalars": (companion, {"scalars": ["time"]}),
    "empty": (nothing,),
    "text": (text,),
    "cut": (cut,),
    "another type": (chunked(), {"dtype": "i2"}),
    "another shape": (chunked(), {"shape": (20, 31)}),
    "another rank": (chunked(), {"shape": (600,)}),
    "another codec": (chunked(compression="gzip"), {"codec": "none", "continue_at": 3}),
    "another level": (chunked(compression="gzip", compression_opts=4), {"level": 5, "continue_at": 3}),
    "another chunk": (chunked(), {"chunk": (10, 30), "continue_at": 3}),
    "other shared chunks": (chunked(chunks=(4, 20, 30)), {"chunk_frames": 5, "continue_at": 3}),
    "another precision": (chunked(), {"precision": 7, "continue_at": 3}),
    "names of dimensions": (chunked(), {"dimensions": ["t", "y", "x"], "continue_at": 3}),
    "another room": (chunked(most=10), {"frames": 11, "continue_at": 3}),
    "too few frames": (chunked(), {"continue_at": 8}),
    "no memory": (chunked(chunks=(7, 20, 30)), {"depth": 100000, "continue_at": 3}),
}


@pytest.mark.parametrize(
    "how", [{"libver": ("v108", "v108")}, {"libver": ("v110", "v110")}, {**EARLIEST, "fs_strategy": "page"}]
)
def test_h5repack_makes_a_copy_that_is_continued(file, how):
    if not shutil.which("h5repack"):
        pytest.skip("h5repack (hdf5-tools) is missing")
    chunked(how, compression="gzip")(file)
    with pytest.raises(OSError, match="h5repack") as refused:
        sluice.Writer(file, mode="a")
    command = str(refused.value).split("'")[-2]  # behind the file's name
    subprocess.run(command.replace("OLD", file).replace("NEW", file + ".new").split(), check=True)
    with sluice.Writer(file + ".new", mode="a") as w:
        w.series("u", shape=(20, 30), dtype="f4").append(FRAMES[0])
    with h5py.File(file + ".new") as f:
        assert (f["u"][:] == numpy.concatenate([FRAMES, FRAMES[:1]])).all()


def test_an_order_of_attributes_is_named(file):
    ordered(file)
    with sluice.Writer(file, mode="a") as w, pytest.raises(OSError, match="order of its attributes"):
        w.series("u", shape=(20, 30), dtype="f4")


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_stays_as_it_is(file, name):
    make, *other = REFUSED[name]
    options = {"shape": (20, 30), "dtype": "f4", **(other[0] if other else {})}
    make(file)
    before, changed = read(file), os.stat(file).st_mtime_ns
    with pytest.raises(OSError):
        with sluice.Writer(file, mode="a", memory_bytes=64 << 20) as w:
            w.series("u", **options)
    assert read(file) == before
    assert os.stat(file).st_mtime_ns == changed


def test_a_file_that_nothing_is_added_to_stays_as_it_is(file):
    chunked()(file)
    before = read(file)
    sluice.Writer(file, mode="a").close()
    assert read(file) == before


def test_files_of_h5py_without_options_are_continued(file):
    """HDF5 2.0 makes them as HDF5 1 did: of version 0."""
    chunked({})(file)
    with sluice.Writer(file, mode="a") as w:
        w.series("u", shape=(20, 30), dtype="f4").append(FRAMES[0])
    with h5py.File(file, "r") as f:
        assert (f["u"][...] == numpy.concatenate([FRAMES, FRAMES[:1]])).all()


def read(path):
    with open(path, "rb") as f:
        return f.read()


def test_a_shuffle_without_a_codec_is_continued_with_the_shuffle(file):
    with h5py.File(file, "w", **EARLIEST) as f:
        f.create_dataset("u", data=FRAMES, maxshape=(None, 20, 30), chunks=(1, 20, 30), shuffle=True)
    with sluice.Writer(file, mode="a") as w:
        u = w.series("u", shape=(20, 30), dtype="f4", codec="none")
        for frame in FRAMES:
            u.append(frame)
    with h5py.File(file, "r") as f:
        chunks = [f["u"].id.get_chunk_info(i) for i in range(2 * len(FRAMES))]
        assert {chunk.filter_mask for chunk in chunks} == {0}
        assert (f["u"][...] == numpy.concatenate([FRAMES, FRAMES])).all()
