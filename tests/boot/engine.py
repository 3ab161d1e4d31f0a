#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""engine.py kvm|soft: an engine with a real guest, -smp 2: virtio-blk written, flushed and verified, stop and cont, reset;
with KVM over irqfd and ioeventfd, and what a request costs in exits. Run it by tests/kvm-rig where there is no /dev/kvm."""
import json
import os
import signal
import sys
import time

import guest
from qmp import Qmp

FEW, MANY = 100, 700 # requests of the two measured phases: their difference has no idle time in it
COMMANDS = """
if [ "$(dd if=/dev/vda bs=512 count=1 skip=16000 2>/dev/null | head -c 6)" = marker ]; then
	report second boot
	exit 0
fi
dd if=/dev/urandom of=/tmp/data bs=64k count=48 2>/dev/null
dd if=/tmp/data of=/dev/vda bs=64k oflag=direct 2>/dev/null
sync
blockdev --flushbufs /dev/vda
echo 3 > /proc/sys/vm/drop_caches
if [ "$(sha256sum < /tmp/data)" = "$(dd if=/dev/vda bs=64k count=48 2>/dev/null | sha256sum)" ]; then
	report same yes
else
	report same no
fi
phase() {
	report $1 0
	sleep 2
	dd if=/dev/vda of=/dev/null bs=4k count=$2 iflag=direct 2>/dev/null
	dd if=/tmp/data of=/dev/vda bs=4k count=$2 oflag=direct 2>/dev/null
}
for round in ROUNDS; do
	phase few$round FEW
	phase many$round MANY
	report end$round 0
	sleep 2
done
echo marker | dd of=/dev/vda bs=512 seek=16000 conv=sync 2>/dev/null
sync
report ready 0
while :; do
	report tick $(cut -d' ' -f1 /proc/uptime)
	sleep 0.2
done
""".replace("FEW", str(FEW)).replace("MANY", str(MANY))


def rounds_of(accel):
    return "123" if accel == "kvm" else "1"


def counters(run):
    """The monitor's counters now."""
    if os.path.exists(run.stats):
        os.unlink(run.stats)
    run.process.send_signal(signal.SIGUSR1)
    for _ in range(200):
        try:
            with open(run.stats, encoding="utf-8") as f:
                return json.load(f)
        except (OSError, ValueError):
            time.sleep(0.05)
    return run.fail("no counters after SIGUSR1")


def total(stats, *keys):
    """Sum over the vCPUs."""
    out = 0
    for vcpu in stats["vcpus"]:
        for key in keys:
            vcpu = vcpu.get(key, {})
        out += vcpu or 0
    return out


def check_io(run, accel):
    """The disk's data, the eventfds, and what a request costs."""
    guest.expect(run.wait_report("same", 240) == "yes", run, "what was written reads back different")
    rounds = []
    for n in rounds_of(accel):
        rounds.append([])
        for mark in "few", "many", "end":
            run.wait_report(mark + n, 120)
            rounds[-1].append(counters(run))
    guest.expect(rounds[0][0]["accel"] == accel, run, f"the engine is {rounds[0][0]['accel']}")
    if accel != "kvm":
        return
    engine = rounds[-1][-1]["engine"]
    guest.expect(engine.get("irqfds", 0) > 0, run, f"no irqfd was used: {engine}")
    guest.expect(engine.get("ioeventfds", 0) > 0, run, f"no ioeventfd was used: {engine}")

    def slope(*keys):
        """On a busy host a look at the counters may come too late: the least disturbed round counts."""
        slopes = []
        for snapshots in rounds:
            first, second, third = (total(s, *keys) for s in snapshots)
            slopes.append(((third - second) - (second - first)) / (2 * (MANY - FEW)))
        return min((s for s in slopes if s >= 0), default=min(slopes))

    user = slope("exits")
    names = ("exits", "io_exits", "mmio_exits", "irq_exits", "irq_window_exits", "halt_exits", "irq_injections")
    print(f"per 4K request at depth 1: {user:.3f} exits to user space; by the kernel's counters "
          + ", ".join(f"{name} {slope('kernel', name):.2f}" for name in names))
    guest.expect(user < 0.1, run, "requests leave the kernel")
    guest.expect(slope("kernel", "exits") < 8, run, "too many exits a request")


def last_tick(run):
    return float(run.wait_report("tick", 60))


def check_stop(run, qmp):
    """A stopped machine does nothing, and its clock stands."""
    last_tick(run)
    qmp.call("stop")
    guest.expect(qmp.call("query-status")["status"] == "paused", run, "not paused after stop")
    time.sleep(0.5)
    before, host = last_tick(run), time.monotonic()
    time.sleep(3)
    guest.expect(last_tick(run) == before, run, "the guest runs although it is stopped")
    qmp.call("cont")
    guest.expect(qmp.call("query-status")["status"] == "running", run, "not running after cont")
    while last_tick(run) == before:
        time.sleep(0.05)
        guest.expect(time.monotonic() - host < 60, run, "the guest does not go on after cont")
    gone, guest_gone = time.monotonic() - host, last_tick(run) - before
    print(f"stopped for 3 s: the host counted {gone:.2f} s, the guest {guest_gone:.2f} s")
    guest.expect(0 <= guest_gone < gone - 2, run, "the stop shows in the guest's clock")
    guest.expect({"STOP", "RESUME"} <= set(qmp.events), run, f"events {qmp.events}")


def main():
    accel = sys.argv[1]
    _, elf, initramfs = guest.prepare()
    disk = os.path.join(guest.scratch(), "disk.img")
    with open(disk, "wb") as f:
        f.truncate(8 << 20)
    commands = COMMANDS.replace("ROUNDS", " ".join(rounds_of(accel)))
    run = guest.Guest(elf, [initramfs], commands, args=["-drive", f"file={disk},if=virtio,format=raw"], accel=accel, smp=2,
                      append="quiet")
    run.argv.remove("-no-reboot")
    with run:
        guest.expect(run.wait_report("cpus", 240) == "2", run, "not two CPUs")
        qmp = Qmp(run.qmp)
        check_io(run, accel)
        run.wait_report("ready", 60)
        check_stop(run, qmp)
        qmp.call("system_reset")
        run.wait_report("second", 240)
        got = run.wait(timeout=120)
        guest.expect(got["done"] == "0", run, "the second boot did not end well")


if __name__ == "__main__":
    guest.run_test(main)
