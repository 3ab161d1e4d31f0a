#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""savevm, loadvm, delvm, info snapshots and -loadvm by QEMU's rules: what is refused, what fails, what several disks have. The
machine has memory, CMOS, the PIC and a disk's registers to lose; guests that run are tests/boot/savevm.py's."""
import os
import re
import resource
import subprocess

from qtest import KELVIN, PATIENCE, case, expect, main_alone, temp
from saved import change, check, machine


def image(name, size="1M", fmt="qcow2", options=()):
    path = temp(name)
    subprocess.run(["qemu-img", "create", "-q", "-f", fmt, *options, path, size], check=True)
    return path


def qemu_img(*args):
    got = subprocess.run(["qemu-img", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert got.returncode == 0, (args, got.stdout)
    return got.stdout


def names(path):
    """Names of an image's snapshots, and those with a machine's state; the image is sound."""
    qemu_img("check", path)
    lines = [line.split() for line in qemu_img("snapshot", "-l", path).splitlines()[2:]]
    return [x[1] for x in lines], [x[1] for x in lines if x[2] != "0"]


def drive(path, more="", fmt="qcow2"):
    return ("-drive", f"file={path},format={fmt},if=virtio{more}")


class Monitored:
    """A machine and its human monitor."""

    def __init__(self, *options, command=KELVIN):
        self.m, self.qmp = machine(*options, command=command)

    def hmp(self, line):
        return self.qmp.call("human-monitor-command", {"command-line": line}).replace("\r", "")

    def good(self, line):
        expect(self.hmp(line), "", line)

    def bad(self, line, words, status="running"):
        said = self.hmp(line)
        assert said.startswith("Error: ") and words in said and said.count("\n") == 1, (line, said)
        expect(self.qmp.call("query-status")["status"], status, line)

    def close(self):
        expect(self.m.close(), 0)


@case(name="there-and-back")
def there_and_back(_):
    """In place, as often as one likes, in a new process, and by a name that exists already."""
    path = image("disk")
    k = Monitored(*drive(path))
    change(k.m)
    now = k.m.step(123456789)
    k.good("savevm a")
    for _ in range(2):
        change(k.m, 3)
        k.m.write(0x200000 + 4096, b"x" * 4096)  # a page that was all zeros
        k.m.step(5000)
        k.good("loadvm a")
        check(k.m)
        expect(k.m.step(1), now + 1, "the clock")
    change(k.m, 5)
    k.good("savevm a")
    k.good("savevm")
    found, _ = names_running(k)
    assert len(found) == 2 and found[0] == "a" and re.fullmatch(r"vm-\d{14}", found[1]), found
    k.good(f"delvm {found[1]}")
    k.close()
    expect(names(path), (["a"], ["a"]))
    k = Monitored(*drive(path), "-loadvm", "a")
    check(k.m, 5)
    k.good("stop")
    k.bad("loadvm b", "does not exist", "paused")
    k.good("loadvm a")
    expect(k.qmp.call("query-status")["status"], "paused")
    check(k.m, 5)
    k.close()


def names_running(k):
    lines = [line.split() for line in k.hmp("info snapshots").splitlines()]
    return [x[1] for x in lines[2:] if len(x) > 4], lines


@case(name="disks")
def disks(_):
    """Every disk that can be written has it; the machine's state is in the first. Read-only and empty drives do not matter."""
    one, two, ro = image("one"), image("two"), image("ro", fmt="raw")
    qemu_img("snapshot", "-c", "part", two)
    four = (*drive(one), *drive(two), *drive(ro, ",readonly=on", "raw"), "-drive", "if=ide,media=cdrom")
    k = Monitored(*four)
    change(k.m)
    k.good("savevm a")
    k.good("savevm b")
    text = k.hmp("info snapshots")
    k.bad("loadvm part", "does not exist")
    k.good("loadvm a")
    check(k.m)
    k.close()
    expect(names(one), (["a", "b"], ["a", "b"]))
    expect(names(two), (["part", "a", "b"], []))
    peer = ["qemu-system-x86_64", "-display", "none", "-S", "-nodefaults", "-monitor", "stdio", *drive(one), *drive(two)]
    said = subprocess.run(peer, input="info snapshots\nquit\n", stdout=subprocess.PIPE, text=True, check=True).stdout.replace("\r", "")
    theirs = re.search(r"List of snapshots.*?(?=\(qemu\))", said, re.S)[0]
    expect([line.rstrip() for line in text.replace("virtio1", "#").splitlines()],
           [line.rstrip() for line in re.sub(r"on '[^']*'", "on '#'", theirs).splitlines()])
    qemu_img("snapshot", "-d", "a", two)
    k = Monitored(*four)
    k.bad("loadvm a", "does not exist in drive")
    k.good("delvm a")
    k.bad("delvm a", "does not exist")
    k.good("loadvm b")
    k.close()
    expect(names(one), (["b"], ["b"]))


@case(name="refused")
def refused(_):
    k = Monitored()
    for line in ("savevm a", "loadvm a", "delvm a", "info snapshots"):
        k.bad(line, "No block device can store")
    k.close()
    for fmt in ("raw", "qed"):
        k = Monitored(*drive(image("q")), *drive(image("x", fmt=fmt), fmt=fmt))
        for line in ("savevm a", "loadvm a", "delvm a"):
            k.bad(line, "'virtio1' is writable but does not support snapshots")
        k.close()
    path = image("disk")
    k = Monitored(*drive(path))
    k.bad("savevm " + "n" * 256, "255 bytes")
    expect(k.hmp("info snapshots"), "There is no snapshot available.\n")
    k.good("savevm a")
    k.close()
    qemu_img("snapshot", "-c", "disk-only", path)
    subprocess.run(["qemu-system-x86_64", "-display", "none", "-S", "-nodefaults", "-m", "64", "-monitor", "stdio", *drive(path)],
                   input="savevm theirs\nquit\n", stdout=subprocess.PIPE, text=True, check=True)
    k = Monitored(*drive(path))
    change(k.m)
    k.bad("loadvm disk-only", "disks only")
    k.bad("loadvm theirs", "made by QEMU")
    check(k.m)
    k.close()
    k = Monitored(*drive(path), "-device", "virtio-rng-pci")
    change(k.m)
    k.bad("loadvm a", "another machine")
    check(k.m)
    k.close()
    for name, word in (("nobody", "does not exist"), ("theirs", "made by QEMU"), ("disk-only", "disks only")):
        got = subprocess.run([*KELVIN, "-accel", "qtest", "-display", "none", "-nodefaults", *drive(path), "-loadvm", name],
                             stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=PATIENCE, check=False, text=True)
        assert got.returncode == 1 and len(got.stderr.strip().splitlines()) == 1 and word in got.stderr, (name, got)
    qemu_img("resize", "-q", path, "2M")
    k = Monitored(*drive(path))
    k.bad("loadvm a", "another size")
    k.close()


@case(name="damaged")
def damaged(_):
    """Found out when disks and machine have gone back half: it stands still until a good one is loaded, or it is reset."""
    path = image("disk")
    k = Monitored(*drive(path))
    change(k.m)
    k.good("savevm good")
    k.m.write(0x3ffff00, b"to be damaged")
    k.good("savevm bad")
    k.close()
    with open(path, "r+b") as f:
        data = f.read()
        expect(data.count(b"to be damaged"), 1)
        f.seek(data.index(b"to be damaged"))
        f.write(b"was")
    k = Monitored(*drive(path))
    k.bad("loadvm bad", "a checksum is wrong", "internal-error")
    assert "error" in k.qmp.raw("cont")
    k.bad("savevm more", "internal error", "internal-error")
    k.good("loadvm good")
    k.good("cont")
    check(k.m)
    k.bad("loadvm bad", "half loaded", "internal-error")
    k.good("system_reset")
    k.good("cont")
    expect(k.qmp.call("query-status")["status"], "running")
    k.close()
    expect(names(path)[0], ["good", "bad"])
    got = subprocess.run([*KELVIN, "-accel", "qtest", "-display", "none", "-nodefaults", "-m", "64", "-device", "virtio-rng-pci",
                          *drive(path), "-loadvm", "bad"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=PATIENCE,
                         check=False, text=True)
    assert got.returncode == 1 and "a checksum is wrong" in got.stderr, got


@case(name="full")
def full(_):
    """A host disk that takes no more in the midst of it: no snapshot, the old one of that name is still there."""
    one, two = image("one"), image("two")
    k = Monitored(*drive(one), *drive(two), command=["env", "--ignore-signal=XFSZ", *KELVIN])
    change(k.m)
    k.good("savevm a")
    change(k.m, 3)
    for page in range(256):
        k.m.write(0x800000 + page * 4096, os.urandom(64) * 64)
    end = os.stat(one).st_size
    pid = k.m.process.pid
    for more in (0, 100 << 10, 1 << 20):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (end + more, resource.RLIM_INFINITY))
        k.bad("savevm a", "File too large")
        k.bad("savevm b", "File too large")
        check(k.m, 3)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        expect(names_running(k)[0], ["a"])
    k.good("loadvm a")
    check(k.m)
    k.close()
    for path in (one, two):
        expect(names(path)[0], ["a"])


main_alone()
