#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""lockstep.py [short|init|i686|debian]: a guest boots with -accel soft,lockstep=on and no block differs between translator and
interpreter. short: Debian's cloud kernel, until it has its clock (about a third of the way); init: to init and power off; i686:
the same with Debian's 686-pae kernel; debian: the whole of Debian with systemd by ./try (half an hour on a machine left alone)."""
import os
import re
import subprocess
import sys
import time

import guest

SUMMARY = re.compile(r"lockstep: (\d+) blocks with (\d+) instructions compared, .* (no difference|a difference)")
LIMIT = 4 * 3600


def judge(text):
    found = SUMMARY.search(text)
    if not found or found[3] != "no difference":
        raise guest.GuestFailed("lockstep does not say that there was no difference:\n" + text[-2000:])
    if int(found[1]) <= 1000000:
        raise guest.GuestFailed(f"only {found[1]} blocks were compared")
    print(found[0])


def debian():
    command = [os.path.join(guest.TOP, "try"), "--vmm", guest.KELVIN, "--accel", "soft,lockstep=on", "--smp", "1"]
    command += ["--", "sh", "-c", "systemctl is-system-running; python3 -c 'print(sum(x * x for x in range(1000)))'"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT, check=False)
    if "332833500" not in done.stdout:
        raise guest.GuestFailed("Debian did not compute:\n" + done.stdout[-2000:])
    judge(done.stdout)


def main():
    what = sys.argv[1] if len(sys.argv) > 1 else "short"
    if what == "debian":
        debian()
        return
    bzimage, elf, initramfs = guest.prepare("i686" if what == "i686" else "cloud")
    if what == "i686":
        elf = os.path.join(guest.scratch(), "vmlinux")
        subprocess.run([sys.executable, os.path.join(guest.TOP, "tools", "extract-elf.py"), bzimage, elf], check=True)
    with guest.Guest(elf, [initramfs], "true", accel="soft,lockstep=on") as run:
        if what == "short":
            end = time.monotonic() + 400
            while "clocksource: Switched" not in run.read(run.console):
                guest.expect(run.process.poll() is None, run, "the monitor ended")
                guest.expect(time.monotonic() < end, run, "the kernel has no clock after 400 s")
                time.sleep(0.2)
            run.process.terminate()
            run.process.wait(60)
        else:
            guest.expect(run.wait(timeout=LIMIT).get("done") == "0", run, "the guest's commands failed")
        judge(run.read(run.dir + "/stderr"))


guest.run_test(main)
