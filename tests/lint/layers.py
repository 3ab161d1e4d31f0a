#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Folders include only folders before them: base, io, mem, then cpu block net chr ui, then bus, hw, machine, control, main.

Folders of one rank do not include each other. Fails with a line for every include that points back or sideways.
"""
import os
import re
import sys

RANKS = [["base"], ["io"], ["mem"], ["cpu", "block", "net", "chr", "ui"], ["bus"], ["hw"], ["machine"], ["control"], ["lab"], ["main"]]
RANK = {folder: i for i, folders in enumerate(RANKS) for folder in folders}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def folder_of(path):
    return path.split("/")[0] if "/" in path else "main"


def main():
    src = sys.argv[1]
    bad = seen = 0
    for where, _, files in os.walk(src):
        for name in files:
            if not name.endswith((".c", ".h")):
                continue
            path = os.path.relpath(os.path.join(where, name), src)
            mine = folder_of(path)
            with open(os.path.join(where, name), encoding="utf-8") as f:
                for number, line in enumerate(f, 1):
                    match = INCLUDE.match(line)
                    if not match:
                        continue
                    seen += 1
                    theirs = folder_of(match[1])
                    if mine not in RANK or theirs not in RANK:
                        print(f"src/{path}:{number}: '{match[1]}' is in no known folder of src/")
                        bad += 1
                    elif theirs != mine and RANK[theirs] >= RANK[mine]:
                        print(f"src/{path}:{number}: {mine} must not include {theirs} ('{match[1]}')")
                        bad += 1
    if not seen:
        print("no includes found: the test looked in the wrong place")
    print(f"{seen} includes looked at, {bad} wrong")
    sys.exit(1 if bad or not seen else 0)


main()
