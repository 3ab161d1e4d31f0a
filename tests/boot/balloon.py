#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""balloon.py ACCEL: a guest fills its memory and frees it; the balloon takes it, and the host has it back. Statistics arrive,
free pages are reported, and the guest gets its memory again."""
import sys
import time

import guest
from qmp import Qmp

COMMANDS = """
set -e
dd if=/dev/zero of=/tmp/fill bs=1M count=200 2>/dev/null
report filled $(grep -c . /proc/meminfo)
rm /tmp/fill
report freed 1
while [ $(awk '/MemTotal/ {print $2}' /proc/meminfo) -gt 280000 ]; do sleep 1; done
report shrunk $(awk '/MemTotal/ {print $2}' /proc/meminfo)
while [ $(awk '/MemTotal/ {print $2}' /proc/meminfo) -lt 400000 ]; do sleep 1; done
report grown $(awk '/MemTotal/ {print $2}' /proc/meminfo)
"""


def rss_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) >> 10 for line in f if line.startswith("VmRSS:"))


def wait_for(run, what, condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            run.fail(f"{what}: not within {seconds} s")
        time.sleep(0.2)


def main():
    accel = sys.argv[1]
    boot = guest.prepare("full", ("virtio_pci", "virtio_balloon"))
    args = ["-device", "virtio-balloon-pci,id=b,free-page-reporting=on,guest-stats-polling-interval=1"]
    with guest.Guest(boot[0], [boot[2]], COMMANDS, args=args, accel=accel, mem="512M", append="quiet") as run:
        run.wait_report("filled", 200)
        full = rss_mib(run.process.pid)
        guest.expect(full > 200, run, f"{full} MiB resident with 200 MiB written")
        qmp = Qmp(run.qmp)
        run.wait_report("freed", 100)
        # Free page reporting alone gives most of it back.
        wait_for(run, "free pages reported", lambda: rss_mib(run.process.pid) < full - 120)
        guest.expect(qmp.call("query-balloon")["actual"] == 512 << 20, run, "query-balloon before")
        qmp.call("balloon", {"value": 256 << 20})
        run.wait_report("shrunk", 200)
        wait_for(run, "balloon", lambda: qmp.call("query-balloon")["actual"] == 256 << 20)
        stats = "qom-get", {"path": "/machine/peripheral/b", "property": "guest-stats"}
        wait_for(run, "statistics", lambda: qmp.call(*stats)["stats"]["stat-total-memory"] > 0)
        guest.expect(rss_mib(run.process.pid) < full - 120, run, "the host did not get it back")
        qmp.call("qom-set", {"path": "/machine/peripheral/b", "property": "guest-stats-polling-interval", "value": 0})
        qmp.call("balloon", {"value": 512 << 20})
        got = run.wait(timeout=200)
        guest.expect(got.get("done") == "0" and "grown" in got, run, "the guest did not get its memory again")
    print(f"{full} MiB resident, given back by reports and balloon")


guest.run_test(main)
