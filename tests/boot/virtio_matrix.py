#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""virtio_matrix.py ACCEL [ROW...]: Linux's drivers on every form of the virtio transport: modern, legacy, MSI-X and INTx, with
and without event index and indirect descriptors, each over other cache modes and I/O engines; and the console and ports."""
import os
import socket
import subprocess
import sys
import time

import guest

DISK = """
set -e
mkdir -p /mnt
mount -t ext4 /dev/vda /mnt
dd if=/dev/urandom of=/tmp/data bs=64k count=64 2>/dev/null
want=$(sha256sum < /tmp/data)
for i in 1 2 3 4; do cp /tmp/data /mnt/f$i & done
wait
sync
rm /mnt/f2
fstrim /mnt || true
umount /mnt
echo 3 > /proc/sys/vm/drop_caches
mount -t ext4 -o ro /dev/vda /mnt
for i in 1 3 4; do [ "$(sha256sum < /mnt/f$i)" = "$want" ] || { report bad f$i; exit 1; }; done
umount /mnt
report interrupts $(grep -c virtio /proc/interrupts)
report driver $(basename $(readlink /sys/bus/virtio/devices/virtio0/driver))
"""

PORTS = """
set -e
report ports $(cat /sys/class/virtio-ports/*/name)
exec 3<> /dev/vport0p1
echo "to the host" >&3
read line <&3
report from $line
echo "on the console" > /dev/hvc0
report random $(head -c 64 /dev/hwrng | wc -c)
report rng $(cat /sys/class/misc/hw_random/rng_current)
"""

# name: device options, drive options
ROWS = {
    "transitional": ("virtio-blk-pci,drive=d", "cache=none"),
    "modern": ("virtio-blk-pci-non-transitional,drive=d", "cache=writethrough,aio=threads"),
    "legacy": ("virtio-blk-pci,drive=d,disable-modern=on", "cache=writeback,discard=unmap"),
    "intx": ("virtio-blk-pci,drive=d,vectors=0", "cache=directsync"),
    "legacy-intx": ("virtio-blk-pci,drive=d,disable-modern=on,vectors=0", "cache=unsafe,aio=threads"),
    "one-vector": ("virtio-blk-pci,drive=d,vectors=1", "cache=none,aio=threads"),
    "two-vectors": ("virtio-blk-pci,drive=d,vectors=2,num-queues=4", "cache=none"),
    "plain-rings": ("virtio-blk-pci,drive=d,event_idx=off,indirect_desc=off,num-queues=1", "cache=none,aio=sync"),
    "iothread": ("virtio-blk-pci,drive=d,iothread=io", "cache=none"),
    "packed": ("virtio-blk-pci,drive=d,packed=on,in_order=on", "cache=none"),
    "small-queue": ("virtio-blk-pci,drive=d,queue-size=4,num-queues=2", "cache=none"),
}


def disk_row(accel, boot, name, folder):
    device, drive = ROWS[name]
    disk = os.path.join(folder, name + ".img")
    subprocess.run(["qemu-img", "create", "-q", "-f", "raw", disk, "64M"], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", disk], check=True)
    args = ["-drive", f"file={disk},if=none,id=d,format=raw,{drive}", "-object", "iothread,id=io", "-device", device]
    with guest.Guest(boot[0], [boot[2]], DISK, args=args, accel=accel, smp=2, append="quiet") as run:
        got = run.wait(timeout=200)
        guest.expect(got.get("done") == "0" and "bad" not in got, run, f"{name}: data differ or a command failed")
        guest.expect(got.get("driver") == "virtio_blk", run, f"{name}: driver {got.get('driver')}")
    if subprocess.run(["e2fsck", "-fn", disk], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode:
        raise guest.GuestFailed(f"{name}: e2fsck finds faults in the image")


def connect(run, path):
    """A client of the socket chardev, once the monitor listens."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(100)
    for _ in range(200):
        try:
            client.connect(path)
            return client
        except OSError:
            time.sleep(0.05)
    return run.fail("nobody listens at the port's socket")


def ports_row(accel, boot, folder):
    said, heard = os.path.join(folder, "port.in"), os.path.join(folder, "hvc")
    args = ["-device", "virtio-serial-pci", "-chardev", f"file,id=h,path={heard}", "-device", "virtconsole,chardev=h",
            "-chardev", f"socket,id=p,path={said},server=on,wait=off", "-device",
            "virtserialport,chardev=p,name=org.kelvin.test", "-object", "rng-random,id=r,filename=/dev/urandom",
            "-device", "virtio-rng-pci,rng=r"]
    with guest.Guest(boot[0], [boot[2]], PORTS, args=args, accel=accel, append="quiet") as run:
        client = connect(run, said)
        line = client.makefile("rb").readline()
        client.sendall(b"to the guest\n")
        got = run.wait(timeout=100)
        guest.expect(got.get("done") == "0", run, "ports: a command failed")
        guest.expect(line == b"to the host\n", run, f"ports: the host read {line}")
        guest.expect(got.get("from") == "to the guest", run, f"ports: the guest read {got.get('from')}")
        guest.expect(got.get("ports") == "org.kelvin.test", run, f"ports: named {got.get('ports')}")
        guest.expect(got.get("random") == "64" and got.get("rng") == "virtio_rng.0", run, f"rng: {got}")
    with open(heard, "rb") as f:
        if b"on the console" not in f.read():
            raise guest.GuestFailed("nothing arrived from the virtio console")


def main():
    accel, rows = sys.argv[1], sys.argv[2:] or [*ROWS, "ports"]
    boot = guest.prepare()
    folder = guest.scratch()
    for name in rows:
        if name == "ports":
            ports_row(accel, boot, folder)
        else:
            disk_row(accel, boot, name, folder)
        print("ok", name, flush=True)


guest.run_test(main)
