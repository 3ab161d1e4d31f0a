#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""scsi.py ACCEL [ROW...]: SCSI disks and a CD in Debian's full kernel, over each adapter: file system, flush, verify, deep queues,
discard that frees blocks on the host, a reset by the guest, and what the CD drive reads."""
import hashlib
import os
import subprocess
import sys

import guest

MODULES = ("virtio_pci", "virtio_scsi", "sym53c8xx", "sd_mod", "sr_mod", "ext4")

COMMANDS = """
set -e
for i in 1 2 3 4 5 6 7 8 9 10; do [ -b /dev/sda ] && break; sleep 1; done
report size $(cat /sys/block/sda/size)
report model $(cat /sys/block/sda/device/model)
report cache $(cat /sys/block/sda/queue/write_cache)
report depth $(cat /sys/block/sda/device/queue_depth)
report discard $(cat /sys/block/sda/queue/discard_max_bytes)
mkdir -p /mnt
mount -t ext4 /dev/sda /mnt
dd if=/dev/urandom of=/tmp/data bs=64k count=128 2>/dev/null
want=$(sha256sum < /tmp/data | cut -d' ' -f1)
for i in 1 2 3 4 5 6; do cp /tmp/data /mnt/f$i & done
wait
sync
report used before
rm /mnt/f2 /mnt/f3 /mnt/f4
sync
fstrim /mnt
for i in 5 6; do rm /mnt/f$i; done
echo 3 > /proc/sys/vm/drop_caches
report sum $want $(sha256sum < /mnt/f1 | cut -d' ' -f1)
umount /mnt
# Several readers at once: commands queue up in the adapter.
for i in 0 1 2 3 4 5 6 7; do dd if=/dev/sda of=/dev/null bs=256k skip=$((i * 8)) count=16 iflag=direct 2>/dev/null & done
wait
if [ -b /dev/sr0 ]; then
	report cd $(sha256sum < /dev/sr0 | cut -d' ' -f1)
fi
report errors $(dmesg | grep -E '\] (sd|sr|scsi|sym|blk_update|I/O error|critical)' | grep -c -i -E 'error|abort|timed out|phase' || true)
"""

# name: arguments (DISK and CD stand for -drive texts)
ROWS = {
    "virtio-scsi": ["-device", "virtio-scsi-pci,id=scsi0,num_queues=2", "-drive", "DISK,if=none,id=d,cache=none",
                     "-device", "scsi-hd,drive=d,bus=scsi0.0,channel=0,scsi-id=3,lun=1", "-drive", "CD,if=none,id=c",
                     "-device", "scsi-cd,drive=c,bus=scsi0.0"],
    "virtio-scsi-iothread": ["-object", "iothread,id=io", "-device", "virtio-scsi-pci,id=scsi0,iothread=io", "-drive",
                              "DISK,if=none,id=d,cache=writethrough", "-device", "scsi-hd,drive=d"],
    "lsi": ["-drive", "DISK,if=scsi,cache=none,index=1", "-drive", "CD,if=scsi"],
}


def row(accel, boot, name, folder, iso, want):
    args = ROWS[name]
    disk = os.path.join(folder, name + ".img")
    subprocess.run(["qemu-img", "create", "-q", "-f", "raw", disk, "96M"], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "nodiscard", disk], check=True)
    args = [a.replace("DISK", f"file={disk},format=raw,discard=unmap").replace("CD", f"file={iso},format=raw,media=cdrom") for a in args]
    with guest.Guest(boot[0], [boot[2]], COMMANDS, args=args, accel=accel, smp=2) as run:
        got = run.wait(timeout=400)
        guest.expect(got.get("done") == "0", run, f"{name}: a command failed")
        guest.expect(got.get("size") == str(96 * 2048), run, f"{name}: size {got.get('size')}")
        sums = got["sum"].split()
        guest.expect(sums[0] == sums[1], run, f"{name}: data differ")
        guest.expect(got["errors"] == "0", run, f"{name}: the kernel complained")
        guest.expect(int(got["discard"]) > 0, run, f"{name}: no discard")
        cache = "write through" if "writethrough" in " ".join(args) else "write back"
        guest.expect(got["cache"] == cache, run, f"{name}: write cache {got['cache']}")
        if any("media=cdrom" in a for a in args):
            guest.expect(got.get("cd") == want, run, f"{name}: the CD reads wrong")
    if subprocess.run(["e2fsck", "-fn", disk], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        raise guest.GuestFailed(f"{name}: e2fsck finds faults in the image")
    # Six files of 8 MiB were written, three trimmed away.
    blocks = os.stat(disk).st_blocks * 512
    if blocks > 40 << 20:
        raise guest.GuestFailed(f"{name}: the image takes {blocks >> 20} MiB: fstrim freed nothing")


def make_cd(folder):
    data = os.urandom(5 << 20)
    path = os.path.join(folder, "cd.iso")
    with open(path, "wb") as f:
        f.write(data)
    return path, hashlib.sha256(data).hexdigest()


def main():
    accel, rows = sys.argv[1], sys.argv[2:] or [*ROWS]
    boot = guest.prepare("full", MODULES)
    folder = guest.scratch()
    iso, want = make_cd(folder)
    for name in rows:
        row(accel, boot, name, folder, iso, want)
        print("ok", name, flush=True)


guest.run_test(main)
