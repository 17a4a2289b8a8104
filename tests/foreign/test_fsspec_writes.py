# SPDX-License-Identifier: Apache-2.0
"""What our file systems write, on a server that nobody here wrote, and on the store."""
import io
import random

import fsspec
import pytest
import sluice.fsspec  # noqa: F401

DATA = bytes(range(251)) * 400


@pytest.fixture(params=["sluice+s3", "store"])
def written(request):
    """A file system that is written, and a folder in it without objects."""
    options = request.getfixturevalue({"sluice+s3": "s3", "store": "store_options"}[request.param])
    return fsspec.filesystem(request.param, skip_instance_cache=True, **options), f"there/{request.function.__name__}"


def test_files_and_folders_go_in_and_out(written, tmp_path):
    fs, folder = written
    here = tmp_path / "here"
    (here / "sub").mkdir(parents=True)
    (here / "a").write_bytes(DATA)
    (here / "sub" / "empty").write_bytes(b"")
    fs.put(str(here), folder, recursive=True)
    assert fs.find(folder) == [f"{folder}/a", f"{folder}/sub/empty"] and fs.cat_file(f"{folder}/sub/empty") == b""
    fs.get(folder, str(tmp_path / "out"), recursive=True)
    assert (tmp_path / "out" / "a").read_bytes() == DATA and (tmp_path / "out" / "sub" / "empty").stat().st_size == 0
    fs.cp(folder, f"{folder}2", recursive=True)
    fs.mv(f"{folder}2/a", f"{folder}2/b")
    assert fs.find(f"{folder}2") == [f"{folder}2/b", f"{folder}2/sub/empty"] and fs.cat(f"{folder}2/b") == DATA
    fs.touch(f"{folder}/touched")
    assert fs.cat(f"{folder}/touched") == b"" and fs.modified(f"{folder}/touched").tzinfo
    assert fs.created(f"{folder}/a").year > 2000
    with pytest.raises(OSError, match="a folder"):
        fs.modified(folder)
    with pytest.raises(IsADirectoryError, match="recursive=True"):
        fs.rm(folder)
    with pytest.raises(FileExistsError):
        fs.put_file(str(here / "a"), f"{folder}/a", mode="create")
    with pytest.raises(FileNotFoundError):
        fs.put_file(str(here / "not"), f"{folder}/b")
    for call in (fs.cp_file, fs.mv):
        with pytest.raises(FileNotFoundError):
            call(f"{folder}/not", f"{folder}/b")
    with pytest.raises(io.UnsupportedOperation, match="ab"):
        fs.open(f"{folder}/a", "ab")
    assert fs.find(folder) == [f"{folder}/a", f"{folder}/sub/empty", f"{folder}/touched"]


def test_files_of_a_transaction_appear_at_its_end(written):
    fs, folder = written
    with fs.transaction:
        with fs.open(f"{folder}/a", "wb") as f:
            f.write(DATA)
        with pytest.raises(KeyError), fs.open(f"{folder}/b", "wb") as f:
            f.write(b"half")
            raise KeyError
        assert not fs.exists(f"{folder}/a")
    assert fs.cat_file(f"{folder}/a") == DATA and not fs.exists(f"{folder}/b")
    with pytest.raises(KeyError), fs.transaction:
        with fs.open(f"{folder}/a", "wb") as f:
            f.write(b"other")
        raise KeyError
    assert fs.cat_file(f"{folder}/a") == DATA


def test_calls_are_those_of_a_dictionary(written):
    """Calls that are drawn, on a file system and on a dictionary of what it should have."""
    fs, folder = written
    draw = random.Random(7)
    model = {}
    for _ in range(150):
        a, b = (f"{folder}/{draw.choice('xyz')}/{draw.choice('123')}" for _ in range(2))
        value = draw.choice([b"", b"1", DATA])
        call = draw.choice(["pipe", "open", "cp", "mv", "rm", "create", "commit", "discard", "put", "tree"])
        try:
            if call == "pipe":
                fs.pipe_file(a, value)
            elif call in ("open", "put"):
                with fs.open(a, "wb") as f:
                    f.write(value)
            elif call == "create":
                fs.pipe_file(a, value, mode="create")
            elif call == "tree":
                fs.rm(a.rpartition("/")[0], recursive=True)
            elif call in ("cp", "mv", "rm"):
                getattr(fs, call)(*([a, b] if call != "rm" else [a]))
                assert a in model or (call == "mv" and a == b)
            else:
                with fs.transaction:
                    with fs.open(a, "wb") as f:
                        f.write(value)
                    if call == "discard":
                        raise KeyError
        except (FileNotFoundError, FileExistsError, KeyError) as error:
            there = any(name.startswith(a.rpartition("/")[0] + "/") for name in model) if call == "tree" else a in model
            kind = {"create": FileExistsError, "discard": KeyError}.get(call, FileNotFoundError)
            assert isinstance(error, kind) and (call == "discard" or there == (call == "create")), (call, a, b)
        else:
            assert call != "create" or a not in model
            if call == "tree":
                model = {name: data for name, data in model.items() if not name.startswith(a.rpartition("/")[0] + "/")}
            elif call in ("cp", "mv", "rm") and a in model:
                moved = model[a] if call == "cp" else model.pop(a)
                if call != "rm":
                    model[b] = moved
            elif call == "mv":
                pass  # fsspec looks for no file that is moved to itself
            else:
                model[a] = value
        assert (fs.find(folder) if model else []) == sorted(model)
    assert {name: bytes(data) for name, data in fs.cat(sorted(model)).items()} == model if len(model) > 1 else True


def test_buckets_are_listed(s3):
    fs = fsspec.filesystem("sluice+s3", **s3)
    assert fs.ls("", detail=False) == ["there"] == fs.glob("*") and fs.isdir("there") and not fs.exists("not-there")
    with pytest.raises(PermissionError, match="no buckets"):
        fs.makedirs("not-there/folder", exist_ok=True)
