#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Three causes planted in real runs of kelvin bench, each of which the verdict must name: a disk that answers later (a
limit on its requests), guest code that leaves for the monitor more often (a disk driven without DMA), and a disk image
that lies in the host's cache. A few minutes: not part of ./check. lab_causes.py [CAUSE...]"""
import json
import os
import subprocess
import sys

import guest

# A slow disk under the images, for the cache: as many requests a second as disks with heads make.
SLOW = "/sys/fs/cgroup/blkio/kelvin-lab-causes"

BASE = """
name: planted
workload: fio
runs: {least: 4, most: 12}
timeout: 5m
"""
# The job, settings, factor, the slower level, and what the reason must say.
CAUSES = {
    "delay": ("randread:4k:1", "{disk.size: 16M, m: 256M, accel: soft}", "{drive.throttling.iops-total: [default, '100']}",
              "drive.throttling.iops-total=100", ["store.latency"]),
    "exits": ("randread:64k:1", "{disk.size: 16M, m: 256M, accel: soft, drive.if: ide}", "{guest.append: [default, libata.dma=0]}",
              "guest.append=libata.dma=0", ["exits", "vcpu.port_io"]),
    "cache": ("randread:4k:1", "{disk.size: 32M, m: 256M, accel: soft, drive.cache: writeback}", "{host.caches: [keep, drop]}",
              "host.caches=drop", ["disk.bytes"]),
}


def slow_disk(folder):
    """This process and its children get 100 reads a second from the disk, where control groups can do that."""
    if not os.path.exists("/sys/fs/cgroup/blkio/blkio.throttle.read_iops_device") or os.geteuid() != 0:
        print("no control group to make the disk slow: this disk's own speed must do")
        return
    os.makedirs(SLOW, exist_ok=True)
    device = os.stat(folder).st_dev
    with open(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/dev", encoding="ascii") as f:
        number = f.read().strip()
    with open(os.path.join(SLOW, "blkio.throttle.read_iops_device"), "w", encoding="ascii") as f:
        f.write(f"{number} 100")
    with open(os.path.join(SLOW, "cgroup.procs"), "w", encoding="ascii") as f:
        f.write(str(os.getpid()))


def normal_disk():
    if os.path.exists(SLOW):
        with open("/sys/fs/cgroup/blkio/cgroup.procs", "w", encoding="ascii") as f:
            f.write(str(os.getpid()))
        os.rmdir(SLOW)


def planted(folder, name):
    """The statement about the planted factor, with its reason."""
    job, settings, factors, slow, keys = CAUSES[name]
    path, out = os.path.join(folder, name + ".yaml"), os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"{BASE}params: {{jobs: {job}, seconds: 1}}\nsettings: {settings}\nfactors: {factors}\n")
    run = subprocess.run([guest.KELVIN, "bench", "run", path, "--out", out, "--seed", "7"], capture_output=True, text=True, timeout=1800,
                         check=False)
    assert run.returncode == 0, run
    with open(os.path.join(out, "report.json"), encoding="utf-8") as f:
        report = json.load(f)
    found = next(v for v in report["verdict"] if v["what"] == slow)
    print(f"{report['blocks']} blocks, {name}: {found['text']}\n    {'because' if 'why' in found else 'without a reason'} {found.get('why', {}).get('text', '')}")
    assert found["judgement"] == "worse", found
    assert found.get("why", {}).get("key") in keys, found


def main():
    folder = guest.scratch()
    for name in sys.argv[1:] or CAUSES:
        try:
            if name == "cache":
                slow_disk(folder)
            planted(folder, name)
        finally:
            normal_disk()


guest.run_test(main)
