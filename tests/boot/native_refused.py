#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""native_refused.py: hosts that do not allow native user code. By default a guest runs without it and nothing is said; with
native=on one line tells why."""
import json
import os
import sys

import guest

# A program that computes long enough to run natively.
COMMANDS = "i=0; while [ $i -lt 150000 ]; do i=$((i + 1)); done; report DONE $i"


def tracing_forbidden(argv):
    """strace is the tracer of all children: nobody else can be."""
    return ["strace", "-f", "-qq", "-e", "trace=none", "-o", "/dev/null"] + argv


def file_limit(argv):
    return ["prlimit", f"--fsize={1 << 40}"] + argv


def one(name, elf, initramfs, accel, wrap, args, says, entries):
    """says: what the monitor's messages hold (None: nothing); entries: whether stays are expected (None: either)."""
    run = guest.Guest(elf, [initramfs], COMMANDS, accel=accel, append="quiet", args=args)
    run.argv = wrap(run.argv) if wrap else run.argv
    with run:
        guest.expect(run.wait_report("DONE", 600) == "150000", run, f"{name}: a wrong result")
        run.wait(300)
        said = run.read(os.path.join(run.dir, "stderr"))
        with open(run.stats, encoding="utf-8") as f:
            cpu = json.load(f)["vcpus"][0]
        guest.expect((says in said and len(said.splitlines()) == 1) if says else not said.strip(), run, f"{name}: the monitor said: {said}")
        guest.expect(entries is None or (cpu.get("native_entries", 0) > 0) == entries, run, f"{name}: {cpu.get('native_entries')} stays")
    print(f"ok {name}: {cpu.get('native_entries', 0)} stays, {said.strip() or 'nothing said'}")


def main():
    _, elf, initramfs = guest.prepare()
    file = ["-mem-path", guest.scratch()]
    rows = [
        ("a host that allows it", "soft", None, [], None, True),
        ("private memory", "soft", None, file, None, False),
        ("private memory, by name", "soft,native=on", None, file, "memory-backend-file", False),
        ("another CPU model", "soft", None, ["-cpu", "max,-avx2"], None, False),
        ("another CPU model, by name", "soft,native=on", None, ["-cpu", "max,-avx2"], "-cpu max", False),
        ("merged memory", "soft", None, ["-machine", "mem-merge=on"], None, False),
        ("limit of file sizes", "soft", file_limit, [], None, False),
        ("traced by somebody else", "soft", tracing_forbidden, [], None, False),
    ]
    if len(sys.argv) > 1:
        rows = [row for row in rows if sys.argv[1] in row[0]]
    for name, accel, wrap, args, says, entries in rows:
        one(name, elf, initramfs, accel, wrap, args, says, entries)


if __name__ == "__main__":
    guest.run_test(main)
