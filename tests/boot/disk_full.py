#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""disk_full.py ACCEL: the host's file system runs full under a guest that writes. The machine stops as io-error with an event,
goes on with cont once there is room, and the guest never saw an error. Needs root for a small tmpfs."""
import os
import subprocess
import sys

import guest
from qmp import Qmp

COMMANDS = """
set -e
dd if=/dev/zero of=/tmp/data bs=1M count=24 2>/dev/null
tr '\\0' 'k' < /tmp/data > /tmp/text
dd if=/tmp/text of=/dev/vda bs=1M oflag=direct 2>/dev/null
sync
report sum $(dd if=/dev/vda bs=1M count=24 iflag=direct 2>/dev/null | sha256sum | cut -d' ' -f1) $(sha256sum < /tmp/text | cut -d' ' -f1)
"""


def main():
    accel = sys.argv[1]
    folder = guest.scratch()
    small = os.path.join(folder, "small")
    os.mkdir(small)
    if os.getuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12M", "tmpfs", small], check=False).returncode:
        print("no small tmpfs here (root is needed)")
        sys.exit(77)
    try:
        boot = guest.prepare()
        disk = os.path.join(small, "disk.img")
        with open(disk, "wb") as f:
            f.truncate(32 << 20)
        args = ["-drive", f"file={disk},if=virtio,format=raw,id=victim"]
        with guest.Guest(boot[0], [boot[2]], COMMANDS, args=args, accel=accel, append="quiet") as run:
            run.wait_report("init", 100)
            qmp = Qmp(run.qmp)
            event = qmp.wait_event("BLOCK_IO_ERROR")["data"]
            guest.expect(event["device"] == "victim" and event["nospace"] and event["operation"] == "write", run, f"event {event}")
            qmp.wait_event("STOP")
            status = qmp.call("query-status")
            guest.expect(status["status"] == "io-error" and not status["running"], run, f"status {status}")
            subprocess.run(["mount", "-o", "remount,size=64M", small], check=True)
            qmp.call("cont")
            got = run.wait(timeout=100)
            guest.expect(got.get("done") == "0", run, "the guest saw an error")
            sums = got["sum"].split()
            guest.expect(sums[0] == sums[1], run, "data differ")
        print("stopped as io-error, went on, nothing lost")
    finally:
        subprocess.run(["umount", "-l", small], check=False)


guest.run_test(main)
