#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The driver of `./bench storage`, part without a guest: `kelvin img bench` and convert against qemu-img's with the same
flags, cell by cell (format, cache mode, engine, kind of access, request size, depth), interleaved in random order.
Prints medians, ranges and ratios; writes table, JSON and a plot. Ratios above 1: Kelvin is faster."""
import argparse
import itertools
import json
import os
import random
import re
import shutil
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


def run(argv):
    """The seconds that bench says, or the time the command took."""
    for _ in range(50):
        start = time.monotonic()
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        took = time.monotonic() - start
        if not done.returncode or b"lock" not in done.stderr:
            break
        time.sleep(0.1)  # the kernel ends the io_uring of a process, and with it its locks, after the process
    if done.returncode:
        raise Failed(f"{' '.join(argv)}: status {done.returncode}: {done.stderr.decode().strip()[-300:]}")
    said = re.search(rb"Run completed in ([0-9.]+) seconds", done.stdout)
    return max(float(said.group(1)), 0.001) if said else took


class Cell:
    """One row: what is run, on which image, for each side."""

    def __init__(self, name, command, fresh=None, amount=0, unit=""):
        self.name, self.command, self.fresh, self.amount, self.unit = name, command, fresh, amount, unit
        self.times = {}

    def measure(self, side):
        if self.fresh:
            self.fresh()
        self.times.setdefault(side, []).append(run(self.command(side)))

    def medians(self):
        return {side: statistics.median(t) for side, t in self.times.items()}

    def ratio(self):
        m = self.medians()
        return m["qemu"] / m["kelvin"]


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
        count = max(int(requests[(length, depth)] * options.scale), 50)
        step = {"sequential": length, "spread": str(SPREAD)}[order]
        image, fresh = images[fmt], None
        if kind == "allocate":
            image = os.path.join(folder, f"new.{fmt}")
            count = min(count, size * 1024 // int(length[:-1]) // (1 if order == "sequential" else 2))

            def fresh(fmt=fmt, image=image):
                subprocess.run(["qemu-img", "create", "-q", "-f", fmt, image, f"{size}M"], check=True)

        flags = ["-f", fmt, "-t", cache, *ENGINES[engine], *kinds[kind], "-c", str(count), "-d", str(depth), "-s", length, "-S", step, image]
        yield Cell(f"{fmt} {cache} {engine} {order} {kind} {length} d{depth}",
                   lambda side, flags=flags: SIDES[side] + ["bench"] + flags, fresh, count, "ops/s")


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
        if name.startswith("raw to raw"):
            sparse = ["conv=sparse"] if name == "raw to raw" else []
            cell.baseline = ["dd", f"if={raw}", f"of={target}", "bs=1M", *sparse]
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
    rows = "".join(f'"{c.name}" {c.ratio():.4f}\n' for c in cells)
    script = (f"set terminal svg size {200 + 14 * len(cells)},700\nset output '{path}'\nset style fill solid\nset boxwidth 0.7\n"
              "set xtics rotate by 90 right font ',9'\nset ylabel 'time of qemu-img / time of kelvin img'\nset yrange [0:*]\nset grid y\n"
              f"$d << E\n{rows}E\nplot $d using 0:2:xtic(1) with boxes notitle, 1 notitle lw 2\n")
    subprocess.run(["gnuplot"], input=script.encode(), check=True)


def report(cells, out):
    lines = [f"{'cell':58} {'kelvin':>12} {'qemu-img':>12} {'unit':6} {'ratio':>6}  range of kelvin"]
    for c in cells:
        m, t = c.medians(), c.times["kelvin"]
        lines.append(f"{c.name:58} {c.amount / m['kelvin']:12.0f} {c.amount / m['qemu']:12.0f} {c.unit:6} {c.ratio():6.2f}  "
                     f"{c.amount / max(t):.0f}-{c.amount / min(t):.0f}" + (f"  dd {c.amount / m['dd']:.0f}" if "dd" in m else ""))
    ratios = [c.ratio() for c in cells]
    lines.append(f"geometric mean of the ratios {statistics.geometric_mean(ratios):.2f}, least {min(ratios):.2f}, most {max(ratios):.2f}")
    print("\n".join(lines))
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "storage.txt"), "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    with open(os.path.join(out, "storage.json"), "w", encoding="utf-8") as f:
        json.dump([{"cell": c.name, "amount": c.amount, "unit": c.unit, "seconds": c.times} for c in cells], f, indent=1)
    plot(cells, os.path.join(out, "storage.svg"))


def main():
    p = argparse.ArgumentParser(prog="./bench storage")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--size", type=int, default=512, help="of the images, MiB")
    p.add_argument("--full", action="store_true", help="all caches, engines, depths and orders (an hour)")
    p.add_argument("--only", help="only cells whose name has this regular expression")
    p.add_argument("--dir", help="folder of the images (default: a new one in /var/tmp)")
    p.add_argument("--out", default=os.path.join(TOP, "build", "bench"))
    o = p.parse_args()
    o.formats, o.scale = ("raw", "qcow2", "qed"), 1.0
    o.caches = ("none", "writeback", "writethrough", "directsync", "unsafe") if o.full else ("none", "writeback")
    o.engines = ("io_uring", "threads", "native") if o.full else ("io_uring",)
    o.depths = (1, 16, 64) if o.full else (1, 16)
    o.orders = ("sequential", "spread") if o.full else ("spread",)
    with tempfile.TemporaryDirectory(dir=o.dir or "/var/tmp") as folder:
        cells = [c for c in itertools.chain(bench_cells(folder, o), convert_cells(folder, o)) if not o.only or re.search(o.only, c.name)]
        cells = [c for c in cells if works(c)]
        for i in range(o.rounds):
            print(f"round {i + 1} of {o.rounds}, {len(cells)} cells", file=sys.stderr)
            for cell in random.sample(cells, len(cells)):
                try:
                    for side in random.sample(sorted(SIDES), 2):
                        cell.measure(side)
                except Failed as why:
                    print(f"lost: {cell.name}: {why}", file=sys.stderr)
                    continue
                if hasattr(cell, "baseline"):
                    cell.fresh()
                    cell.times.setdefault("dd", []).append(run(cell.baseline))
        report([c for c in cells if len(c.times) >= 2], o.out)


main()
