# SPDX-License-Identifier: Apache-2.0
"""fsspec's own abstract suite on our file systems: local files, S3 (moto's server), and the store of a daemon."""
import itertools

import fsspec
import fsspec.tests.abstract as suite
import pytest
import sluice.fsspec  # noqa: F401

_names = itertools.count()


class Local(suite.AbstractFixtures):
    @pytest.fixture
    def fs(self):
        return fsspec.filesystem("sluice+file", auto_mkdir=True)

    @pytest.fixture
    def fs_path(self, tmpdir):
        return str(tmpdir)


class S3(suite.AbstractFixtures):
    @pytest.fixture
    def fs(self, s3):
        return fsspec.filesystem("sluice+s3", **s3)

    @pytest.fixture
    def fs_join(self):
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def fs_path(self):
        return f"there/{next(_names)}"

    @pytest.fixture
    def supports_empty_directories(self):
        return False


class Blobs(S3):
    @pytest.fixture
    def fs(self, store_options):
        return fsspec.filesystem("store", **store_options)


for _kind in Local, S3, Blobs:
    for _part in "Copy", "Get", "Open", "Pipe", "Put":
        _name = f"Test{_kind.__name__}{_part}"
        globals()[_name] = type(_name, (getattr(suite, f"Abstract{_part}Tests"), _kind), {})
