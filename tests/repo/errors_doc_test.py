#!/usr/bin/env python3
"""docs/errors.md lists exactly the reasons that the sources give."""
import os
import re
import unittest
from pathlib import Path

TREE = Path(os.environ["GLYD_SOURCE_DIR"])
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
        listed = re.findall(r"^\| `([A-Z_]+)` \|", (TREE / "docs" / "errors.md").read_text(), re.M)
        self.assertEqual(listed, sorted(listed), "docs/errors.md is not sorted")
        self.assertTrue(found)
        self.assertEqual(sorted(found - set(listed)), [], "given, and not in docs/errors.md")
        self.assertEqual(sorted(set(listed) - found), [], "in docs/errors.md, and not given")


if __name__ == "__main__":
    unittest.main()
