#!/usr/bin/env python3
"""base/reasons.h lists exactly the reasons that the sources give, and docs/errors.md is made from it."""
import json
import os
import re
import subprocess
import unittest
from pathlib import Path

TREE = Path(os.environ["GLYD_SOURCE_DIR"])
GLYD = Path(os.environ["GLYD_BIN_DIR"]) / "glyd"
FOLDERS = ("base", "kernels", "packer", "server", "client")  # the command line gives none
# What gives a reason: the last argument of these, and what is assigned to these names.
CALL = re.compile(r"\b(WithReason|set_reason|set_error_reason|Fail)\(")
ASSIGNED = re.compile(r'\b(?:kReason\w+(?:\[\])?|reason)\s*=\s*"([A-Z_]+)"')
LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')


def arguments(text, start):
    """The text of a call's arguments, from its opening parenthesis on."""
    depth, i = 0, start
    while i < len(text):
        if (literal := LITERAL.match(text, i)):
            i = literal.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return text[start + 1:i]
        i += 1
    return ""


def given(text):
    for call in CALL.finditer(text):
        if (last := re.search(r'(?:^|[,?:])\s*"([A-Z][A-Z_]*)"\s*$', arguments(text, call.end() - 1))):
            yield last.group(1)
    yield from ASSIGNED.findall(text)


class ErrorsDoc(unittest.TestCase):
    def test_lists_every_reason(self):
        sources = [p for f in FOLDERS for p in sorted((TREE / f).rglob("*"))
                   if p.suffix in (".cc", ".h") and not p.stem.endswith("_test")
                   and TREE / "client" / "cli" not in p.parents]
        found = {reason for p in sources for reason in given(p.read_text())}
        told = subprocess.run([GLYD, "-o", "json", "explain"], capture_output=True, text=True, check=True)
        listed = [r["reason"] for r in json.loads(told.stdout)["reasons"]]
        self.assertEqual(listed, sorted(listed), "base/reasons.h is not sorted")
        self.assertTrue(found)
        self.assertEqual(sorted(found - set(listed)), [], "given, and not in base/reasons.h")
        self.assertEqual(sorted(set(listed) - found), [], "in base/reasons.h, and not given")

    def test_document_is_made_from_the_table(self):
        check = subprocess.run([TREE / "tools/errors_doc", "--check"], capture_output=True, text=True)
        self.assertEqual((check.returncode, check.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
