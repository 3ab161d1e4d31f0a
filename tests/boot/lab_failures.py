#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""What can go wrong in a cell of kelvin bench is one clear line in the report, and the other cells complete: a guest
that hangs, a monitor that ends too early, a missing package, an image in use, a full disk. (A guest that panics: lab.py.)
With a fake monitor where no guest is needed."""
import json
import os
import shutil
import subprocess

import guest

FAKE = os.path.join(guest.TOP, "tests", "boot", "qemu-fake")


def bench(folder, name, text, env=None, status=0):
    """Run an experiment; {cell: [trial]} and the report."""
    path, out = os.path.join(folder, name + ".yaml"), os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"name: {name}\n{text}")
    run = subprocess.run([guest.KELVIN, "bench", "run", path, "--out", out], capture_output=True, text=True, timeout=900, check=False,
                         env=dict(os.environ, **(env or {})))
    assert run.returncode == status, run
    cells = {}
    with open(os.path.join(out, "journal.jsonl"), encoding="utf-8") as f:
        for line in f:
            trial = json.loads(line)
            cells.setdefault(trial["cell"], []).append(trial)
    with open(os.path.join(out, "report.json"), encoding="utf-8") as f:
        report = json.load(f)
    with open(os.path.join(out, "report.txt"), encoding="utf-8") as f:
        text = f.read()
    for failure in report["failures"]:
        assert "\n" not in failure["cause"] and failure["cause"] in text, failure
    with open(os.path.join(out, "report.html"), encoding="utf-8") as f:
        return cells, report, f.read()


def expect(cells, label, cause):
    """The one cell that fails says this, and nothing else failed. cause None: all are good."""
    for cell, trials in cells.items():
        for t in trials:
            if cell == label:
                assert t["status"] != "ok" and cause in t["cause"], t
            else:
                assert t["status"] == "ok", t
    assert label is None or label in cells, cells.keys()


def monitors(folder):
    """The guest's side: hung, gone, not there. Without gnuplot the report says what to install."""
    base = f"workload: cpu\nparams: {{programs: syscall}}\nsettings: {{m: 256M, accel: soft, vmm: {FAKE}}}\nhost: yes\nruns: {{least: 1, most: 1}}\n"
    cells, _, _ = bench(folder, "hung", base + "timeout: 20s\nfactors: {guest.append: [default, fake=hang]}\n")
    expect(cells, "guest.append=fake=hang", "no sign of life for 20 s (hung)")
    cells, _, _ = bench(folder, "gone", base + "factors: {guest.append: [default, fake=die]}\n")
    expect(cells, "guest.append=fake=die", "ended before its work was done")
    # A PATH with everything but QEMU and gnuplot.
    tools = os.path.join(folder, "bin")
    os.mkdir(tools)
    for place in os.environ["PATH"].split(":"):
        for name in os.listdir(place) if os.path.isdir(place) else []:
            if not name.startswith(("qemu-system", "gnuplot")) and not os.path.lexists(os.path.join(tools, name)):
                os.symlink(os.path.join(place, name), os.path.join(tools, name))
    cells, _, html = bench(folder, "missing", base + f"factors: {{vmm: [{FAKE}, qemu-system-x86_64]}}\n", {"PATH": tools})
    expect(cells, "vmm=qemu-system-x86_64", "'qemu-system-x86_64' is not installed (Debian's package qemu-system-x86)")
    assert "gnuplot-nox" in html


def disks(folder):
    """A user's image that another machine has open; a disk that does not fit."""
    base = "workload: fio\nparams: {jobs: randread:4k:1, seconds: 1}\nruns: {least: 1, most: 1}\n"
    free, used = os.path.join(folder, "free.qcow2"), os.path.join(folder, "used.qcow2")
    for image in free, used:
        subprocess.run([guest.KELVIN, "img", "create", "-q", "-f", "qcow2", image, "16M"], check=True)
    with subprocess.Popen([guest.KELVIN, "run", "-S", "-nodefaults", "-display", "none", "-accel", "soft", "-m", "64M", "-qmp", "stdio", "-drive",
                           f"file={used},if=virtio,format=qcow2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        # Its greeting comes when its disk is open. (Looking at the image until it is locked could lock the other one out.)
        assert "QMP" in other.stdout.readline(), "the other machine does not start"
        assert subprocess.run([guest.KELVIN, "img", "info", used], capture_output=True, check=False).returncode != 0
        cells, _, _ = bench(folder, "used", base + f"settings: {{m: 256M, accel: soft, vmm: {FAKE}}}\n"
                            f"factors: {{disk.image: [{free}, {used}]}}\n")
        other.kill()
    expect(cells, f"disk.image={used}", f"image '{used}' is in use")
    with open(free, "rb") as f:
        before = f.read()
    if os.geteuid() != 0:
        print("not root: no small file system to fill, the full disk is not tested")
        return
    small = os.path.join(folder, "full")
    os.mkdir(small)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "lab-test", small], check=True)
    try:
        cells, _, _ = bench(folder, "full", base + f"settings: {{m: 256M, accel: soft, vmm: {FAKE}}}\n"
                            "factors: {disk.size: [1M, 128M]}\n")
        expect(cells, "disk.size=128M", "No space left on device")
        assert not os.path.exists(os.path.join(small, "work"))
    finally:
        subprocess.run(["umount", small], check=True)
    with open(free, "rb") as f:
        assert f.read() == before, "the user's image was written"
    shutil.rmtree(small)


def main():
    folder = guest.scratch()
    monitors(folder)
    disks(folder)


guest.run_test(main)
