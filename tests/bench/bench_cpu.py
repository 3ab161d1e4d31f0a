#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The driver of `./bench cpu`; see its --help. Each round runs every program once on the host, once in Kelvin and once in
QEMU-TCG, in an order that changes from round to round; ratios are of medians."""
import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "boot"))
import guest  # pylint: disable=wrong-import-position

COMPUTE = ["sha256", "chase", "memcpy", "matrix", "nbody", "bytecode", "sort", "zlib", "json"]
KERNEL = ["syscall", "forkexec", "faults", "pipe", "files"]
DEBIAN = ["python", "gcc"]
ALL = COMPUTE + KERNEL + DEBIAN + ["boot"]
MEMORY = [("code", "jit_code_bytes", "jit_code_most_bytes"), ("blocks", "jit_blocks_bytes", "jit_blocks_most_bytes"),
          ("TLBs and tables of the vCPUs", "vcpu_tables_bytes", "vcpu_tables_bytes")]

DEBIAN_SCRIPT = r"""
cd "$(mktemp -d)"
cat >loop.py <<'PY'
import time
t = time.perf_counter()
d = {}
for i in range(300000):
    d[i % 7919] = d.get(i % 7919, 0) + i * i % 31
s = sorted(str(x) for x in d.values())
x = sum(len(a) for a in s) + sum(i ^ (i >> 3) for i in range(400000))
print("RESULT python %.6f %x" % (time.perf_counter() - t, x))
PY
cat >gen.py <<'PY'
import random
random.seed(3)
for i in range(300):
    a, b = random.random(), random.random()
    print("double f%d(double x, int n, double *v) { double s = %r; for (int i = 0; i < n; i++)" % (i, a))
    print("{ if (v[i] > x) s += v[i] * %r; else s -= v[(i * %d) %% n] / (x + %d); } return s; }" % (b, i + 3, i + 1))
PY
python3 loop.py
python3 gen.py >big.c
gcc -O2 -c big.c
start=$(date +%s.%N)
gcc -O2 -c big.c
end=$(date +%s.%N)
echo "RESULT gcc $(echo "$end $start" | awk '{printf "%.6f", $1 - $2}') 0"
"""


def results(text):
    found = re.finditer(r"(?:RESULT )?\b([a-z0-9]+) ([0-9]+\.[0-9]+) ([0-9a-f]+)\b", text)
    return {m[1]: (float(m[2]), m[3]) for m in found}


class Bench:
    """The three sides and their programs."""

    def __init__(self, options):
        self.o = options
        self.dir = guest.scratch()
        self.binary = os.path.join(self.dir, "root", "bin", "bench")
        os.makedirs(os.path.dirname(self.binary))
        source = os.path.join(guest.TOP, "guest/bench/bench.c")
        subprocess.run(["gcc", "-O2", "-static", "-o", self.binary, source, "-ljansson", "-lz", "-lm"], check=True)
        self.extra = os.path.join(self.dir, "bench.cpio")
        with open(self.extra, "wb") as f:
            pack = "find . | cpio -o -H newc -R 0:0 --quiet"
            subprocess.run(pack, shell=True, cwd=os.path.join(self.dir, "root"), stdout=f, check=True)
        _, self.elf, self.initramfs = guest.prepare()
        self.static = [name for name in COMPUTE + KERNEL if name in options.only]
        self.debian = [name for name in DEBIAN if name in options.only]
        self.memory = {}  # counters of the engine after the last run of the static programs

    def host(self):
        got = {}
        for name in self.static:
            got.update(results(subprocess.run([self.binary, name], stdout=subprocess.PIPE, check=True, text=True).stdout))
        if self.debian:
            got.update(results(subprocess.run(["bash", "-c", DEBIAN_SCRIPT], stdout=subprocess.PIPE, check=True, text=True).stdout))
        return got

    def guest(self, monitor, accel):
        commands = "\n".join(f"report RESULT_{name} $(bench {name})" for name in self.static)
        with guest.Guest(self.elf, [self.initramfs, self.extra], commands, args=["-cpu", "max"], accel=accel, smp=self.o.smp,
                         mem="1G", append="quiet", monitor=monitor) as run:
            start = time.monotonic()
            run.wait_report("init", 300)
            boot = time.monotonic() - start
            run.wait(3600)
            got = {key[7:]: results(value).get(key[7:]) for key, value in run.reports().items() if key.startswith("RESULT_")}
            if monitor == guest.KELVIN:
                with open(run.stats, encoding="utf-8") as f:
                    self.memory = json.load(f)["engine"]
        got["boot"] = (boot, "0")
        if self.debian:
            command = [os.path.join(guest.TOP, "try"), "--vmm", monitor, "--accel", accel, "--option", "-cpu", "--option", "max",
                       "--smp", str(self.o.smp), "--", "bash", "-c", DEBIAN_SCRIPT]
            out = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
            got.update({k: v for k, v in results(out).items() if k in self.debian})
        return got

    def run(self):
        sides = {"host": self.host, "kelvin": lambda: self.guest(guest.KELVIN, self.o.accel)}
        if not self.o.no_qemu:
            sides["qemu"] = lambda: self.guest("/usr/bin/qemu-system-x86_64", "tcg,thread=multi")
        data = {side: {} for side in sides}
        sums = {}
        for number in range(self.o.rounds):
            order = list(sides)
            order = order[number % len(order):] + order[: number % len(order)]
            for side in order:
                print(f"round {number + 1} of {self.o.rounds}: {side}", file=sys.stderr)
                for name, value in sides[side]().items():
                    if value is None:
                        print(f"  {name} failed on {side}", file=sys.stderr)
                        continue
                    data[side].setdefault(name, []).append(value[0])
                    if sums.setdefault(name, value[1]) != value[1]:
                        print(f"  {name} on {side}: checksum {value[1]}, elsewhere {sums[name]}: WRONG RESULT", file=sys.stderr)
        return data


def gmean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def cell(values):
    if not values:
        return "-".center(26)
    return f"{statistics.median(values):8.3f} ({min(values):.3f}-{max(values):.3f})".ljust(26)


def memory_line(engine):
    """What the translator held at the end, and what it may hold at most."""
    sizes = [f"{what} {engine[now] / 1048576:.1f} of {engine[most] / 1048576:.0f} MiB" for what, now, most in MEMORY if now in engine]
    return ["memory of the translator after the static programs: " + ", ".join(sizes)] if sizes else []


def table(data, out, engine):
    rows, ratios = [], {}
    med = {side: {name: statistics.median(v) for name, v in data[side].items()} for side in data}
    for name in ALL:
        kelvin, host, qemu = (med.get(side, {}).get(name) for side in ("kelvin", "host", "qemu"))
        if kelvin is None:
            continue
        ratios[name] = (kelvin / host if host else None, qemu / kelvin if qemu else None)
        cells = " ".join(cell(data.get(side, {}).get(name)) for side in ("host", "kelvin", "qemu"))
        rows.append(f"{name:9} {cells}" + "".join(f"{r:8.2f}" if r else "       -" for r in ratios[name]))
    lines = ["program   " + " ".join(f"{side + ' s: median (range)':26}" for side in ("host", "kelvin", "qemu")) + "  K/host  QEMU/K"] + rows
    for label, names in (("computing", COMPUTE), ("kernel work", KERNEL), ("all", ALL)):
        ours = [ratios[n][0] for n in names if n in ratios and ratios[n][0]]
        theirs = [ratios[n][1] for n in names if n in ratios and ratios[n][1]]
        text = f"geometric mean, {label}:"
        text += f" Kelvin/host {gmean(ours):.2f}" if ours else ""
        text += f" QEMU/Kelvin {gmean(theirs):.2f}" if theirs else ""
        lines.append(text)
    lines += memory_line(engine)
    print("\n".join(lines))
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "cpu.txt"), "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    with open(os.path.join(out, "cpu.json"), "w", encoding="utf-8") as f:
        json.dump({"seconds": data, "ratios": {n: {"kelvin_host": r[0], "qemu_kelvin": r[1]} for n, r in ratios.items()}}, f, indent=1)
    plot(ratios, out)


def plot(ratios, out):
    with open(os.path.join(out, "cpu.dat"), "w", encoding="utf-8") as f:
        for name, (ours, theirs) in ratios.items():
            f.write(f"{name} {ours or 'NaN'} {theirs or 'NaN'}\n")
    script = (
        f"set terminal svg size 1000,480 background 'white'; set output '{out}/cpu.svg'; set style data histograms;"
        "set style fill solid 0.8; set logscale y; set grid y; set xtics rotate by -40; set key top left;"
        "set ylabel 'ratio (log scale)';"
        "set title 'A guest on the software CPU: time against the host, and QEMU-TCG against Kelvin';"
        f"plot '{out}/cpu.dat' using 2:xtic(1) title 'Kelvin / host (lower is better)',"
        " '' using 3 title 'QEMU / Kelvin (higher is better)', 1 notitle lc 'black'"
    )
    subprocess.run(["gnuplot", "-e", script], check=False)


def main():
    parser = argparse.ArgumentParser(prog="./bench cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(ALL), help="some of: " + ", ".join(ALL))
    parser.add_argument("--smp", type=int, default=2)
    parser.add_argument("--accel", default="soft", help="Kelvin's engine and its properties, as soft,native=on (default: soft)")
    parser.add_argument("--no-qemu", action="store_true")
    parser.add_argument("--out", default=os.path.join(guest.TOP, "build", "bench"))
    options = parser.parse_args()
    options.only = options.only.split(",")
    unknown = [name for name in options.only if name not in ALL]
    if unknown:
        parser.error(f"no program '{unknown[0]}' (there are: {', '.join(ALL)})")
    bench = Bench(options)
    table(bench.run(), options.out, bench.memory)


guest.run_test(main)
