# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest (-p patched_safetensors, this folder in PYTHONPATH): safetensors' own tests, read by sluice.

Modules of tests import safetensors after it. It fails where nothing was read by sluice.
"""
import sluice
from sluice import _tensor_files

sluice.patch_safetensors()
opened = []
Files = _tensor_files.Files


class Counted(Files):
    def __init__(self, *arguments):
        opened.append(arguments[0])
        super().__init__(*arguments)


_tensor_files.Files = Counted


def pytest_report_header():
    return [f"patched: {name}: {who}" for name, who in sluice.patched().items()]


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"sluice opened {len(opened)} files; left to safetensors:")
    for name, who in sluice.patched().items():
        if who == "safetensors":
            terminalreporter.write_line(f"  {name}")


def pytest_sessionfinish(session):
    if session.testscollected and not opened:
        session.exitstatus = 1
