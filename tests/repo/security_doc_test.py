#!/usr/bin/env python3
"""docs/security.md has README's promises, and each test that it names is there."""
import os
import re
import unittest
from pathlib import Path

TREE = Path(os.environ["GLYD_SOURCE_DIR"])
FOLDERS = ("base", "kernels", "packer", "server", "client", "tests")


class SecurityDoc(unittest.TestCase):
    def test_names_what_there_is(self):
        text = (TREE / "docs/security.md").read_text()
        rows = dict(re.findall(r"^\| (P\d) \|(.*)\|$", text, re.M))
        promised = re.findall(r"^\| (P\d) \|", (TREE / "README.md").read_text(), re.M)
        self.assertEqual(list(rows), promised)
        sources = "".join(p.read_text() for folder in FOLDERS for p in sorted((TREE / folder).rglob("*_test.cc")))
        there = {f"{suite}.{name}" for suite, name in re.findall(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", sources, re.M)}
        for promise, row in rows.items():
            named = re.findall(r"`(\w+\.[A-Z]\w+)`", row)
            self.assertTrue(named, f"{promise}: no test")
            self.assertEqual(sorted(set(named) - there), [], promise)


if __name__ == "__main__":
    unittest.main()
