# SPDX-License-Identifier: Apache-2.0
"""pandas and dask read and write through our file systems: of nginx, of S3, of local files, of a store. Run by hand."""
import dask
import dask.array
import dask.dataframe
import fsspec
import numpy as np
import pandas as pd
import pytest
import sluice.fsspec  # noqa: F401
import zarr


def table(rows=50_000):
    draw = np.random.default_rng(4)
    return pd.DataFrame({"a": np.arange(rows), "b": draw.normal(size=rows), "c": [f"é{i % 97}" for i in range(rows)],
                         "d": pd.date_range("2026-01-01", periods=rows, freq="min")})


@pytest.fixture(params=["sluice+file", "sluice+s3", "store"])
def place(request, tmp_path):
    """A folder's URL, and the options of its file system."""
    if request.param == "sluice+file":
        return f"sluice+file://{tmp_path}/made", {"auto_mkdir": True}
    options = request.getfixturevalue({"sluice+s3": "s3", "store": "store_options"}[request.param])
    return f"{request.param}://there/{request.function.__name__}", options


def test_pandas_reads_a_web_server(web):
    folder, url = web
    made = table()
    made.to_parquet(folder / "p.parquet", row_group_size=10_000)
    made.to_csv(folder / "p.csv.gz", index=False)
    made.to_csv(folder / "p.csv", index=False)
    pd.testing.assert_frame_equal(pd.read_parquet(f"{url}/p.parquet"), made, check_freq=False)
    last = pd.read_parquet(f"{url}/p.parquet", columns=["b"], filters=[("a", ">=", 45_000)])
    pd.testing.assert_frame_equal(last, made[["b"]][45_000:].reset_index(drop=True))
    for name in "p.csv", "p.csv.gz":
        found = pd.read_csv(f"{url}/{name}", parse_dates=["d"])
        pd.testing.assert_frame_equal(found, made, check_dtype=False, check_freq=False)
    parts = list(pd.read_csv(f"{url}/p.csv", chunksize=7_000, storage_options={"headers": {"X-Some": "line"}}))
    assert sum(map(len, parts)) == len(made) and parts[-1]["a"].iloc[-1] == len(made) - 1
    with pytest.raises(FileNotFoundError):
        pd.read_csv(f"{url}/not.csv")


def test_pandas_writes_and_reads(place):
    url, options = place
    made = table()
    made.to_parquet(f"{url}/p.parquet", storage_options=options)
    pd.testing.assert_frame_equal(pd.read_parquet(f"{url}/p.parquet", storage_options=options), made, check_freq=False)
    for name in "p.csv", "p.csv.gz", "p.csv.zip":
        made.to_csv(f"{url}/{name}", index=False, storage_options=options)
        found = pd.read_csv(f"{url}/{name}", parse_dates=["d"], storage_options=options)
        pd.testing.assert_frame_equal(found, made, check_dtype=False, check_freq=False)
    made[:100].to_json(f"{url}/p.json", orient="records", lines=True, date_format="iso", storage_options=options)
    assert pd.read_json(f"{url}/p.json", orient="records", lines=True, storage_options=options)["a"].sum() == 4950
    made[:100].to_pickle(f"{url}/p.pickle", storage_options=options)
    found = pd.read_pickle(f"{url}/p.pickle", storage_options=options)
    pd.testing.assert_frame_equal(found, made[:100], check_freq=False)
    made.to_parquet(f"{url}/by_c", partition_cols=["c"], storage_options=options)
    found = pd.read_parquet(f"{url}/by_c", storage_options=options, filters=[("c", "==", "é5")])
    assert sorted(found["a"]) == list(range(5, len(made), 97))


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dask_has_frames(place, scheduler):
    url, options = place
    made = table()
    with dask.config.set(scheduler=scheduler):
        frame = dask.dataframe.from_pandas(made, npartitions=7)
        frame.to_parquet(f"{url}/{scheduler}.parquet", storage_options=options)
        found = dask.dataframe.read_parquet(f"{url}/{scheduler}.parquet", storage_options=options)
        assert len(found) == len(made)  # by the statistics of the files
        assert found.npartitions == 7
        pd.testing.assert_frame_equal(found.compute(), made, check_dtype=False, check_freq=False)
        assert found[found["a"] >= 49_000]["b"].sum().compute() == pytest.approx(made["b"][49_000:].sum())
        frame.to_csv(f"{url}/{scheduler}-*.csv", index=False, storage_options=options)
        rows = dask.dataframe.read_csv(f"{url}/{scheduler}-*.csv", blocksize=100_000, storage_options=options)
        assert rows.npartitions > 7 and rows["a"].sum().compute() == made["a"].sum()


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dask_has_arrays(place, scheduler):
    url, options = place
    made = np.random.default_rng(5).normal(size=(120, 130, 40))
    with dask.config.set(scheduler=scheduler):
        array = dask.array.from_array(made, chunks=(50, 60, 40))
        array.to_zarr(f"{url}/{scheduler}.zarr", storage_options=options)
        found = dask.array.from_zarr(f"{url}/{scheduler}.zarr", storage_options=options)
        assert found.chunks == array.chunks
        np.testing.assert_array_equal(found.compute(), made)
        np.testing.assert_allclose(found[::7, 3].sum(axis=0).compute(), made[::7, 3].sum(axis=0))


def test_dask_reads_arrays_of_a_web_server(web):
    folder, url = web
    made = np.arange(300 * 200, dtype="f4").reshape(300, 200)
    zarr.create_array(str(folder / "dask.zarr"), data=made, chunks=(64, 64))
    found = dask.array.from_zarr(f"{url}/dask.zarr")
    np.testing.assert_array_equal(found[17:, ::3].compute(), made[17:, ::3])


def test_bags_of_lines(place):
    import dask.bag

    url, options = place
    lines = dask.bag.from_sequence(map(str, range(1000)), npartitions=4)
    lines.to_textfiles(f"{url}/*.txt.gz", storage_options=options)
    fs, path = fsspec.url_to_fs(url, **options)
    assert len(fs.glob(f"{path}/*.txt.gz")) == 4
    assert dask.bag.read_text(f"{url}/*.txt.gz", storage_options=options).map(int).sum().compute() == 499_500
