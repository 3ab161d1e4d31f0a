#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""board.py ACCEL CASE: what Debian's kernel sees of the board.

resets    the machine starts again after each way to reset it: keyboard controller, port CF9, ACPI, triple fault
button    the ACPI power button (QMP's system_powerdown) reaches the guest as an event
intx      a PCI device without MSI: its interrupts arrive by INTx, level and shared, through ACPI's routing and the MP table's
tables    SMBIOS texts and fw_cfg files as given on the command line; ACPI tables with right checksums
"""
import json
import os
import re
import socket
import sys
import time

import guest

MODULES = ("virtio_pci", "virtio_blk", "qemu_fw_cfg", "button")


def resets(accel):
    _, elf, initramfs = guest.prepare("cloud", MODULES)
    for how in ("k", "p", "a", "t"):
        commands = 'report boots "$(cut -d" " -f1 /proc/uptime)"; reboot -f'
        run = guest.Guest(elf, [initramfs], commands, accel=accel, append=f"quiet reboot={how}")
        run.argv.remove("-no-reboot")
        with run:
            end = time.monotonic() + 120
            while run.read(run.report).count("boots ") < 3:
                guest.expect(time.monotonic() < end and run.process.poll() is None, run,
                             f"reboot={how}: the machine did not start three times")
                time.sleep(0.1)
        print(f"reboot={how}: three starts")
        # -no-reboot makes the first reset the end, with status 0
        with guest.Guest(elf, [initramfs], commands, accel=accel, append=f"quiet reboot={how}") as once:
            once.wait(60)
            guest.expect(once.read(once.report).count("boots ") == 1, once, "-no-reboot did not end the machine")


def qmp(run, *commands):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(run.qmp)
        f = s.makefile("rw", encoding="utf-8")
        f.readline()
        for name in ("qmp_capabilities",) + commands:
            f.write(json.dumps({"execute": name}) + "\n")
            f.flush()
            while True:
                answer = json.loads(f.readline())
                if "event" not in answer:
                    break
            guest.expect("return" in answer, run, f"{name}: {answer}")


def button(accel):
    _, elf, initramfs = guest.prepare("cloud", MODULES)
    commands = """
f=/sys/firmware/acpi/interrupts/ff_pwr_btn
report before "$(cut -c1-8 $f)"
for i in $(seq 300); do
	n=$(cut -c1-8 $f); [ $n -gt 0 ] && break
	sleep 0.1
done
report pressed "$n"
report sci "$(sed -n 's/^ *9: *\\([0-9]*\\).*acpi/\\1/p' /proc/interrupts)"
"""
    with guest.Guest(elf, [initramfs], commands, accel=accel) as run:
        before = run.wait_report("before", 60)
        qmp(run, "system_powerdown")
        got = run.wait(60)
        guest.expect(int(before) == 0 and int(got["pressed"]) == 1, run, f"power button events: {before}, {got['pressed']}")


def intx(accel):
    # The full kernel reads MP tables; the cloud one has only ACPI.
    _, elf, initramfs = guest.prepare("full", MODULES)
    folder = guest.scratch()
    args = []
    for i in (0, 1):
        path = os.path.join(folder, f"disk{i}")
        with open(path, "wb") as f:
            f.write(bytes([65 + i]) * (1 << 20))
        args += ["-drive", f"file={path},if=none,id=d{i},format=raw"]
    # slots 4 and 8: both on the same input of the bridge
    args += ["-device", "virtio-blk-pci,drive=d0,addr=4", "-device", "virtio-blk-pci,drive=d1,addr=8"]
    commands = """
for d in vda vdb; do
	[ "$(dd if=/dev/$d bs=4k iflag=direct 2>/dev/null | tr -d AB | wc -c)" = 0 ] || exit 1
	dd if=/dev/$d bs=4k count=64 iflag=direct 2>/dev/null | md5sum >/tmp/$d
done
cmp -s /tmp/vda /tmp/vdb && exit 2
report lines "$(grep virtio /proc/interrupts | tr -s ' ' | tr '\\n' ';')"
dmesg | grep -q 'nobody cared' && exit 3
exit 0
"""
    for append in ("pci=nomsi", "pci=nomsi acpi=off", "pci=nomsi noapic"):
        with guest.Guest(elf, [initramfs], f"({commands})", args, accel=accel, append=append) as run:
            if "acpi=off" in append: # no way to power off: leave when the report is there
                done = run.wait_report("done", 100)
                got = run.reports()
            else:
                got = run.wait(100)
                done = got.get("done")
            guest.expect(done == "0", run, f"{append}: status {done}")
            lines = got.get("lines", "")
            guest.expect(re.search(r"virtio\d, virtio\d", lines) and "MSI" not in lines, run, f"{append}: interrupts: {lines}")
            print(f"{append}: {lines}")


def tables(accel):
    bzimage, _, initramfs = guest.prepare("cloud", MODULES)
    args = ["-uuid", "b7b4b7e4-9c07-22aa-0c95-d5c8a24176c5", "-smbios", "type=1,serial=S-17,product=Box",
            "-smbios", "type=11,value=hello", "-fw_cfg", "name=opt/org.test/x,string=some text",
            "-device", "isa-serial,chardev=null", "-chardev", "null,id=null"]
    commands = """
report uuid "$(cat /sys/class/dmi/id/product_uuid)"
report serial "$(cat /sys/class/dmi/id/product_serial)"
report product "$(cat /sys/class/dmi/id/product_name)"
report fwcfg "$(cat /sys/firmware/qemu_fw_cfg/by_name/opt/org.test/x/raw)"
report acpi "$(ls /sys/firmware/acpi/tables | tr '\\n' ' ')"
report ttys "$(grep -c 16550A /proc/tty/driver/serial)"
for t in /sys/firmware/acpi/tables/[A-EG-Z]* /sys/firmware/acpi/tables/FACP; do
	[ -f $t ] && od -An -v -tu1 $t | tr -s ' ' '\\n' | awk -v t=$t '{s += $1} END {if (s % 256) print t}'
done >/tmp/bad
report badsums "$(wc -l </tmp/bad)"
"""
    with guest.Guest(bzimage, [initramfs], commands, args, accel=accel, smp=2) as run:
        got = run.wait(120)
        for key, value in (("uuid", "b7b4b7e4-9c07-22aa-0c95-d5c8a24176c5"), ("serial", "S-17"), ("product", "Box"),
                           ("fwcfg", "some text"), ("ttys", "3"), ("badsums", "0")):
            guest.expect(got.get(key) == value, run, f"{key} is {got.get(key)}, not {value}")
        for name in ("APIC", "DSDT", "FACP", "FACS", "HPET"):
            guest.expect(name in got.get("acpi", ""), run, f"no table {name}: {got.get('acpi')}")


def main():
    accel, case = sys.argv[1:3]
    {"resets": resets, "button": button, "intx": intx, "tables": tables}[case](accel)


guest.run_test(main)
