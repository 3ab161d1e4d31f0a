#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""kelvin bench from a file to its reports: a working cell, one whose guest panics, one whose monitor is missing, and the
host; killed without warning and continued, every cell is there once, and what failed says why in one line."""
import collections
import json
import os
import subprocess
import time

import guest

EXPERIMENT = """
name: small   # a comment
workload: fio
params: {jobs: "randread:4k:2", seconds: 1}
settings: {disk.size: 16M, m: 256M, accel: soft}
factors:
  vmm: [kelvin, /nowhere/qemu-system-x86_64]
  guest.append: [default, "rdinit=/nowhere"]
exclude:
  - {vmm: /nowhere/qemu-system-x86_64, guest.append: rdinit=/nowhere}
host: yes
runs: {least: 2, most: 2}
timeout: 3m
"""


def trials(out):
    with open(os.path.join(out, "journal.jsonl"), encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.endswith("\n")]


def main():
    folder = guest.scratch()
    path, out = os.path.join(folder, "small.yaml"), os.path.join(folder, "out")
    with open(path, "w", encoding="utf-8") as f:
        f.write(EXPERIMENT)
    # Kill it when the first trials are written, in the middle of another.
    first = subprocess.Popen([guest.KELVIN, "bench", "run", path, "--out", out, "--seed", "3"], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
    end = time.monotonic() + 400
    while not (os.path.exists(os.path.join(out, "journal.jsonl")) and len(trials(out)) >= 3):
        assert first.poll() is None and time.monotonic() < end, "the run ended, or wrote nothing"
        time.sleep(0.1)
    first.kill()
    first.wait()
    done = subprocess.run([guest.KELVIN, "bench", "run", "--resume", out], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done
    got = trials(out)
    count = collections.Counter((t["block"], t["cell"]) for t in got)
    assert len(count) == 10 and set(count.values()) == {1}, count
    for t in got:
        broken = "nowhere" in t["cell"]
        assert (t["status"] == "ok") != broken, t
        if broken:
            assert ("Kernel panic" if "append=rdinit" in t["cell"] else "not installed") in t["cause"] and "\n" not in t["cause"], t
            continue
        phase = t["phases"]["randread-4k-d2"]
        assert t["metrics"]["randread-4k-d2"]["value"] > 0 and t["metrics"]["randread-4k-d2:cpu"]["value"] > 0, t
        assert phase["inside"]["operations"] > 0, phase
        if t["cell"] == "host":
            # The guest's memory is the host's limit, or the report says that it could not be.
            assert t["inside"]["mem_limit"] == 256 << 20 or any("limited" in n for n in t["notes"]), t
        else:
            assert phase["inside"]["reads"] > 0, phase
            outside = phase["outside"]
            assert outside["exits"] > 0 and outside["vmm.cpu"] > 0, phase
            # Two requests in flight at most, and the phase's ends.
            assert 0 < outside["block.wait_s"] < 3 * phase["host_seconds"], phase
    with open(os.path.join(out, "report.json"), encoding="utf-8") as f:
        report = json.load(f)
    assert report["blocks"] == 2 and len(report["failures"]) == 2, report
    with open(os.path.join(out, "report.html"), encoding="utf-8") as f:
        assert "not installed" in f.read()
    assert not os.path.exists(os.path.join(out, "work")), "images were left behind"
    # Finished: nothing is left to do, and nothing is done twice.
    subprocess.run([guest.KELVIN, "bench", "run", "--resume", out], capture_output=True, timeout=300, check=True)
    assert len(trials(out)) == 10


guest.run_test(main)
