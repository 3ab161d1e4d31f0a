#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""churn.py ACCEL SECONDS: stop, cont, reset and looks at the CPUs in random order while a guest with 3 vCPUs boots; then
quit. Nothing may hang, fail or (with the sanitizers) race."""
import random
import sys
import time

import guest
from qmp import Qmp


def main():
    accel, seconds = sys.argv[1], float(sys.argv[2])
    seed = random.randrange(1 << 30)
    choose = random.Random(seed)
    bzimage, _, initramfs = guest.prepare()
    run = guest.Guest(bzimage, [initramfs], "sleep 1000", accel=accel, smp=3, mem="128M")
    run.argv.remove("-no-reboot")
    with run:
        for _ in range(100):
            try:
                qmp = Qmp(run.qmp)
                break
            except OSError:
                time.sleep(0.1)
        else:
            run.fail("no QMP")
        done, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            command = choose.choice(["stop", "cont", "cont", "stop", "cont", "system_reset", "query-cpus-fast", "registers"])
            if command == "registers":
                qmp.call("human-monitor-command", {"command-line": choose.choice(["info registers -a", "info mtree", "info qtree"])})
            else:
                qmp.call(command)
            done += 1
            time.sleep(choose.random() * 0.02)
        guest.expect({"STOP", "RESUME", "RESET"} <= set(qmp.events), run, f"events {set(qmp.events)}, seed {seed}")
        qmp.call("quit")
        run.wait(timeout=30)
    print(f"{done} commands, {len(qmp.events)} events")


if __name__ == "__main__":
    guest.run_test(main)
