#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""snapshot.py ACCEL[,ACCEL...] [TICKS [DISK [CPUS]]]: a guest that writes a disk, counts ticks, sleeps and prints is saved, loaded in another
process (on the next engine of the list; the last one once more on the first), and goes on without noticing."""
import os
import subprocess
import sys
import time

import guest
from qmp import Qmp
from snapshot_guest import CPU, DISKS, END, START, WORK, expect_right, fsck, wait_until

COMMANDS = START + """
report cpuinfo $(grep -c ^processor /proc/cpuinfo)
(n=0; while [ -e /proc/self ] && [ ! -e /tmp/stop ]; do n=$((n+1)); echo console $n > /dev/ttyS0; sleep 0.05; done; touch /tmp/stopped) &
i=0
while [ $i -lt TICKS ]; do
  i=$((i+1))
""" + WORK + """
  report tick $i $(cut -d' ' -f1 /proc/uptime) $(date +%s)
done
touch /tmp/stop
while [ ! -e /tmp/stopped ]; do sleep 0.1; done
""" + END
TICKS = int(sys.argv[2]) if len(sys.argv) > 2 else 40
SMP = int(sys.argv[4]) if len(sys.argv) > 4 else 2


def ticks(run):
    return [line.split()[1:] for line in run.read(run.report).splitlines() if line.startswith("tick ")]


def save(run, folder, number):
    """Save a running guest after some ticks; the file's name."""
    path = os.path.join(folder, f"state{number}")
    before = len(ticks(run))
    wait_until(run, lambda: len(ticks(run)) >= before + min(6, TICKS // 4))
    qmp = Qmp(run.qmp)
    qmp.call("migrate", {"uri": f"file:{path}"})
    while qmp.call("query-migrate")["status"] not in ("completed", "failed"):
        time.sleep(0.05)
    got = qmp.call("query-migrate")
    guest.expect(got["status"] == "completed", run, f"not saved: {got}")
    guest.expect(qmp.call("query-status")["status"] == "postmigrate", run, "status after saving")
    guest.expect("MIGRATION" in qmp.events and "STOP" in qmp.events, run, f"events {qmp.events}")
    qmp.call("quit")
    run.process.wait(60)
    return path


def main():
    accels = sys.argv[1].split(",")
    stages = accels + [accels[0]]
    options, node, kernel = DISKS[sys.argv[3] if len(sys.argv) > 3 else "virtio"]
    bzimage, _, initramfs = guest.prepare(*kernel)
    folder = guest.scratch()
    disk = os.path.join(folder, "disk.img")
    subprocess.run(["qemu-img", "create", "-q", "-f", "raw", disk, "64M"], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", disk], check=True)
    args = ["-drive", f"file={disk},if=none,id=d,format=raw", *options, "-device", "virtio-rng-pci", "-cpu", CPU]
    seen, state, commands = [], None, COMMANDS.replace("TICKS", str(TICKS)).replace("NODE", node)
    for number, accel in enumerate(stages):
        more = args + (["-incoming", f"file:{state}"] if state else [])
        with guest.Guest(bzimage, [initramfs], commands, args=more, accel=accel, mem="192M", smp=SMP) as run:
            if number + 1 < len(stages):
                if not state:
                    run.wait_report("cpuinfo", 400)
                state = save(run, folder, number)
                seen += ticks(run)
                continue
            got = run.wait(timeout=400)
            seen += ticks(run)
            expect_right(run, got, TICKS)
            guest.expect([int(t[0]) for t in seen] == list(range(1, TICKS + 1)), run, f"ticks {seen}")
            up = [float(t[1]) for t in seen]
            guest.expect(up == sorted(up) and max(b - a for a, b in zip(up, up[1:])) < 60, run, f"uptimes {up}")
    fsck(disk)
    print(f"{' -> '.join(stages)}: {TICKS} ticks without a gap")


guest.run_test(main)
