#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The driver of `./bench storage`. --guest and --rig are parts of their own; without them `kelvin img bench` and convert against qemu-img's with the same
flags, and the same requests by fio or dd on a plain file, cell by cell (format, cache mode, engine, kind of access, request size, depth).

Other work on the machine and the disk's own moods move a figure by half from minute to minute. So runs are short (--seconds) and of one number of
requests per cell for all sides, the sides of a cell follow each other at once in random order, cells are shuffled anew each round, and a ratio is the median
of the rounds' own ratios with the interval in which it lies at 95 % (bootstrap). Before each run its image is synced, so that nobody writes
what another left, and for cells with the page cache read into it; an image that grows is made anew. CPU time is user + system of all threads, less what a run of one request takes.
Rounds go on until --minutes are over. Prints medians, ratios and what issue asks; writes table, JSON and a plot. Ratios above 1: Kelvin is faster."""
import argparse
import itertools
import json
import os
import random
import re
import select
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KELVIN = os.environ.get("KELVIN", os.path.join(TOP, "build", "kelvin"))
SIDES = {"kelvin": [KELVIN, "img"], "qemu": ["qemu-img"]}
SPREAD = 17 * 65536  # visits every 64 KiB once, in no order a disk or cache could like, and stays inside
ENGINES = {"io_uring": ["-i", "io_uring"], "threads": ["-i", "threads"], "native": ["-n"]}


class Failed(Exception):
    """A program did not do its job."""


class Spent:
    """What one run took: seconds, CPU seconds (all threads, with start and end), peak memory in KiB."""

    def __init__(self, wall, cpu, memory):
        self.wall, self.cpu, self.memory = wall, cpu, memory


def peak_memory(pid):
    """KiB, looked at until the process ends: ru_maxrss would count what its parent had before exec."""
    peak, pidfd = 0, os.pidfd_open(pid)
    try:
        while not select.select([pidfd], [], [], 0.02)[0]:
            with open(f"/proc/{pid}/status", encoding="ascii") as f:
                found = re.search(r"VmHWM:\s+([0-9]+)", f.read())
            peak = int(found.group(1)) if found else peak
    finally:
        os.close(pidfd)
    return peak


def put_first(pid):
    """Before other sessions of this host, whose work would be in the figures of whoever runs longer in one piece; where we may."""
    try:
        with open(f"/proc/{pid}/autogroup", "w", encoding="ascii") as f:
            f.write("-20")
    except OSError:
        pass


def run(argv):
    """Spent: wall is the seconds that bench or fio says, or the time the command took."""
    for _ in range(50):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as complaint:
            start = time.monotonic()
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=complaint,  # pylint: disable=consider-using-with
                                     start_new_session=True)
            put_first(child.pid)
            try:
                memory = peak_memory(child.pid)
            except BaseException:
                child.kill()
                raise
            _, status, used = os.wait4(child.pid, 0)
            took = time.monotonic() - start
            child.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            complaint.seek(0)
            text, why = out.read(), complaint.read()
        if child.returncode == -signal.SIGTERM:
            raise KeyboardInterrupt
        if not child.returncode or b"lock" not in why:
            break
        time.sleep(0.1)  # the kernel ends the io_uring of a process, and with it its locks, after the process
    if child.returncode:
        raise Failed(f"{' '.join(argv)}: status {child.returncode}: {why.decode().strip()[-300:]}")
    said = re.search(rb"Run completed in ([0-9.]+) seconds", text)
    if argv[0] == "fio":
        job = json.loads(text[text.index(b"{"):])["jobs"][0]
        took = max(job[kind]["runtime"] for kind in ("read", "write")) / 1000
    return Spent(max(float(said.group(1)), 0.001) if said else max(took, 0.001), used.ru_utime + used.ru_stime, memory)


class Cell:
    """One row. `command(side, count)`: what is run, `bare`: the host's own program for the same work; `prepare(path)` comes before each run."""

    def __init__(self, name, command, image, bare=None, count=0, amount=1, unit="ops/s"):
        self.name, self.command, self.image, self.bare, self.count, self.unit = name, command, image, bare, count, unit
        self.amount = amount  # units of work per count
        self.plain, self.make, self.target, self.lost = None, None, 1.0, None
        self.spent, self.idle = {}, {}
        self.warm = False  # the image is read into the page cache first: the host may have dropped it

    def sides(self, with_bare=True):
        return [*SIDES, *(["bare"] if self.bare and with_bare else [])]

    def one(self, side, count):
        path, scratch = self.plain if side == "bare" else self.image, bytearray(1 << 20)
        if self.make:
            self.make(path)
        if os.path.exists(path):
            with open(path, "rb", buffering=0) as f:
                os.fdatasync(f.fileno())
                while self.warm and f.readinto(scratch):
                    pass
        return run(self.bare(count) if side == "bare" else self.command(side, count))

    def calibrate(self, seconds, idle):
        """How many requests take QEMU that long. `idle` keeps the CPU time of a run of one request, by side and format."""
        if self.count:
            return
        for side in self.sides():
            key = side, self.name.split()[0]
            if key not in idle:
                idle[key] = statistics.median(self.one(side, 1).cpu for _ in range(3))
            self.idle[side] = idle[key]
        count = min(400, self.most)
        while (wall := self.one("qemu", count).wall) < seconds / 4 and count < self.most:
            count = min(self.most, int(count * min(30, max(2.0, seconds / 2 / wall))))
        self.count = max(min(50, self.most), min(self.most, int(count * seconds / wall)))

    def measure(self, with_bare):
        sides = self.sides(with_bare)
        got = {side: self.one(side, self.count) for side in random.sample(sides, len(sides))}
        for side, spent in got.items():
            self.spent.setdefault(side, []).append(spent)
        if self.bare and not with_bare:
            self.spent.setdefault("bare", []).append(None)

    def median(self, side, what="wall"):
        return statistics.median(getattr(s, what) for s in self.spent[side] if s)

    def peak(self, side):
        """KiB; a short run may end before anybody looks."""
        return max(s.memory for s in self.spent[side] if s)

    def cpu(self, side):
        """Microseconds per unit."""
        return max(self.median(side, "cpu") - self.idle.get(side, 0), 0) * 1e6 / (self.count * self.amount)

    def ratio(self, over, under="kelvin"):
        """(least, median, most): time of `over` / time of `under`."""
        pairs = [a.wall / b.wall for a, b in zip(self.spent[over], self.spent[under]) if a and b]
        again = sorted(statistics.median(random.choices(pairs, k=len(pairs))) for _ in range(1000))
        return again[25], statistics.median(pairs), again[974]

    def is_at_host(self):
        """As fast as the host's own program, and QEMU so near to it that what is asked would be faster than that."""
        return "bare" in self.spent and self.unit == "ops/s" and self.ratio("bare")[2] >= 1 and self.ratio("bare", "qemu")[1] * self.target_now() > 1 \
            and self.ratio("bare", "qemu")[1] < 1.1

    def target_now(self):
        behind = "bare" in self.spent and self.unit == "ops/s" and self.ratio("bare", "qemu")[1] < 0.9
        return max(self.target, 1.3) if behind else self.target

    def verdict(self):
        """What issue asks. near: the interval reaches it, its middle does not. host: it is more than the host gives, and Kelvin gets all of that."""
        least, middle, most = self.ratio("qemu")
        want = self.target_now()
        reaches = want == 1.0  # an interval that reaches 1.0 is all that is asked
        if not reaches and middle < want and self.is_at_host():
            return f"host ({want})"
        if most < want:
            return f"LOW ({want})"
        if self.unit == "MiB/s" and "bare" in self.spent and self.ratio("bare")[2] < 1 / 1.15:
            return "LOW (dd)"
        return "ok" if reaches or middle >= want else f"near ({want})"


def fio(path, cache, engine, kind, length, depth, log):
    """fio's same requests on a plain file; None for a cache mode that it has not."""
    if cache in ("directsync", "writethrough") or not shutil.which("fio"):
        return None
    how = {"io_uring": ["io_uring"], "native": ["libaio"], "threads": ["psync"]}[engine]
    size, step, access = log

    def command(count):
        common = ["fio", "--name=bare", f"--filename={path}", f"--bs={length}", f"--ioengine={how[0]}", *how[1:], f"--direct={int(cache == 'none')}",
                  "--invalidate=0", "--fallocate=none", "--output-format=json", "--lat_percentiles=0", "--gtod_reduce=1", "--overwrite=0",
                  "--thread"]  # a process of its own would be of another session (put_first)
        if engine == "threads" or step == bytes_of(length):
            access_ = access if step == bytes_of(length) else "rand" + access
            share, width = (count // depth, [f"--numjobs={depth}", "--group_reporting"]) if engine == "threads" else (count, [f"--iodepth={depth}"])
            return [*common, f"--rw={access_}", *width, f"--number_ios={max(share, 1)}", "--norandommap=1"]
        # The very offsets of the others, in their order.
        name = f"{path}.{access}.{length}.{count}.log"
        if not os.path.exists(name):
            with open(name, "w", encoding="ascii") as f:
                f.write(f"fio version 2 iolog\n{path} add\n{path} open\n")
                f.writelines(f"{path} {access} {i * step % size} {bytes_of(length)}\n" for i in range(count))
                f.write(f"{path} close\n")
        return [*common, f"--rw={access}", f"--iodepth={depth}", f"--read_iolog={name}"]

    return command


def bytes_of(text):
    return int(text[:-1]) << {"k": 10, "M": 20}[text[-1]]


def filled(path, fmt, size):
    subprocess.run(["qemu-img", "create", "-q", "-f", fmt, path, f"{size}M"], check=True)
    run(["qemu-img", "bench", "-w", "-f", fmt, "-t", "unsafe", "-c", str(size), "-s", "1M", "-d", "8", path])


def bench_cells(folder, o):
    size, images = o.size, {}
    # Cached and direct access have images of their own: a direct write would drop the pages that the others want cached.
    for fmt, way in itertools.product(o.formats, ("direct", "cached")):
        images[fmt, way] = os.path.join(folder, f"{way}.{fmt}")
        filled(images[fmt, way], fmt, size)
    kinds = {"read": [], "write": ["-w"], "allocate": ["-w"]}
    for fmt, cache, engine, kind, length, depth, order in itertools.product(
            o.formats, o.caches, o.engines, kinds, ("4k", "64k"), o.depths, o.orders):
        if (engine == "native" and cache not in ("none", "directsync")) or (fmt == "raw" and kind == "allocate"):
            continue
        way = "direct" if cache in ("none", "directsync") else "cached"
        step = bytes_of(length) if order == "sequential" else SPREAD
        grows = kind == "allocate"
        image, plain = (os.path.join(folder, f"new.{x}") if grows else images[x, way] for x in (fmt, "raw"))
        flags = ["-f", fmt, "-t", cache, *ENGINES[engine], *kinds[kind], "-d", str(depth), "-s", length, "-S", str(step), image]
        cell = Cell(f"{fmt} {cache} {engine} {order} {kind} {length} d{depth}",
                    lambda side, count, flags=flags: SIDES[side] + ["bench", "-c", str(count)] + flags, image,
                    fio(plain, cache, engine, kind, length, depth, ((size << 20), step, "read" if kind == "read" else "write")))
        cell.warm = way == "cached" and not grows
        cell.plain, cell.target = plain, 1.5 if fmt == "qcow2" and kind != "read" and order == "spread" else 1.0
        # Allocating: each cluster once. Else as many as it takes.
        cell.most = (size << 20) // max(step if order == "sequential" else 65536, 4096) if grows else 1 << 20
        if grows:
            def make(path, fmt=fmt):
                if os.path.exists(path):
                    os.unlink(path)
                subprocess.run(["qemu-img", "create", "-q", "-f", "raw" if path.endswith(".raw") else fmt, path, f"{size}M"], check=True)
            cell.make = make
        yield cell


def convert_cells(folder, o):
    raw, size = os.path.join(folder, "source.raw"), o.size
    with open("/dev/urandom", "rb") as noise, open(raw, "wb") as f:
        text = (b"kelvin compresses this line of text well\n" * 26000)[: 1 << 20]
        for i in range(size * 3 // 4):
            f.write(noise.read(1 << 20) if i % 3 else text)
        f.truncate(size << 20)
    sources = {"raw": raw}
    for fmt in ("qcow2", "qed"):
        sources[fmt] = os.path.join(folder, f"source.{fmt}")
        run(["qemu-img", "convert", "-O", fmt, raw, sources[fmt]])
    target = os.path.join(folder, "target")

    def make(path):
        if os.path.exists(path):
            os.unlink(path)

    for name, flags in {
            "raw to raw": ["-f", "raw", "-O", "raw", raw], "raw to qcow2": ["-f", "raw", "-O", "qcow2", raw],
            "raw to qed": ["-f", "raw", "-O", "qed", raw], "qcow2 to raw": ["-f", "qcow2", "-O", "raw", sources["qcow2"]],
            "qed to raw": ["-f", "qed", "-O", "raw", sources["qed"]],
            "raw to raw, no holes": ["-S", "0", "-f", "raw", "-O", "raw", raw],
            "raw to compressed qcow2": ["-c", "-f", "raw", "-O", "qcow2", raw]}.items():
        cell = Cell(f"convert {name}", lambda side, count, flags=flags: SIDES[side] + ["convert"] + flags + [target], target, None, 1, size * 3 // 4, "MiB/s")
        cell.make, cell.plain, cell.most = make, target, 1
        if "compressed" in name:
            cell.target, cell.rare = 3.0, True  # many seconds a run
        else:  # for the same bytes: dd of the data to a new file
            cell.bare = lambda count, name=name: ["dd", f"if={raw}", f"of={target}", "bs=1M", *(["conv=sparse"] if "no holes" not in name else [])]
        yield cell


def plot(cells, path):
    if not shutil.which("gnuplot") or not cells:
        return
    rows = "".join('"%s" %.4f %.4f %.4f\n' % (c.name, *[c.ratio("qemu")[i] for i in (1, 0, 2)]) for c in cells)
    script = (f"set terminal svg size {200 + 14 * len(cells)},700\nset output '{path}'\nset style fill solid\nset boxwidth 0.7\n"
              "set xtics rotate by 90 right font ',9'\nset ylabel 'time of qemu-img / time of kelvin img'\nset yrange [0:*]\nset grid y\n"
              f"$d << E\n{rows}E\nplot $d using 0:2:xtic(1) with boxes notitle, $d using 0:2:3:4 with yerrorbars notitle, 1 notitle lw 2\n")
    subprocess.run(["gnuplot"], input=script.encode(), check=True)


def report(every, out):
    cells = [c for c in every if not c.lost and c.spent]
    lines = [f"{'cell':50} {'kelvin':>8} {'qemu-img':>8} {'bare':>8} {'unit':6} {'ratio':>6} {'95 % in':>11} {'qemu/bare':>9} {'kelvin/bare':>11} {'CPU us':>7} {'qemu us':>7} {'memory':>6}"]
    for c in cells:
        (least, middle, most), work = c.ratio("qemu"), c.count * c.amount
        bare = f"{work / c.median('bare'):8.0f}" if "bare" in c.spent else " " * 8
        share = f"{c.ratio('bare', 'qemu')[1]:9.2f} {c.ratio('bare')[1]:11.2f}" if "bare" in c.spent else " " * 21
        memory = c.peak("kelvin") / max(c.peak("qemu"), 1)
        lines.append(f"{c.name:50} {work / c.median('kelvin'):8.0f} {work / c.median('qemu'):8.0f} {bare} {c.unit:6} {middle:6.2f} {least:5.2f}-{most:5.2f} "
                     f"{share} {c.cpu('kelvin'):7.1f} {c.cpu('qemu'):7.1f} {memory:6.2f} {c.verdict()}")
    lines += [f"{c.name:50} no figure: {c.lost}" for c in every if c.lost]
    lines += [f"{c.name:50} no figure: not reached in the time" for c in every if not c.lost and not c.spent]
    if cells:
        ratios = [c.ratio("qemu")[1] for c in cells]
        verdicts = [c.verdict().split()[0] for c in cells]
        lines.append(f"{len(cells)} cells, {max(len(c.spent['qemu']) for c in cells)} rounds: ok {verdicts.count('ok')}, near {verdicts.count('near')}, host {verdicts.count('host')}, low {verdicts.count('LOW')}; "
                     f"geometric mean of the ratios {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}, most {max(ratios):.2f}")
    lines.append("ratio: time of qemu-img / time of kelvin img; qemu/bare: qemu-img's speed / that of fio or dd; CPU: user + system us per request or MiB; "
                 "memory: kelvin's peak / qemu-img's; near: the interval reaches what is asked, its middle does not; host: what is asked is more than fio gets, and Kelvin gets as much as fio")
    print("\n".join(lines))
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "storage.txt"), "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    with open(os.path.join(out, "storage.json"), "w", encoding="utf-8") as f:
        json.dump([{"cell": c.name, "count": c.count, "amount": c.amount, "unit": c.unit, "lost": c.lost, "verdict": c.verdict() if c in cells else None,
                    "spent": {side: [vars(s) if s else None for s in runs] for side, runs in c.spent.items()}} for c in every], f, indent=1)
    plot(cells, os.path.join(out, "storage.svg"))


def measure(cells, o, end):
    """Calibrate, then rounds until the time is over."""
    began, idle = time.monotonic(), {}
    for i, cell in enumerate(cells):
        if i % 10 == 0:
            print(f"getting ready: cell {i + 1} of {len(cells)}, {(end - time.monotonic()) / 60:.1f} minutes left", file=sys.stderr)
        try:
            cell.calibrate(o.seconds, idle)
        except Failed as why:
            cell.lost = str(why)
    cells = [c for c in cells if not c.lost]
    took, turn = time.monotonic() - began, 0
    while (not o.rounds and (turn < 3 or time.monotonic() + took < end)) or turn < o.rounds:
        began = time.monotonic()
        print(f"round {turn + 1}, {len(cells)} cells, {max(end - began, 0) / 60:.1f} minutes left", file=sys.stderr)
        for cell in random.sample(cells, len(cells)):
            if getattr(cell, "rare", False) and turn % 3:
                continue
            try:
                cell.measure(turn % 2 == 0)
            except Failed as why:
                cell.lost = str(why)
        cells = [c for c in cells if not c.lost]
        took, turn = time.monotonic() - began, turn + 1


def run_lab(o):
    """Part (b) is an experiment of the lab: table, JSON, CSV and plots are its."""
    out = os.path.join(o.out, time.strftime("storage-guest-%Y%m%d-%H%M%S"))
    os.makedirs(o.out, exist_ok=True)
    how = ["--runs", str(o.rounds or 3)] if o.full else ["--quick", "--runs", str(o.rounds or 3)]
    os.execv(KELVIN, [KELVIN, "bench", "run", os.path.join(TOP, "lab", "storage-guest.yaml"), *how, "--vmm", "qemu-system-x86_64", "--out", out])


def main():
    p = argparse.ArgumentParser(prog="./bench storage")
    p.add_argument("--minutes", type=float, help="rounds go on until then (default 11.5; --full: 180)")
    p.add_argument("--rounds", type=int, default=0, help="so many instead of as many as --minutes allow")
    p.add_argument("--seconds", type=float, default=0.2, help="about what one run takes")
    p.add_argument("--size", type=int, default=256, help="of the images, MiB")
    p.add_argument("--full", action="store_true", help="all caches, engines, depths and orders (hours)")
    p.add_argument("--only", help="only cells whose name has this regular expression")
    p.add_argument("--dir", help="folder of the images (default: a new one in /var/tmp)")
    p.add_argument("--out", default=os.path.join(TOP, "build", "bench"))
    p.add_argument("--guest", action="store_true", help="fio in guests on the software CPU and on QEMU's TCG instead (an hour; --full: hours)")
    p.add_argument("--rig", action="store_true", help="exits, system calls and instructions of a request on KVM instead (./bench kvm)")
    o = p.parse_args()
    if o.guest:
        run_lab(o)
    if o.rig:
        os.execv(sys.executable, [sys.executable, os.path.join(TOP, "tests", "bench", "bench_kvm.py"), "--instructions", "--out", o.out])
    end = time.monotonic() + 60 * (o.minutes or (180 if o.full else 11.5))
    o.formats = ("raw", "qcow2", "qed")
    o.caches = ("none", "writeback", "writethrough", "directsync", "unsafe") if o.full else ("none", "writeback")
    o.engines = ("io_uring", "threads", "native") if o.full else ("io_uring",)
    o.depths = (1, 16, 64) if o.full else (1, 16)
    o.orders = ("sequential", "spread") if o.full else ("spread",)
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    with tempfile.TemporaryDirectory(dir=o.dir or "/var/tmp") as folder:
        cells = [c for c in itertools.chain(bench_cells(folder, o), convert_cells(folder, o)) if not o.only or re.search(o.only, c.name)]
        try:
            measure(cells, o, end)
        except KeyboardInterrupt:
            print("interrupted: this is what there is so far", file=sys.stderr)
        report(cells, o.out)


main()
