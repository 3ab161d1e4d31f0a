#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""hours.py [-n] [--slice SECONDS] [MINUTES [TARGET...]]: every fuzz target (or those named) until each has MINUTES of CPU time, 60
unless told. They take turns in slices (240 s of wall time), the one with the least time first. The running total is a log, one line
a slice; with the corpus it is in the cache's folder fuzz, so that the command goes on where it was ended. A slice counts when
libfuzzer.sh ended it by itself and nothing was found. What was found stays there as TARGET-KIND-*, and its target waits until the
file is taken away: mend it, make it a seed, remove it. -n: only the table. Status 0: all targets have their time."""
import argparse
import fcntl
import os
import re
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TARGETS = ["machine", "cpu", "nbd", "iscsi", "qcow2", "qcow2-ops", "qed", "raw", "scsi", "lsi", "ide", "ahci", "nvme", "options", "qmp"]
CACHE = os.environ.get("KELVIN_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kelvin")
FOLDER = os.path.join(CACHE, "fuzz")
LOG = os.path.join(FOLDER, "log")
LINE = re.compile(r"(\S+ \S+) (\S+) (\S+): status (\d+), user sys wall (\S+) (\S+) (\S+), (.*), found: (\d+)")


class Total:
    """What the log says of one target."""

    def __init__(self):
        self.cpu = self.slices = self.inputs = self.left_out = 0
        self.cover = self.day = "-"

    def add(self, m):
        if int(m[4]) or int(m[9]):
            self.left_out += 1
            return
        self.cpu += float(m[5]) + float(m[6])
        self.slices += 1
        self.day = m[1]
        done = re.search(r"#(\d+)\s+DONE\s+cov: (\d+)", m[8])
        if done:
            self.inputs += int(done[1])
            self.cover = done[2]


def totals():
    table = {}
    if os.path.exists(LOG):
        with open(LOG, encoding="utf-8") as f:
            for m in filter(None, map(LINE.match, f)):
                table.setdefault(m[3], Total()).add(m)
    return table


def found(target):
    """Files that libFuzzer left of this target: a name like qcow2-crash-HASH, not qcow2-ops-crash-HASH."""
    kind = re.compile(re.escape(target) + "-(crash|leak|timeout|oom|slow-unit)-")
    return sorted(n for n in os.listdir(FOLDER) if kind.match(n))


def show(targets):
    table = totals()
    print(f"{'target':10} {'CPU s':>8} {'slices':>7} {'left out':>9} {'inputs':>11} {'edges':>6}  last slice        open findings")
    for target in targets:
        t = table.get(target, Total())
        print(f"{target:10} {t.cpu:8.0f} {t.slices:7} {t.left_out:9} {t.inputs:11} {t.cover:>6}  {t.day:16}  {len(found(target))}")


def commit():
    git = ["git", "-C", HERE]
    name = subprocess.run(git + ["rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    changed = subprocess.run(git + ["status", "--porcelain", "-uno"], capture_output=True, text=True, check=False).stdout
    return (name or "none") + ("+" if changed else "")


def run_slice(target, seconds):
    """One slice, logged. A signal ends it, and then it is not logged."""
    text = os.path.join(FOLDER, target + ".output")
    before = set(found(target))
    # Built first, so that the compiler's time is not the target's.
    script = os.path.join(HERE, "libfuzzer.sh")
    with open(text, "wb") as out:
        with subprocess.Popen([script, "build", target], stdout=out, stderr=out, start_new_session=True) as p:
            try:
                failed = p.wait()
            except KeyboardInterrupt:
                os.killpg(p.pid, signal.SIGTERM) # the compiler too
                raise
        if failed:
            return f"{target}: it cannot be built; see {text}"
    started, name = time.monotonic(), commit()
    with open(text, "wb") as out:
        with subprocess.Popen([script, target, str(seconds), "-timeout=900", "-report_slow_units=900"], stdout=out, stderr=out) as p:
            try:
                _, status, used = os.wait4(p.pid, 0)
                p.returncode = os.waitstatus_to_exitcode(status)
            finally:
                if p.returncode is None:
                    p.terminate()
    with open(text, encoding="utf-8", errors="replace") as f:
        done = [line.split("rss")[0].strip() for line in f if "DONE" in line and line.startswith("#")]
    new = len(set(found(target)) - before)
    with open(LOG, "a", encoding="utf-8") as f:
        f.write(f"{time.strftime('%Y-%m-%d %H:%M')} {name} {target}: status {abs(p.returncode)}, user sys wall {used.ru_utime:.2f} "
                f"{used.ru_stime:.2f} {time.monotonic() - started:.2f}, {done[-1] if done else ''}, found: {new}\n")
    if new or p.returncode:
        os.rename(text, text + ".found")
        return f"{target}: status {p.returncode}, {new} found; see {text}.found"
    return None


def stop(sig, frame):
    raise KeyboardInterrupt


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("-n", action="store_true", dest="only_table")
    p.add_argument("--slice", type=int, default=240, metavar="SECONDS")
    p.add_argument("minutes", nargs="?", type=float, default=60)
    p.add_argument("target", nargs="*", default=TARGETS)
    a = p.parse_args()
    for target in a.target:
        if target not in TARGETS:
            p.error(f"no target '{target}'; there are {', '.join(TARGETS)}")
    os.makedirs(FOLDER, exist_ok=True)
    os.environ["FUZZ_FOLDER"] = FOLDER
    if a.only_table:
        show(a.target)
        return 0
    lock = open(os.path.join(FOLDER, "lock"), "w", encoding="ascii")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return f"another hours.py uses {FOLDER}"
    signal.signal(signal.SIGTERM, stop)
    aside = {}
    try:
        while True:
            table = totals()
            for t in a.target:
                if t not in aside and found(t):
                    aside[t] = f"{t}: open: {', '.join(found(t))}"
                    print(aside[t], flush=True)
            left = [t for t in a.target if t not in aside and table.get(t, Total()).cpu < 60 * a.minutes]
            if not left:
                break
            target = min(left, key=lambda t: table.get(t, Total()).cpu)
            why = run_slice(target, a.slice)
            if why:
                aside[target] = why
                print(why, flush=True)
    except KeyboardInterrupt:
        print("ended by hand; the slice under way does not count")
    show(a.target)
    table = totals()
    enough = sum(table.get(t, Total()).cpu >= 60 * a.minutes for t in a.target)
    print(f"{enough} of {len(a.target)} targets have {a.minutes:g} CPU minutes; {sum(len(found(t)) for t in a.target)} open findings, "
          f"{len(aside)} targets set aside")
    return enough < len(a.target) or bool(aside)


if __name__ == "__main__":
    sys.exit(main())
