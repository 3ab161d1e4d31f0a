#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""No assert, abort or exit where guest, image or client input can reach: only main.c, the fatal path of base/, and
signal handlers and the waiting parent of -daemonize (control/process.c) and the child of a fork (lab/spawn.c) may end
the process."""
import os
import re
import sys

CALL = re.compile(r"(?<![\w>.])(assert|abort|_?exit|quick_exit)\s*\(")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\])*\"", re.S)
ALLOWED = {"main.c", "base/util.c", "control/process.c", "lab/spawn.c"}


def main():
    src = sys.argv[1]
    bad = files = 0
    for where, _, names in os.walk(src):
        for name in names:
            path = os.path.relpath(os.path.join(where, name), src)
            if not name.endswith((".c", ".h")) or path in ALLOWED:
                continue
            files += 1
            with open(os.path.join(where, name), encoding="utf-8") as f:
                text = COMMENT.sub(lambda m: "\n" * m[0].count("\n"), f.read())
            for number, line in enumerate(text.split("\n"), 1):
                if CALL.search(line):
                    print(f"src/{path}:{number}: {line.strip()}")
                    bad += 1
    print(f"{files} files, {bad} calls")
    sys.exit(1 if bad or not files else 0)


main()
