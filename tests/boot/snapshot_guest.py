# SPDX-License-Identifier: GPL-2.0-or-later
"""What the tests of snapshots have in common: a guest that writes a disk and computes in each tick, and what must be right when it
ends, however often it was saved and loaded."""
import subprocess
import time

import guest

# What both engines can give; a guest that was saved on one must find it on the other. (Without invtsc Linux does not
# trust the TSC of two CPUs and says so at boot.)
CPU = "qemu64,-invtsc"

START = """
set -e
mkdir -p /mnt
mount -t ext4 /dev/NODE /mnt
"""
WORK = """
  dd if=/dev/urandom of=/mnt/f$i bs=32k count=12 2>/dev/null
  (cd /mnt; sha256sum f$i >> sums)
  awk 'BEGIN {for (k = 1; k < 3000; k++) s += k * 1.5 / 7; printf "%.6f\\n", s}' >> /tmp/float
"""
END = """
sync
echo 3 > /proc/sys/vm/drop_caches
report good $(cd /mnt; sha256sum -c sums 2>/dev/null | grep -c OK)
report floats $(sort -u /tmp/float | wc -l) $(wc -l < /tmp/float)
dmesg | grep -iE 'lockup|stall|lost|Oops|BUG:|I/O error|clocksource.*skewed' > /tmp/wrong || true
report wrong $(wc -l < /tmp/wrong) $(head -1 /tmp/wrong)
umount /mnt
"""

# How the disk, whose id is d, is attached: options, the guest's name for it, kernel and modules.
SD = ("full", ("virtio_pci", "ata_piix", "ahci", "nvme", "virtio_scsi", "sym53c8xx", "sd_mod", "ext4"))
DISKS = {
    "virtio": (["-device", "virtio-blk-pci,drive=d"], "vda", ("cloud", ())),
    "iothread": (["-object", "iothread,id=io", "-device", "virtio-blk-pci,drive=d,iothread=io"], "vda", ("cloud", ())),
    "packed": (["-device", "virtio-blk-pci,drive=d,packed=on"], "vda", ("cloud", ())),
    "ide": (["-device", "ide-hd,drive=d"], "sda", SD),
    "ahci": (["-device", "ahci,id=a", "-device", "ide-hd,drive=d,bus=a.0"], "sda", SD),
    "nvme": (["-device", "nvme,drive=d,serial=s"], "nvme0n1", SD),
    "scsi": (["-device", "virtio-scsi-pci", "-device", "scsi-hd,drive=d"], "sda", SD),
    "lsi": (["-device", "lsi", "-device", "scsi-hd,drive=d"], "sda", SD),
}


def wait_until(run, condition):
    end = time.monotonic() + 300
    while not condition():
        if time.monotonic() > end or run.process.poll() is not None:
            run.fail("the guest does not tick")
        time.sleep(0.05)


def expect_right(run, got, ticks):
    """What the guest reported at its end."""
    guest.expect(got.get("done") == "0", run, "a command failed")
    guest.expect(got["good"] == str(ticks), run, f"{got['good']} files of {ticks} are right")
    guest.expect(got["floats"] == f"1 {ticks}", run, f"floating point: {got['floats']}")
    guest.expect(got["wrong"].split()[0] == "0", run, f"the kernel complains: {got['wrong']}")


def fsck(raw):
    if subprocess.run(["e2fsck", "-fn", raw], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        raise guest.GuestFailed("e2fsck finds faults in the image")
