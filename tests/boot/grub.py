#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""grub.py ACCEL: a disk as an installer leaves it, without -kernel: SeaBIOS, GRUB in the master boot record, a partition
with ext4, Debian's kernel from there on two CPUs, and the kernel's log without complaints about the firmware."""
import os
import struct
import subprocess
import sys
import tempfile

import boot_matrix
import guest

GRUB = "/usr/lib/grub/i386-pc"
START = 2048 # first sector of the partition
SIZE = 160 << 20
CONFIG = """
serial --unit=0 --speed=115200
terminal_input serial
terminal_output serial
linux (hd0,msdos1)/boot/vmlinuz console=ttyS0 panic=-1
initrd (hd0,msdos1)/boot/initrd /boot/commands
boot
"""
COMMANDS = """
report disk $(cat /sys/block/sda/size)
mkdir -p /mnt
mount -t ext4 /dev/sda1 /mnt && report files $(ls /mnt/boot | tr '\\n' ' ')
"""


def make_disk(folder, kernel, initrds):
    """MBR with GRUB's first stage, its core image behind it, one partition."""
    tree, part, disk, core = (os.path.join(folder, n) for n in ("tree", "part", "disk", "core"))
    os.makedirs(os.path.join(tree, "boot"))
    for source, name in ((kernel, "vmlinuz"), (initrds[0], "initrd"), (initrds[1], "commands")):
        subprocess.run(["cp", source, os.path.join(tree, "boot", name)], check=True)
    subprocess.run(["truncate", "-s", str(SIZE - START * 512), part], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-d", tree, part], check=True)
    with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".cfg") as config:
        config.write(CONFIG)
        config.flush()
        subprocess.run(["grub-mkimage", "-O", "i386-pc", "-o", core, "-c", config.name, "-p", "(hd0,msdos1)/boot/grub",
                        "biosdisk", "part_msdos", "ext2", "serial", "terminal", "linux", "boot"], check=True)
    with open(os.path.join(GRUB, "boot.img"), "rb") as f:
        mbr = bytearray(f.read()[:512])
    with open(core, "rb") as f:
        stage = bytearray(f.read())
    stage[0x1f4:0x1fc] = struct.pack("<Q", 2) # where the rest of it begins: sector 2
    mbr[446:510] = struct.pack("<B3sB3sII", 0x80, b"\0\2\0", 0x83, b"\xff\xff\xff", START, SIZE // 512 - START) + bytes(48)
    mbr[510:512] = b"\x55\xaa"
    with open(disk, "wb") as out, open(part, "rb") as f:
        out.write(mbr + stage)
        out.seek(START * 512)
        out.write(f.read())
    return disk


def main():
    accel = sys.argv[1]
    bzimage, _, initramfs = guest.prepare("full", ("ata_piix", "sd_mod", "ext4"))
    folder = guest.scratch()
    extra = guest.initrd_with(folder, {"/commands": (COMMANDS, 0o755)})
    disk = make_disk(folder, bzimage, [initramfs, extra])
    with guest.Guest(None, [], args=["-drive", f"file={disk},format=raw"], accel=accel, smp=2, mem="512M") as run:
        got = run.wait(timeout=400)
        console = run.read(run.console)
        guest.expect("GRUB" in console, run, "GRUB did not speak")
        guest.expect(got.get("online") == "0-1", run, f"CPUs online: {got.get('online')}")
        guest.expect(got.get("disk") == str(SIZE // 512), run, f"disk {got.get('disk')}")
        guest.expect("vmlinuz" in got.get("files", ""), run, "the partition was not mounted")
        bad = [line for line in console.splitlines() if boot_matrix.BAD.search(line)]
        guest.expect(not bad, run, "the kernel complains: " + "; ".join(bad[:5]))
    print("SeaBIOS, GRUB, Debian's kernel: booted from an IDE disk")


if __name__ == "__main__":
    guest.run_test(main)
