#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""savevm.py [ACCEL [DISK [CPUS]]]: a guest that writes a qcow2 disk and counts is saved in it (savevm), goes on, is taken back twice
(loadvm) and once in a new process (-loadvm), and each time goes on from where it was saved, memory and disk alike."""
import os
import subprocess
import sys

import guest
from qmp import Qmp
from snapshot_guest import CPU, DISKS, END, START, WORK, expect_right, fsck, wait_until

TICKS = 40
COMMANDS = START + """
i=0
while [ $i -lt TICKS ]; do
  i=$((i+1))
""" + WORK + """
  [ $((i % 4)) != 0 ] || { sync; echo 3 > /proc/sys/vm/drop_caches; }
  report tick $i $(cut -d' ' -f1 /proc/uptime) $(ls /mnt | grep -c ^f)
  sleep 0.1
done
""" + END


def ticks(run):
    return [(int(t[1]), float(t[2]), int(t[3])) for t in (line.split() for line in run.read(run.report).splitlines()) if len(t) == 4 and t[0] == "tick"]


def wait_ticks(run, more, begin):
    """The ticks after the first `begin`, when there are `more` of them."""
    wait_until(run, lambda: len(ticks(run)) >= begin + more)
    return ticks(run)[begin:]


class Machine:
    """A guest and its monitor."""

    def __init__(self, run):
        self.run, self.qmp = run, Qmp(run.qmp, wait=100)

    def monitor(self, line):
        return self.qmp.call("human-monitor-command", {"command-line": line}).replace("\r", "")

    def good(self, line):
        said = self.monitor(line)
        guest.expect(said == "", self.run, f"{line}: {said}")

    def bad(self, line, words):
        said = self.monitor(line)
        guest.expect(said.startswith("Error: ") and words in said and said.count("\n") == 1, self.run, f"{line}: {said!r}")
        guest.expect(self.qmp.call("query-status")["status"] == "running", self.run, f"stopped after {line}")

    def loadvm(self, name, saved):
        """Back to the tick `saved`, and on."""
        begin = len(ticks(self.run))
        self.good(f"loadvm {name}")
        guest.expect(self.qmp.call("query-status")["status"] == "running", self.run, "not running after loadvm")
        check_back(self.run, wait_ticks(self.run, 5, begin), saved)


def check_back(run, got, saved):
    """Ticks of a machine that was taken back to the tick `saved`; one more may have been on its way."""
    numbers = [t[0] for t in got]
    guest.expect(saved[0] <= numbers[0] <= saved[0] + 2, run, f"saved at {saved}, goes on with {got}")
    guest.expect(numbers == list(range(numbers[0], numbers[0] + len(numbers))), run, f"ticks {numbers}")
    guest.expect(all(t[2] == t[0] for t in got), run, f"files on the disk: {got}")
    guest.expect(got[0][1] < saved[1] + 60, run, f"the clock did not go back: {saved} {got[0]}")


def image(*command):
    return subprocess.run(["qemu-img", *command], check=True, stdout=subprocess.PIPE, text=True).stdout


def first_process(run, disk):
    m = Machine(run)
    wait_ticks(run, 4, 0)
    guest.expect("There is no snapshot" in m.monitor("info snapshots"), run, "info snapshots")
    m.bad("loadvm a", "does not exist")
    m.bad("delvm a", "does not exist")
    m.good("savevm a")
    saved = ticks(run)[-1]
    guest.expect({"STOP", "RESUME"} <= set(m.qmp.events), run, f"events {m.qmp.events}")
    wait_ticks(run, 6, len(ticks(run)))
    m.loadvm("a", saved)
    m.loadvm("a", saved)
    m.good("savevm b")
    m.good("savevm a")
    saved = ticks(run)[-1]
    listed = m.monitor("info snapshots")
    lines = [line.split() for line in listed.splitlines()]
    guest.expect([x[:2] for x in lines[2:]] == [["--", "b"], ["--", "a"]] and "MiB" in listed, run, listed)
    m.good("delvm b")
    wait_ticks(run, 2, len(ticks(run)))
    m.qmp.call("quit")
    run.process.wait(60)
    listed = image("snapshot", "-l", disk)
    guest.expect(listed.count("MiB") == 1 and " a " in listed, run, listed)
    image("check", "-q", disk)
    return saved


def main():
    accel = sys.argv[1] if len(sys.argv) > 1 else "soft"
    options, node, kernel = DISKS[sys.argv[2] if len(sys.argv) > 2 else "virtio"]
    bzimage, _, initramfs = guest.prepare(*kernel)
    folder = guest.scratch()
    disk, raw = os.path.join(folder, "disk.qcow2"), os.path.join(folder, "disk.raw")
    image("create", "-q", "-f", "raw", raw, "64M")
    subprocess.run(["mkfs.ext4", "-q", "-F", raw], check=True)
    image("convert", "-O", "qcow2", raw, disk)
    args = ["-drive", f"file={disk},if=none,id=d,format=qcow2", *options, "-device", "virtio-rng-pci", "-cpu", CPU]
    settings = {"accel": accel, "mem": "192M", "smp": int(sys.argv[3]) if len(sys.argv) > 3 else 2}
    commands = COMMANDS.replace("TICKS", str(TICKS)).replace("NODE", node)
    with guest.Guest(bzimage, [initramfs], commands, args=args, **settings) as run:
        saved = first_process(run, disk)
    with guest.Guest(bzimage, [initramfs], commands, args=args + ["-loadvm", "a"], **settings) as run:
        got = run.wait(timeout=400)
        check_back(run, ticks(run), saved)
        expect_right(run, got, TICKS)
    image("check", "-q", disk)
    image("snapshot", "-d", "a", disk)
    image("check", "-q", disk)
    image("convert", "-O", "raw", disk, raw)
    fsck(raw)
    print(f"{accel}: saved, taken back twice and in a new process; {TICKS} files are right")


guest.run_test(main)
