# SPDX-License-Identifier: Apache-2.0
"""A back end of xarray for local files of netCDF 4 and HDF5: h5netcdf opens them, and sluice reads the variables.

>>> xarray.open_dataset("run.nc", engine="sluice")            # doctest: +SKIP
"""

from __future__ import annotations

import os
import weakref
from typing import Any

from xarray import Variable
from xarray.backends import BackendArray, H5netcdfBackendEntrypoint, StoreBackendEntrypoint
from xarray.backends.h5netcdf_ import H5NetCDFStore
from xarray.core import indexing

from ._arrays import Array, open_array

_LEAST = 64 << 10  # bytes: smaller variables are read by h5netcdf
_DECODES = ("mask_and_scale", "decode_times", "concat_characters", "decode_coords", "drop_variables", "use_cftime",
            "decode_timedelta")


class _Data(BackendArray):
    """The elements of a variable."""

    def __init__(self, array: Array) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        weakref.finalize(self, array._discard).atexit = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _Data, (self.array,)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        support = indexing.IndexingSupport.OUTER_1VECTOR
        return indexing.explicit_indexing_adapter(key, self.shape, support, lambda part: self.array[part])


class _Store(H5NetCDFStore):
    """As xarray's; of a variable whose type, layout or filters sluice does not read the elements are h5netcdf's."""

    arrays: list[Array]

    def open_store_variable(self, name: str, var: Any) -> Variable:
        found = super().open_store_variable(name, var)
        if found.nbytes < _LEAST or found.dtype.kind not in "biufc":
            return found
        try:
            array = open_array(self._filename, var._h5ds.name)
        except OSError:
            return found
        if array.shape != found.shape or array.dtype != found.dtype:  # netCDF has dimensions that are longer
            array.close()
            return found
        self.arrays = [*getattr(self, "arrays", []), array]
        return Variable(found.dims, indexing.LazilyIndexedArray(_Data(array)), found.attrs, found.encoding)

    def close(self, **options: Any) -> None:
        for array in self.__dict__.pop("arrays", []):
            array.close()
        super().close(**options)


class SluiceBackendEntrypoint(H5netcdfBackendEntrypoint):
    """xarray.open_dataset(path, engine="sluice"): options as of the engine h5netcdf."""

    description = "Open local netCDF 4 and HDF5 files by h5netcdf, and read variables on all cores by sluice"
    url = ""
    supports_groups = False

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        return False

    def open_dataset(self, filename_or_obj: Any, **options: Any) -> Any:
        path = os.fsdecode(filename_or_obj)
        if "://" in path:
            raise ValueError(f"the engine sluice opens local files, and {path!r} is none; "
                             "engine='h5netcdf' takes the file object of fsspec.open()")
        decodes = {name: options.pop(name) for name in _DECODES if name in options}
        store = _Store.open(os.path.abspath(path), **{"phony_dims": "access", **options})
        with store._manager.acquire_context():
            return StoreBackendEntrypoint().open_dataset(store, **decodes)
