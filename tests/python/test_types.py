# SPDX-License-Identifier: Apache-2.0
"""Types, signatures and help(): stubs, the extension and the package say the same, as does mypy in `scripts/check`."""

import ast
import inspect
import os
import pathlib
import re
import shutil
import subprocess
import sys
import types

import sluice
from sluice import _core

HERE = pathlib.Path(__file__).parent
STUBS = ast.parse((HERE.parents[1] / "python/sluice/_core.pyi").read_text())
PUBLIC = {name: getattr(sluice, name) for name in sluice.__all__}


def named(body):
    """By name what a stub defines: constants, functions and classes."""
    found = {}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            if isinstance(target, ast.Name):
                found[target.id] = node
    return found


def members(kind):
    """The names that a class adds, without those of Python itself."""
    return {name for name in vars(kind) if not re.fullmatch("__.*__", name)}


def stubbed(function):
    """Name, whether it is positional only, and whether there is a default, of the parameters of a stub."""
    given = function.args
    names = [argument.arg for argument in given.posonlyargs + given.args]
    first_default = len(names) - len(given.defaults)
    return [(name, i < len(given.posonlyargs) and bool(i), i >= first_default) for i, name in enumerate(names)]


def said(signature):
    return [(each.name, each.kind is each.POSITIONAL_ONLY and bool(i), each.default is not each.empty)
            for i, each in enumerate(signature.parameters.values())]


def test_stubs_have_what_the_extension_has():
    stubs = named(STUBS.body)
    there = {name for name in vars(_core) if not name.startswith("__")}
    assert set(stubs) == there
    for name in there:
        kind = getattr(_core, name)
        if isinstance(kind, type):
            methods = named(stubs[name].body)
            assert {each for each in methods if not each.startswith("__")} == members(kind), name
            for each, node in methods.items():
                there_is = getattr(kind, each, None)
                # Where there is no text Python 3.13 makes a signature of its own.
                if getattr(there_is, "__text_signature__", None) and there_is.__doc__ and not each.startswith("__"):
                    assert said(inspect.signature(there_is)) == stubbed(node), f"{name}.{each}"
        else:
            assert callable(kind) == isinstance(stubs[name], ast.FunctionDef), name


def calls():
    """All public calls of the package: (name, function or class)."""
    for name, kind in PUBLIC.items():
        yield name, kind
        for base in kind.__mro__[:-1] if isinstance(kind, type) else ():
            for each in sorted(vars(base)):
                if not each.startswith("_") and base.__module__.startswith("sluice") and not hasattr(tuple, each):
                    yield f"{name}.{each}", inspect.getattr_static(kind, each)


def test_help_has_a_sentence_and_a_signature_for_each_call():
    for name, call in calls():
        if callable(call) and not isinstance(call, type):
            assert inspect.getdoc(call), f"{name} has no help"
            parameters = list(inspect.signature(call).parameters)
            assert "." not in name or parameters[:1] == ["self"], f"{name}{inspect.signature(call)}"


def test_the_typed_program_has_every_public_call():
    used = {node.attr for node in ast.walk(ast.parse((HERE / "typed_user.py").read_text()))
            if isinstance(node, ast.Attribute)}
    kinds = property, types.GetSetDescriptorType, types.MemberDescriptorType
    missing = [name for name, call in calls()
               if (callable(call) or isinstance(call, kinds)) and name.rpartition(".")[2] not in used]
    assert not missing


def test_the_typed_program_runs(tmp_path, daemon):
    daemon.open().close()
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(sluice.__file__).parents[1])}
    ran = subprocess.run([sys.executable, HERE / "typed_user.py", tmp_path, daemon.path], env=environment,
                         capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr


def test_a_package_without_its_extension_says_what_is_missing(tmp_path):
    folder = pathlib.Path(sluice.__file__).parent
    shutil.copytree(folder, tmp_path / "sluice", ignore=shutil.ignore_patterns("_core*.so*"))
    for text, says in [(None, f"{tmp_path}/sluice has none; `make python` builds it"), ("none", "file too short")]:
        if text is not None:
            (tmp_path / "sluice" / "_core.abi3.so").write_text(text)
        done = subprocess.run([sys.executable, "-c", "import sluice"], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "PYTHONPATH": str(tmp_path)}, check=False)
        assert done.returncode == 1 and "ImportError: sluice cannot load its extension: " in done.stderr
        assert says in done.stderr.splitlines()[-1], done.stderr
