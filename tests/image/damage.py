#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""damage.py KELVIN COUNT [SEED]: qcow2 images, each damaged on purpose in its tables. `kelvin img check` must say what
qemu-img check says: exit status and numbers of corruptions and leaks; and what it repairs, qemu-img must find sound."""
import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tempfile

OPTIONS = ["", "compat=0.10", "refcount_bits=1", "refcount_bits=8", "refcount_bits=64", "cluster_size=4k",
           "cluster_size=512", "extended_l2=on", "extended_l2=on,cluster_size=16k", "lazy_refcounts=on", "snapshot",
           "compressed", "bitmap", "backing"]
OFFSET = 0x00fffffffffffe00
rnd = random.Random()


def run(*argv):
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=60)


def must(*argv):
    p = run(*argv)
    if p.returncode:
        sys.exit(f"{' '.join(argv)}: {p.stderr.decode()}")


class Image:
    """The tables of a file, to be damaged."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.b = bytearray(f.read())
        self.cluster = 1 << self.u32(20)
        self.entry = 16 if self.u32(4) == 3 and self.u64(72) & 16 else 8
        self.reftable, self.l1, self.l1_size = self.u64(48), self.u64(40), self.u32(36)
        self.l2 = [self.u64(self.l1 + 8 * i) & OFFSET for i in range(self.l1_size)]
        self.l2 = [o for o in self.l2 if o]
        n = self.u32(56) * self.cluster // 8
        self.blocks = [o for o in (self.u64(self.reftable + 8 * i) for i in range(n)) if o]

    def u32(self, at):
        return struct.unpack_from(">I", self.b, at)[0]

    def u64(self, at):
        return struct.unpack_from(">Q", self.b, at)[0]

    def put(self, at, value):
        struct.pack_into(">Q", self.b, at, value)

    def used(self, table):
        """An entry of a table that is in use, mostly."""
        size = self.entry if table in self.l2 else 8
        at = [a for a in range(table, table + self.cluster, size) if any(self.b[a:a + size])]
        return rnd.choice(at) if at and rnd.randrange(4) else table + size * rnd.randrange(self.cluster // size)

    def value(self, old):
        """Something that hurts."""
        where = rnd.randrange(len(self.b) // self.cluster + 3) * self.cluster
        return rnd.choice([0, old ^ 1 << 63, old ^ 1, old + self.cluster, where, where | 1 << 63, old ^ 1 << rnd.randrange(64),
                           old ^ 0x200, rnd.choice([self.reftable, self.l1, 0, *self.blocks, *self.l2]) | 1 << 63,
                           1 << 63 | 1 << 50])

    def damage(self):
        kind = rnd.choice(["l2", "l2", "l2", "l1", "block", "block", "table", "bitmap"])
        if kind == "block" and self.blocks:
            at = rnd.choice(self.blocks) + rnd.randrange(min(self.cluster, 64))
            self.b[at] ^= 1 << rnd.randrange(8)
            return f"refcount byte {at:#x}"
        if kind == "bitmap" and self.entry == 16 and self.l2:
            at = self.used(rnd.choice(self.l2)) + 8
            self.put(at, rnd.choice([0, 2 ** 64 - 1, rnd.randrange(2 ** 64), 2 ** 32 - 1]))
            return f"subclusters {at:#x}"
        at = (self.used(rnd.choice(self.l2)) if kind == "l2" and self.l2 else
              self.reftable + 8 * rnd.randrange(3) if kind == "table" else self.l1 + 8 * rnd.randrange(self.l1_size))
        new = self.value(self.u64(at))
        what = f"{kind} entry {at:#x}: {self.u64(at):#x} to {new:#x}"
        self.put(at, new)
        return what


def make(option, name):
    """An image with a bit of everything."""
    size = "300k" if "512" in option else "5M"
    o = ["-o", option] if "=" in option else []
    if option == "backing":
        must("qemu-img", "create", "-q", "-f", "raw", "base.raw", size)
        o = ["-b", "base.raw", "-F", "raw"]
    must("qemu-img", "create", "-q", "-f", "qcow2", *o, name, size)
    writes = ["-c", "write -P 1 0 100k", "-c", "write -P 2 200k 5k", "-c", "write -z 64k 64k"]
    if size == "5M":
        writes += ["-c", "write -P 3 4M 300k", "-c", "write -z 4M 64k"]
    must("qemu-io", *writes, name)
    if option == "snapshot":
        must("qemu-img", "snapshot", "-c", "s", name)
        must("qemu-io", "-c", "write -P 9 30k 200k", name)
    if option == "compressed":
        must("qemu-img", "convert", "-c", "-O", "qcow2", name, name + "c")
        os.rename(name + "c", name)
        must("qemu-io", "-c", "write -P 9 128k 64k", name)
    if option == "bitmap":
        must("qemu-img", "bitmap", "--add", name, "b0")


def check(tool, name, *flags):
    p = run(*tool, "check", "--output=json", *flags, name)
    try:
        j = json.loads(p.stdout)
    except ValueError:
        j = {}
    if p.returncode < 0 or b"Sanitizer" in p.stderr:
        sys.exit(f"{tool[0]} died: {p.returncode} {p.stderr.decode()[-2000:]}")
    return p.returncode, j.get("corruptions", 0), j.get("leaks", 0), p.stderr.decode(errors="replace")[-1500:]


def far(ours):
    """Tables terabytes away in a sparse file: judged as by qemu-img, with little memory. One past the end: not touched."""
    problems = 0
    for option in ("", "cluster_size=512"):
        make(option, "far.qcow2")
        image = Image("far.qcow2")
        l1 = image.b[image.l1:image.l1 + 8 * image.l1_size]
        image.put(40, 5 << 40)
        with open("far.qcow2", "wb") as f:
            f.write(image.b)
        for flags in ((), ("-r", "all")):
            check(ours, "far.qcow2", *flags)
        with open("far.qcow2", "r+b") as f:
            f.write(image.b)
            f.seek((1 << 40) - 4096)
            f.write(l1.ljust(4096, b"\0"))
            f.seek(40)
            f.write(struct.pack(">Q", (1 << 40) - (4096 if option else 65536)))
        found = check(ours, "far.qcow2")
        left = check(ours, "far.qcow2", "-r", "all")
        after = check(("qemu-img",), "far.qcow2") if not option else (0,) # which takes a gigabyte for small clusters
        if not found[1] or after[0]:
            problems += 1
            print(f"tables far away: {found}, {left}, afterwards {after}")
    return problems


def main():
    kelvin, count = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 32)
    rnd.seed(seed)
    ours, theirs = (kelvin, "img"), ("qemu-img",)
    bad = differ = 0
    with tempfile.TemporaryDirectory(prefix="kelvin-damage.") as folder:
        os.chdir(folder)
        for option in OPTIONS:
            make(option, f"o{OPTIONS.index(option)}.qcow2")
        bad += far(ours)
        used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
        if used > 1500:
            sys.exit(f"{used} MiB were used")
        for i in range(count):
            name = f"o{rnd.randrange(len(OPTIONS))}.qcow2"
            image = Image(name)
            what = [image.damage() for _ in range(rnd.choice([1, 1, 2, 5]))]
            with open("x.qcow2", "wb") as f:
                f.write(image.b)
            a, b = check(ours, "x.qcow2"), check(theirs, "x.qcow2")
            problem = ""
            if (a[0] == 0) != (b[0] == 0) or (1 not in (a[0], b[0]) and a[0] != b[0]):
                problem = "the verdicts differ"
            elif a[:3] != b[:3]:
                differ += 1
                if os.environ.get("VERBOSE"):
                    print(f"image {i} ({OPTIONS[int(name[1:-6])]}: {what}): {a[:3]} is not {b[:3]}\n{a[3]}---\n{b[3]}")
            if not problem and a[0]:
                shutil.copy("x.qcow2", "y.qcow2")
                check(theirs, "y.qcow2", "-r", "all")
                leaks = check(ours, "x.qcow2", "-r", "leaks")
                left = check(ours, "x.qcow2", "-r", "all")
                after, theirs_after = check(theirs, "x.qcow2"), check(theirs, "y.qcow2")
                # a refcount that cannot hold what is there stays wrong
                if after[0] and not theirs_after[0] and "more references than" not in a[3]:
                    problem = f"not repaired: {after} ({leaks[:3]}, {left[:3]})"
                elif a[0] == 3 and leaks[0]:
                    problem = f"leaks not repaired: {leaks}"
                elif left[0] == 0 and after[0]:
                    problem = f"said to be repaired: {after}"
            if problem:
                bad += 1
                print(f"seed {seed} image {i} ({OPTIONS[int(name[1:-6])]}: {what}): {problem}\n{a}\n{b}")
    print(f"{count} damaged images, {bad} judged wrongly; {differ} counted differently than by qemu-img")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
