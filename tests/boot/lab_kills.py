#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""lab_kills.py [real]: a run of kelvin bench that is killed without warning ten times at random moments and continued
each time ends with every cell of every block once, nothing of it left running and nothing left behind. With a fake
monitor; `real`: with guests, for minutes."""
import collections
import glob
import json
import os
import random
import subprocess
import sys
import time

import guest

KILLS = 10
BLOCKS = {False: 4, True: 10}  # real guests: enough of them for all the kills
FAKE = os.path.join(guest.TOP, "tests", "boot", "qemu-fake")
EXPERIMENT = """
name: kills
workload: cpu
params: {programs: syscall}
settings: {m: 256M, accel: soft, vmm: MONITOR}
factors:
  guest.append: [default, a=1, a=2]
host: yes
runs: {least: BLOCKS, most: BLOCKS}
"""


def lines(out):
    try:
        with open(os.path.join(out, "journal.jsonl"), encoding="utf-8") as f:
            return [json.loads(line) for line in f if line.endswith("\n")]
    except FileNotFoundError:
        return []


def running(out):
    """Processes that work for this folder."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if any(out.encode() in w for w in words):
            found.append(b" ".join(words).decode(errors="replace"))
    return found


def main():
    real = sys.argv[1:] == ["real"]
    blocks = BLOCKS[real]
    seed = random.randrange(1 << 32)
    print("seed", seed)
    random.seed(seed)
    folder = guest.scratch()
    path, out, tmp = (os.path.join(folder, n) for n in ("kills.yaml", "out", "tmp"))
    os.mkdir(tmp)
    with open(path, "w", encoding="utf-8") as f:
        f.write(EXPERIMENT.replace("MONITOR", "kelvin" if real else FAKE).replace("BLOCKS", str(blocks)))
    env = dict(os.environ, TMPDIR=tmp)
    kills = 0
    # A kill counts when it hit a run that had begun to measure and had not ended; the moment is random from there.
    while kills < KILLS:
        begin = ["--resume", out] if os.path.exists(os.path.join(out, "plan.json")) else [path, "--out", out, "--seed", "3"]
        run = subprocess.Popen([guest.KELVIN, "bench", "run", *begin], env=env, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
        first = run.stderr.readline()
        assert "results in" in first, first + run.stderr.read()
        # Every other time after a trial more, else at any moment, preparations included.
        had = len(lines(out))
        while kills % 2 and run.poll() is None and len(lines(out)) == had:
            time.sleep(0.01)
        time.sleep(random.uniform(0, 4 if real else 0.4))
        if run.poll() is not None:
            if len(lines(out)) < 5 * blocks:
                raise AssertionError(f"ended by itself with status {run.returncode}: {run.stderr.read()}")
            break
        run.kill()
        run.wait()
        run.stderr.close()
        kills += 1
    print(kills, "kills,", len(lines(out)), "trials in the journal")
    assert kills >= (KILLS if real else KILLS // 2), "it ended too early to be killed"
    done = subprocess.run([guest.KELVIN, "bench", "run", "--resume", out], env=env, capture_output=True, text=True, timeout=1200,
                          check=False)
    assert done.returncode == 0, done
    got = lines(out)
    count = collections.Counter((t["block"], t["cell"]) for t in got)
    assert len(count) == 5 * blocks and set(count.values()) == {1}, count
    assert all(t["status"] == "ok" for t in got), [t for t in got if t["status"] != "ok"]
    end = time.monotonic() + 60
    while running(out) and time.monotonic() < end:
        time.sleep(0.1)
    assert not running(out), running(out)
    assert not os.path.exists(os.path.join(out, "work")), "images were left behind"
    assert not os.listdir(tmp), os.listdir(tmp)


guest.run_test(main)
