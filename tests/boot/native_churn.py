#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""native_churn.py ACCEL ROUNDS: a process whose threads fork, protect, unmap, discard and write code (guest/churn) in a
guest with 3 vCPUs sees what it must; then Kelvin is killed, and none of its native processes stays."""
import os
import signal
import subprocess
import sys
import time

import guest


def children(pid):
    """The processes that are children of the process's threads."""
    found = set()
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as f:
            found |= set(map(int, f.read().split()))
    return found


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def main():
    accel, rounds = sys.argv[1], sys.argv[2]
    place = guest.scratch()
    os.makedirs(os.path.join(place, "root", "bin"))
    source = os.path.join(guest.TOP, "guest/churn/churn.c")
    subprocess.run(["gcc", "-O2", "-D_GNU_SOURCE", "-static", "-pthread", "-o", os.path.join(place, "root", "bin", "churn"), source], check=True)
    extra = os.path.join(place, "churn.cpio")
    with open(extra, "wb") as f:
        subprocess.run("find . | cpio -o -H newc -R 0:0 --quiet", shell=True, cwd=os.path.join(place, "root"), stdout=f, check=True)
    _, elf, initramfs = guest.prepare()
    commands = f"report CHURN $(churn {rounds})\nsleep 1000"
    with guest.Guest(elf, [initramfs, extra], commands, accel=accel, smp=3, mem="256M", append="quiet") as run:
        got = run.wait_report("CHURN", 600)
        guest.expect(got == "churn 0.000000 0", run, f"the guest's program says: {got}")
        pids = children(run.process.pid)
        if "always" in accel:
            guest.expect(pids, run, "no native process")
        run.process.send_signal(signal.SIGKILL)
        run.process.wait()
        end = time.monotonic() + 60
        while any(map(alive, pids)) and time.monotonic() < end:
            time.sleep(0.05)
        left = [pid for pid in pids if alive(pid)]
        guest.expect(not left, run, f"still there: {left}")
    print(f"{len(pids)} native processes, all gone with Kelvin")


if __name__ == "__main__":
    guest.run_test(main)
