#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""summary.py DIR: add up the results ./check left in DIR; exit 1 if anything failed or nothing ran.

DIR/*.json are meson's testlog.json files (one JSON object a line), DIR/steps has lines "passed NAME" or "failed NAME".
"""
import glob
import json
import os
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP"}


def results(folder):
    steps = os.path.join(folder, "steps")
    if os.path.exists(steps):
        with open(steps, encoding="utf-8") as f:
            for line in f:
                result, name = line.split()
                yield name, result, ""
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        configuration = os.path.splitext(os.path.basename(path))[0]
        with open(path, encoding="utf-8") as f:
            for line in f:
                test = json.loads(line)
                result = test["result"]
                kind = "passed" if result in PASSED else "skipped" if result in SKIPPED else "failed"
                yield f"{configuration}: {test['name']}", kind, (test.get("stdout") or "") + (test.get("stderr") or "")


def main():
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for name, kind, output in results(sys.argv[1]):
        count[kind] += 1
        if kind == "failed":
            print(f"FAILED  {name}")
            for line in output.strip().splitlines()[-25:]:
                print(f"        {line}")
        elif kind == "skipped":
            print(f"SKIPPED {name}: {output.strip().splitlines()[-1] if output.strip() else 'no reason given'}")
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**count))
    sys.exit(1 if count["failed"] or not count["passed"] else 0)


main()
