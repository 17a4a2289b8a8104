# SPDX-License-Identifier: Apache-2.0
"""xarray and pyarrow read through our file systems from nginx, and from S3."""
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
import sluice.fsspec  # noqa: F401
import xarray as xr
from zarr.storage import FsspecStore


def arrays():
    values = np.random.default_rng(1).normal(size=(20, 64, 64)).astype("f4")
    return xr.Dataset({"t": (("time", "y", "x"), values)}, coords={"time": np.arange(20)})


def table():
    return pa.table({"a": np.arange(100_000), "b": np.random.default_rng(2).normal(size=100_000),
                     "c": [str(i % 97) for i in range(100_000)]})


def test_xarray_reads_netcdf_and_zarr_of_a_web_server(web):
    folder, url = web
    made = arrays()
    made.to_netcdf(folder / "t.nc", engine="h5netcdf")
    made.to_zarr(folder / "t.zarr", consolidated=True, zarr_format=2)
    with fsspec.open(f"{url}/t.nc") as file, xr.open_dataset(file, engine="h5netcdf") as found:
        xr.testing.assert_identical(found.load(), made)
    store = FsspecStore.from_url(f"{url}/t.zarr", read_only=True)  # xarray takes a URL with a + for a path
    xr.testing.assert_equal(xr.open_zarr(store).load(), made)


def test_pyarrow_reads_parquet_of_a_web_server(web):
    folder, url = web
    made = table()
    pa.parquet.write_table(made, folder / "t.parquet", row_group_size=10_000)
    fs, path = fsspec.url_to_fs(f"{url}/t.parquet")
    found = pa.dataset.dataset(path, filesystem=fs, format="parquet")
    assert found.to_table().equals(made)
    last = found.to_table(columns=["b"], filter=pa.compute.field("a") >= 90_000)
    assert last.equals(made.slice(90_000).select(["b"]))


@pytest.mark.parametrize("kind", ["s3", "store_options"])
def test_they_write_and_read_objects(request, kind):
    options = request.getfixturevalue(kind)
    fs = fsspec.filesystem({"s3": "sluice+s3"}.get(kind, "store"), **options)
    made, rows = arrays(), table()
    pa.dataset.write_dataset(rows, "there/rows", format="parquet", filesystem=fs, partitioning=["c"],
                             existing_data_behavior="overwrite_or_ignore")
    found = pa.dataset.dataset("there/rows", filesystem=fs, format="parquet", partitioning=["c"]).to_table()
    assert found.select(["a"]).sort_by("a").equals(rows.select(["a"]))
    url = fs.unstrip_protocol("there/t.zarr")
    made.to_zarr(FsspecStore.from_url(url, storage_options=options), zarr_format=2)
    xr.testing.assert_equal(xr.open_zarr(FsspecStore.from_url(url, storage_options=options)).load(), made)
