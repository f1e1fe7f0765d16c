#!/usr/bin/env python3
"""console_test.py PAGE...: runs the ```console blocks of pages, each page in a shell of its own at the tree's root. Lines
that begin with "$ " are commands (a backslash continues them) and must succeed; what follows one is its output, if
anything does, with "..." for any text."""
import doctest
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

TREE = Path(os.environ["GLYD_SOURCE_DIR"])
END = "---end-of-command---"
HOW = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
CHECK = doctest.OutputChecker()


def commands(text):
    """(line number, command, expected output) of each."""
    for block in re.finditer(r"^```console\n(.*?)^```$", text, re.M | re.S):
        line = text.count("\n", 0, block.start()) + 2
        for part in filter(None, re.split(r"^(?=\$ )", block[1], flags=re.M)):
            command = re.match(r"\$ ((?:.*\\\n)*.*\n)", part)
            if not command:
                sys.exit(f"line {line}: no command before {part!r}")
            yield line, command[1], part[command.end():]
            line += part.count("\n")


def run(page, work):
    shell = subprocess.Popen(["bash", "--noprofile", "--norc"], cwd=TREE, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, start_new_session=True, env={
                                 **os.environ, "PATH": f"{os.environ['GLYD_BIN_DIR']}:{os.environ['PATH']}",
                                 "HOME": work, "TMPDIR": work, "XDG_RUNTIME_DIR": work})
    ran = 0
    try:
        for line, command, wanted in commands((TREE / page).read_text()):
            print(f"{page}:{line}: {command}", end="", flush=True)
            shell.stdin.write(f"{command}code=$?; echo; echo {END} $code\n")
            shell.stdin.flush()
            got = ""
            while not (end := re.search(rf"\n{END} (\d+)\n\Z", got)):
                said = shell.stdout.readline()
                if not said:
                    sys.exit(f"{page}:{line}: the shell ended\n{got}")
                got += said
            got = got[:end.start()]
            if end[1] != "0":
                sys.exit(f"{page}:{line}: exit {end[1]}\n{got}")
            if wanted and not CHECK.check_output(wanted, got, HOW):
                sys.exit(f"{page}:{line}: expected\n{wanted}got\n{got}")
            ran += 1
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    if not ran:
        sys.exit(f"{page}: no commands")


for name in sys.argv[1:]:
    with tempfile.TemporaryDirectory() as folder:
        run(name, folder)
