#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""idle.py ACCEL SECONDS: an idle guest with 2 CPUs uses less than 2 % of one host CPU."""
import os
import sys
import time

import guest


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        field = f.read().rpartition(")")[2].split()
    return (int(field[11]) + int(field[12])) / os.sysconf("SC_CLK_TCK")


def main():
    accel, seconds = sys.argv[1], float(sys.argv[2])
    bzimage, _, initramfs = guest.prepare()
    with guest.Guest(bzimage, [initramfs], "report idle 1; sleep 3600", accel=accel, smp=2) as run:
        run.wait_report("idle", 120)
        time.sleep(3)
        before = cpu_seconds(run.process.pid)
        time.sleep(seconds)
        used = (cpu_seconds(run.process.pid) - before) / seconds * 100
        print(f"idle for {seconds:.0f} s: {used:.2f} % of a CPU")
        guest.expect(run.process.poll() is None, run, "the guest ended")
        guest.expect(used < 2, run, f"idle guest used {used:.2f} % of a CPU")


guest.run_test(main)
