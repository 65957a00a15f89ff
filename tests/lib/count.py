#!/usr/bin/env python3
"""Counts test results.

usage: count.py meson NAME TESTLOG.JSON   one line of JSON for a run of `meson test`
       count.py sum FILE...               adds such lines up; prints the closing line, exit status 1 after a failure
"""
import json
import sys


def count_meson(name, path):
    result = {"passed": 0, "failed": 0, "skipped": 0, "names": []}
    with open(path) as log:
        for line in log:
            test = json.loads(line)
            outcome = test["result"]
            if outcome in ("OK", "EXPECTEDFAIL"):
                result["passed"] += 1
            elif outcome == "SKIP":
                result["skipped"] += 1
                result["names"].append(f"skipped {name}: {test['name']}")
            else:
                result["failed"] += 1
                result["names"].append(f"failed {name}: {test['name']} ({outcome})")
    print(json.dumps(result))
    return 0 if result["passed"] + result["failed"] > 0 else 1


def add_up(paths):
    total = {"passed": 0, "failed": 0, "skipped": 0}
    for path in paths:
        with open(path) as file:
            result = json.load(file)
        for key in total:
            total[key] += result[key]
        for name in result["names"]:
            print(name)
    print(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return 1 if total["failed"] or not total["passed"] else 0


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "meson":
        return count_meson(sys.argv[2], sys.argv[3])
    if len(sys.argv) >= 3 and sys.argv[1] == "sum":
        return add_up(sys.argv[2:])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
