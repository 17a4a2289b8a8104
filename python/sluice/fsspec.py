# SPDX-License-Identifier: Apache-2.0
"""File systems for fsspec, and so for pandas, dask, xarray, zarr and h5py.

An installed package has entry points; elsewhere `import sluice.fsspec` makes the protocols known: sluice+http and
sluice+https, sluice+s3, sluice+file, and store.

>>> import fsspec, sluice.fsspec
>>> with fsspec.open(f"sluice+file://{path}") as f:
...     f.read(5)
b'hello'

A call that reads waits on the thread that makes it; a coroutine makes the call on a thread of a pool, so it may be
awaited in any event loop. All ranges of a file are a single read, whose neighbours the engine joins.
"""

from __future__ import annotations

import asyncio
import collections
import datetime
import errno
import functools
import io
import os
from typing import Any, Callable, Iterable, Mapping, Sequence, TypeVar, Union
from urllib.parse import quote

import fsspec
from fsspec.asyn import AsyncFileSystem, get_loop
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.implementations import local
from fsspec.registry import known_implementations

from . import _context, _core, _threads
from ._file import File, presign
from ._fsspec_files import BufferedFile, _Late, _on_thread, _Shared, _Whole
from ._store import Store

T = TypeVar("T")
_BATCH = 1000  # removals at a time
_KEPT = 32  # remote files of a file system that stay open
_PART = 64 << 20  # of a copy
_WHOLE = 8 << 20  # an object of so much is a single request


# Options of any file system of fsspec, beside skip_instance_cache, which its metaclass takes.
_FSSPEC = {"asynchronous", "loop", "batch_size", "use_listings_cache", "listings_expiry_time", "max_paths"}


def _refuse(options: Iterable[str], known: Iterable[str] = _FSSPEC, where: str = "") -> None:
    """Raise TypeError for other options than those: a server, a version or rights must not be taken for obeyed."""
    for name in options:
        if name not in known:
            raise TypeError(f"{where}there is no option {name!r}")


def _copied(given: Any) -> Any:
    """Options that the caller may change, which change nothing then."""
    if type(given) is dict:
        return {name: _copied(value) for name, value in given.items()}
    return type(given)(map(_copied, given)) if type(given) in (list, tuple) else given


def _copy(source: File, found: Any, target: str, callback: Any, options: Mapping[str, Any], mode: str = "w") -> None:
    """Copy a file, whose stat() is found, to a path or URI."""
    size, at = None if found.size_unknown else found.size, 0
    callback.set_size(size)
    with File(target, mode, expected_size=size or 0, **options) as out:
        while part := source.read(_PART if size is None else min(_PART, size - at), at):
            at += out.write(part, at)
            callback.relative_update(len(part))
        if size is not None and at < size:
            raise OSError(errno.EIO, f"has become shorter: {at} of {size} bytes", source.uri)


_Ranges = Sequence[tuple[Union[int, None], Union[int, None]]]


def _first(ranges: _Ranges) -> int:
    """How many bytes are to come with the opening of a file, which is read from its begin."""
    ends = [_WHOLE if end is None or end < 0 else min(end, _WHOLE) for start, end in ranges if not start]
    return max(ends, default=0)


def _retried(error: OSError) -> None:
    """Raise the error, unless the file is of another version, or of another process than the parent."""
    if error.errno not in (errno.ESTALE, errno.ECHILD):
        raise error


class _Reads:
    """The calls of a file system that read. version: options that _opened() takes, and no others."""

    _block = 128 << 10  # of file objects
    _options: Mapping[str, Any] = {}
    _strip_protocol: Any

    def _uri(self, path: str) -> str:
        return path

    def _given(self) -> Mapping[str, Any]:
        """Options of a file."""
        return self._options

    def _opened(self, path: str, anew: bool = False, first: int = 0, **version: Any) -> _Shared:
        return _Shared(self._uri(path), first_bytes=first, **self._given(**version))

    def _ranges(self, path: str, ranges: _Ranges, **version: Any) -> list[bytes]:
        first = _first(ranges)
        try:
            return self._opened(path, first=first, **version).ranges(ranges)
        except OSError as error:
            _retried(error)
        return self._opened(path, True, first, **version).ranges(ranges)

    @classmethod
    def _plan(cls, paths: list[str], starts: Any, ends: Any) -> tuple[dict[str, list[int]], dict[str, _Ranges]]:
        """The places of each file in a list of ranges, and its ranges."""
        if not isinstance(paths, list):
            raise TypeError(f"paths is a list, not {type(paths).__name__}")
        starts, ends = (list(b) if isinstance(b, Iterable) else [b] * len(paths) for b in (starts, ends))
        if not len(paths) == len(starts) == len(ends):
            raise ValueError(f"{len(paths)} paths, {len(starts)} starts and {len(ends)} ends are not ranges")
        places: dict[str, list[int]] = {}
        for i, path in enumerate(paths):
            places.setdefault(cls._strip_protocol(path), []).append(i)
        return places, {path: [(starts[i], ends[i]) for i in at] for path, at in places.items()}

    @staticmethod
    def _placed(places: dict[str, list[int]], found: Iterable[Sequence[Any]]) -> list[Any]:
        by_place = {i: part for at, parts in zip(places.values(), found, strict=True)
                    for i, part in zip(at, parts, strict=True)}
        return [by_place[i] for i in range(len(by_place))]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **version: Any) -> bytes:
        """Read a file, or a range of it."""
        return self._ranges(self._strip_protocol(path), [(start, end)], **version)[0]

    def cat_ranges(self, paths: list[str], starts: Any, ends: Any, max_gap: int | None = None,
                   on_error: str = "return", batch_size: int | None = None) -> list[Any]:
        """Read ranges: those of each file at once, and the files side by side."""
        places, plan = self._plan(paths, starts, ends)

        def read(path: str) -> Sequence[Any]:
            try:
                return self._ranges(path, plan[path])
            except Exception as error:
                if on_error == "raise":
                    raise
                return [error] * len(plan[path])

        return self._placed(places, (map if len(places) == 1 else _threads.waiting().map)(read, places))

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, autocommit: bool = True,
              cache_options: Any = None, size: int | None = None, **options: Any) -> Any:
        options.pop("default_cache", None)  # of dask, where no cache_type is given
        if mode == "rb":
            block = block_size or self._block
            version = {name: value for name, value in options.items() if name != "cache_type"}
            file = self._opened(path, True, block, **version)
            if file.found.size_unknown:  # it is read to wherever it ends
                stream: Any = file.as_io(block)
                stream.size = None
                return stream
            return BufferedFile(self, path, file, block, cache_options=cache_options, size=size, **options)
        _refuse(options, {"cache_type"})
        if mode.strip("b") not in ("w", "x"):
            raise io.UnsupportedOperation(f"mode {mode!r}: {path!r} is written as a whole, with 'wb' or 'xb'")
        return self._written(path, mode, size or 0, autocommit)

    def _written(self, path: str, mode: str, size: int, autocommit: bool) -> Any:
        file = File(self._uri(path), mode, expected_size=size, **self._options)
        return file.as_io() if autocommit else _Late(file)


class FileFileSystem(_Reads, local.LocalFileSystem):
    """Local files, sluice+file://: reads are sluice's, and the rest is as in fsspec.

    Not LocalFileSystem: pyarrow takes a class of that name for fsspec's, and reads by itself.
    """

    protocol = ("sluice+file",)

    def __init__(self, auto_mkdir: bool = False, **options: Any) -> None:
        _refuse(options)
        super().__init__(auto_mkdir=auto_mkdir, **options)

    def _open(self, path: str, mode: str = "rb", *arguments: Any, **options: Any) -> Any:
        kind = _Reads if mode == "rb" else local.LocalFileSystem
        return kind._open(self, path, mode, *arguments, **options)


LocalFileSystem = FileFileSystem


class _Remote(_Reads, AsyncFileSystem):
    """Objects that are opened by a URI.

    headers: of requests. settings: of a Context for the files; None: those of configure().
    """

    _sized = True  # a file begins with its size

    def __init__(self, headers: Mapping[str, str] | Sequence[str] | None = None,
                 settings: dict[str, Any] | None = None, **options: Any) -> None:
        self._pid: int = os.getpid()
        self._tls: dict[str, Any] = {}  # settings that come before others
        _refuse(options)
        super().__init__(**options)
        self._headers, self._settings = _context.header_lines(headers), _copied(settings)
        self._kept: collections.OrderedDict[str, _Shared] = collections.OrderedDict()

    @property
    def _options(self) -> Mapping[str, Any]:  # type: ignore[override]
        settings = self._settings
        if self._tls and settings is None:
            settings = _context.default()._given
        self._context = None if settings is None else _context.with_settings({**settings, **self._tls})
        return {"headers": self._headers, "context": self._context}

    @property
    def loop(self) -> Any:
        if self._pid != os.getpid():  # a child of fork() has its own
            self._pid, self._loop = os.getpid(), None if self.asynchronous else get_loop()
        return self._loop

    def __setattr__(self, name: str, value: Any) -> None:
        # fsspec keeps what an instance was made with, for its cache of instances and for pickles.
        super().__setattr__(name, _copied(value) if name in ("storage_args", "storage_options") else value)

    def _opened(self, path: str, anew: bool = False, first: int = 0, **version: Any) -> _Shared:
        file = None if anew or version else self._kept.get(path)
        return file or self._keep(path, super()._opened(path, first=first, **version), first, version)

    async def _opened_async(self, path: str, anew: bool = False, first: int = 0, **version: Any) -> _Shared:
        """As _opened(), and no thread waits for the server."""
        file = None if anew or version else self._kept.get(path)
        if file is None:
            opening = _Shared._open_async(self._uri(path), first_bytes=first, **self._given(**version))
            file = self._keep(path, await opening, first, version)
        return file

    def _keep(self, path: str, file: _Shared, first: int, version: Mapping[str, Any]) -> _Shared:
        # A request that is to come tells another version from the one that is open.
        if not first and not version and not file.found.whole_only and (file.found.etag or file.found.modified_ns):
            self._kept[path] = file
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return file

    async def _ranges_async(self, path: str, ranges: _Ranges, **version: Any) -> list[bytes]:
        first = _first(ranges)
        try:
            return await (await self._opened_async(path, first=first, **version)).ranges_async(ranges)
        except OSError as error:
            _retried(error)
        return await (await self._opened_async(path, True, first, **version)).ranges_async(ranges)

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **version: Any) -> bytes:
        return (await self._ranges_async(self._strip_protocol(path), [(start, end)], **version))[0]

    async def _cat_ranges(self, paths: list[str], starts: Any, ends: Any, max_gap: int | None = None,
                          batch_size: int | None = None, on_error: str = "return") -> list[Any]:
        places, plan = self._plan(paths, starts, ends)
        reads = (self._ranges_async(path, ranges) for path, ranges in plan.items())
        found: list[Any] = await asyncio.gather(*reads, return_exceptions=on_error != "raise")
        return self._placed(places, ([part] * len(at) if isinstance(part, Exception) else part
                                     for part, at in zip(found, places.values(), strict=True)))

    def info(self, path: str, **version: Any) -> dict[str, Any]:
        """Name, size in bytes (None: unknown), type, ETag and time of the last change, as they are now."""
        path = self._strip_protocol(path)
        found = self._opened(path, True, **version).found
        return {"name": path, "size": None if found.size_unknown else found.size, "type": "file",
                "ETag": found.etag, "mtime": found.modified_ns / 1e9}

    def _is(self, path: str, kind: str) -> bool:
        try:
            return bool(self.info(path)["type"] == kind)
        except FileNotFoundError:
            return False

    async def _info(self, path: str, **version: Any) -> dict[str, Any]:
        return await _on_thread(self.info, path, **version)

    def _written(self, path: str, mode: str, size: int, autocommit: bool) -> Any:
        if size or not self._sized:
            return super()._written(path, mode, size, autocommit)
        if "x" in mode and self._is(path, "file"):
            raise FileExistsError(errno.EEXIST, "is there", path)
        write = functools.partial(self.pipe_file, path, mode="create" if "x" in mode else "overwrite")
        return _Whole(write, autocommit)

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite") -> None:
        """Write an object as a whole."""
        uri, letter = self._uri(self._strip_protocol(path)), "x" if mode == "create" else "w"
        with File(uri, letter, expected_size=memoryview(value).nbytes, **self._options) as file:
            file.write(value)

    async def _pipe_file(self, path: str, value: Any, mode: str = "overwrite") -> None:
        await _on_thread(self.pipe_file, path, value, mode)

    async def _get_file(self, rpath: str, lpath: str, callback: Any = DEFAULT_CALLBACK, **version: Any) -> None:
        if os.path.isdir(lpath):  # a folder is there as soon as its files are
            return
        try:
            source = await self._opened_async(self._strip_protocol(rpath), True, _WHOLE, **version)
        except FileNotFoundError:
            if not await _on_thread(self._is, rpath, "directory"):
                raise
            os.makedirs(lpath, exist_ok=True)
        else:
            await self._copy_out(source, os.path.abspath(lpath), callback)

    async def _copy_out(self, source: _Shared, lpath: str, callback: Any) -> None:
        """Copy an object to a path, where a thread only makes the file, and gives it its name."""
        found, at = source.found, 0
        if found.size_unknown:
            await _on_thread(_copy, source, found, lpath, callback, {})
            return
        callback.set_size(found.size)
        out = await File._open_async(lpath, "w", expected_size=found.size)
        try:
            while at < found.size:
                part = await source.read_async(min(_PART, found.size - at), at)
                if not part:
                    raise OSError(errno.EIO, f"has become shorter: {at} of {found.size} bytes", source.uri)
                at += await out.write_async(part, at)
                callback.relative_update(len(part))
            await _on_thread(out.close)
        finally:
            out.discard()

    def _copy_in(self, lpath: str, path: str, callback: Any, mode: str) -> None:
        uri = self._uri(self._strip_protocol(path))
        if not os.path.isdir(lpath):  # a folder is there with its objects
            with File(os.path.abspath(lpath)) as source:
                _copy(source, source.stat(), uri, callback, self._options, "x" if mode == "create" else "w")

    async def _put_file(self, lpath: str, rpath: str, mode: str = "overwrite", callback: Any = DEFAULT_CALLBACK,
                        **options: Any) -> None:
        _refuse(options, ())
        await _on_thread(self._copy_in, lpath, rpath, callback, mode)

    def cp_file(self, path1: str, path2: str, **version: Any) -> None:
        """Copy an object, whose bytes go through this machine."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        try:
            source = self._opened(path1, True, **version)
        except FileNotFoundError:
            if self._is(path1, "directory"):
                return  # a folder is there with its objects
            raise
        _copy(source, source.found, self._uri(path2), DEFAULT_CALLBACK, self._options)

    async def _cp_file(self, path1: str, path2: str, **version: Any) -> None:
        await _on_thread(self.cp_file, path1, path2, **version)

    def modified(self, path: str) -> datetime.datetime:
        """When the file was last changed."""
        found = self.info(path)
        if found["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, "a folder, which has no time", path)
        if not found.get("mtime"):
            raise OSError(errno.ENODATA, "the server does not say when it was changed", path)
        return datetime.datetime.fromtimestamp(found["mtime"], datetime.timezone.utc)

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        """Make an empty file, also in the place of one that is there, whose time alone cannot be changed."""
        if not truncate and self.exists(path):
            raise NotImplementedError(f"{path!r}: the time of a file that is there cannot be changed")
        with self.open(path, "wb", **options):
            pass

    def sign(self, path: str, expiration: int = 100, **options: Any) -> str:
        raise NotImplementedError(f"{path!r}: sluice signs no URLs")

    async def _mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        """Do nothing: a folder is there while something is in it."""

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        await self._mkdir(path)

    def rmdir(self, path: str) -> None:
        """Refuse to remove a folder, which goes with the last file in it."""
        path = self._strip_protocol(path)
        if self.info(path)["type"] != "directory":
            raise NotADirectoryError(errno.ENOTDIR, "is a file", path)
        raise FileExistsError(errno.ENOTEMPTY, "a folder goes with the last file in it, and a bucket stays", path)

    async def _rmdir(self, path: str) -> None:
        await _on_thread(self.rmdir, path)

    async def _rm_file(self, path: str) -> None:
        raise NotImplementedError(f"{path!r}: {self.protocol[0]} removes nothing")

    async def _find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False,
                    prefix: str | None = None, refresh: bool = False) -> Any:
        found = await super()._find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail)
        if not prefix:
            return found
        path = self._strip_protocol(path)
        begin = f"{path}/{prefix}" if path else prefix
        kept = [name for name in found if name.startswith(begin)]
        return {name: found[name] for name in kept} if isinstance(found, dict) else kept

    async def _ls(self, path: str, detail: bool = True) -> list[Any]:
        raise NotImplementedError(f"{path!r}: {self.protocol[0]} has no lists of files")


class HTTPFileSystem(_Remote):
    """Objects of web servers, sluice+http:// and sluice+https://, and http:// where it is registered for it."""

    protocol = ("sluice+http", "sluice+https")
    _block = 256 << 10

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return os.fspath(path).removeprefix("sluice+")

    def unstrip_protocol(self, name: str) -> str:
        return name if name.startswith("sluice+") else "sluice+" + name

    @classmethod
    def _parent(cls, path: str) -> str:
        return str(cls._strip_protocol(path)).rstrip("/").rpartition("/")[0]


# Options of a client of botocore, and what they are here.
_CLIENT = {"aws_access_key_id": "access_key", "aws_secret_access_key": "secret_key",
           "aws_session_token": "session_token", "endpoint_url": "endpoint", "region_name": "region"}


class S3FileSystem(_Remote):
    """Objects of S3, sluice+s3://BUCKET/KEY, and s3:// where it is registered for it; a slash in a key makes a folder.

    Options are those of s3fs: key, secret, token, or a profile; anon: requests are not signed; endpoint_url;
    requester_pays; client_kwargs: those of _CLIENT, and verify (False, or a file of certificates). What is not given
    is that of the environment and the user's profile. Calls that read take version_id, and find() takes prefix.
    """

    protocol = ("sluice+s3", "s3")
    _block = 256 << 10
    _sized = False

    def __init__(self, *, anon: bool = False, endpoint_url: str | None = None, key: str | None = None,
                 secret: str | None = None, token: str | None = None, profile: str | None = None,
                 requester_pays: bool = False, client_kwargs: Mapping[str, Any] | None = None, **options: Any) -> None:
        super().__init__(**options)
        client = {name: value for name, value in (client_kwargs or {}).items() if value is not None}
        verify = client.pop("verify", True)
        _refuse(client, _CLIENT, "client_kwargs: ")
        for name, value in zip(_CLIENT, (key, secret, token, endpoint_url), strict=False):
            if value is not None and client.setdefault(name, value) != value:
                raise TypeError(f"{name} has another value in client_kwargs")
        self._s3 = {_CLIENT[name]: value for name, value in client.items() if not (anon and name.startswith("aws_"))}
        self._s3 |= {"profile": profile, "anonymous": anon, "requester_pays": requester_pays}
        self._tls = {} if verify is True else {"ca_bundle": verify} if verify else {"tls_insecure": "1"}

    @property
    def _options(self) -> Mapping[str, Any]:  # type: ignore[override]
        return {**super()._options, "s3": self._s3}

    def _uri(self, path: str) -> str:
        return "s3://" + path

    def _given(self, version_id: str | None = None) -> Mapping[str, Any]:
        return self._options if version_id is None else {**self._options, "s3": {**self._s3, "version": version_id}}

    def _call(self, call: Callable[..., T], path: str, *more: Any) -> T:
        """Make a call of the core for a list, or a removal."""
        options = self._options
        return call(options["context"] or _context.default(), self._uri(path), self._headers, self._s3, *more)

    def _rows(self, path: str, prefix: str, recursive: bool) -> list[tuple[str, bool, int, int, str]]:
        bucket = path.partition("/")[0]
        return self._call(_core.list_objects, f"{bucket}/{prefix}" if bucket else "", recursive)

    def sign(self, path: str, expiration: int = 100, method: str = "GET", **version: Any) -> str:
        """Make a URL of an object for others, for so many seconds: see sluice.presign()."""
        _refuse(version, {"version_id"})
        return presign(self._uri(self._strip_protocol(path)), method=method, expires=expiration,
                       **{**self._options, "s3": {**self._s3, "version": version.get("version_id")}})

    def cp_file(self, path1: str, path2: str, **version: Any) -> None:
        """Have the server copy an object; the bytes go through this machine if it cannot."""
        _refuse(version, {"version_id"})
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        options, s3 = self._options, {**self._s3, "version": version.get("version_id")}
        try:
            _core.copy_object(options["context"] or _context.default(), self._uri(path1), self._uri(path2),
                              self._headers, s3, False)
        except FileNotFoundError:
            if not self._is(path1, "directory"):  # which is there with its objects
                raise
        except OSError as error:
            if error.errno != errno.ENOTSUP:
                raise
            super().cp_file(path1, path2, **version)

    async def _mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        bucket, below, _key = self._strip_protocol(path).partition("/")
        if not await _on_thread(self._is, bucket, "directory"):
            raise PermissionError(errno.EPERM, "sluice makes no buckets", bucket)
        if not below:
            raise FileExistsError(errno.EEXIST, "is there", bucket)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        try:
            await self._mkdir(path)
        except FileExistsError:
            if not exist_ok:
                raise

    def created(self, path: str) -> datetime.datetime:
        """When the object was made, which is changed as a whole."""
        return self.modified(path)

    def _listed(self, path: str, prefix: str, recursive: bool) -> list[dict[str, Any]]:
        """The entries of a bucket with that prefix. An object may have the name of a folder."""
        bucket, found = path.partition("/")[0], []
        for key, is_prefix, size, modified_ns, etag in self._rows(path, prefix, recursive):
            name = f"{bucket}/{key.rstrip('/') if is_prefix else key}" if bucket else key.rstrip("/")
            if key != prefix or not key.endswith("/"):  # an object that stands for the folder
                found.append({"name": name, "size": 0, "type": "directory"} if is_prefix else
                             {"name": name, "size": size, "type": "file", "ETag": etag, "mtime": modified_ns / 1e9})
        return sorted(found, key=lambda entry: (entry["name"], entry["type"] == "directory"))

    def _prefix(self, path: str) -> str:
        key = path.partition("/")[2]
        return f"{key}/" if key else ""

    def info(self, path: str, **version: Any) -> dict[str, Any]:
        """As of other file systems; a folder is there while objects are in it."""
        path = self._strip_protocol(path)
        version.pop("refresh", None)  # nothing is cached
        if "/" in path:
            try:
                return super().info(path, **version)
            except FileNotFoundError:
                if version.get("version_id") is not None or not self._listed(path, self._prefix(path), False):
                    raise
        elif path:
            self._rows(path, "", False)  # FileNotFoundError: there is no such bucket
        return {"name": path, "size": 0, "type": "directory"}

    def ls(self, path: str, detail: bool = True, refresh: bool = False) -> list[Any]:
        """The objects and folders in a folder."""
        path = self._strip_protocol(path)
        found = self._listed(path, self._prefix(path), False)
        if not found and "/" in path:
            found = [super().info(path)]
        return found if detail else [entry["name"] for entry in found]

    async def _ls(self, path: str, detail: bool = True, refresh: bool = False) -> list[Any]:
        return await _on_thread(self.ls, path, detail)

    async def _find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False,
                    prefix: str | None = None, refresh: bool = False) -> Any:
        path = self._strip_protocol(path)
        levels = bool(maxdepth or withdirs)
        found: dict[str, dict[str, Any]] = {}
        if prefix or not levels:
            rows = await _on_thread(self._listed, path, self._prefix(path) + (prefix or ""), not levels)
            found = {entry["name"]: entry for entry in rows if withdirs or entry["type"] == "file"}
            for name in (entry["name"] for entry in rows if entry["type"] == "directory" and maxdepth != 1):
                found |= await super()._find(name, maxdepth and maxdepth - 1, withdirs, detail=True)
        if not found and not prefix:
            return await super()._find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail)
        return found if detail else sorted(found)

    def _remove(self, path: str) -> None:
        self._kept.pop(path, None)
        self._call(_core.remove_object, path)

    def _remove_many(self, paths: list[str]) -> None:
        for path in paths:
            self._kept.pop(path, None)
        uris, options = b"\0".join(os.fsencode(self._uri(path)) for path in paths), self._options
        _core.remove_objects(options["context"] or _context.default(), uris, self._headers, self._s3)

    def rm_file(self, path: str) -> None:
        """Remove an object, which is there, as other file systems have it."""
        path = self._strip_protocol(path)
        if self.info(path)["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, "a folder, which rm(recursive=True) empties", path)
        self._remove(path)

    async def _rm_file(self, path: str) -> None:
        await _on_thread(self.rm_file, path)

    async def _rm(self, path: Any, recursive: bool = False, batch_size: int | None = None,
                  maxdepth: int | None = None) -> None:
        """Remove objects; with recursive those below the paths, too, of which a bucket itself stays."""
        for name in await self._expand_path(path):
            bucket, slash, _key = name.partition("/")
            below: list[str] = []
            if recursive and maxdepth:
                below = await self._find(name, maxdepth=maxdepth)
            elif recursive:
                rows = await _on_thread(self._rows, name, self._prefix(name), True)
                below = [f"{bucket}/{row[0]}" for row in rows]
            if not recursive or (not below and slash):
                await self._rm_file(name)
            elif slash:
                below.append(name)  # a folder may have an object of its name beside it
            step = batch_size or _BATCH
            for at in range(0, len(below), step):
                await _on_thread(self._remove_many, below[at : at + step])


class StoreFileSystem(_Remote):
    """Blobs of the daemon's store, store://; a slash in a name makes a folder.

    socket: of the daemon; None: as of a Store.
    """

    protocol = ("store",)

    def __init__(self, socket: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._socket = socket

    def _uri(self, path: str) -> str:
        return f"store://{quote(path)}" + (f"?socket={quote(self._socket)}" if self._socket else "")

    def _keep(self, path: str, file: _Shared, first: int, version: Mapping[str, Any]) -> _Shared:
        return file  # one that stays open would hold its blob

    def created(self, path: str) -> datetime.datetime:
        """When the blob was sealed."""
        return self.modified(path)

    def info(self, path: str, **version: Any) -> dict[str, Any]:
        """As of other file systems; a folder is there while blobs are in it."""
        path = self._strip_protocol(path)
        try:
            if path:
                return super().info(path, **version)
        except FileNotFoundError:
            self.ls(path)
        return {"name": path, "size": 0, "type": "directory"}

    def ls(self, path: str = "", detail: bool = True) -> list[Any]:
        """The blobs and folders in a folder."""
        path = self._strip_protocol(path)
        folder = f"{path}/" if path else ""
        found: dict[str, dict[str, Any]] = {}
        with Store(self._socket) as store:
            for blob in store.list(folder):
                if blob.state in ("sealed", "spilled"):
                    name, slash, _rest = blob.name[len(folder) :].partition("/")
                    found[folder + name] = {"name": folder + name, "size": 0 if slash else blob.nbytes,
                                            "type": "directory" if slash else "file"}
        if not found and path:
            found[path] = super().info(path)
        return list(found.values()) if detail else list(found)

    async def _ls(self, path: str, detail: bool = True) -> list[Any]:
        return await _on_thread(self.ls, path, detail)

    def rm_file(self, path: str) -> None:
        """Delete a blob."""
        path = self._strip_protocol(path)
        with Store(self._socket) as store:
            try:
                store.delete(path)
            except FileNotFoundError:
                if self._is(path, "directory"):
                    raise IsADirectoryError(errno.EISDIR, "a folder, which rm(recursive=True) empties", path) from None
                raise

    async def _rm_file(self, path: str) -> None:
        await _on_thread(self.rm_file, path)

    async def _rm(self, path: Any, recursive: bool = False, batch_size: int | None = None,
                  maxdepth: int | None = None) -> None:
        for each in [path] if isinstance(path, str) else path:
            for name in await self._find(each, maxdepth=maxdepth) if recursive else [each]:
                await self._rm_file(name)


class _Begin(dict[str, str]):
    """What fsspec knows of "sluice", to which universal_pathlib shortens our names: equal to each of our classes."""

    def __eq__(self, kind: object) -> bool:
        return kind in _KINDS


_KINDS = HTTPFileSystem, FileFileSystem, S3FileSystem, StoreFileSystem
for _kind in _KINDS:
    for _protocol in set(_kind.protocol) - {"s3"}:
        fsspec.register_implementation(_protocol, _kind, clobber=True)
known_implementations["sluice"] = _Begin({"class": "sluice.none.X", "err": "no protocol is named sluice alone"})
