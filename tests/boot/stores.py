#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""stores.py ACCEL: a guest writes to a QED image, to NBD (nbdkit) in an I/O thread, to iSCSI (tgt) and to a disk with
snapshot=on, flushes, and reads the same back; the stores hold what it wrote, and the snapshot's image nothing of it."""
import hashlib
import os
import shutil
import subprocess
import sys

import backends
import guest

COMMANDS = """
set -e
for d in vda vdb vdc vdd; do
	dd if=/dev/urandom of=/tmp/$d bs=64k count=96 2>/dev/null
	dd if=/tmp/$d of=/dev/$d bs=24k conv=fsync 2>/dev/null
	report wrote_$d $(sha256sum < /tmp/$d | cut -d' ' -f1)
done
echo 3 > /proc/sys/vm/drop_caches
for d in vda vdb vdc vdd; do
	report read_$d $(head -c 6291456 /dev/$d | sha256sum | cut -d' ' -f1)
done
"""
WRITTEN = 96 * 65536
SIZE = 16 << 20


def head_sum(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read(WRITTEN)).hexdigest()


def main():
    accel = sys.argv[1]
    if not shutil.which("nbdkit") or not shutil.which("tgtd"):
        sys.exit(77)
    bzimage, _, initramfs = guest.prepare()
    folder = guest.scratch()
    paths = {name: os.path.join(folder, name) for name in ("qed", "nbd", "iscsi", "snap", "socket")}
    for name in ("nbd", "iscsi", "snap"):
        with open(paths[name], "wb") as f:
            f.truncate(SIZE)
    untouched = head_sum(paths["snap"])
    subprocess.run(["qemu-img", "create", "-q", "-f", "qed", paths["qed"], str(SIZE)], check=True)
    servers = [subprocess.Popen(["nbdkit", "-f", "-U", paths["socket"], "file", paths["nbd"]])]
    try:
        tgt = backends.Tgt(folder)
        servers.append(tgt.process)
        url = tgt.add(paths["iscsi"])
        args = ["-object", "iothread,id=io", "-drive", f"file={paths['qed']},if=virtio,format=qed,cache=none",
                "-blockdev", f"driver=nbd,node-name=store,server.type=unix,server.path={paths['socket']}",
                "-blockdev", "driver=raw,file=store,node-name=disk", "-device", "virtio-blk-pci,drive=disk,iothread=io",
                "-drive", f"file={url},if=virtio,format=raw", "-drive", f"file={paths['snap']},if=virtio,format=raw,snapshot=on"]
        with guest.Guest(bzimage, [initramfs], COMMANDS, args=args, accel=accel, smp=2) as run:
            got = run.wait(timeout=300)
            guest.expect(got.get("done") == "0", run, "a command failed")
            for disk in ("vda", "vdb", "vdc", "vdd"):
                guest.expect(got[f"wrote_{disk}"] == got[f"read_{disk}"], run, f"{disk} reads back something else")
    finally:
        for server in servers:
            server.kill()
            server.wait()
    subprocess.run(["qemu-img", "check", "-q", "-f", "qed", paths["qed"]], check=True)
    subprocess.run(["qemu-img", "convert", "-f", "qed", "-O", "raw", paths["qed"], paths["qed"] + ".raw"], check=True)
    sums = sorted(got[f"wrote_{disk}"] for disk in ("vda", "vdb", "vdc", "vdd"))
    held = [head_sum(p) for p in (paths["qed"] + ".raw", paths["nbd"], paths["iscsi"])]
    if len(set(held)) != 3 or any(s not in sums for s in held):
        raise guest.GuestFailed("the stores hold other data than the guest wrote")
    if head_sum(paths["snap"]) != untouched:
        raise guest.GuestFailed("snapshot=on let the image be written")
    print("QED, NBD and iSCSI hold what the guest wrote; the image under a snapshot nothing of it")


guest.run_test(main)
