#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""matrix.py KELVIN COUNT|all [SEED]: images of qcow2, qed and raw over a matrix of options, made by Kelvin and by qemu-img in turn
(convert, convert -c, overlays, snapshots, resize); the other program must find them sound, read the same data, and describe them
alike. COUNT of the combinations, or all of them (hundreds): then those that agreed are noted in matrix.log of the cache's folder,
and the command goes on where it was ended; remove that file to begin anew."""
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile

QCOW2 = {
    "compat": ["0.10", "1.1"], "cluster_size": ["512", "4k", "64k", "2M"], "refcount_bits": ["1", "8", "16", "64"],
    "extended_l2": ["off", "on"], "lazy_refcounts": ["off", "on"], "compression_type": ["zlib", "zstd"],
    "preallocation": ["off", "metadata"],
}
# Not table_size 1: qemu-img makes such images and opens none, its own neither ("QED table offset is invalid").
QED = {"cluster_size": ["4k", "64k", "1M"], "table_size": ["2", "4", "16"]}
RAW = {"preallocation": ["off", "falloc", "full"]}
FORMATS = [("qcow2", QCOW2, ["plain", "compressed", "overlay", "snapshot", "resize"]), ("qed", QED, ["plain", "overlay", "resize"]),
           ("raw", RAW, ["plain", "resize"])]
CACHE = os.environ.get("KELVIN_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kelvin")


def possible(fmt, o, way):
    if fmt != "qcow2":
        return True
    v2 = o["compat"] == "0.10"
    if v2 and (o["refcount_bits"] != "16" or "on" in (o["extended_l2"], o["lazy_refcounts"]) or o["compression_type"] == "zstd"):
        return False
    if o["extended_l2"] == "on" and o["cluster_size"] in ("512", "4k"):
        return False
    if o["preallocation"] != "off" and way in ("compressed", "overlay"):
        return False
    return not (way == "snapshot" and o["refcount_bits"] == "1") and not (way == "resize" and v2)


def run(*argv, status=(0,)):
    p = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=120)
    if p.returncode not in status:
        raise RuntimeError(f"{' '.join(argv)}: exit status {p.returncode}: {p.stdout.decode(errors='replace')[-600:]}")
    return p.stdout


def description(tool, name):
    j = json.loads(run(*tool, "info", "--output=json", name))
    j.pop("children", None)
    j.pop("actual-size", None) # the host's file system may still be giving out blocks
    j.get("format-specific", {}).get("data", {}).pop("bitmaps", None)
    for s in j.get("snapshots", []): # QEMU gives the clock's seconds and rest alike
        s.pop("date-nsec", None)
    return j


def one(maker, other, fmt, options, way):
    text = ",".join(f"{k}={v}" for k, v in options.items())
    for name in ("x", "y"):
        if os.path.exists(name):
            os.unlink(name)
    if way == "overlay":
        run(*maker, "create", "-q", "-f", fmt, "-b", "a.raw", "-F", "raw", "-o", text, "x")
        run("qemu-io", "-f", fmt, "-c", "write -P 7 100k 300k", "-c", "write -z 1M 200k", "x")
        run("qemu-img", "convert", "-f", fmt, "-O", "raw", "x", "want.raw")
    else:
        run(*maker, "convert", *(["-c"] if way == "compressed" else []), "-f", "raw", "-O", fmt, "-o", text, "a.raw", "x")
        run("cp", "a.raw", "want.raw")
    if way == "snapshot":
        run(*maker, "snapshot", "-c", "s", "x")
        run("qemu-io", "-f", fmt, "-c", "write -P 9 0 1M", "x")
        run(*other, "check", "x")
        run(*maker, "snapshot", "-a", "s", "x")
    if way == "resize":
        run(*maker, "resize", "-f", fmt, "x", "5M")
        run("truncate", "-s", "5M", "want.raw")
    for tool in (maker, other):
        if fmt != "raw":
            run(*tool, "check", "-f", fmt, "x")
        run(*tool, "compare", "-f", "raw", "-F", fmt, "want.raw", "x")
    if description(maker, "x") != description(other, "x"):
        raise RuntimeError(f"info differs: {description(maker, 'x')} {description(other, 'x')}")
    run(*other, "convert", "-f", fmt, "-O", fmt, "-o", text.replace("preallocation=metadata", "preallocation=off"), "x", "y")
    if fmt != "raw":
        run(*maker, "check", "-f", fmt, "y")
    run(*maker, "compare", "-f", fmt, "-F", fmt, "x", "y")


def all_cells():
    cells = [(fmt, dict(zip(axes, values)), way) for fmt, axes, ways in FORMATS for values in itertools.product(*axes.values())
             for way in ways]
    return [c for c in cells if possible(*c)]


def main():
    kelvin = (os.path.abspath(sys.argv[1]), "img")
    rnd = random.Random(sys.argv[3] if len(sys.argv) > 3 else "kelvin")
    cells, done, log = all_cells(), set(), None
    total = len(cells)
    if sys.argv[2] != "all":
        cells = rnd.sample(cells, min(int(sys.argv[2]), total))
    else:
        os.makedirs(CACHE, exist_ok=True)
        log = open(os.path.join(CACHE, "matrix.log"), "a+", encoding="utf-8")
        log.seek(0)
        done = set(log.read().splitlines())
    bad = images = 0
    with tempfile.TemporaryDirectory(prefix="kelvin-matrix.", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        os.chdir(folder)
        with open("a.raw", "wb") as f:
            f.write(rnd.randbytes(200000) + bytes(500000) + b"some text " * 60000)
            f.truncate(3 << 20)
        for i, (fmt, options, way) in enumerate(cells):
            name = f"{fmt} {way} {','.join(f'{k}={v}' for k, v in options.items())}"
            if name in done:
                continue
            agreed = True
            for maker, other in ((kelvin, ("qemu-img",)), (("qemu-img",), kelvin)):
                images += 1
                try:
                    one(maker, other, fmt, options, way)
                except RuntimeError as e:
                    agreed = False
                    bad += 1
                    print(f"{name} made by {maker[0]}: {e}", flush=True)
            if log and agreed:
                log.write(name + "\n")
                log.flush()
            if sys.stdout.isatty():
                print(f"{i + 1}/{len(cells)}", end="\r")
        os.chdir("/")
    before = f", {len(done)} combinations agreed before" if done else ""
    print(f"{images} images ({total} combinations exist{before}), {bad} with differences")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
