#!/usr/bin/env python3
"""Runs the system tests: every tests/system/test_*.py, one class after the other.

usage: run.py [--pattern TEXT] [--result FILE]
"""
import argparse
import json
import pathlib
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent


class Result(unittest.TextTestResult):
    """Says how long each test took: what is slow is what CI pays for."""

    def startTest(self, test):
        self.started = time.monotonic()
        super().startTest(test)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed = getattr(self, "passed", 0) + 1
        self.stream.writeln(f"      {time.monotonic() - self.started:.1f} s")
        self.stream.flush()


def select(suite, pattern):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from select(test, pattern)
        elif pattern in test.id():
            yield test


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pattern", default="")
    parser.add_argument("--result")
    options = parser.parse_args()

    sys.path.insert(0, str(HERE))
    found = unittest.defaultTestLoader.discover(str(HERE), "test_*.py")
    suite = unittest.TestSuite(select(found, options.pattern))
    runner = unittest.TextTestRunner(sys.stdout, verbosity=2, resultclass=Result)
    result = runner.run(suite)
    if options.result:
        failed = result.failures + result.errors
        summary = {
            "passed": getattr(result, "passed", 0),
            "failed": len(failed) + len(result.unexpectedSuccesses),
            "skipped": len(result.skipped),
            "names": [f"failed system: {test.id()}" for test, _ in failed] +
                     [f"skipped system: {test.id()}: {why}" for test, why in result.skipped],
        }
        pathlib.Path(options.result).write_text(json.dumps(summary))
    return 0 if result.wasSuccessful() and result.testsRun else 1


if __name__ == "__main__":
    sys.exit(main())
