#!/usr/bin/env python3
"""man.py PROGRAM SECTION VERSION OUT: the manual page of PROGRAM, written from its own --help.

A program with verbs has a heading for each, and for the verbs of a verb.
"""
import re
import subprocess
import sys
from pathlib import Path


def roff(text):
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return "\\&" + text if text[:1] in ("'", ".") else text


def argument(item):
    """An argument without its parser's types: --layout {mma,mma12}=mma, PATH ..."""
    item = item.removesuffix(" REQUIRED")
    if not item.startswith("-"):
        item = re.sub(r" (TEXT|INT|UINT|FLOAT)\b", "", item)
    item = re.sub(r" TEXT:(?=\{)", " ", item)
    return re.sub(r" (INT|UINT|FLOAT):\1", " N", item)


def ask(program, words):
    """(what it does, its usage, its verbs, [(argument, what it does)]) as --help tells."""
    done = subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=True)
    about, usage, items, verbs, heading = [], "", [], [], ""
    for line in filter(str.strip, done.stdout.splitlines()):
        if line.startswith("Usage:"):
            usage = line[6:].strip()
        elif not line.startswith(" "):
            heading = line if line.endswith(":") else heading
            about += [] if line.endswith(":") else [line]
        elif heading == "Subcommands:":
            verbs += [line.split()[0]] if not line.startswith("    ") else []
        elif line.startswith("    "):  # a text too long for the line of its item
            items[-1][1] = f"{items[-1][1]} {line.strip()}".strip()
        else:
            item, _, text = line.strip().partition("  ")
            items.append([item, text.strip()])
    return " ".join(about), usage, verbs, [i for i in items if i[0] != "-h,--help"]


def arguments(items):
    return [line for item, text in items for line in (".TP", f".B {roff(argument(item))}", roff(text))]


def verb_section(program, words):
    about, usage, verbs, items = ask(program, words)
    lines = [f".SS {roff(' '.join(words))}", roff(about), ".PP", f".B {roff(usage)}", *arguments(items)]
    return lines + [line for verb in verbs for line in verb_section(program, [*words, verb])]


def main(program, number, version, target):
    name = Path(program).name
    about, _, verbs, items = ask(program, [])
    out = [f'.TH {name.upper()} {number} "" "glydd {version}" "glydd"', ".SH NAME",
           f"{name} \\- {roff(about.removeprefix(f'{name}: '))}", ".SH SYNOPSIS", f".B {name}",
           "[OPTIONS]" + " VERB ..." * bool(verbs), ".SH OPTIONS", *arguments(items)]
    if verbs:
        out += [".SH VERBS", *(line for verb in verbs for line in verb_section(program, [verb]))]
    out += [".SH SEE ALSO", "glydd(8)" if name == "glyd" else "glyd(1)", ".PP",
            "Exit codes, files and examples: /usr/share/doc/glydd."]
    Path(target).write_text("\n".join(out) + "\n")


main(*sys.argv[1:])
