#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""disk_verify.py ACCEL: a virtio disk in a real guest: file system, flush, read-only, serial number, and the host's file
holds what the guest wrote."""
import hashlib
import os
import subprocess
import sys

import guest

COMMANDS = """
set -e
report serial $(cat /sys/block/vda/serial)
report size $(cat /sys/block/vda/size)
report ro $(cat /sys/block/vda/ro) $(cat /sys/block/vdb/ro)
report queues $(ls /sys/block/vda/mq | wc -l)
mkdir -p /mnt
mount -t ext4 /dev/vda /mnt
dd if=/dev/urandom of=/mnt/data bs=64k count=256 2>/dev/null
sync
report sum $(sha256sum < /mnt/data | cut -d' ' -f1)
umount /mnt
mount -t ext4 -o ro /dev/vda /mnt
echo 3 > /proc/sys/vm/drop_caches
report again $(sha256sum < /mnt/data | cut -d' ' -f1)
umount /mnt
report whole $(dd if=/dev/vdb bs=1M iflag=direct 2>/dev/null | sha256sum | cut -d' ' -f1)
if dd if=/dev/zero of=/dev/vdb bs=512 count=1 2>/dev/null; then report written yes; else report written no; fi
"""


def main():
    accel = sys.argv[1]
    bzimage, _, initramfs = guest.prepare()
    folder = guest.scratch()
    disk, other = os.path.join(folder, "disk.img"), os.path.join(folder, "read only.img")
    subprocess.run(["qemu-img", "create", "-q", "-f", "raw", disk, "96M"], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", disk], check=True)
    with open(other, "wb") as f:
        f.write(os.urandom(3 << 20))
    with open(other, "rb") as f:
        want = hashlib.sha256(f.read()).hexdigest()
    args = ["-drive", f"file={disk},if=none,id=d0,format=raw,cache=none", "-device", "virtio-blk-pci,drive=d0,serial=KELVIN-1",
            "-drive", f"file={other},if=virtio,format=raw,readonly=on"]
    with guest.Guest(bzimage, [initramfs], COMMANDS, args=args, accel=accel, smp=2) as run:
        got = run.wait(timeout=300)
        guest.expect(got.get("done") == "0", run, "a command failed")
        guest.expect(got["serial"] == "KELVIN-1", run, f"serial {got['serial']}")
        guest.expect(got["size"] == str(96 * 2048), run, f"size {got['size']}")
        guest.expect(got["ro"] == "0 1", run, f"read-only flags {got['ro']}")
        guest.expect(got["sum"] == got["again"], run, "read back differs")
        guest.expect(got["whole"] == want, run, "the read-only disk reads wrong")
        guest.expect(got["written"] == "no", run, "a read-only disk was written")
    with open(other, "rb") as f:
        if hashlib.sha256(f.read()).hexdigest() != want:
            raise guest.GuestFailed("the read-only image changed")
    # The host reads the file the guest wrote, out of the image.
    data = subprocess.run(["debugfs", "-R", "cat /data", disk], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    if hashlib.sha256(data).hexdigest() != got["sum"]:
        raise guest.GuestFailed("the image holds other data than the guest wrote")
    if subprocess.run(["e2fsck", "-fn", disk], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        raise guest.GuestFailed("e2fsck finds faults in the image")
    print("written, flushed, read back, and found in the image by the host")


guest.run_test(main)
