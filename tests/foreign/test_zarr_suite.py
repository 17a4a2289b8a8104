# SPDX-License-Identifier: Apache-2.0
"""zarr's own tests of stores, on its FsspecStore over our file systems."""
import itertools

import fsspec
import pytest
import sluice.fsspec  # noqa: F401
from zarr.core.buffer import cpu
from zarr.core.buffer.core import default_buffer_prototype
from zarr.storage import FsspecStore
from zarr.testing.store import StoreTests

_names = itertools.count()


class Stores(StoreTests[FsspecStore, cpu.Buffer]):
    store_cls = FsspecStore
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def store_kwargs(self, made):
        fs, path = made
        return {"fs": fs, "path": path}

    @pytest.fixture
    async def store(self, store_kwargs):
        return await FsspecStore.open(**store_kwargs)

    async def get(self, store, key):
        return self.buffer_cls.from_bytes(await store.fs._cat(f"{store.path}/{key}"))

    async def set(self, store, key, value):
        await store.fs._pipe_file(f"{store.path}/{key}", value.to_bytes())

    def test_store_repr(self, store):
        assert repr(store) == f"<FsspecStore({type(store.fs).__name__}, {store.path})>"

    def test_store_supports_writes(self, store):
        assert store.supports_writes

    def test_store_supports_listing(self, store):
        assert store.supports_listing

    async def test_the_prototype_has_the_bytes(self, store):
        await self.set(store, "a", self.buffer_cls.from_bytes(b"0123"))
        assert (await store.get("a", default_buffer_prototype())).to_bytes() == b"0123"


class TestS3(Stores):
    @pytest.fixture
    def made(self, s3):
        return fsspec.filesystem("sluice+s3", asynchronous=True, **s3), f"there/zarr{next(_names)}"


class TestBlobs(Stores):
    @pytest.fixture
    def made(self, store_options):
        return fsspec.filesystem("store", asynchronous=True, **store_options), f"zarr{next(_names)}"


class TestLocal(Stores):
    @pytest.fixture
    def made(self, tmp_path):
        from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

        local = fsspec.filesystem("sluice+file", auto_mkdir=True)
        return AsyncFileSystemWrapper(local, asynchronous=True), str(tmp_path)
