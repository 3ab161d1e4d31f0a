# SPDX-License-Identifier: GPL-2.0-or-later
"""A client of the test protocol (-qtest), and the frame of the tests beside it.

A test is a function of a Machine, marked with @case(its options...). Each runs on Kelvin with -accel qtest. Where
timed=False it says nothing about time, and runs on Debian's QEMU too (whose build has no qtest engine: its CPUs are
stopped and its clock stands), so that what a test expects is known not to be Kelvin's own idea.

usage of the tests: NAME.py KELVIN [CASE...]        QEMU= in the environment leaves the peer out
"""
import base64
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

KELVIN = [os.path.abspath(sys.argv[1]), "run"]
PATIENCE = 60
DIR = tempfile.mkdtemp(prefix="kelvin-qtest-")
cases = []
machines = []


def case(*options, timed=True, name=None):
    def mark(fn):
        cases.append((name or fn.__name__, fn, options, timed))
        return fn
    return mark


def temp(name, data=None):
    path = os.path.join(DIR, name)
    if data is not None:
        with open(path, "wb") as f:
            f.write(data)
    return path


def pattern(sectors):
    """Each sector says its number: what is read tells where it came from."""
    return b"".join(struct.pack("<Q", i) * 64 for i in range(sectors))


class Failed(Exception):
    """The machine answered FAIL."""


class Machine:
    def __init__(self, command, peer, *options, pass_fds=(), link=None):
        """link: both ends of a connection to be used, else one is made."""
        self.peer, self.irqs, self.next_bar, self.next_io = peer, [], 0xe0000000, 0xc000
        self.buffer = b""
        machines.append(self)
        if link:
            self.socket, theirs = link
            self.err = open(temp("stderr"), "w+b")
            fd = theirs.fileno()
            self.process = subprocess.Popen([*command, "-accel", "qtest", "-display", "none", "-nodefaults", "-m", "64", "-chardev",
                                             f"socket,id=link,fd={fd}", "-qtest", "chardev:link", *options],
                                            stdin=subprocess.DEVNULL, stderr=self.err, pass_fds=(fd, *pass_fds))
            theirs.close()
            self.socket.settimeout(PATIENCE)
            return
        path = temp("socket")
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        server.listen(1)
        server.settimeout(PATIENCE)
        engine = ["-accel", "tcg", "-S", "-qtest-log", "none"] if peer else ["-accel", "qtest"]
        self.err = open(temp("stderr"), "w+b")
        self.process = subprocess.Popen([*command, *engine, "-display", "none", "-nodefaults", "-m", "64", "-qtest",
                                         "unix:" + path, *options], stdin=subprocess.DEVNULL, stderr=self.err,
                                        pass_fds=pass_fds)
        while True:
            server.settimeout(0.2)
            try:
                self.socket, _ = server.accept()
                break
            except socket.timeout:
                if self.process.poll() is not None:
                    os.unlink(path)
                    raise AssertionError(f"no start: {self.errors()}") from None
        server.close()
        os.unlink(path)
        self.socket.settimeout(PATIENCE)

    def errors(self):
        self.err.seek(0)
        return self.err.read().decode(errors="replace").strip()

    def close(self):
        self.socket.close()
        self.process.terminate()
        status = self.process.wait(PATIENCE)
        self.err.close()
        return status

    def line(self):
        while b"\n" not in self.buffer:
            got = self.socket.recv(1 << 20)
            if not got:
                raise AssertionError(f"the machine is gone: {self.errors()}")
            self.buffer += got
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line.decode()

    def reply(self):
        while True:
            line = self.line()
            if not line.startswith("IRQ "):
                return line
            _, what, n = line.split()
            self.irqs.append((what, int(n)))

    def command(self, *words):
        self.socket.sendall((" ".join(str(w) for w in words) + "\n").encode())
        line = self.reply()
        if not line.startswith("OK"):
            raise Failed(line)
        return line[3:]

    def take_irqs(self):
        irqs, self.irqs = self.irqs, []
        return irqs

    # ports and memory
    def inb(self, port): return int(self.command("inb", port), 16)
    def inw(self, port): return int(self.command("inw", port), 16)
    def inl(self, port): return int(self.command("inl", port), 16)
    def outb(self, port, v): self.command("outb", port, v)
    def outw(self, port, v): self.command("outw", port, v)
    def outl(self, port, v): self.command("outl", port, v)
    def readb(self, a): return int(self.command("readb", a), 16)
    def readw(self, a): return int(self.command("readw", a), 16)
    def readl(self, a): return int(self.command("readl", a), 16)
    def readq(self, a): return int(self.command("readq", a), 16)
    def writeb(self, a, v): self.command("writeb", a, v)
    def writew(self, a, v): self.command("writew", a, v)
    def writel(self, a, v): self.command("writel", a, v)
    def writeq(self, a, v): self.command("writeq", a, v)

    def read(self, addr, size):
        return base64.b64decode(self.command("b64read", addr, size))

    def write(self, addr, data):
        self.command("b64write", addr, len(data), base64.b64encode(data).decode())

    def step(self, ns=None):
        return int(self.command("clock_step", *([] if ns is None else [ns])))

    def wait(self, what, condition, ns=100000):
        """Host work (a disk's) takes the host's time; the guest's moves along."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            if not self.peer:
                self.step(ns)

    # PCI
    def cfg_read(self, devfn, off, size=4):
        self.outl(0xcf8, 0x80000000 | devfn << 8 | off & 0xfc)
        return {1: self.inb, 2: self.inw, 4: self.inl}[size](0xcfc + (off & 3))

    def cfg_write(self, devfn, off, v, size=4):
        self.outl(0xcf8, 0x80000000 | devfn << 8 | off & 0xfc)
        {1: self.outb, 2: self.outw, 4: self.outl}[size](0xcfc + (off & 3), v)

    def pci_find(self, vendor, device):
        for slot in range(32):
            for devfn in range(slot << 3, (slot << 3) + 8):
                if self.cfg_read(devfn, 0) == device << 16 | vendor:
                    return devfn
        raise AssertionError(f"no PCI device {vendor:04x}:{device:04x}")

    def pci_bar(self, devfn, n):
        """Size the BAR, give it a place, switch decoding on; its address (ports below 64K)."""
        reg = 0x10 + 4 * n
        kind = self.cfg_read(devfn, reg)
        self.cfg_write(devfn, reg, 0xffffffff)
        mask = self.cfg_read(devfn, reg) & (0xfffffffc if kind & 1 else 0xfffffff0)
        size = -mask & 0xffffffff
        if kind & 1:
            size = -(mask | 0xffff0000) & 0xffffffff
            addr = self.next_io = (self.next_io + size - 1) & -size
            self.next_io += size
        else:
            addr = self.next_bar = (self.next_bar + size - 1) & -size
            self.next_bar += size
        self.cfg_write(devfn, reg, addr)
        if kind & 6 == 4 and not kind & 1:
            self.cfg_write(devfn, reg + 4, 0)
        self.cfg_write(devfn, 4, self.cfg_read(devfn, 4, 2) | 7, 2)
        return addr

    def pci_bar_size(self, devfn, n):
        old = self.cfg_read(devfn, 0x10 + 4 * n)
        self.cfg_write(devfn, 0x10 + 4 * n, 0xffffffff)
        mask = self.cfg_read(devfn, 0x10 + 4 * n)
        self.cfg_write(devfn, 0x10 + 4 * n, old)
        if not mask:
            return 0
        return -(mask & (0xfffffffc | 0xffff0000 if old & 1 else 0xfffffff0)) & 0xffffffff

    def pci_caps(self, devfn):
        """(id, offset) of each capability."""
        caps, off = [], self.cfg_read(devfn, 0x34, 1) if self.cfg_read(devfn, 6, 2) & 16 else 0
        while off and len(caps) < 48:
            caps.append((self.cfg_read(devfn, off, 1), off))
            off = self.cfg_read(devfn, off + 1, 1)
        return caps


def expect(got, want, what=""):
    if got != want:
        show = (lambda v: hex(v) if isinstance(v, int) and not isinstance(v, bool) else repr(v))
        raise AssertionError(f"{what}: {show(got)}, not {show(want)}")


def expect_fail(fn, *words):
    try:
        fn(*words)
    except Failed as e:
        return str(e)
    raise AssertionError(f"no FAIL for {words}")


def describe(e):
    """What went wrong, and in which line of the test."""
    test = os.path.abspath(sys.argv[0])
    lines = [f.lineno for f in traceback.extract_tb(e.__traceback__) if os.path.abspath(f.filename) == test]
    return f"line {lines[-1] if lines else '?'}: {type(e).__name__} {e}"


def main_alone():
    """For tests whose cases start their machines themselves, without a peer."""
    bad = 0
    for name, fn, _, _ in cases:
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        try:
            fn(None)
        except Exception as e:  # the others still run
            bad += 1
            print(f"FAIL {name}, {describe(e)}")
    for machine in machines: # what a failed case left
        if machine.process.poll() is None:
            machine.process.kill()
    shutil.rmtree(DIR)
    print(f"{len(cases)} cases, {bad} bad")
    sys.exit(bad != 0)


def main():
    wanted = sys.argv[2:]
    qemu = os.environ.get("QEMU", "qemu-system-x86_64")
    peer = [qemu] if qemu and shutil.which(qemu) else None
    if not peer:
        print("no QEMU here: without the peer")
    bad = runs = 0
    for name, fn, options, timed in cases:
        if wanted and name not in wanted:
            continue
        for command in [KELVIN] + ([peer] if peer and not timed else []):
            runs += 1
            who = "QEMU" if command is peer else "kelvin"
            machine = None
            try:
                machine = Machine(command, command is peer, *options)
                fn(machine)
                status = machine.close()
                machine = None
                assert status == 0 or command is peer, f"exit status {status}"
            except Exception as e:  # any failure is this case's, the others still run
                bad += 1
                print(f"FAIL {name} ({who}), {describe(e)}")
                if machine:
                    print("     stderr:", machine.errors()[-2000:])
                    machine.close()
    shutil.rmtree(DIR)
    print(f"{runs} runs, {bad} bad")
    sys.exit(bad != 0)
