#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""timeline.py STARTED ENDED MARKS STATS: print when what happened in a run of ./try.

MARKS has lines "EPOCH mark NAME UPTIME" that the guest wrote; its kernel began UPTIME seconds before each. STATS is the
monitor's -stats file; it may be missing (another monitor).
"""
import json
import sys


def main():
    started, ended = float(sys.argv[1]), float(sys.argv[2])
    events = [(0.0, "monitor started")]
    with open(sys.argv[3], encoding="utf-8", errors="replace") as f:
        for line in f:
            word = line.split()
            if len(word) >= 4 and word[1] == "mark":
                at = float(word[0]) - started
                if word[2] == "init":
                    events.append((at - float(word[3]), "kernel entered (from the guest's uptime)"))
                name = {"init": "init's first line", "multi-user": "Debian is up (multi-user)", "done": "work done"}
                events.append((at, name.get(word[2], word[2])))
    engine = None
    try:
        with open(sys.argv[4], encoding="utf-8") as f:
            stats = json.load(f)
        engine = stats.get("accel"), stats.get("accel_reason")
        first = stats.get("first_insn_ns")
        if first:
            events.append((first / 1e9, "first guest instruction"))
    except (OSError, ValueError):
        pass
    events.append((ended - started, "powered off"))
    print("\ntimeline, seconds")
    for at, what in sorted(events):
        print(f"  {max(at, 0):8.3f}  {what}")
    if engine:
        print(f"CPU engine: {engine[1] or engine[0]}")


main()
