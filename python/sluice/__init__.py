# SPDX-License-Identifier: Apache-2.0
"""Asynchronous reads and writes between storage and the memory of host and GPUs.

>>> import sluice
>>> with sluice.open(path) as f:        # a path, file://, http:// or https:// URI
...     f.read(5)
b'hello'

open() returns a File. Each call that waits has a form whose name ends in _async, which returns an
Operation: wait for it, ask whether it is done, or await it. No call holds the interpreter's lock (GIL)
while it waits.
"""

from __future__ import annotations

import os
import sysconfig
import threading

if sysconfig.get_config_var("Py_GIL_DISABLED"):
    raise ImportError("sluice needs an interpreter with the GIL; this one is free-threaded")

try:
    from . import _core
except ImportError as error:
    why = f"{__path__[0]} has none; `make python` builds it" if error.name == __name__ else error
    raise ImportError(f"sluice cannot load its extension: {why}", name=error.name, path=error.path) from error

from . import _memory, _operation
from ._arrays import Array, open_array, open_array_async
from ._collection import Collection, attach, collection, publish
from ._context import Context, configure, doctor
from ._dataset import Samples
from ._file import File, Stat, copy, open, open_async, presign
from ._operation import Operation, progress
from ._pinned import Pinned, pinned, unpin
from ._safetensors import patch_safetensors, patched
from ._save import Save, save
from ._store import Blob, BlobInfo, Store, Watch
from ._tensors import load, load_array, load_into, safe_open
from ._writer import Series, Writer

__version__: str = _core.version
__all__ = [
    "Array", "Blob", "BlobInfo", "Collection", "Context", "File", "Operation", "Pinned", "Samples", "Save", "Series",
    "Stat", "Store", "Watch", "Writer", "attach", "collection", "configure", "copy", "doctor", "load", "load_array",
    "load_into", "open", "open_array", "open_array_async", "open_async", "patch_safetensors", "patched", "pinned",
    "presign", "progress", "publish", "safe_open", "save", "unpin",
]  # fmt: skip


def _setup() -> None:
    _core.setup(_memory.find, _operation.current_queue, _operation.watch, _operation.adopt, _operation.tick,
                Operation, threading.main_thread().ident)


_setup()
os.register_at_fork(after_in_child=_setup)  # its main thread is the one that has called fork()
