#!/usr/bin/env python3
"""check-layers.py finds what it is there to find."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).with_name("check-layers.py")


def run(tree):
    with tempfile.TemporaryDirectory() as tmp:
        root = pathlib.Path(tmp)
        for name, text in tree.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, TOOL, root], capture_output=True, text=True)
        return done.returncode, done.stdout


LAYERS = {"tests/lint/layers.txt": "low :\nhigh : low/open.h\n"}


class CheckLayers(unittest.TestCase):
    def test_accepts_a_declared_edge(self):
        code, out = run(LAYERS | {
            "controlplane/low/open.h": "",
            "controlplane/high/a.c": '#include "low/open.h"\n'})
        self.assertEqual(code, 0, out)

    def test_refuses_an_edge_upwards(self):
        code, out = run(LAYERS | {"controlplane/low/a.c": '#include "high/a.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("low may not include high/a.h", out)

    def test_refuses_another_header_of_that_folder(self):
        code, out = run(LAYERS | {"controlplane/high/a.c": '#include "low/inner.h"\n'})
        self.assertEqual(code, 1, out)

    def test_refuses_an_undeclared_folder(self):
        code, out = run(LAYERS | {"controlplane/other/a.c": ""})
        self.assertEqual(code, 1)
        self.assertIn("not in layers.txt", out)

    def test_finds_a_circle(self):
        code, out = run(LAYERS | {
            "controlplane/low/a.h": '#include "low/b.h"\n',
            "controlplane/low/b.h": '#include "low/a.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn("circle", out)

    def test_an_empty_tree_is_a_fault(self):
        self.assertEqual(run(LAYERS)[0], 1)


if __name__ == "__main__":
    unittest.main()
