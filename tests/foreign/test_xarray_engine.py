# SPDX-License-Identifier: Apache-2.0
"""The back end of xarray: what it opens is what the engine h5netcdf opens, and the elements come by sluice."""
import multiprocessing
import pickle

import numpy as np
import pytest
import sluice
import xarray as xr
from sluice.xarray import SluiceBackendEntrypoint as Engine

CHANCE = np.random.default_rng(1)
HOURS = np.arange("2026-01-01", "2026-01-03", dtype="datetime64[h]").astype("datetime64[ns]")


@pytest.fixture
def path(tmp_path):
    size = len(HOURS), 60, 90
    values = CHANCE.normal(size=size).astype("f4")
    values[3, 4, 5] = np.nan
    made = xr.Dataset({"t": (("time", "y", "x"), values, {"units": "K"}), "packed": (("time", "y", "x"), 250 + values),
                       "big": (("time", "y", "x"), CHANCE.integers(0, 99, size)), "small": ("y", np.arange(60)),
                       "flag": (("y", "x"), CHANCE.random(size[1:]) > 0.5),
                       "name": ("y", [f"row {i}" for i in range(60)])},
                      coords={"time": HOURS, "x": np.linspace(0, 1, 90)}, attrs={"title": "waves"})
    encoding = {"t": {"zlib": True, "chunksizes": (7, 20, 90)}, "big": {"zlib": True, "shuffle": True},
                "packed": {"dtype": "i2", "scale_factor": 0.01, "add_offset": 250.0, "_FillValue": -9999, "zlib": True}}
    made.to_netcdf(tmp_path / "run.nc", engine="h5netcdf", encoding=encoding, unlimited_dims=["time"])
    made[["t"]].to_netcdf(tmp_path / "run.nc", engine="h5netcdf", mode="a", group="deep/er")
    return tmp_path / "run.nc"


@pytest.fixture
def read(monkeypatch):
    """The names of datasets of which sluice has read elements."""
    names, found = set(), sluice.Array.__getitem__
    monkeypatch.setattr(sluice.Array, "__getitem__", lambda self, key: names.add(self.dataset) or found(self, key))
    return names


@pytest.mark.parametrize("options", [{}, {"mask_and_scale": False}, {"decode_times": False, "drop_variables": ["big"]},
                                     {"group": "deep/er"}, {"chunks": {"time": 10}}])
def test_it_opens_what_h5netcdf_opens(path, read, options):
    with xr.open_dataset(path, engine=Engine, **options) as found:
        with xr.open_dataset(path, engine="h5netcdf", **options) as wanted:
            assert not read
            xr.testing.assert_identical(found.load(), wanted.load())
            assert all(found[name].encoding.keys() == wanted[name].encoding.keys() for name in wanted.variables)
    assert "/deep/er/t" in read if "group" in options else {"/t", "/packed"} <= read
    assert not {"/small", "/name"} & read


def test_parts_are_read_alone_and_in_other_processes(path, read):
    with xr.open_dataset(path, engine=Engine) as found, xr.open_dataset(path, engine="h5netcdf") as wanted:
        for part in ({"time": 3}, {"time": slice(40, 2, -7), "x": [5, 1, 5]},
                     {"y": slice(3, 50, 9), "x": [2], "time": [1, 9]}, {"x": np.arange(90) % 4 == 0}):
            xr.testing.assert_identical(found.t.isel(part).load(), wanted.t.isel(part).load())
        again = pickle.loads(pickle.dumps(found.packed))
        xr.testing.assert_identical(again.load(), wanted.packed.load())
        assert read == {"/t", "/packed"}
        with multiprocessing.get_context("fork").Pool(2) as pool:
            for first, second in zip(pool.map(mean_of, [(found.t, k) for k in range(4)]), range(4), strict=True):
                assert first == float(wanted.t[second].mean())


def mean_of(job):
    return float(job[0][job[1]].mean())


def test_other_names_are_refused(tmp_path):
    with pytest.raises(OSError):
        xr.open_dataset(tmp_path / "none.nc", engine=Engine)
    with pytest.raises(ValueError, match="local files, and 'https://a/b.nc' is none"):
        xr.open_dataset("https://a/b.nc", engine=Engine)
    assert not Engine().guess_can_open("run.nc")
