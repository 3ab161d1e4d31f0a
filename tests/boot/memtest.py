#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""memtest.py ACCEL [32|64] [TEST|pass]: Debian's memtest86+ as -kernel, without an error.

Ends when test number TEST is reached (default 5), or after a whole pass. It reports on its serial console.
"""
import os
import re
import subprocess
import sys
import time

import guest


def main():
    accel = sys.argv[1]
    bits = sys.argv[2] if len(sys.argv) > 2 else "64"
    until = sys.argv[3] if len(sys.argv) > 3 else "5"
    script = f'top={guest.TOP}; . "$top/tools/setup.sh"; . "$top/tools/guest.sh"; guest_memtest; echo "$memtest{bits}"'
    image = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, check=True, text=True).stdout.strip()
    console = os.path.join(guest.scratch(), "console")
    argv = [guest.KELVIN, "run", "-accel", accel, "-M", "pc", "-m", "8M", "-nodefaults", "-display", "none", "-no-reboot",
            "-serial", f"file:{console}", "-kernel", image, "-append", "console=ttyS0,115200 nobench nosmp"]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    end = time.monotonic() + 1500
    text = ""
    try:
        while time.monotonic() < end and process.poll() is None:
            time.sleep(0.3)
            if os.path.exists(console):
                with open(console, encoding="utf-8", errors="replace") as f:
                    text = f.read()
            errors = [int(n) for n in re.findall(r"Errors: *(\d+)", text)]
            passes = [int(n) for n in re.findall(r"Pass: *(\d+)", text)]
            reached = [int(n) for n in re.findall(r"#(\d+) +\[", text)]
            if any(errors):
                break
            if max(passes, default=0) >= 1 or (until != "pass" and max(reached, default=-1) >= int(until)):
                print(f"memtest86+ ({bits} bits): test #{max(reached, default=0)}, {max(passes, default=0)} passes, no errors")
                return
    finally:
        process.kill()
        said = process.stderr.read().decode(errors="replace")
        process.wait()
    raise guest.GuestFailed(f"memtest86+ did not get to {until} without an error\n--- console ends:\n{text[-1500:]}\n"
                            f"--- monitor said:\n{said[-500:]}\n--- command: {' '.join(argv)}")


guest.run_test(main)
