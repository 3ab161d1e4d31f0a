# SPDX-License-Identifier: GPL-2.0-or-later
"""Servers and devices under the disks of boot tests: iSCSI (tgt), NBD (nbdkit), loop devices."""
import os
import random
import subprocess
import time

import guest


class Tgt:
    """tgtd on a free port with one target; each store is one of its units."""

    NAME = "iqn.2026-01.test:boot"

    def __init__(self, folder):
        self.port, self.control, self.units = random.randrange(20000, 50000), random.randrange(100, 30000), 0
        self.process = subprocess.Popen(["tgtd", "-f", "-C", str(self.control), "--iscsi", f"portal=127.0.0.1:{self.port}"],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
        self.tell("--mode", "target", "--op", "new", "--tid", "1", "-T", self.NAME)
        self.tell("--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL")

    def tell(self, *step):
        for _ in range(300):
            if subprocess.run(["tgtadm", "-C", str(self.control), "--lld", "iscsi", *step], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                return
            time.sleep(0.1)
        raise guest.GuestFailed("tgtd does not take " + " ".join(step))

    def add(self, path):
        """The file's URL."""
        self.units += 1
        self.tell("--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", str(self.units), "-b", path)
        return f"iscsi://127.0.0.1:{self.port}/{self.NAME}/{self.units}"


class Nbd:
    """nbdkit serving the files of a folder."""

    def __init__(self, folder, files):
        self.socket, ready = os.path.join(folder, "nbd.socket"), os.path.join(folder, "nbd.pid")
        for left in (self.socket, ready): # a killed server's
            if os.path.exists(left):
                os.remove(left)
        self.process = subprocess.Popen(["nbdkit", "-f", "-P", ready, "-U", self.socket, "file", f"dir={files}"], stdout=subprocess.DEVNULL)
        for _ in range(1200):
            if os.path.exists(ready):
                return
            time.sleep(0.05)
        raise guest.GuestFailed("nbdkit does not start")

    def add(self, path):
        return f"nbd+unix:///{os.path.basename(path)}?socket={self.socket}"


def loop(path, offset=0, size=0):
    """A loop device on the file, or on `size` bytes of it. Give it back with loop_free."""
    window = ["-o", str(offset), "--sizelimit", str(size)] if size else []
    return subprocess.run(["losetup", "-f", "--show", *window, path], stdout=subprocess.PIPE, check=True, text=True).stdout.strip()


def loop_free(device):
    subprocess.run(["losetup", "-d", device], check=False)
