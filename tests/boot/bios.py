#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""bios.py ACCEL: SeaBIOS boots disks without -kernel. A boot sector of our own reads sectors with INT 13h (AH=42h) and prints
what they hold on the first serial port, then switches off by ACPI. On every bus the firmware knows, on images up to 3 TiB
(field case E37), and in the order that -boot, bootindex= and boot=on ask for."""
import os
import struct
import subprocess
import sys
import tempfile

import guest

SECTOR = 512
SOURCE = """
	.code16
	.globl _start
_start:	cli
	xorw %ax, %ax
	movw %ax, %ds
	movw %ax, %ss
	movw $0x7c00, %sp
	sti
	movb %dl, drive
	movb $8, %ah		/* geometry: must not fail on a disk */
	xorw %di, %di
	movw %di, %es
	int $0x13
	jc GEOMETRY
packet_read:
	movb drive, %dl
	movw $packet, %si
	movb $0x42, %ah
	int $0x13
	jc bad
	movw $0x8000, %si
	jmp print
bad:	movw $failed, %si
print:	lodsb
	testb %al, %al
	jz off
	movw $0x3f8, %dx
	outb %al, %dx
	jmp print
off:	movw $VALUE, %ax
	movw $PORT, %dx
	OUT %dx
	hlt
	jmp off
failed:	.asciz "[INT 13h failed]\\r\\n"
drive:	.byte 0
	.balign 4
packet:	.byte 16, 0, 1, 0
	.word 0x8000, 0
	.quad LBA
	.org 510
	.word 0xaa55
"""
GIB = 1 << 30


def boot_sector(lba, cd=False, reset=False):
    """The sector that prints what sector `lba` holds, then switches off or resets."""
    values = {"LBA": str(lba), "GEOMETRY": "packet_read" if cd else "bad", "VALUE": "6" if reset else "0x2000",
              "PORT": "0xcf9" if reset else "0x604", "OUT": "outb %al," if reset else "outw %ax,"}
    text = SOURCE
    for name, value in values.items():
        text = text.replace(name, value)
    with tempfile.TemporaryDirectory() as folder:
        source, out = os.path.join(folder, "mbr.s"), os.path.join(folder, "mbr.bin")
        with open(source, "w", encoding="ascii") as f:
            f.write(text)
        subprocess.run(["gcc", "-m32", "-nostdlib", "-no-pie", "-Wl,-Ttext=0x7c00,--oformat=binary,--build-id=none", "-o", out,
                        source], check=True)
        with open(out, "rb") as f:
            return f.read()[:SECTOR]


def disk(folder, name, size, text):
    """An image whose last sector holds the text that its boot sector prints."""
    path = os.path.join(folder, name)
    last = size // SECTOR - 1
    with open(path, "wb") as f:
        f.truncate(size)
        f.write(boot_sector(last))
        f.seek(last * SECTOR)
        f.write(text.encode() + b"\0")
    return path


def cdrom(folder, name, text, reset):
    """A CD that boots (El Torito, no emulation): descriptors from block 16 on, catalog, boot image, text."""
    blocks = [bytearray(2048) for _ in range(24)]
    blocks[16][0:7] = b"\x01CD001\x01"
    blocks[17][0:30] = b"\0CD001\x01EL TORITO SPECIFICATION"
    blocks[17][0x47:0x4b] = struct.pack("<I", 19)
    blocks[18][0:7] = b"\xffCD001\x01"
    validation = bytearray(32)
    validation[0], validation[30:32] = 1, b"\x55\xaa"
    validation[28:30] = struct.pack("<H", -sum(struct.unpack("<16H", validation)) & 0xffff)
    blocks[19][0:32] = validation
    blocks[19][32:44] = struct.pack("<BBHBBHI", 0x88, 0, 0x7c0, 0, 0, 4, 20)
    blocks[20][0:SECTOR] = boot_sector(21, True, reset)
    blocks[21][0:len(text) + 1] = text.encode() + b"\0"
    path = os.path.join(folder, name)
    with open(path, "wb") as f:
        f.write(b"".join(blocks))
    return path


def run(accel, args, want, unwanted="[INT 13h failed]"):
    with tempfile.TemporaryDirectory() as folder:
        serial = os.path.join(folder, "serial")
        argv = [guest.KELVIN, "run", "-accel", accel, "-m", "64", "-display", "none", "-nodefaults", "-serial", f"file:{serial}", *args]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=200, check=False, text=True)
        with open(serial, encoding="latin-1") as f:
            said = f.read()
    wanted = want if isinstance(want, tuple) else (want,)
    if done.returncode or unwanted in said or [said.count(w) for w in wanted] != [1] * len(wanted):
        raise guest.GuestFailed(f"'{want}' expected\n--- {' '.join(argv)}\n--- status {done.returncode}, serial port:\n{said[-2000:]}\n"
                                f"--- monitor:\n{done.stderr[-1500:]}")


def main():
    accel = sys.argv[1]
    folder = guest.scratch()
    one, two = disk(folder, "one", 8 << 20, "[disk one]"), disk(folder, "two", 16 << 20, "[disk two]")
    spare = f"file={two},if=none,id=d,format=raw"
    if accel == "kvm":
        # A disk that does not answer at once (threads): the firmware's waits must be as long as it means them.
        run(accel, ["-drive", f"file={one},format=raw,aio=threads"], "[disk one]")
        run(accel, ["-drive", f"file={two},format=raw,aio=threads,if=virtio"], "[disk two]")
        print("booted from IDE and virtio")
        return
    run(accel, ["-drive", f"file={one},format=raw"], "[disk one]")
    run(accel, ["-drive", f"file={one},format=raw,if=virtio"], "[disk one]")
    run(accel, ["-device", "ahci,id=sata", "-drive", spare, "-device", "ide-hd,drive=d,bus=sata.3"], "[disk two]")
    run(accel, ["-drive", spare, "-device", "nvme,drive=d,serial=1"], "[disk two]")
    # The order: places, boot=on, bootindex= on each bus.
    both = ["-drive", f"file={one},format=raw,index=0"]
    run(accel, both + ["-drive", f"file={two},format=raw,index=3"], "[disk one]", "[disk two]")
    run(accel, both + ["-drive", f"file={two},format=raw,index=3,boot=on"], "[disk two]", "[disk one]")
    run(accel, both + ["-drive", f"file={two},format=raw,if=virtio,boot=on"], "[disk two]", "[disk one]")
    run(accel, both + ["-drive", spare, "-device", "nvme,drive=d,serial=1,bootindex=0"], "[disk two]", "[disk one]")
    run(accel, both + ["-device", "ahci,id=s", "-drive", spare, "-device", "ide-hd,drive=d,bus=s.1,bootindex=3"], "[disk two]", "[disk one]")
    run(accel, both + ["-drive", spare, "-device", "ide-hd,drive=d,bus=ide.1,unit=0,bootindex=3"], "[disk two]", "[disk one]")
    cd = ["-cdrom", cdrom(folder, "cd", "[the CD]", False)]
    run(accel, cd, "[the CD]")
    run(accel, both + cd, "[disk one]", "[the CD]")
    run(accel, both + cd + ["-boot", "d"], "[the CD]", "[disk one]")
    run(accel, ["-device", "ahci,id=s", "-drive", f"file={folder}/cd,if=none,id=c,media=cdrom,format=raw", "-device",
                "ide-cd,drive=c,bus=s.2"], "[the CD]")
    # once: the CD, which resets; then the disk.
    again = cdrom(folder, "again", "[the CD]", True)
    run(accel, both + ["-cdrom", again, "-boot", "order=c,once=d"], ("[the CD]", "[disk one]"))
    for size in (3 * GIB, 9 * GIB, 130 * GIB, 3072 * GIB):
        run(accel, ["-drive", f"file={disk(folder, 'large', size, f'[{size}]')},format=raw"], f"[{size}]")
    print("booted from IDE, AHCI, virtio and NVMe, from every size, in every order")


guest.run_test(main)
