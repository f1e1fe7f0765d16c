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
    """(what it does, [(heading, [(item, what it does)])]) as --help tells."""
    done = subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=True)
    about, parts = [], []
    for line in done.stdout.splitlines():
        if not line.strip():
            continue
        if line.startswith("Usage:"):
            parts.append(("Usage", [(line[6:].strip(), "")]))
        elif re.fullmatch(r"\S.*:", line):
            parts.append((line[:-1], []))
        elif not line.startswith(" "):
            about.append(line)
        elif line.startswith("    "):  # a text too long for the line of its item
            item, text = parts[-1][1][-1]
            parts[-1][1][-1] = (item, (text + " " + line.strip()).strip())
        else:
            item, _, text = line.strip().partition("  ")
            parts[-1][1].append((item, text.strip()))
    return " ".join(about), parts


def section(program, words, out):
    about, parts = ask(program, words)
    verbs = []
    if words:
        out.append(f".SS {roff(' '.join(words))}")
        out.append(roff(about))
    for heading, items in parts:
        if heading == "Usage":
            if words:
                usage = items[0][0].split("Usage: ")[-1]
                out += [".PP", f".B {roff(usage)}"]
            continue
        if heading == "Subcommands":
            verbs = [item.split()[0] for item, _ in items]
            continue
        for item, text in items:
            if item == "-h,--help":
                continue
            out += [".TP", f".B {roff(argument(item))}", roff(text)]
    for verb in verbs:
        if not words:
            continue
        section(program, [*words, verb], out)
    return about, verbs


def main(program, number, version, target):
    name = Path(program).name
    body = []
    about, verbs = section(program, [], body)
    about = about.removeprefix(f"{name}: ")
    out = [f'.TH {name.upper()} {number} "" "glydd {version}" "glydd"', ".SH NAME",
           f"{name} \\- {roff(about)}", ".SH SYNOPSIS",
           f".B {name}\n[OPTIONS]" + (" VERB ..." if verbs else ""), ".SH OPTIONS", *body]
    if verbs:
        out.append(".SH VERBS")
        for verb in verbs:
            section(program, [verb], out)
    other = "glydd(8)" if name == "glyd" else "glyd(1)"
    out += [".SH SEE ALSO", other, ".PP", "Exit codes, files and examples: /usr/share/doc/glydd."]
    Path(target).write_text("\n".join(out) + "\n")


main(*sys.argv[1:])
