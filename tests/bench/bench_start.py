#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The driver of `./bench start`: a tiny kernel whose first instructions leave the machine through isa-debug-exit, started
by Kelvin (software CPU, and KVM where usable) and by QEMU -M pc and -M microvm (TCG), interleaved. Prints medians of the
time from exec to exit, and resident memory beyond the guest's RAM sampled with a kernel that halts."""
import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "boot"))
import guest  # pylint: disable=wrong-import-position


def pvh_kernel(path, code):
    """An ELF file with the PVH note (Xen's XEN_ELFNOTE_PHYS32_ENTRY, type 18) whose entry is `code` (32-bit)."""
    base = 0x100000
    note = struct.pack("<III4sI", 4, 4, 18, b"Xen\0", base + 0x1000)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01" + bytes(9), 2, 62, 1, base + 0x1000, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 7, 0, base, base, 0x2000, 0x2000, 0x1000)
    at = len(header) + 2 * len(load)
    notes = struct.pack("<IIQQQQQQ", 4, 4, at, base + at, base + at, len(note), len(note), 4)
    image = bytearray(0x2000)
    image[: at + len(note)] = header + load + notes + note
    image[0x1000 : 0x1000 + len(code)] = code
    with open(path, "wb") as f:
        f.write(image)


def rss_mb(pid, guest_mb):
    """Resident memory of the process beyond guest RAM: guest RAM is the mapping of guest_mb or more."""
    total = ram = size = 0
    with open(f"/proc/{pid}/smaps", encoding="ascii") as f:
        for line in f:
            word = line.split()
            if word[0] == "Size:":
                size = int(word[1])
            elif word[0] == "Rss:":
                total += int(word[1])
                if size >= guest_mb * 1024:
                    ram += int(word[1])
    return (total - ram) / 1024


def main():
    parser = argparse.ArgumentParser(prog="./bench start")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", default=os.path.join(guest.TOP, "build", "bench"))
    options = parser.parse_args()
    folder = guest.scratch()
    leave, halt = os.path.join(folder, "leave.elf"), os.path.join(folder, "halt.elf")
    pvh_kernel(leave, b"\xb0\x00\xba\xf4\x00\x00\x00\xee\xfa\xf4")  # mov al,0; mov edx,0xf4; out dx,al; cli; hlt
    pvh_kernel(halt, b"\xfa\xf4\xeb\xfc")
    qemu = ["/usr/bin/qemu-system-x86_64", "-accel", "tcg", "-m", "128", "-nodefaults", "-display", "none", "-no-reboot"]
    ours = [guest.KELVIN, "run", "-M", "pc", "-m", "128", "-nodefaults", "-display", "none", "-no-reboot"]
    exit_dev = ["-device", "isa-debug-exit,iobase=0xf4,iosize=1"]
    sides = {"kelvin soft": ours + ["-accel", "soft"], "qemu pc": qemu + ["-M", "pc"], "qemu microvm": qemu + ["-M", "microvm,isa-serial=on"]}
    if os.access("/dev/kvm", os.R_OK | os.W_OK):
        sides["kelvin kvm"] = ours + ["-accel", "kvm"]
    times = {side: [] for side in sides}
    for _ in range(options.rounds):
        for side, argv in sides.items():
            start = time.monotonic()
            status = subprocess.run(argv + exit_dev + ["-kernel", leave], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
            if status.returncode != 1:
                raise guest.GuestFailed(f"{side}: status {status.returncode}, not isa-debug-exit's 1: {status.stderr.decode()[-300:]}")
            times[side].append((time.monotonic() - start) * 1e3)
    memory = {}
    for side, argv in sides.items():
        with subprocess.Popen(argv + ["-kernel", halt], stdin=subprocess.DEVNULL) as process:
            time.sleep(1.0)
            memory[side] = rss_mb(process.pid, 128)
            process.kill()
    base = statistics.median(times["kelvin soft"])
    print(f"{'monitor':14} {'start to exit, ms: median (range)':36} {'of Kelvin soft':15} memory beyond guest RAM, MiB")
    for side, t in times.items():
        spread = f"{statistics.median(t):.1f} ({min(t):.1f}-{max(t):.1f})"
        print(f"{side:14} {spread:36} {statistics.median(t) / base:<15.1f} {memory[side]:.1f}")
    os.makedirs(options.out, exist_ok=True)
    with open(os.path.join(options.out, "start.json"), "w", encoding="utf-8") as f:
        json.dump({"milliseconds": times, "memory_mib": memory}, f, indent=1)


guest.run_test(main)
