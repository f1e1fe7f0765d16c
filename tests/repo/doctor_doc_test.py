#!/usr/bin/env python3
"""docs/troubleshooting.md has a section for each thing that `glyd doctor` looks at, and for nothing that it does not."""
import os
import re
import unittest
from pathlib import Path

TREE = Path(os.environ["GLYD_SOURCE_DIR"])
OTHER = {"Loads are slow", "A model stays after unload"}


class DoctorDoc(unittest.TestCase):
    def test_each_finding_has_its_section(self):
        source = (TREE / "client/cli/doctor.cc").read_text()
        # Of a device and a root the finding has the name too.
        found = set(re.findall(r'r\.(?:Good|Note|Bad)\(\s*"([^"]+)"', source))
        found |= {w.strip() for w in re.findall(r'what = absl::StrCat\("([^"]+)"', source)}
        self.assertGreater(len(found), 10)
        sections = set(re.findall(r"^## (.+)$", (TREE / "docs/troubleshooting.md").read_text(), re.M))
        self.assertEqual(sections - OTHER, found)


if __name__ == "__main__":
    unittest.main()
