#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""smp_boots.py ACCEL COUNT [SMP]: COUNT boots with SMP (4) virtual CPUs while all host CPUs are kept busy: none hangs or
panics, all CPUs are online in each. (Field case E33: a start-up IPI that is lost leaves a CPU off.)"""
import os
import subprocess
import sys
import time

import guest


def main():
    accel, count = sys.argv[1], int(sys.argv[2])
    smp = sys.argv[3] if len(sys.argv) > 3 else "4"
    _, elf, initramfs = guest.prepare()
    load = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count())]  # pylint: disable=R1732
    times = []
    try:
        for number in range(count):
            start = time.monotonic()
            with guest.Guest(elf, [initramfs], smp=smp, accel=accel, append="quiet") as run:
                got = run.wait(timeout=900)
                guest.expect(got.get("online") == f"0-{int(smp) - 1}", run, f"boot {number}: CPUs online: {got.get('online')}")
            times.append(time.monotonic() - start)
            print(f"boot {number + 1}: {times[-1]:.1f} s", flush=True)
    finally:
        for process in load:
            process.kill()
            process.wait()
    times.sort()
    print(f"{count} boots, -smp {smp}, host loaded: all CPUs online in each; seconds {times[0]:.1f} to {times[-1]:.1f}, median {times[len(times) // 2]:.1f}")


guest.run_test(main)
