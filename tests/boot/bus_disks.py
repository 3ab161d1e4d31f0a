#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""bus_disks.py ACCEL ide|ahci|nvme: Debian's full kernel with a qcow2 disk on that bus: a file system is written, flushed,
trimmed and verified, and qemu-img finds the image clean. On ide and ahci also a CD-ROM drive: read, exchanged and ejected."""
import hashlib
import os
import subprocess
import sys
import time

import guest
from qmp import Qmp

MODULES = ("ata_piix", "ahci", "nvme", "sd_mod", "sr_mod", "ext4")
DISK = """
set -e
disk=$(ls -d /sys/block/sda /sys/block/nvme0n1 2>/dev/null | sed 's,.*/,,')
report disk $disk
report size $(cat /sys/block/$disk/size)
report cache $(cat /sys/block/$disk/queue/write_cache)
report probe $(cut -d' ' -f1 /proc/uptime)
mkdir -p /mnt
mount -t ext4 /dev/$disk /mnt
dd if=/dev/urandom of=/mnt/data bs=64k count=200 2>/dev/null
dd if=/dev/urandom of=/mnt/gone bs=64k count=200 2>/dev/null
sync
report sum $(sha256sum < /mnt/data | cut -d' ' -f1)
rm /mnt/gone
sync
fstrim /mnt && report trim ok
umount /mnt
mount -t ext4 -o ro /dev/$disk /mnt
echo 3 > /proc/sys/vm/drop_caches
report again $(sha256sum < /mnt/data | cut -d' ' -f1)
umount /mnt
# Many at once, and not aligned to anything but sectors.
for i in 0 1 2 3 4 5 6 7; do dd if=/dev/$disk of=/dev/null bs=37k iflag=direct count=40 skip=$((i * 10)) 2>/dev/null & done
wait
report errors $(dmesg | grep -ciE 'error|exception|timeout|failed command' || true)
"""
CDROM = """
report cd $(dd if=/dev/sr0 bs=64k 2>/dev/null | sha256sum | cut -d' ' -f1)
report change ready
while [ "$(cat /sys/block/sr0/size)" != 2048 ]; do dd if=/dev/sr0 of=/dev/null bs=2k count=1 2>/dev/null || true; sleep 0.1; done
report cd2 $(dd if=/dev/sr0 bs=64k 2>/dev/null | sha256sum | cut -d' ' -f1)
exec 3</dev/sr0
report locked ready
while [ ! -e /sys/block/sr0/removable ] || dd if=/dev/sr0 of=/dev/null bs=2k count=1 iflag=direct 2>/dev/null; do sleep 0.1; done
exec 3<&-
report gone yes
"""


def images(folder):
    """A qcow2 with an empty ext4, and two CDs of random bytes."""
    raw, disk = os.path.join(folder, "raw"), os.path.join(folder, "disk.qcow2")
    subprocess.run(["truncate", "-s", "96M", raw], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", raw], check=True)
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", raw, disk], check=True)
    sums = []
    for name, size in (("a.iso", 3 << 20), ("b c.iso", 1 << 20)):
        data = os.urandom(size)
        with open(os.path.join(folder, name), "wb") as f:
            f.write(data)
        sums.append(hashlib.sha256(data).hexdigest())
    return raw, disk, sums


def command_line(bus, folder, disk):
    cd = os.path.join(folder, "a.iso")
    drive = f"file={disk},format=qcow2,cache=none,discard=unmap"
    if bus == "ide":
        return ["-drive", f"{drive},if=ide", "-drive", f"file={cd},format=raw,if=ide,media=cdrom,index=2"]
    if bus == "ahci":
        return ["-device", "ich9-ahci,id=sata", "-drive", f"{drive},if=none,id=d0", "-device", "ide-hd,drive=d0,bus=sata.0",
                "-drive", f"file={cd},format=raw,if=none,media=cdrom,id=ide1-cd0", "-device", "ide-cd,drive=ide1-cd0,bus=sata.1"]
    return ["-drive", f"{drive},if=none,id=d0", "-device", "nvme,drive=d0,serial=KELVIN-N"]


def exchange(run, folder, sums):
    """The host's side of the CD-ROM drive."""
    got = run.reports()
    guest.expect(got.get("cd") == sums[0], run, "the CD reads wrong")
    qmp = Qmp(run.qmp)
    # The guest looks for the new medium all the time, and its kernel locks the tray while the device is open: as clients do, again.
    new = {"device": "ide1-cd0", "filename": os.path.join(folder, "b c.iso"), "format": "raw"}
    while "error" in (got := qmp.raw("blockdev-change-medium", new)):
        guest.expect("is locked and force was not specified" in got["error"]["desc"], run, str(got))
        time.sleep(0.02)
    run.wait_report("locked", 120)
    guest.expect(run.reports()["cd2"] == sums[1], run, "the second CD reads wrong")
    try:
        qmp.call("eject", {"device": "ide1-cd0"})
        run.fail("a locked tray was opened")
    except guest.GuestFailed as refused:
        guest.expect("is locked and force was not specified" in str(refused), run, str(refused))
    qmp.call("eject", {"device": "ide1-cd0", "force": True})
    guest.expect("tray open" in qmp.call("human-monitor-command", {"command-line": "info block"}), run, "the tray is not open")
    qmp.call("blockdev-close-tray", {"device": "ide1-cd0"})
    run.wait_report("gone", 120)
    # The change opened and closed the tray, eject opened it, and the last command closed it.
    guest.expect(qmp.events.count("DEVICE_TRAY_MOVED") == 4, run, f"events {qmp.events}")


def main():
    accel, bus = sys.argv[1:3]
    bzimage, _, initramfs = guest.prepare("full", MODULES)
    folder = guest.scratch()
    raw, disk, sums = images(folder)
    commands = DISK if bus == "nvme" else DISK + CDROM
    with guest.Guest(bzimage, [initramfs], commands, args=command_line(bus, folder, disk), accel=accel, smp=2) as run:
        if bus != "nvme":
            run.wait_report("change", 300)
            exchange(run, folder, sums)
        got = run.wait(timeout=300)
        guest.expect(got.get("done") == "0", run, "a command failed")
        guest.expect(got["size"] == str(96 * 2048), run, f"size {got['size']}")
        guest.expect(got["cache"] == "write back", run, f"cache {got['cache']}")
        guest.expect(got["sum"] == got["again"], run, "read back differs")
        guest.expect(got["errors"] == "0", run, "the driver reports errors")
        guest.expect(got.get("trim") == "ok", run, "fstrim failed")
    check = subprocess.run(["qemu-img", "check", disk], stdout=subprocess.PIPE, check=False, text=True)
    if check.returncode:
        raise guest.GuestFailed(f"qemu-img check: {check.stdout}")
    subprocess.run(["qemu-img", "convert", "-O", "raw", disk, raw], check=True)
    if subprocess.run(["e2fsck", "-fn", raw], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        raise guest.GuestFailed("e2fsck finds faults in the image")
    data = subprocess.run(["debugfs", "-R", "cat /data", raw], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    if hashlib.sha256(data).hexdigest() != got["sum"]:
        raise guest.GuestFailed("the image holds other data than the guest wrote")
    print(f"{bus}: written, flushed, trimmed, read back; the image is clean")


guest.run_test(main)
