#!/usr/bin/env python3
"""Runs the system tests: every tests/system/test_*.py, one class after the other.

usage: run.py [--pattern TEXT] [--result FILE]

Classes with `waits = True` mostly wait for a clock, and have a daemon of their own. Each runs in a process beside the
others and is over before a class with `is_heavy = True` begins, which would take the processors from under its deadlines.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
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


def summary_of(result):
    failed = result.failures + result.errors
    return {
        "passed": getattr(result, "passed", 0),
        "failed": len(failed) + len(result.unexpectedSuccesses),
        "skipped": len(result.skipped),
        "names": [f"failed system: {test.id()}" for test, _ in failed] +
                 [f"skipped system: {test.id()}: {why}" for test, why in result.skipped],
    }


class Beside:
    """The test of one class in a process of its own."""

    def __init__(self, name, scratch):
        self.name = name
        self.result = pathlib.Path(scratch) / f"{name}.json"
        self.log = open(pathlib.Path(scratch) / f"{name}.log", "w+")
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--pattern", name + ".", "--result", self.result, "--alone"],
            stdout=self.log, stderr=subprocess.STDOUT)

    def join(self):
        self.process.wait()
        self.log.seek(0)
        print(self.log.read(), flush=True)
        self.log.close()
        if self.result.exists():
            return json.loads(self.result.read_text())
        return {"passed": 0, "failed": 1, "skipped": 0, "names": [f"failed system: {self.name} died"]}


def class_name(test):
    return f"{type(test).__module__}.{type(test).__qualname__}"


def run_suite(tests):
    return summary_of(unittest.TextTestRunner(sys.stdout, verbosity=2, resultclass=Result).run(
        unittest.TestSuite(tests)))


def run_all(tests, scratch):
    waiting = sorted({class_name(t) for t in tests if getattr(t, "waits", False)})
    rest = [t for t in tests if not getattr(t, "waits", False)]
    beside = [Beside(name, scratch) for name in waiting]
    yield run_suite([t for t in rest if not getattr(t, "is_heavy", False)])
    for one in beside:
        yield one.join()
    yield run_suite([t for t in rest if getattr(t, "is_heavy", False)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pattern", default="")
    parser.add_argument("--result")
    parser.add_argument("--alone", action="store_true", help="all in this process")
    options = parser.parse_args()

    sys.path.insert(0, str(HERE))
    found = unittest.defaultTestLoader.discover(str(HERE), "test_*.py")
    tests = list(select(found, options.pattern))
    total = {"passed": 0, "failed": 0, "skipped": 0, "names": []}
    with tempfile.TemporaryDirectory() as scratch:
        for part in [run_suite(tests)] if options.alone else run_all(tests, scratch):
            for key, value in part.items():
                total[key] += value
    if options.result:
        pathlib.Path(options.result).write_text(json.dumps(total))
    return 0 if total["passed"] and not total["failed"] else 1


if __name__ == "__main__":
    sys.exit(main())
