#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""storage_matrix.py [--accel ACCEL] [--only REGEX] [--cells N] [--again] [--log FILE]
A Debian guest makes a file system on each disk, installs packages from an offline package disk with dpkg, runs fio --verify,
trims, and compares checksums: with what the packages say, after a new mount, and after a second boot. Then the host does:
qemu-img check, e2fsck, the packages' checksums and the sum of all files, out of the image. A cell is STORE-CACHE-BUS, for every
store (raw, block, lvm, qcow2, qed, iscsi, nbd), cache mode and bus (virtio-blk, virtio-scsi, ide, scsi). A boot has up to four
disks on each bus, all at work at once. Cells that the log calls ok are not run again (--again: all). Loop devices need root; lvm
is a loop device on the middle of a file, whose rest must stay as it was (device-mapper is not needed)."""
import argparse
import glob
import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import time

import backends
import guest

STORES = ["raw", "block", "lvm", "qcow2", "qed", "iscsi", "nbd"]
CACHES = ["none", "writethrough", "writeback", "unsafe", "directsync"]
BUSES = ["virtio-blk", "virtio-scsi", "ide", "scsi"]
PER_BUS = 4 # what the two IDE channels have
SIZE = 128 << 20
GUARD = 4 << 20 # around an lvm volume
PACKAGES = ["linux-libc-dev", "libmagic-mgc", "busybox-static"] # many small files, a large one; no scripts
MODULES = ("virtio_pci", "virtio_blk", "virtio_scsi", "sym53c8xx", "ata_piix", "sd_mod", "ext4")

# Runs in Debian: install NAME DISK, verify NAME DISK.
CELL = r"""
set -e
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
name=$2 disk=/dev/$3 m=/mnt/$2
sums() { (cd $m && md5sum --quiet -c var/lib/dpkg/info/*.md5sums >&2 && find . -xdev -type f ! -name fio.tmp | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -d' ' -f1); }
mkdir -p $m
if [ $1 = install ]; then
	mkfs.ext4 -q -F $disk
	mount $disk $m
	mkdir -p $m/var/lib/dpkg/info $m/var/lib/dpkg/updates
	: >$m/var/lib/dpkg/status
	dpkg --root=$m --log=/dev/null --force-depends --path-include='*' -i /srv/*.deb
	fio --name=v --filename=$m/fio --size=6M --rw=randwrite --bsrange=4k-32k --direct=1 --ioengine=libaio --iodepth=8 --fsync=24 \
		--verify=crc32c --verify_fatal=1 --output=/dev/null
	dd if=/dev/urandom of=$m/gone bs=256k count=16 conv=fsync status=none
	rm $m/gone
	fstrim $m || true
	first=$(sums)
	umount $m
fi
echo 3 >/proc/sys/vm/drop_caches
mount -o ro $disk $m
sum=$(sums)
umount $m
[ $1 = verify ] || [ $sum = $first ]
echo "$name $sum" >/dev/ttyS1
"""

SETUP = r"""
set -e
for i in 1 2 3 4 5 6 7 8 9 10; do [ $(ls -d /sys/block/sd* 2>/dev/null | wc -l) -ge SCSI ] && break; sleep 1; done
for d in /sys/block/vd* /sys/block/sd*; do
	[ -e $d ] || continue
	serial=$(cat $d/serial 2>/dev/null || tr -dc A-Z0-9 <$d/device/vpd_pg80)
	echo "${serial##* } ${d##*/}" >>/tmp/disks
done
disk() { sed -n "s/^$1 //p" /tmp/disks; }
mkdir /deb
mount -t ext4 -o ro,noload /dev/$(disk ROOT) /deb
mount -t tmpfs tmpfs /deb/mnt
mount -t tmpfs tmpfs /deb/tmp
mount --bind /dev /deb/dev
mount -t proc proc /deb/proc
mount -t sysfs sys /deb/sys
mount -t ext4 -o ro,noload /dev/$(disk PACKAGES) /deb/srv
cat >/deb/mnt/cell.sh <<'END-OF-CELL'
CELL
END-OF-CELL
# cells NAME SERIAL...: one after another
cells()
{
	while [ $# -ge 2 ]; do
		chroot /deb bash /mnt/cell.sh VERB $1 $(disk $2) </dev/null >/tmp/log.$1 2>&1 || { echo "$1 FAILED $(tail -n 4 /tmp/log.$1 | tr '\n' ' ')" >/dev/ttyS1; }
		shift 2
	done
}
LISTS
wait
report errors $(dmesg | grep -ciE 'I/O error|ext4.*error|exception|timed out|failed command|abort' || true)
"""


def package_disk():
    """An ext4 image with the packages, from Debian once; afterwards no network is needed."""
    image = os.path.join(guest.CACHE, "packages.img")
    if not os.path.exists(image):
        folder = guest.scratch()
        debs = os.path.join(folder, "debs")
        os.mkdir(debs)
        subprocess.run(["apt-get", "download", "-qq", *PACKAGES], cwd=debs, stderr=subprocess.DEVNULL, check=True)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-d", debs, image + ".new", "24M"], check=True)
        os.rename(image + ".new", image)
    return image


class Disk:
    """A cell: a disk of the guest and what is under it."""

    def __init__(self, name, number, folder):
        self.name, self.serial = name, f"CELL{number:03d}"
        self.store, self.cache, self.bus = name.split("-", 2)
        self.path = os.path.join(folder, "files", name)
        self.device = None
        self.sum = None

    def make(self):
        fmt = self.store if self.store in ("qcow2", "qed") else "raw"
        size = SIZE
        if self.store == "lvm":
            size += 2 * GUARD
        subprocess.run(["qemu-img", "create", "-q", "-f", fmt, self.path, str(size)], check=True)
        if self.store == "lvm":
            with open(self.path, "r+b") as f:
                f.write(b"\x5a" * GUARD)
                f.seek(GUARD + SIZE)
                f.write(b"\xa5" * GUARD)

    def attach(self, tgt, nbd):
        """What -drive names."""
        if self.store == "block":
            self.device = backends.loop(self.path)
        elif self.store == "lvm":
            self.device = backends.loop(self.path, GUARD, SIZE)
        elif self.store == "iscsi":
            return tgt.add(self.path)
        elif self.store == "nbd":
            return nbd.add(self.path)
        return self.device or self.path

    def detach(self):
        if self.device:
            backends.loop_free(self.device)
            self.device = None

    def arguments(self, url, index):
        fmt = self.store if self.store in ("qcow2", "qed") else "raw"
        kind = {"virtio-blk": "virtio-blk-pci", "virtio-scsi": f"scsi-hd,bus=vs.0,scsi-id={index}", "scsi": f"scsi-hd,bus=lsi.0,scsi-id={index}",
                "ide": f"ide-hd,bus=ide.{index // 2},unit={index % 2}"}[self.bus]
        return ["-drive", f"file={url},format={fmt},if=none,id={self.serial},cache={self.cache},discard=unmap",
                "-device", f"{kind},drive={self.serial},serial={self.serial}"]

    def raw(self, folder):
        """The disk's content as a raw image, made by other programs than Kelvin."""
        out = os.path.join(folder, "raw")
        if self.store in ("qcow2", "qed"):
            check = subprocess.run(["qemu-img", "check", self.path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True)
            if check.returncode:
                raise guest.GuestFailed(f"qemu-img check: {check.stdout[-500:]}")
            subprocess.run(["qemu-img", "convert", "-f", self.store, "-O", "raw", self.path, out], check=True)
            for tool in (["qemu-img"], [guest.KELVIN, "img"]):
                subprocess.run([*tool, "compare", "-f", self.store, "-F", "raw", self.path, out], stdout=subprocess.DEVNULL, check=True)
            return out
        if self.store == "lvm":
            with open(self.path, "rb") as f:
                if f.read(GUARD) != b"\x5a" * GUARD or f.seek(GUARD + SIZE) < 0 or f.read() != b"\xa5" * GUARD:
                    raise guest.GuestFailed("what is beside the volume was written")
            subprocess.run(["dd", f"if={self.path}", f"of={out}", "bs=1M", f"skip={GUARD >> 20}", f"count={SIZE >> 20}", "status=none",
                            "conv=sparse"], check=True)
            return out
        return self.path

    def judge(self, folder):
        """The host's side."""
        raw = self.raw(folder)
        if subprocess.run(["e2fsck", "-fn", raw], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
            raise guest.GuestFailed("e2fsck finds faults")
        tree = os.path.join(folder, "tree")
        os.mkdir(tree)
        try:
            subprocess.run(["debugfs", "-R", f"rdump / {tree}", raw], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            lists = glob.glob(os.path.join(tree, "var/lib/dpkg/info/*.md5sums"))
            if len(lists) != len(PACKAGES) or subprocess.run(["md5sum", "--quiet", "-c", *lists], cwd=tree, check=False).returncode:
                raise guest.GuestFailed("the packages' files are wrong in the image")
            if manifest(tree) != self.sum:
                raise guest.GuestFailed("the image holds other files than the guest saw")
        finally:
            shutil.rmtree(tree)


def manifest(tree):
    """What the guest's sums() prints."""
    names = []
    for top, _, files in os.walk(tree):
        names += [os.path.join(top, f) for f in files if not os.path.islink(os.path.join(top, f))]
    names = sorted(os.fsencode("." + n[len(tree):]) for n in names)
    lines = b""
    for name in names:
        with open(os.path.join(os.fsencode(tree), name), "rb") as f:
            lines += hashlib.sha256(f.read()).hexdigest().encode() + b"  " + name + b"\n"
    return hashlib.sha256(lines).hexdigest()


def commands(disks, verb):
    lists = ["cells " + " ".join(f"{d.name} {d.serial}" for d in disks if d.bus == bus) + " &" for bus in BUSES]
    scsi = sum(d.bus != "virtio-blk" for d in disks)
    return SETUP.replace("SCSI", str(scsi)).replace("CELL\n", CELL, 1).replace("VERB", verb).replace("LISTS", "\n".join(lists))


def boot(opts, kernel, disks, urls, verb):
    """One run of the guest; {cell: its sum, or FAILED and why}."""
    args = ["-device", "virtio-scsi-pci,id=vs", "-device", "lsi53c895a,id=lsi"]
    for serial, image in (("ROOT", guest.rootfs()), ("PACKAGES", package_disk())):
        args += ["-drive", f"file={image},format=raw,if=none,readonly=on,file.locking=off,id={serial}",
                 "-device", f"virtio-blk-pci,drive={serial},serial={serial}"]
    index = dict.fromkeys(BUSES, 0)
    for d, url in zip(disks, urls):
        args += d.arguments(url, index[d.bus])
        index[d.bus] += 1
    with guest.Guest(kernel[0], [kernel[2]], commands(disks, verb), args=args, accel=opts.accel, smp=2, mem="512M") as run:
        got = run.wait(timeout=3000)
        guest.expect(got.get("done") == "0", run, "the guest's script failed")
        guest.expect(got.get("errors") == "0" or any("FAILED" in v for v in got.values()), run, "the kernel complains")
        return got


def servers(disks, folder):
    tgt = backends.Tgt(folder) if any(d.store == "iscsi" for d in disks) else None
    nbd = backends.Nbd(folder, os.path.join(folder, "files")) if any(d.store == "nbd" for d in disks) else None
    return tgt, nbd


def run_cells(opts, kernel, disks, folder):
    """{cell: "ok" or why not}"""
    verdict = {}
    os.mkdir(os.path.join(folder, "files"))
    for d in disks:
        d.make()
    try:
        for verb in ("install", "verify"):
            tgt, nbd = servers(disks, folder)
            try:
                urls = [d.attach(tgt, nbd) for d in disks]
                got = boot(opts, kernel, disks, urls, verb)
            finally:
                for server in (tgt, nbd):
                    if server:
                        server.process.kill()
                        server.process.wait()
                for d in disks:
                    d.detach()
            for d in disks:
                text = got.get(d.name, "FAILED without a word")
                if "FAILED" in text:
                    verdict.setdefault(d.name, f"{verb}: {text}")
                elif verb == "install":
                    d.sum = text
                elif text != d.sum:
                    verdict.setdefault(d.name, "after the second boot the files differ")
        for d in disks:
            if d.name not in verdict:
                try:
                    d.judge(folder)
                    verdict[d.name] = "ok"
                except (guest.GuestFailed, subprocess.CalledProcessError) as e:
                    verdict[d.name] = str(e)
    finally:
        shutil.rmtree(os.path.join(folder, "files"))
    return verdict


def batches(cells):
    """Up to PER_BUS cells of each bus a boot."""
    while cells:
        now = [c for bus in BUSES for c in [c for c in cells if c.split("-", 2)[2] == bus][:PER_BUS]]
        cells = [c for c in cells if c not in now]
        yield now


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accel", default="soft")
    parser.add_argument("--only", default="", help="cells whose name has this regular expression")
    parser.add_argument("--cells", type=int, default=0, help="at most so many")
    parser.add_argument("--again", action="store_true", help="also cells that the log calls ok")
    parser.add_argument("--log", default=os.path.join(guest.CACHE, "storage-matrix.log"))
    opts = parser.parse_args()
    if not shutil.which("nbdkit") or not shutil.which("tgtd"):
        sys.exit(77)
    done = set()
    if os.path.exists(opts.log) and not opts.again:
        with open(opts.log, encoding="utf-8") as f:
            done = {line.split()[2] for line in f if re.match(r"\S+ \S+ \S+ ok$", line)}
    cells = ["-".join(c) for c in itertools.product(STORES, CACHES, BUSES)]
    cells = [c for c in cells if re.search(opts.only, c) and c not in done]
    cells = cells[:opts.cells or None]
    kernel = guest.prepare("full", MODULES)
    folder, bad = guest.scratch(), 0
    for names in batches(cells):
        started, cpu = time.monotonic(), os.times()
        disks = [Disk(n, i, folder) for i, n in enumerate(names)]
        try:
            verdict = run_cells(opts, kernel, disks, folder)
        except guest.GuestFailed as e:
            print(e)
            verdict = dict.fromkeys(names, "FAILED: " + str(e).split("\n", maxsplit=1)[0])
        with open(opts.log, "a", encoding="utf-8") as log:
            for name in names:
                first = verdict[name].split("\n")[0]
                log.write(f"{time.strftime('%F %T')} {name} {first}\n")
                if verdict[name] != "ok":
                    bad += 1
                    print(f"{name}: {verdict[name]}")
        used = os.times()
        print(f"{len(names)} cells in {time.monotonic() - started:.0f} s, {sum(used[:4]) - sum(cpu[:4]):.0f} s of CPU time", flush=True)
    print(f"{len(cells)} cells, {bad} failed")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
