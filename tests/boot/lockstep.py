#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""lockstep.py [short|init]: Debian's cloud kernel boots with -accel soft,lockstep=on and no block differs between translator and
interpreter. short stops once the kernel has its clock (about a third of the way); init goes to init and powers off."""
import re
import sys
import time

import guest

SUMMARY = re.compile(r"lockstep: (\d+) blocks with (\d+) instructions compared, .* (no difference|a difference)")


def main():
    short = sys.argv[1:] != ["init"]
    _, elf, initramfs = guest.prepare("cloud")
    with guest.Guest(elf, [initramfs], "true", accel="soft,lockstep=on") as run:
        if short:
            end = time.monotonic() + 400
            while "clocksource: Switched" not in run.read(run.console):
                guest.expect(run.process.poll() is None, run, "the monitor ended")
                guest.expect(time.monotonic() < end, run, "the kernel has no clock after 400 s")
                time.sleep(0.2)
            run.process.terminate()
            run.process.wait(60)
        else:
            guest.expect(run.wait(timeout=1200).get("done") == "0", run, "the guest's commands failed")
        found = SUMMARY.search(run.read(run.dir + "/stderr"))
        guest.expect(found and found[3] == "no difference", run, "lockstep does not say that there was no difference")
        guest.expect(int(found[1]) > 1000000, run, f"only {found[1]} blocks were compared")
        print(found[0])


guest.run_test(main)
