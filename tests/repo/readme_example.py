#!/usr/bin/env python3
"""readme_example.py README OUT: README's C++ example as a source file, so that the build compiles it."""
import re
import sys

text = open(sys.argv[1], encoding="utf-8").read()
with open(sys.argv[2], "w", encoding="utf-8") as out:
    out.write("".join(re.findall(r"^```cpp\n(.*?)^```$", text, re.M | re.S)))
