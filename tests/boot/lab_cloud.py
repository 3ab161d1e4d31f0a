#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""kelvin bench with a system that boots by itself: a Debian disk with GRUB and cloud-init, made as cloud images are, is
started through the firmware; the seed ("NoCloud") brings the agent, and the image is not written. Minutes, and the image
takes some to make (kept in the cache): not part of ./check."""
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile

import grub
import guest

PACKAGES = "systemd-sysv,udev,cloud-init,fio,e2fsprogs,kmod,procps,iproute2,initramfs-tools,linux-image-cloud-amd64"
SIZE = 2 << 30
CONFIG = """
linux (hd0,msdos1)/vmlinuz root=/dev/vda1 console=ttyS0 net.ifnames=0
initrd (hd0,msdos1)/initrd.img
boot
"""


def tree(tar):
    """The root file system as a tar file."""
    hooks = ["--customize-hook=echo LABEL=cloud / ext4 rw 0 1 >$1/etc/fstab",
             "--customize-hook=echo 'datasource_list: [NoCloud, None]' >$1/etc/cloud/cloud.cfg.d/90_datasource.cfg",
             # No network in the lab's machine: waiting for one would only take time.
             "--customize-hook=ln -sf /dev/null $1/etc/systemd/system/systemd-networkd-wait-online.service"]
    paths = [f"--dpkgopt=path-exclude=/usr/share/{n}/*" for n in ("doc", "man", "locale")]
    subprocess.run(["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", *paths, *hooks, "bookworm", tar], check=True)


def make_image(path):
    """A disk with GRUB in front of one partition. As root: the files keep their owners."""
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as folder:
        tar, root, part, core = (os.path.join(folder, n) for n in ("tar", "root", "part", "core"))
        tree(tar)
        os.mkdir(root)
        subprocess.run(["tar", "-C", root, "--numeric-owner", "-xpf", tar], check=True)
        subprocess.run(["truncate", "-s", str(SIZE - grub.START * 512), part], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-L", "cloud", "-d", root, part], check=True)
        config = os.path.join(folder, "grub.cfg")
        with open(config, "w", encoding="utf-8") as f:
            f.write(CONFIG)
        subprocess.run(["grub-mkimage", "-O", "i386-pc", "-o", core, "-c", config, "-p", "(hd0,msdos1)/boot/grub", "biosdisk",
                        "part_msdos", "ext2", "linux", "boot"], check=True)
        with open(os.path.join(grub.GRUB, "boot.img"), "rb") as f:
            mbr = bytearray(f.read()[:512])
        with open(core, "rb") as f:
            stage = bytearray(f.read())
        stage[0x1f4:0x1fc] = struct.pack("<Q", 2)
        mbr[446:510] = struct.pack("<B3sB3sII", 0x80, b"\0\2\0", 0x83, b"\xff\xff\xff", grub.START, SIZE // 512 - grub.START) + bytes(48)
        mbr[510:512] = b"\x55\xaa"
        disk = os.path.join(folder, "disk")
        subprocess.run(["dd", f"if={part}", f"of={disk}", "bs=1M", "oflag=seek_bytes", f"seek={grub.START * 512}", "conv=sparse", "status=none"],
                       check=True)
        with open(disk, "r+b") as f:
            f.write(mbr + stage)
            f.truncate(SIZE)
        os.rename(disk, path)


def digest(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def main():
    if os.geteuid() != 0:
        sys.exit("lab_cloud.py needs root to make its image")
    image = os.path.join(guest.CACHE, "lab-cloud-" + hashlib.sha256((PACKAGES + CONFIG).encode()).hexdigest()[:12] + ".img")
    if not os.path.exists(image):
        make_image(image)
    before = digest(image)
    folder = guest.scratch()
    path, out = os.path.join(folder, "cloud.yaml"), os.path.join(folder, "out")
    with open(path, "w", encoding="utf-8") as f:
        f.write("name: cloud\nworkload: fio\nparams: {jobs: randread:4k:2, seconds: 1}\nruns: {least: 1, most: 1}\ntimeout: 20m\n"
                f"settings: {{m: 512M, accel: soft, disk.size: 16M, guest.image: {image}, guest.boot: firmware}}\n")
    run = subprocess.run([guest.KELVIN, "bench", "run", path, "--out", out], capture_output=True, text=True, timeout=3600, check=False)
    print(run.stdout, run.stderr)
    assert run.returncode == 0, run
    with open(os.path.join(out, "journal.jsonl"), encoding="utf-8") as f:
        for trial in map(json.loads, f):
            assert trial["status"] == "ok" and trial["metrics"]["randread-4k-d2"]["value"] > 0, trial
            assert "-cloud-" in trial["inside"]["kernel"], trial["inside"]
    assert digest(image) == before, "the image was written"


guest.run_test(main)
