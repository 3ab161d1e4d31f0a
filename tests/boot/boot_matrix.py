#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""boot_matrix.py ACCEL KERNEL PROTOCOL SMP MEM: Debian's own kernel, unmodified, boots to init and powers off.

KERNEL is cloud or full, PROTOCOL bzimage or pvh. Checks CPUs, memory (all but 1 MB of what was asked: nothing lost at the
hole below 4 GB), a stable clock source, and a kernel log without warnings or firmware errors.
"""
import re
import sys

import guest

BAD = re.compile(r"(?i)\b(BUG:|WARNING:|Oops|call trace|firmware bug|\[Firmware|ACPI (BIOS )?error|ACPI: .*(error|warning)|"
                 r"unstable|lockup|stall|timed out|timeout waiting|unknown NMI|spurious|calibration failed|hpet.*lost)")


def size_kb(text):
    unit = {"M": 1024, "G": 1024 * 1024}[text[-1]]
    return float(text[:-1]) * unit


def main():
    accel, flavour, protocol, smp, mem = sys.argv[1:6]
    bzimage, elf, initramfs = guest.prepare(flavour)
    commands = "report ram_kb $(dmesg | sed -n 's|.*Memory: [0-9]*K/\\([0-9]*\\)K.*|\\1|p')"
    image = elf if protocol == "pvh" else bzimage
    with guest.Guest(image, [initramfs], commands, smp=smp, mem=mem, accel=accel) as run:
        got = run.wait(timeout=400)
        guest.expect(got.get("cpus") == smp, run, f"{got.get('cpus')} CPUs, not {smp}")
        total = float(got.get("ram_kb") or 0)
        guest.expect(size_kb(mem) - 1024 <= total <= size_kb(mem), run, f"{total} KB of RAM, not {size_kb(mem)}")
        guest.expect(got.get("clocksource") in ("kvm-clock", "tsc"), run, f"clock source {got.get('clocksource')}")
        guest.expect(got.get("done") == "0", run, "the commands failed")
        bad = [line for line in run.read(run.console).splitlines() if BAD.search(line)]
        guest.expect(not bad, run, "the kernel complained:\n" + "\n".join(bad))
        print(f"{flavour} {protocol} -smp {smp} -m {mem}: init after {got['init']} s of guest time")


if __name__ == "__main__":
    guest.run_test(main)
