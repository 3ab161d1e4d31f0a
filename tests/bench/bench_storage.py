#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The driver of `./bench storage`. --guest and --rig are parts of their own; without them `kelvin img bench` and convert against qemu-img's with the same
flags, cell by cell (format, cache mode, engine, kind of access, request size, depth), interleaved in random order.
Prints medians, ranges and ratios; writes table, JSON and a plot. Ratios above 1: Kelvin is faster."""
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


def run(argv):
    """Spent: wall is the seconds that bench or fio says, or the time the command took."""
    for _ in range(50):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as complaint:
            start = time.monotonic()
            child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=complaint)  # pylint: disable=consider-using-with
            memory = peak_memory(child.pid)
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
    """One row: what is run, on which image, for each side. `bare`: the host's own program for the same work."""

    def __init__(self, name, command, fresh=None, amount=0, unit="", bare=None):
        self.name, self.command, self.fresh, self.amount, self.unit, self.bare = name, command, fresh, amount, unit, bare
        self.spent = {}

    def measure(self, side):
        if self.fresh:
            self.fresh()
        self.spent.setdefault(side, []).append(run(self.bare if side == "bare" else self.command(side)))

    def median(self, side, what="wall"):
        return statistics.median(getattr(s, what) for s in self.spent[side])

    def range_of_ratio(self):
        """The least and the most that the runs, paired as they were made, say of qemu / kelvin."""
        pairs = [q.wall / k.wall for k, q in zip(self.spent["kelvin"], self.spent["qemu"])]
        return min(pairs), max(pairs)

    def verdict(self):
        """What issue asks: 1.3 where QEMU is below 0.9 of the bare host, elsewhere an interval that reaches 1."""
        if "bare" not in self.spent:
            return "ok" if self.range_of_ratio()[1] >= 1 else "LOW"
        slow = self.median("bare") / self.median("qemu") < 0.9
        return "ok" if self.range_of_ratio()[1] >= (1.3 if slow else 1) else "LOW (1.3)" if slow else "LOW"


def bench_cells(folder, options):
    size = options.size
    images = {}
    for fmt in options.formats:
        images[fmt] = os.path.join(folder, f"full.{fmt}")
        subprocess.run(["qemu-img", "create", "-q", "-f", fmt, images[fmt], f"{size}M"], check=True)
        run(["qemu-img", "bench", "-w", "-f", fmt, "-t", "unsafe", "-c", str(size), "-s", "1M", "-d", "8", images[fmt]])
    requests = {("4k", 1): 3000, ("4k", 16): 12000, ("4k", 64): 16000, ("64k", 1): 1200, ("64k", 16): 3000, ("64k", 64): 3000}
    kinds = {"read": [], "write": ["-w"], "allocate": ["-w"]}
    for fmt, cache, engine, kind, length, depth, order in itertools.product(
            options.formats, options.caches, options.engines, kinds, ("4k", "64k"), options.depths, options.orders):
        if (engine == "native" and cache not in ("none", "directsync")) or (fmt == "raw" and kind == "allocate"):
            continue
        count = max(int(requests[(length, depth)] * options.scale * (1 if cache in ("none", "directsync") else 4)), 50)
        step = {"sequential": length, "spread": str(SPREAD)}[order]
        image, fresh, plain = images[fmt], None, images["raw"]
        if kind == "allocate":
            image, plain = os.path.join(folder, f"new.{fmt}"), os.path.join(folder, "new.raw")
            count = min(count, size * 1024 // int(length[:-1]) // (1 if order == "sequential" else 2))

            def fresh(fmt=fmt, image=image, plain=plain):
                subprocess.run(["qemu-img", "create", "-q", "-f", fmt, image, f"{size}M"], check=True)
                with open(plain, "wb") as f:
                    f.truncate(size << 20)

        elif kind == "read" and cache not in ("none", "directsync"):
            def fresh(image=image, plain=plain):
                for path in {image, plain}:  # direct writes of other cells dropped it from the page cache
                    with open(path, "rb") as f:
                        while f.read(1 << 20):
                            pass

        flags = ["-f", fmt, "-t", cache, *ENGINES[engine], *kinds[kind], "-c", str(count), "-d", str(depth), "-s", length, "-S", step, image]
        yield Cell(f"{fmt} {cache} {engine} {order} {kind} {length} d{depth}",
                   lambda side, flags=flags: SIDES[side] + ["bench"] + flags, fresh, count, "ops/s",
                   bare_fio(plain, cache, engine, kind, length, depth, order, count))


def bare_fio(path, cache, engine, kind, length, depth, order, count):
    """fio's same requests on a plain file; none for a cache mode that it has not."""
    if cache in ("directsync", "writethrough") or not shutil.which("fio"):
        return None
    how = {"io_uring": ["io_uring"], "native": ["libaio"], "threads": ["psync", "--thread"]}[engine]
    width = [f"--numjobs={depth}", "--group_reporting"] if engine == "threads" else [f"--iodepth={depth}"]
    share = count // depth if engine == "threads" else count
    access = "read" if kind == "read" else "write"
    if order != "sequential":
        access += f":{SPREAD - int(length[:-1]) * 1024}"
    return ["fio", "--name=bare", f"--filename={path}", f"--rw={access}", f"--bs={length}", f"--ioengine={how[0]}", *how[1:], *width,
            f"--direct={int(cache == 'none')}", f"--number_ios={max(share, 1)}", "--invalidate=0", "--norandommap=1", "--fallocate=none",
            "--output-format=json", "--lat_percentiles=0", "--gtod_reduce=1"]


def convert_cells(folder, options):
    raw, size = os.path.join(folder, "source.raw"), options.size
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

    def fresh():
        if os.path.exists(target):
            os.unlink(target)

    bytes_moved = size * 3 // 4
    for name, flags in {
            "raw to raw": ["-f", "raw", "-O", "raw", raw], "raw to qcow2": ["-f", "raw", "-O", "qcow2", raw],
            "raw to qed": ["-f", "raw", "-O", "qed", raw], "qcow2 to raw": ["-f", "qcow2", "-O", "raw", sources["qcow2"]],
            "qed to raw": ["-f", "qed", "-O", "raw", sources["qed"]],
            "raw to raw, no holes": ["-S", "0", "-f", "raw", "-O", "raw", raw],
            "raw to compressed qcow2": ["-c", "-f", "raw", "-O", "qcow2", raw]}.items():
        cell = Cell(f"convert {name}", lambda side, flags=flags: SIDES[side] + ["convert"] + flags + [target], fresh, bytes_moved, "MiB/s")
        # For the same bytes: dd of the data to a new file.
        if "compressed" not in name:
            cell.bare = ["dd", f"if={raw}", f"of={target}", "bs=1M", *(["conv=sparse"] if "no holes" not in name else [])]
        yield cell


def works(cell):
    """Is this cell something both programs can do? Prepared as for a measurement."""
    try:
        for side in SIDES:
            if cell.fresh:
                cell.fresh()
            run(cell.command(side))
    except Failed as why:
        print(f"left out: {cell.name}: {why}", file=sys.stderr)
        return False
    return True


def plot(cells, path):
    if not shutil.which("gnuplot"):
        return
    rows = "".join(f'"{c.name}" {c.median("qemu") / c.median("kelvin"):.4f}\n' for c in cells)
    script = (f"set terminal svg size {200 + 14 * len(cells)},700\nset output '{path}'\nset style fill solid\nset boxwidth 0.7\n"
              "set xtics rotate by 90 right font ',9'\nset ylabel 'time of qemu-img / time of kelvin img'\nset yrange [0:*]\nset grid y\n"
              f"$d << E\n{rows}E\nplot $d using 0:2:xtic(1) with boxes notitle, 1 notitle lw 2\n")
    subprocess.run(["gnuplot"], input=script.encode(), check=True)


def report(cells, out):
    lines = [f"{'cell':50} {'kelvin':>8} {'qemu-img':>8} {'bare':>8} {'unit':6} {'ratio':>6} {'least':>5} {'most':>5} {'CPU':>5} {'memory':>6}"]
    for c in cells:
        k, q = c.median("kelvin"), c.median("qemu")
        bare = f"{c.amount / c.median('bare'):8.0f}" if "bare" in c.spent else " " * 8
        cpu = c.median("qemu", "cpu") / max(c.median("kelvin", "cpu"), 1e-4)
        memory = c.median("kelvin", "memory") / c.median("qemu", "memory")
        least, most = c.range_of_ratio()
        lines.append(f"{c.name:50} {c.amount / k:8.0f} {c.amount / q:8.0f} {bare} {c.unit:6} {q / k:6.2f} {least:5.2f} {most:5.2f} {cpu:5.2f} {memory:6.2f} "
                     f"{c.verdict()}")
    ratios = [c.median("qemu") / c.median("kelvin") for c in cells]
    lines.append(f"geometric mean of the ratios {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}, most {max(ratios):.2f}; "
                 "ratio: time of qemu-img / time of kelvin img; CPU: the same of user + system time; memory: kelvin's peak / qemu-img's")
    print("\n".join(lines))
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "storage.txt"), "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    with open(os.path.join(out, "storage.json"), "w", encoding="utf-8") as f:
        json.dump([{"cell": c.name, "amount": c.amount, "unit": c.unit,
                    "spent": {side: [vars(s) for s in runs] for side, runs in c.spent.items()}} for c in cells], f, indent=1)
    plot(cells, os.path.join(out, "storage.svg"))


def measure(cells, rounds):
    for i in range(rounds):
        print(f"round {i + 1} of {rounds}, {len(cells)} cells", file=sys.stderr)
        for cell in random.sample(cells, len(cells)):
            sides = [*SIDES, "bare"] if cell.bare else list(SIDES)
            try:
                for side in random.sample(sides, len(sides)):
                    cell.measure(side)
            except Failed as why:
                print(f"lost: {cell.name}: {why}", file=sys.stderr)


def run_lab(o):
    """Part (b) is an experiment of the lab: table, JSON, CSV and plots are its."""
    out = os.path.join(o.out, time.strftime("storage-guest-%Y%m%d-%H%M%S"))
    os.makedirs(o.out, exist_ok=True)
    how = ["--runs", str(o.rounds)] if o.full else ["--quick", "--runs", str(o.rounds)]
    os.execv(KELVIN, [KELVIN, "bench", "run", os.path.join(TOP, "lab", "storage-guest.yaml"), *how, "--vmm", "qemu-system-x86_64", "--out", out])


def main():
    p = argparse.ArgumentParser(prog="./bench storage")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--size", type=int, default=512, help="of the images, MiB")
    p.add_argument("--full", action="store_true", help="all caches, engines, depths and orders (an hour)")
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
    o.formats, o.scale = ("raw", "qcow2", "qed"), 1.0
    o.caches = ("none", "writeback", "writethrough", "directsync", "unsafe") if o.full else ("none", "writeback")
    o.engines = ("io_uring", "threads", "native") if o.full else ("io_uring",)
    o.depths = (1, 16, 64) if o.full else (1, 16)
    o.orders = ("sequential", "spread") if o.full else ("spread",)
    with tempfile.TemporaryDirectory(dir=o.dir or "/var/tmp") as folder:
        cells = [c for c in itertools.chain(bench_cells(folder, o), convert_cells(folder, o)) if not o.only or re.search(o.only, c.name)]
        cells = [c for c in cells if works(c)]
        signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
        try:
            measure(cells, o.rounds)
        except KeyboardInterrupt:
            print("interrupted: this is what there is so far", file=sys.stderr)
        report([c for c in cells if all(c.spent.get(side) for side in SIDES)], o.out)


main()
