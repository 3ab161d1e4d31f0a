#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""boot32.py ACCEL SMP: Debian's 32-bit kernel (686-pae) with a 32-bit busybox boots by the 32-bit protocol.

Computes in user mode of the 32-bit kernel and checks the results, then powers off.
"""
import hashlib
import re
import sys

import guest

BAD = re.compile(r"(?i)\b(BUG:|WARNING:|Oops|call trace|\[Firmware|lockup|stall|unknown NMI|general protection|double fault)")
COMMANDS = """
report arch $(uname -m)
report awk $(awk 'BEGIN { s = 0; for (i = 1; i <= 20000; i++) s += (i % 7) / i; printf "%.9f", s }')
report sum $(seq 1 20000 | md5sum | cut -c1-32)
report gzip $(seq 1 20000 | gzip | gunzip | md5sum | cut -c1-32)
report procs $(for i in 1 2 3 4 5 6 7 8; do (echo $((i * i)) & wait); done | sort -n | tr '\\n' ,)
"""


def main():
    accel, smp = sys.argv[1:3]
    bzimage, _, initramfs = guest.prepare("i686")
    lines = "".join(f"{i}\n" for i in range(1, 20001)).encode()
    md5 = hashlib.md5(lines).hexdigest()
    want = {
        "cpus": smp,
        "arch": "i686",
        "awk": f"{sum((i % 7) / i for i in range(1, 20001)):.9f}",
        "sum": md5,
        "gzip": md5,
        "procs": "1,4,9,16,25,36,49,64,",
        "done": "0",
    }
    with guest.Guest(bzimage, [initramfs], COMMANDS, smp=smp, mem="256M", accel=accel) as run:
        got = run.wait(timeout=580)
        for key, value in want.items():
            guest.expect(got.get(key) == value, run, f"{key} is {got.get(key)}, not {value}")
        bad = [line for line in run.read(run.console).splitlines() if BAD.search(line)]
        guest.expect(not bad, run, "the kernel complained:\n" + "\n".join(bad))
        print(f"686-pae -smp {smp}: init after {got['init']} s of guest time")


guest.run_test(main)
