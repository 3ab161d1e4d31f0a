#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""clock_drift.py ACCEL SECONDS: the guest's clock against the host's CLOCK_MONOTONIC_RAW under load, and across stop/cont.

A static program in the guest writes its CLOCK_MONOTONIC_RAW on a serial line again and again and checks that no clock
ever goes back; the host stamps each line as it arrives. Delivery only ever adds delay, so the smallest host-minus-guest
difference at the start and at the end show how far the clocks moved apart: at most 1 ms is allowed (over ten minutes;
shorter runs use the same bound)."""
import os
import subprocess
import sys
import threading
import time

import guest
from qmp import Qmp

PROGRAM = r"""
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>
static long long now(int id) { struct timespec t; clock_gettime(id, &t); return t.tv_sec * 1000000000ll + t.tv_nsec; }
int main(void)
{
	int fd = open("/dev/ttyS2", O_WRONLY | O_NOCTTY);
	long long last[3] = {0}, n = 0;
	static const int id[3] = {CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC, CLOCK_REALTIME};
	char line[64];
	for (;;) {
		for (int k = 0; k < 20000; k++)
			for (int i = 0; i < 3; i++) {
				long long t = now(id[i]);
				if (t < last[i]) {
					write(fd, line, snprintf(line, sizeof line, "back %d %lld\n", i, last[i] - t));
				}
				last[i] = t;
			}
		usleep(20000);
		write(fd, line, snprintf(line, sizeof line, "t %lld %lld\n", now(CLOCK_MONOTONIC_RAW), n++));
	}
}
"""


def main():
    accel, seconds = sys.argv[1], float(sys.argv[2])
    bzimage, _, initramfs = guest.prepare()
    folder = guest.scratch()
    with open(os.path.join(folder, "drift.c"), "w", encoding="utf-8") as f:
        f.write(PROGRAM)
    os.makedirs(os.path.join(folder, "root/bin"))
    subprocess.run(["gcc", "-O2", "-static", "-o", os.path.join(folder, "root/bin/drift"), os.path.join(folder, "drift.c")], check=True)
    extra = os.path.join(folder, "drift.cpio")
    with open(extra, "wb") as f:
        subprocess.run("find . | cpio -o -H newc -R 0:0 --quiet", shell=True, cwd=os.path.join(folder, "root"), stdout=f, check=True)
    pipe = os.path.join(folder, "clock")
    os.mkfifo(pipe)
    samples, wrong = [], []

    def read():
        with open(pipe, encoding="utf-8", errors="replace") as f:
            for line in f:
                host = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
                word = line.split()
                if word and word[0] == "t" and len(word) == 3:
                    samples.append((host, int(word[1])))
                elif word:
                    wrong.append(line.strip())

    threading.Thread(target=read, daemon=True).start()
    commands = f"stty -F /dev/ttyS2 raw; (while :; do :; done) & drift & sleep {seconds + 3600}"
    args = ["-chardev", f"file,id=clk,path={pipe}", "-serial", "chardev:clk"]
    with guest.Guest(bzimage, [initramfs, extra], commands, args=args, accel=accel, smp=2) as run:
        run.wait_report("cpus", 120)
        qmp = Qmp(run.qmp, 20)
        while len(samples) < 20:
            time.sleep(0.2)
            guest.expect(run.process.poll() is None and time.monotonic() - run.started < 120, run, "no clock samples")
        time.sleep(seconds / 2)
        half = list(samples)
        qmp.call("stop")
        time.sleep(0.7)
        stopped_from = len(samples)
        time.sleep(0.5)
        guest.expect(len(samples) == stopped_from, run, "the guest ran while stopped")
        qmp.call("cont")
        time.sleep(seconds / 2)
        rest = samples[stopped_from:]
        guest.expect(not wrong, run, f"a clock went back: {wrong[:3]}")
        for name, part in (("before stop", half), ("after cont", rest)):
            guest.expect(len(part) >= 20, run, f"only {len(part)} samples {name}")
            third = max(len(part) // 3, 5)
            first = min(h - g for h, g in part[:third])
            last = min(h - g for h, g in part[-third:])
            span = (part[-1][0] - part[0][0]) / 1e9
            print(f"{name}: {len(part)} samples over {span:.1f} s, offset changed by {(last - first) / 1e3:.1f} us")
            guest.expect(abs(last - first) < 1e6, run, f"{name} the clocks moved apart by {(last - first) / 1e6:.3f} ms")
        run.process.kill()


guest.run_test(main)
