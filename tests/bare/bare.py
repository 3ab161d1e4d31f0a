#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""bare.py ENGINE PROGRAM...: run bare-metal test guests (guest/bare) and compare each test's outcome with what is due.

ENGINE is soft (translator as usual), interp (no translator), always (translated at first sight), kvm, or tcg (QEMU's own
CPU as a peer). On Kelvin's CPU every test must pass. Where another engine is wrong, or cannot do it, the table below
says so and why; a test that would not return there is left out by its name on the guest's command line.
"""
import os
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KELVIN = os.environ.get("KELVIN") or os.path.join(TOP, "build", "kelvin")
ACCEL = {"soft": "soft", "interp": "soft,jit=off", "always": "soft,jit-always=on", "kvm": "kvm"}

# (program, test): why it fails with QEMU 7.2's TCG. A reason that begins with "!" marks a test that must be left out.
TCG = {
    ("segs", "limits"): "TCG does not check segment limits",
    ("segs", "expand-down"): "TCG does not check segment limits",
    ("segs", "rights"): "TCG does not check rights of data segments",
    ("segs", "stack-segments"): "TCG does not check segment limits",
    ("segs", "far"): "TCG does not check the code segment's limit while it runs",
    ("segs", "call-gate16-offset"): "!TCG uses all 32 bits of a 16-bit call gate's offset and runs wild",
    ("segs", "gate16-offset"): "!TCG uses all 32 bits of a 16-bit gate's offset and runs wild",
    ("segs", "ltr-null"): "!TCG loads a null task register, and aborts at the next stack switch",
    ("tasks", "faults-before"): "TCG raises #TS instead of #GP for a task gate to an LDT selector",
    ("tasks", "faults-after"): "TCG reports faults of the new task at the old task's address",
    ("tasks", "trap-bit"): "TCG ignores the T bit",
    ("modes", "vm-iopl"): "TCG does not check segment limits",
    ("modes", "real-limit"): "TCG does not check segment limits",
    ("modes", "absent"): "!TCG takes VME and PVI without CPUID's bit, and hangs in RSM",
    ("debug", "general-detect"): "TCG has no general detect",
    ("debug", "traps"): "TCG's ICEBP raises #UD",
    ("debug", "alignment"): "TCG has no alignment checks",
    ("debug", "double-fault"): "TCG does not set EXT for faults in the delivery of exceptions",
    ("paging", "reserved"): "TCG's error code for reserved bits lacks P",
    ("paging", "pdpte"): "TCG reads PAE's pointers from memory at each walk",
    ("irq", "pit-mode7"): "!QEMU's 8254 does not take mode 7 for mode 3 (E35)",
    ("smp", "smc-cpu"): "!with TCG the second CPU never shows the new code (cause not found)",
    ("access", "nobody"): "QEMU's unassigned memory reads as 0",
    ("irq", "ferr"): "!QEMU 7.2 aborts when TCG raises interrupt 13 for an x87 error",
    ("irq", "lapic-error"): "!QEMU's LAPIC sends illegal vectors without an error",
}
# The guest's traps in the rig are those of the CPU below KVM, which is QEMU's; these are KVM's own.
KVM = {
    ("modes", "a20"): "KVM has no A20 gate",
    ("irq", "ferr"): "!KVM carries no x87 errors to its 8259",
    ("debug", "io-breakpoint"): "KVM raises no I/O breakpoints for ports it intercepts",
    ("access", "tables"): "!a descriptor table in device memory: the processor's own access faults there for ever",
    ("access", "vectors"): "!KVM cannot emulate vector arithmetic on device memory, and gives the vCPU up",
}


def table(engine):
    if engine == "tcg":
        return TCG
    if engine == "kvm":
        return {**TCG, **KVM} if os.environ.get("KVM_RIG") == "emulated" else KVM
    return {}


def command(engine, path, append):
    common = ["-M", "pc", "-m", "64M", "-smp", "2", "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio",
              "-device", "isa-debug-exit,iobase=0xf4,iosize=1", "-device", "pc-testdev", "-kernel", path, "-append", append]
    if engine == "tcg":
        return ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", *common]
    return [KELVIN, "run", "-accel", ACCEL[engine], *common]


def run(engine, path):
    """Failures as a list of lines."""
    program = os.path.basename(path).removesuffix(".elf").removeprefix("bare-")
    due = {test: why for (where, test), why in table(engine).items() if where == program}
    append = " ".join("-" + test for test, why in due.items() if why.startswith("!"))
    argv = command(engine, path, append or "x")
    try:
        got = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=250 if engine == "kvm" else 60,
                             check=False)
    except subprocess.TimeoutExpired as e:
        return [f"{program}: does not end; its output so far:", (e.stdout or b"").decode(errors="replace")]
    text = got.stdout.decode(errors="replace")
    bad = []
    ended = False
    for line in text.splitlines():
        word, _, name = line.partition(" ")
        if word == "BAD" and name not in due:
            bad.append(f"{program}: {name} failed")
        elif word == "ok" and name in due:
            print(f"{program}: {name} passes although: {due[name]}")
        ended |= line.endswith(" failed") and " tests, " in line
    if not ended:
        bad.append(f"{program}: ended early, status {got.returncode}: {got.stderr.decode(errors='replace')[-300:]}")
    if bad:
        bad.append(text[-4000:])
        bad.append(" ".join(argv))
    else:
        print(f"{program} on {engine}: {text.splitlines()[-1] if text else ''}")
    return bad


def main():
    engine = sys.argv[1]
    bad = [line for path in sys.argv[2:] for line in run(engine, path)]
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


sys.exit(main())
