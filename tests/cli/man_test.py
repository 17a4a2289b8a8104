#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The options in the manual pages are those of --help, for each command that --help names, and none is in only one of
the two. usage: man_test.py SLUICE, with the daemon in $SLUICED"""

import os
import pathlib
import re
import subprocess
import sys

STANDARD = {"--help", "--usage", "--version", "-V"}  # every command has them
OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z0-9][\w-]*")
programs = {"sluice": sys.argv[1], "sluiced": os.environ["SLUICED"]}
pages = pathlib.Path(__file__).resolve().parents[2] / "man"


def help_of(program, *words):
    command = [programs[program], *words, "--help"]
    return subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}).stdout


def words_of(text):
    """The commands that a help lists."""
    return re.findall(r"^  (\w+) {2,}\S", text, re.M) if "COMMAND" in text.split("\n")[0] else []


def options(text):
    return set(OPTION.findall(text)) - STANDARD


def offered(text):
    """The options at the begin of lines, before their meaning."""
    return options("\n".join(re.findall(r"^ {2,6}(-.*?)(?:  |$)", text, re.M)))


def manual(name):
    """The sections of a page, without the commands of other programs in it."""
    text = re.sub(r"\\f.|\"", "", (pages / name).read_text().replace("\\-", "-"))
    text = "\n".join(line for line in text.split("\n") if "systemctl" not in line)
    return dict(re.findall(r"^\.SH ([^\n]*)\n(.*?)(?=^\.SH|\Z)", text, re.S | re.M))


def heads(section):
    """The options that a section explains: those in the line after .TP, not those that it only mentions."""
    return options("\n".join(re.findall(r"^\.TP\n(.*)", section, re.M)))


wrong = []


def same(name, helped, told):
    wrong.extend(f"{name}: {one} is not in the manual" for one in sorted(helped - told))
    wrong.extend(f"{name}: {one} is in the manual alone" for one in sorted(told - helped))


def check_words(word, section, words):
    """Each word has a paragraph; the options of several stand behind them all."""
    parts = re.split(r"^(?:\.TP\n|\.PP\n)", section, flags=re.M)
    owned = {sub: next((p for p in parts if re.match(r"\.BI? %s\b" % sub, p)), "") for sub in words}
    common = options("\n".join(p for p in parts if p not in owned.values()))
    helps = {sub: offered(help_of("sluice", word, sub)) for sub in words}
    for sub in words:
        if not owned[sub]:
            wrong.append(f"{word} {sub}: no paragraph in the manual")
        same(f"sluice {word} {sub}", helps[sub], options(owned[sub]) | common & helps[sub])
    same(f"sluice {word}", set().union(*helps.values()), common | set().union(*map(options, owned.values())))
    return set().union(*helps.values())


sections = manual("sluice.1")
known = set()
commands = words_of(help_of("sluice"))
assert len(commands) > 8, commands
for word in commands:
    text = help_of("sluice", word)
    section = next((s for title, s in sections.items() if title.split()[0] == word.upper()), "")
    if words_of(text):
        known |= check_words(word, section, words_of(text))
    else:
        known |= offered(text)
        same(f"sluice {word}", offered(text), heads(section))
daemon = manual("sluiced.1")
same("sluiced", offered(help_of("sluiced")), heads("".join(daemon.values())))
known |= offered(help_of("sluiced"))
# What is mentioned beside that exists.
for page in (sections, daemon):
    text = "".join(page.values())
    same("mentioned", set(), {one for one in options(text) if one.startswith("--")} - known)
print("\n".join(wrong) or f"{len(commands)} commands and the daemon, {len(known)} options")
sys.exit(bool(wrong))
