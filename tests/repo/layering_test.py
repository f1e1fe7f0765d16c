#!/usr/bin/env python3
"""tools/check_layering refuses what it is there to refuse, one bad file at a time."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CHECK = Path(os.environ["GLYD_SOURCE_DIR"]) / "tools" / "check_layering"

GOOD = {
    "base/a.h": "#include <string>\n#include \"absl/status/status.h\"\n",
    "kernels/format/a.cc": "#include \"base/a.h\"\nconstexpr int kStepRows = 64;\n",
    "packer/pack/a.cc": "#include \"kernels/format/pack.h\"\n",
    "server/worker/a.cc": "#include \"packer/pack/pack.h\"\n#include \"kernels/linear/linear.h\"\n",
    "server/rpc/a.cc": "#include <grpcpp/grpcpp.h>\n#include \"glyd/v1/jobs.pb.h\"\n",
    "server/core/b.h": "#include \"glyd/v1/models.pb.h\"\n",
    "client/include/glyd/a.h": "#include \"glyd/b.h\"\n",
    "client/src/a.cc": "#include \"glyd/a.h\"\n#include \"kernels/linear/linear.h\"\n",
    "client/cli/a.cc": "#include \"packer/pack/pack.h\"\n#include \"client/cli/b.h\"\n",
    "tests/e2e/a.cc": "#include \"server/core/a.h\"\n#include \"packer/pack/pack.h\"\n",
}

BAD = {
    "base_knows_kernels": ("base/b.h", "#include \"kernels/format/pack.h\"\n"),
    "base_knows_grpc": ("base/b.cc", "#include <grpcpp/grpcpp.h>\n"),
    "kernels_know_packer": ("kernels/b.cc", "#include \"packer/pack/pack.h\"\n"),
    "kernels_know_messages": ("kernels/b.cc", "#include \"glyd/v1/model.pb.h\"\n"),
    "packer_knows_server": ("packer/b.cc", "#include \"server/core/a.h\"\n"),
    "daemon_parses": ("server/rpc/b.cc", "#include \"packer/model/save.h\"\n"),
    "daemon_computes": ("server/broker/b.cc", "#include \"kernels/linear/linear.h\"\n"),
    "core_knows_services": ("server/core/b.cc", "#include \"glyd/v1/models.grpc.pb.h\"\n"),
    "core_knows_grpc": ("server/core/b.cc", "#include <grpcpp/grpcpp.h>\n"),
    "client_knows_server": ("client/src/b.cc", "#include \"server/core/a.h\"\n"),
    "library_knows_packer": ("client/src/b.cc", "#include \"packer/pack/pack.h\"\n"),
    "public_header_knows_grpc": ("client/include/glyd/b.h", "#include <grpcpp/channel.h>\n"),
    "public_header_knows_insides": ("client/include/glyd/b.h", "#include \"base/file.h\"\n"),
    "step_outside": ("packer/b.cc", "int row = StepRow(q);\n"),
    "step_size_outside": ("packer/b.cc", "uint64_t n = steps * 1280;\n"),
}


def check(files):
    with tempfile.TemporaryDirectory() as tree:
        for name, text in files.items():
            path = Path(tree) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return subprocess.run([sys.executable, CHECK, tree], capture_output=True, text=True)


class Layering(unittest.TestCase):
    def test_good_tree(self):
        run = check(GOOD)
        self.assertEqual((run.returncode, run.stderr), (0, ""), run.stdout)

    def test_empty_tree(self):
        self.assertEqual(check({}).returncode, 1)

    def test_each_bad_include(self):
        for case, (name, text) in BAD.items():
            with self.subTest(case):
                run = check({**GOOD, name: text})
                self.assertEqual(run.returncode, 1)
                self.assertEqual(len(run.stdout.splitlines()), 1, run.stdout)
                self.assertIn(f"{name}:1: ", run.stdout)


if __name__ == "__main__":
    unittest.main()
