#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The driver of `./bench kvm`: what one 4K O_DIRECT request at depth 1 costs in exits and system calls, Kelvin beside
QEMU, both on KVM, counted by the kernel's tracepoints. tests/kvm-rig gives it a KVM where the host has none: times would
mean little there, counts mean the same. Each figure is the slope between a short and a long run, so what does not depend
on the requests cancels out; timer interrupts do not quite (a slow machine has more of them per request)."""
import argparse
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "boot"))
import guest  # pylint: disable=wrong-import-position

TRACING = "/sys/kernel/tracing"
EVENTS = {"kvm/kvm_exit": "exit_reason", "kvm/kvm_userspace_exit": "reason", "raw_syscalls/sys_enter": "id.syscall"}
FEW, MANY = 200, 1200
COMMANDS = f"""
dd if=/dev/vda of=/dev/null bs=4k count=50 iflag=direct 2>/dev/null
phase() {{
	report $1 0
	sleep 2
	dd if=/dev/vda of=/dev/null bs=4k count=$2 iflag=direct 2>/dev/null
	dd if=/dev/zero of=/dev/vda bs=4k count=$2 oflag=direct 2>/dev/null
}}
phase few {FEW}
phase many {MANY}
report end 0
sleep 2
"""
# exit_reason of AMD's SVM (AMD64 APM volume 2, appendix C) and of Intel's VMX that matter here.
REASONS = {"svm": {96: "interrupt", 100: "window", 120: "halt", 124: "msr", 123: "port", 1024: "nested page"},
           "vmx": {1: "interrupt", 7: "window", 12: "halt", 32: "msr", 30: "port", 48: "nested page", 49: "mmio"}}


def hist():
    """{(event, key): hits} so far."""
    out = {}
    for event in EVENTS:
        with open(f"{TRACING}/events/{event}/hist", encoding="ascii") as f:
            for line in f:
                m = re.match(r"\{ (?:\S+:\s+)?(.*?)\s*\} hitcount:\s+(\d+)", line)
                if m:
                    out[event, m.group(1)] = int(m.group(2))
    return out


def instructions(pid):
    """{("instructions", kind of thread): so far}. Where the rig counts them, a nanosecond of CPU time is one."""
    out = {}
    if "KELVIN_RIG_COUNTS" not in os.environ:
        return out
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
                spent = int(f.read().split()[0])
            with open(f"/proc/{pid}/task/{task}/comm", encoding="ascii") as f:
                name = f.read()
        except OSError:
            continue
        key = "instructions", "vCPU thread, with the guest's" if re.match(r"(v?CPU|vcpu)", name, re.I) else "other threads"
        out[key] = out.get(key, 0) + spent
    return out


def slopes(program, disk):
    """What one request costs: {(event, key): count}."""
    ours = os.path.basename(program) == "kelvin"
    drive = f"file={disk},if=virtio,format=raw" + ("" if ours else ",aio=io_uring")
    names = [] if ours else ["-name", "bench,debug-threads=on"]
    _, elf, initramfs = guest.prepare()
    with guest.Guest(elf, [initramfs], COMMANDS, args=["-drive", drive, *names], accel="kvm", append="quiet", monitor=program) as run:
        marks = []
        for name in "few", "many", "end":
            run.wait_report(name, 240)
            marks.append({**hist(), **instructions(run.process.pid)})
        run.wait(timeout=120)
    a, b, c = marks
    return {k: ((c[k] - b.get(k, 0)) - (b.get(k, 0) - a.get(k, 0))) / (2 * (MANY - FEW)) for k in c}


def inside(out):
    if not os.path.exists(f"{TRACING}/events"):
        subprocess.run(["mount", "-t", "tracefs", "tracefs", TRACING], check=True)
    for event, key in EVENTS.items():
        with open(f"{TRACING}/events/{event}/trigger", "w", encoding="ascii") as f:
            f.write(f"hist:keys={key}")
    disk = os.path.join(guest.scratch(), "disk.img")
    with open(disk, "wb") as f:
        f.truncate(16 << 20)
    with open("/proc/cpuinfo", encoding="ascii") as f:
        names = REASONS["svm" if " svm" in f.read() else "vmx"]
    found = {name: slopes(program, disk) for name, program in (("Kelvin", guest.KELVIN), ("QEMU", "/usr/bin/qemu-system-x86_64"))}
    rows = [("instructions", "instructions")] if "KELVIN_RIG_COUNTS" in os.environ else []
    rows += [("exits", "kvm/kvm_exit"), ("to user space", "kvm/kvm_userspace_exit"), ("system calls", "raw_syscalls/sys_enter")]
    print(f"{'per 4K request, depth 1':28}" + "".join(f"{name:>10}" for name in found))
    result = {}
    for label, event in rows:
        total = {name: sum(v for (e, _), v in s.items() if e == event) for name, s in found.items()}
        result[label] = total
        print(f"{label:28}" + "".join(f"{v:10.2f}" for v in total.values()))
        keys = sorted({k for s in found.values() for (e, k), v in s.items() if e == event and v > 0.05})
        for key in keys:
            shown = names.get(int(key), key) if key.isdigit() else re.sub(r"\s*\[.*", "", key)
            print(f"  {shown:26}" + "".join(f"{s.get((event, key), 0):10.2f}" for s in found.values()))
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "kvm.json"), "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
    plot(result, os.path.join(out, "kvm.svg"))


def plot(result, path):
    """Kelvin's counts as shares of QEMU's."""
    rows = "".join(f'"{label}" {total["Kelvin"] / total["QEMU"]:.4f}\n' for label, total in result.items() if total["QEMU"] > 0.05)
    script = (f"set terminal svg size 500,400\nset output '{path}'\nset style fill solid\nset boxwidth 0.6\nset yrange [0:*]\nset grid y\n"
              f"set ylabel 'per request, Kelvin / QEMU'\n$d << E\n{rows}E\nplot $d using 0:2:xtic(1) with boxes notitle, 1 notitle\n")
    try:
        subprocess.run(["gnuplot"], input=script.encode(), check=False)
    except FileNotFoundError:
        pass


def main():
    parser = argparse.ArgumentParser(prog="./bench kvm")
    parser.add_argument("--out", default=os.path.join(guest.TOP, "build", "bench"))
    parser.add_argument("--instructions", action="store_true", help="count them too, always in the rig (three times as long)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        guest.run_test(lambda: inside(options.out))
        return
    guest.prepare()
    rig = os.path.join(guest.TOP, "tests", "kvm-rig")
    sys.exit(subprocess.run([rig, *(["-i"] if options.instructions else []), "/usr/bin/python3", os.path.abspath(__file__), "--inside", "--out", options.out], check=False).returncode)


if __name__ == "__main__":
    main()
