#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""fuzz.py GUEST ACCEL SECONDS [SEED]: a guest that programs every device with nonsense. The monitor must stay alive and
answer, take no more memory than it should, and quit when told; with the sanitizers nothing else may be found either.
The guest may well end itself (an INIT to its own CPU, a message into its own code): then the next seed has its turn."""
import os
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "boot"))
from qmp import Qmp  # pylint: disable=wrong-import-position
import guest  # pylint: disable=wrong-import-position


def rss_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))


def connect(path, process):
    for _ in range(200):
        try:
            return Qmp(path)
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.1)
    return None


def run(kernel, accel, seconds, seed):
    """One machine. Returns (rounds, seconds used)."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kelvin-fuzz.") as folder:
        disk, ide, ide_cd, sata, nvme, debug, errors, qmp_path = (
            os.path.join(folder, n) for n in ("disk", "ide", "ide-cd", "sata", "nvme", "debug", "errors", "qmp"))
        for name in (disk, ide, ide_cd, sata, nvme):
            with open(name, "wb") as f:
                f.truncate(4 << 20)
        argv = [guest.KELVIN, "run", "-accel", accel, "-m", "16", "-nodefaults", "-display", "none", "-no-reboot",
                "-kernel", kernel, "-append", seed, "-qmp", f"unix:{qmp_path},server=on,wait=off",
                "-chardev", f"file,id=d,path={debug}", "-device", "isa-debugcon,chardev=d,iobase=0xe9",
                "-chardev", "null,id=n", "-serial", "chardev:n",
                "-drive", f"file={disk},if=virtio,format=raw", "-drive", f"file={disk},if=scsi,format=raw,file.locking=off",
                "-device", "virtio-scsi-pci,id=vs", "-drive", f"file={disk},if=none,id=vd,format=raw,file.locking=off",
                "-device", "scsi-hd,drive=vd,bus=vs.0", "-device", "virtio-rng-pci",
                "-drive", f"file={ide},if=ide,format=raw", "-drive", f"file={ide_cd},media=cdrom,format=raw,index=2",
                "-device", "ahci", "-drive", f"file={sata},if=none,id=sata,format=raw", "-device", "ide-hd,drive=sata,bus=ide.2",
                "-drive", f"file={nvme},if=none,id=nvme,format=raw", "-device", "nvme,drive=nvme,serial=1",
                "-drive", "if=none,id=sata-cd,media=cdrom", "-device", "ide-cd,drive=sata-cd,bus=ide.3",
                "-device", "virtio-serial-pci", "-chardev", "null,id=c", "-device", "virtconsole,chardev=c"]
        with open(errors, "w+", encoding="utf-8", errors="replace") as err:
            with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=err, stderr=err) as process:
                why = watch(process, qmp_path, debug, seconds)
                if process.poll() is None:
                    process.kill()
            err.seek(0)
            said = err.read()
        if why:
            raise guest.GuestFailed(f"{why}; seed {seed}\n--- {' '.join(argv)}\n--- monitor said:\n{said[-6000:]}")
        return os.path.getsize(debug), time.monotonic() - started


def main():
    kernel, accel, left = sys.argv[1], sys.argv[2], float(sys.argv[3])
    seed = sys.argv[4] if len(sys.argv) > 4 else str(random.randrange(1 << 32))
    total = machines = 0
    while left > 0:
        rounds, used = run(kernel, accel, left, seed)
        total += rounds
        machines += 1
        left -= used
        seed = str(int(seed) + 1)
    print(f"{total} rounds of 100 accesses in {machines} machines")


def ended(process):
    """None when the guest ended the machine in an orderly way."""
    status = process.wait()
    return f"the monitor's status is {status}" if status else None


def watch(process, qmp_path, debug, seconds):
    """What went wrong, or None."""
    rounds, still, end = 0, 0, time.monotonic() + seconds
    qmp = connect(qmp_path, process)
    if not qmp:
        return ended(process) if process.poll() is not None else "the monitor gives no QMP"
    while time.monotonic() < end:
        time.sleep(0.2)
        try:
            status = qmp.call("query-status")["status"]
        except (OSError, ValueError) as e:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                return f"QMP: {e}"
            return ended(process)
        if status not in ("running", "shutdown"):
            return f"the machine is {status}"
        now = os.path.getsize(debug)
        still = still + 1 if now == rounds else 0
        rounds = now
        if still > 15: # its own doing: halted, or lost in memory it overwrote
            break
    if rss_kib(process.pid) > (600 << 10):
        return f"{rss_kib(process.pid)} KiB resident for a guest of 16 MiB"
    try:
        qmp.call("quit")
        process.wait(20)
    except subprocess.TimeoutExpired:
        return "quit does not end the monitor"
    except (OSError, ValueError):
        process.wait(20)
    return ended(process)


if __name__ == "__main__":
    guest.run_test(main)
