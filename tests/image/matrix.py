#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""matrix.py KELVIN COUNT|all [SEED]: qcow2 images over a matrix of options, made by Kelvin and by qemu-img in turn (convert,
convert -c, overlays, snapshots, resize); the other program must find them sound, read the same data, and describe them
alike. COUNT of the combinations, or all of them (hundreds)."""
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile

AXES = {
    "compat": ["0.10", "1.1"], "cluster_size": ["512", "4k", "64k", "2M"], "refcount_bits": ["1", "8", "16", "64"],
    "extended_l2": ["off", "on"], "lazy_refcounts": ["off", "on"], "compression_type": ["zlib", "zstd"],
    "preallocation": ["off", "metadata"],
}
WAYS = ["plain", "compressed", "overlay", "snapshot", "resize"]


def possible(o, way):
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


def one(maker, other, options, way):
    text = ",".join(f"{k}={v}" for k, v in options.items())
    if way == "overlay":
        run(*maker, "create", "-q", "-f", "qcow2", "-b", "a.raw", "-F", "raw", "-o", text, "x.qcow2")
        run("qemu-io", "-f", "qcow2", "-c", "write -P 7 100k 300k", "-c", "write -z 1M 200k", "x.qcow2")
        run("qemu-img", "convert", "-O", "raw", "x.qcow2", "want.raw")
    else:
        run(*maker, "convert", *(["-c"] if way == "compressed" else []), "-f", "raw", "-O", "qcow2", "-o", text, "a.raw",
            "x.qcow2")
        run("cp", "a.raw", "want.raw")
    if way == "snapshot":
        run(*maker, "snapshot", "-c", "s", "x.qcow2")
        run("qemu-io", "-f", "qcow2", "-c", "write -P 9 0 1M", "x.qcow2")
        run(*other, "check", "x.qcow2")
        run(*maker, "snapshot", "-a", "s", "x.qcow2")
    if way == "resize":
        run(*maker, "resize", "-f", "qcow2", "x.qcow2", "5M")
        run("truncate", "-s", "5M", "want.raw")
    for tool in (maker, other):
        run(*tool, "check", "x.qcow2")
        run(*tool, "compare", "-f", "raw", "-F", "qcow2", "want.raw", "x.qcow2")
    if description(maker, "x.qcow2") != description(other, "x.qcow2"):
        raise RuntimeError(f"info differs: {description(maker, 'x.qcow2')} {description(other, 'x.qcow2')}")
    run(*other, "convert", "-O", "qcow2", "-o", text.replace("preallocation=metadata", "preallocation=off"), "x.qcow2", "y.qcow2")
    run(*maker, "check", "y.qcow2")
    run(*maker, "compare", "-f", "qcow2", "-F", "qcow2", "x.qcow2", "y.qcow2")


def main():
    kelvin = (os.path.abspath(sys.argv[1]), "img")
    rnd = random.Random(sys.argv[3] if len(sys.argv) > 3 else "kelvin")
    cells = [(dict(zip(AXES, values)), way) for values in itertools.product(*AXES.values()) for way in WAYS]
    cells = [c for c in cells if possible(*c)]
    total = len(cells)
    if sys.argv[2] != "all":
        cells = rnd.sample(cells, min(int(sys.argv[2]), total))
    bad = 0
    with tempfile.TemporaryDirectory(prefix="kelvin-matrix.") as folder:
        os.chdir(folder)
        with open("a.raw", "wb") as f:
            f.write(rnd.randbytes(200000) + bytes(500000) + b"some text " * 60000)
            f.truncate(3 << 20)
        for i, (options, way) in enumerate(cells):
            for maker, other in ((kelvin, ("qemu-img",)), (("qemu-img",), kelvin)):
                try:
                    one(maker, other, options, way)
                except RuntimeError as e:
                    bad += 1
                    print(f"{way} {options} made by {maker[0]}: {e}")
            if sys.stdout.isatty():
                print(f"{i + 1}/{len(cells)}", end="\r")
    print(f"{2 * len(cells)} images ({total} combinations exist), {bad} with differences")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
