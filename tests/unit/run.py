#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The program as its users meet it: command line errors, terminal, QMP, monitor, pid file, background, signals.

usage: run.py KELVIN [CASE...]

Machines are started stopped (-S) from a kernel of a few bytes, on the software CPU, so that nothing depends on /dev/kvm.
"""
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time

KELVIN = os.path.abspath(sys.argv[1])
DIR = tempfile.mkdtemp(prefix="kelvin-run-")
KERNEL = os.path.join(DIR, "kernel")
STOPPED = ["-S", "-accel", "soft", "-m", "16", "-kernel", KERNEL]
PATIENCE = 30


def tiny_kernel():
    """An ELF file with a PVH entry note whose code is: cli; hlt; jmp back."""
    code = b"\xfa\xf4\xeb\xfc"
    note = struct.pack("<III4sI", 4, 4, 18, b"Xen\0", 0x100000)
    code_off, note_off = 0x1000, 0x1100
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 2, 62, 1, 0x100000, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 7, code_off, 0x100000, 0x100000, len(code), len(code), 0x1000)
    nphdr = struct.pack("<IIQQQQQQ", 4, 4, note_off, 0, 0, len(note), len(note), 4)
    image = bytearray(0x1200)
    image[0:len(head)] = head
    image[64:64 + 56] = load
    image[120:120 + 56] = nphdr
    image[code_off:code_off + len(code)] = code
    image[note_off:note_off + len(note)] = note
    with open(KERNEL, "wb") as f:
        f.write(image)


def path(name):
    return os.path.join(DIR, name)


def start(*args, **kw):
    kw.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen([KELVIN, "run", *STOPPED, *args], **kw)


def wait_for(what, condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE} s in vain for {what}")
        time.sleep(0.01)


class Qmp:
    """One client connection; keeps events apart from replies."""

    def __init__(self, name):
        self.events = []
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        wait_for(name, lambda: os.path.exists(path(name)))
        wait_for("a connection", lambda: self.socket.connect_ex(path(name)) == 0)
        self.file = self.socket.makefile("rb")
        self.greeting = json.loads(self.file.readline())

    def send(self, text):
        self.socket.sendall(text if isinstance(text, bytes) else text.encode())

    def reply(self):
        while True:
            line = self.file.readline()
            if not line:
                raise AssertionError("the connection ended")
            message = json.loads(line)
            if "event" not in message:
                return message
            self.events.append(message)

    def command(self, execute, arguments=None, **more):
        request = {"execute": execute, **more}
        if arguments is not None:
            request["arguments"] = arguments
        self.send(json.dumps(request) + "\n")
        return self.reply()

    def close(self):
        self.file.close()
        self.socket.close()


class Machine:
    """A stopped machine with QMP on a socket; ends with the block."""

    def __init__(self, *args, **kw):
        self.process = start("-display", "none", "-qmp", f"unix:{path('qmp')},server=on,wait=off", *args, **kw)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None:
            self.process.terminate()
        status = self.process.wait(PATIENCE)
        if kind is None:
            assert status == 0, f"exit status {status}"
            assert not os.path.exists(path("qmp")), "the socket was left behind"


def case_refusals():
    """One line, exit status 1, the option's name in it."""
    for args, part in [
            (["-hda", path("my.img") + ",format=raw"], "options go to -drive"),
            (["-sreial", "pty"], "did you mean '-serial'"),
            (["-drive", f"file={KERNEL},if=xen,format=raw"], "if=xen"),
            (["-drive", "if=ide,file="], "if=ide needs file="),
            (["-drive", f"file={KERNEL},if=ide,format=raw,unit=2"], "unit 2 too big (max is 1)"),
            (["-drive", f"file={KERNEL},format=raw,index=1,bus=0"], "index cannot be used with bus and unit"),
            (["-drive", f"file={KERNEL},if=none,id=a,format=raw", "-drive", f"file={KERNEL},if=none,id=a,format=raw"],
             "Duplicate ID 'a'"),
            (["-drive", f"file={path('nosuch.img')},if=virtio,format=raw"], "nosuch.img"),
            (["-drive", f"file={KERNEL},if=virtio,format=raw,cache=wrong"], "cache"),
            (["-device", "nosuch-device"], "nosuch-device"),
            (["-device", "isa-serial,nosuch=1"], "nosuch"),
            (["-serial", "stdio", "-monitor", "stdio"], "stdio is used by another"),
            (["-serial", "vc"], "does not exist in Kelvin yet"),
            (["-mon", "chardev=nosuch"], "nosuch"),
            (["-kernel", path("nosuch")], "nosuch"),
            (["-object", "authz-list,id=x"], "authz-list"),
            (["-M", "pc,memory-backend=m"], "memory-backend"),
            (["-D", "/nosuch/dir/log"], "/nosuch/dir/log"),
            (["-pidfile", "/nosuch/dir/pid"], "/nosuch/dir/pid"),
            (["-stats", "/nosuch/dir/stats"], "/nosuch/dir/stats"),
            (["-serial", "tcp:127.0.0.1:99999,server=on,wait=off"], "'99999' is not a TCP port"),
            (["-cpu", "nosuch"], "nosuch"),
            (["-global", "nonsense"], "nonsense")]:
        p = subprocess.run([KELVIN, *STOPPED, "-display", "none", *args], stdin=subprocess.DEVNULL, capture_output=True,
                           text=True, timeout=PATIENCE)
        assert p.returncode == 1, f"{args}: status {p.returncode}\n{p.stderr}"
        assert p.stderr.count("\n") == 1 and part in p.stderr, f"{args}: {p.stderr!r}"
    for args in (["img", "info", "x"], ["bench", "rnu"], ["bench", "run", "disk-bsu"], ["bench", "run", "cpu", "--vary", "smp"],
                 ["bench", "run", "--resume", "/nowhere"], ["bench", "report", "/nowhere"], ["rnu"]):
        p = subprocess.run([KELVIN, *args], capture_output=True, text=True, timeout=PATIENCE)
        assert p.returncode == 1 and p.stderr.count("\n") == 1, p
    for args in (["help"], ["--version"], ["run", "-help"], ["-M", "help"], ["-device", "help"]):
        p = subprocess.run([KELVIN, *args], capture_output=True, text=True, timeout=PATIENCE)
        assert p.returncode == 0 and p.stdout and not p.stderr, p
    link = path("qemu-system-x86_64")
    os.symlink(KELVIN, link)
    p = subprocess.run([link, "--version"], capture_output=True, text=True, timeout=PATIENCE)
    assert p.stdout.startswith("QEMU emulator version "), p


def terminal_state(fd):
    return termios.tcgetattr(fd), fcntl.fcntl(fd, fcntl.F_GETFL)


def case_terminal():
    """However the program ends, the terminal and its flags are as they were."""
    def leave_by_signal(sig):
        return lambda p, master: p.send_signal(sig)

    def leave_by_key(p, master):
        os.write(master, b"\x01x")

    def leave_by_monitor(p, master):
        os.write(master, b"\x01cquit\r")

    for name, leave, status in [("Ctrl-a x", leave_by_key, 0), ("quit", leave_by_monitor, 0),
                                ("SIGTERM", leave_by_signal(signal.SIGTERM), 0),
                                ("SIGINT", leave_by_signal(signal.SIGINT), 0),
                                ("SIGHUP", leave_by_signal(signal.SIGHUP), 0),
                                ("SIGSEGV", leave_by_signal(signal.SIGSEGV), -signal.SIGSEGV),
                                ("SIGABRT", leave_by_signal(signal.SIGABRT), -signal.SIGABRT)]:
        master, slave = pty.openpty()
        before = terminal_state(slave)

        def become_session_leader(fd=slave):
            os.setsid()
            fcntl.ioctl(fd, termios.TIOCSCTTY, 0)
        p = subprocess.Popen([KELVIN, *STOPPED, "-nographic"], stdin=slave, stdout=slave, stderr=slave,
                             preexec_fn=become_session_leader)
        wait_for("raw mode", lambda: not termios.tcgetattr(slave)[3] & termios.ICANON or p.poll() is not None)
        assert not fcntl.fcntl(slave, fcntl.F_GETFL) & os.O_NONBLOCK, "O_NONBLOCK on the shell's descriptor"
        leave(p, master)
        try:
            got = p.wait(PATIENCE)
        except subprocess.TimeoutExpired as e:
            shown = os.read(master, 4096) if select.select([master], [], [], 0)[0] else b""
            raise AssertionError(f"{name}: it stays: {shown!r}") from e
        assert got == status, f"{name}: exit status {got}"
        after = terminal_state(slave)
        assert before == after, f"{name}: the terminal changed: {before} {after}"
        os.close(master)
        os.close(slave)


def case_mux():
    """Ctrl-a h, c; the monitor answers on the same terminal; -serial mon:stdio is the same as -nographic."""
    master, slave = pty.openpty()
    p = subprocess.Popen([KELVIN, *STOPPED, "-display", "none", "-serial", "mon:stdio"], stdin=slave, stdout=slave)
    text = b""

    def expect(part):
        nonlocal text
        deadline = time.monotonic() + PATIENCE
        while part not in text:
            assert select.select([master], [], [], deadline - time.monotonic())[0], f"no {part!r} in {text!r}"
            text += os.read(master, 4096)
        text = text.split(part, 1)[1]
    wait_for("raw mode", lambda: not termios.tcgetattr(slave)[3] & termios.ICANON)
    os.write(master, b"\x01h")
    expect(b"Ctrl-a x")
    os.write(master, b"\x01c")
    expect(b"(kelvin) ")
    os.write(master, b"info stat\tus\x7f\x7f\r")
    expect(b"VM status: paused (prelaunch)\r")
    os.write(master, b"info registers\r")
    expect(b"RIP=")
    os.write(master, b"nonsense\r")
    expect(b"unknown command: 'nonsense'")
    os.write(master, b"help\r")
    expect(b"system_powerdown")
    os.write(master, b"q\r")
    assert p.wait(PATIENCE) == 0
    os.close(master)
    os.close(slave)


def case_suspend():
    """Ctrl-z, where it is not the guest's: the shell gets its terminal; fg gives raw mode back."""
    master, slave = pty.openpty()
    before = terminal_state(slave)
    p = subprocess.Popen([KELVIN, *STOPPED, "-display", "none", "-serial", "stdio"], stdin=slave, stdout=slave)
    wait_for("raw mode", lambda: not termios.tcgetattr(slave)[3] & termios.ICANON)
    p.send_signal(signal.SIGTSTP)
    wait_for("the stop", lambda: open(f"/proc/{p.pid}/stat", encoding="ascii").read().split()[2] == "T")
    assert terminal_state(slave) == before
    p.send_signal(signal.SIGCONT)
    wait_for("raw mode", lambda: not termios.tcgetattr(slave)[3] & termios.ICANON)
    p.terminate()
    assert p.wait(PATIENCE) == 0
    assert terminal_state(slave) == before
    os.close(master)
    os.close(slave)


def case_late_reader():
    """-serial file: on a named pipe waits for its reader; a signal ends the wait."""
    os.mkfifo(path("fifo"))
    for leave in (False, True):
        p = start("-display", "none", "-serial", f"file:{path('fifo')}", "-pidfile", path("pid"))
        time.sleep(0.2)
        assert p.poll() is None
        if leave:
            p.terminate()
            assert p.wait(PATIENCE) == 1
            continue
        fd = os.open(path("fifo"), os.O_RDONLY)
        p.terminate()
        assert p.wait(PATIENCE) in (0, 1)
        os.close(fd)


def case_stdin_forms():
    """stdin closed, /dev/null, a file, a pipe that ends: the machine runs on; sockets keep their flags."""
    for stdin in (subprocess.DEVNULL, open(KERNEL, "rb"), subprocess.PIPE):
        p = subprocess.Popen([KELVIN, *STOPPED, "-nographic", "-pidfile", path("pid")], stdin=stdin,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if p.stdin:
            p.stdin.close()
        wait_for("the pid file", lambda: os.path.exists(path("pid")))
        time.sleep(0.2)
        used = sum(os.times()[2:4])
        p.send_signal(signal.SIGTERM)
        assert p.wait(PATIENCE) == 0
        assert sum(os.times()[2:4]) - used < 5
        assert not os.path.exists(path("pid"))
    for closed in ((0,), (0, 1), (0, 1, 2)):
        p = subprocess.Popen([KELVIN, *STOPPED, "-nographic", "-pidfile", path("pid"), "-qmp", f"unix:{path('qmp')},server,nowait"],
                             preexec_fn=lambda fds=closed: [os.close(fd) for fd in fds])
        q = Qmp("qmp")
        q.command("qmp_capabilities")
        q.command("quit")
        assert p.wait(PATIENCE) == 0
    mine, its = socket.socketpair()
    p = subprocess.Popen([KELVIN, *STOPPED, "-nographic"], stdin=its, stdout=its, stderr=subprocess.DEVNULL)
    mine.sendall(b"\x01x")
    assert p.wait(PATIENCE) == 0
    assert not fcntl.fcntl(its.fileno(), fcntl.F_GETFL) & os.O_NONBLOCK
    mine.close()
    its.close()


def tree(q, at):
    """Everything qom-list shows can be read or listed."""
    for item in q.command("qom-list", {"path": at})["return"]:
        path_of = at.rstrip("/") + "/" + item["name"]
        if item["type"].startswith("child<"):
            tree(q, path_of)
        else:
            assert "return" in q.command("qom-get", {"path": at, "property": item["name"]}), path_of


def case_qmp_script():
    """Greeting, negotiation, replies in order with their ids, QEMU's error classes, events only when asked for."""
    with Machine("-name", "a\"b\\c\n\u00e9", "-uuid", "b7b4b7e4-9c07-22aa-0c95-d5c8a24176c5", "-smp", "4,sockets=2",
                 "-serial", "null", "-object", "rng-random,id=r,filename=/dev/zero", "-chardev", "null,id=n",
                 "-device", "isa-serial,id=s1,chardev=n,index=1") as m:
        q = Qmp("qmp")
        version = q.greeting["QMP"]["version"]["qemu"]
        assert version["major"] >= 7 and q.greeting["QMP"]["capabilities"] == [], q.greeting

        def error(reply):
            return reply["error"]["class"], reply["error"]["desc"]
        assert error(q.command("query-status"))[0] == "CommandNotFound"
        assert error(q.command("qmp_capabilities", {"enable": ["oob"]}))[0] == "GenericError"
        assert error(q.command("qmp_capabilities", {"nosuch": 1}))[0] == "GenericError"
        assert q.command("qmp_capabilities", id=1) == {"return": {}, "id": 1}
        assert error(q.command("qmp_capabilities"))[0] == "CommandNotFound"
        for identity in (0, -1.5, "x", "\u0001\"\\\u00e9", None, True, [1, {"a": []}], {"b": {"c": None}}):
            assert q.command("query-name", id=identity) == {"return": {"name": "a\"b\\c\n\u00e9"}, "id": identity}
        status = q.command("query-status")["return"]
        assert status == {"status": "prelaunch", "running": False, "singlestep": False}, status
        assert q.command("query-uuid")["return"]["UUID"] == "b7b4b7e4-9c07-22aa-0c95-d5c8a24176c5"
        cpus = q.command("query-cpus-fast")["return"]
        assert [c["cpu-index"] for c in cpus] == [0, 1, 2, 3]
        assert [c["props"]["socket-id"] for c in cpus] == [0, 0, 1, 1]
        assert all(os.path.exists(f"/proc/{m.process.pid}/task/{c['thread-id']}") for c in cpus), cpus
        assert q.command("query-kvm")["return"]["enabled"] is False
        assert q.command("x-query-accel")["return"]["name"] == "soft"
        labels = {c["label"]: c["filename"] for c in q.command("query-chardev")["return"]}
        assert labels["serial0"] == "null" and labels["compat_monitor0"].endswith(",server=on"), labels
        cd = {"device": "ide1-cd0", "type": "unknown", "removable": True, "locked": False, "tray_open": False}
        assert q.command("query-block")["return"] == [cd], q.command("query-block")
        names = [c["name"] for c in q.command("query-commands")["return"]]
        assert len(set(names)) == len(names) and {"quit", "stop", "cont", "qmp_capabilities"} <= set(names)
        for name in names:
            if name.startswith("query-") and name not in ("query-balloon", "query-cpu-model-expansion"):
                assert "return" in q.command(name), name
        assert "No balloon device" in error(q.command("query-balloon"))[1], q.command("query-balloon")
        text = q.command("human-monitor-command", {"command-line": "info status"})["return"]
        assert text == "VM status: paused (prelaunch)\n", text
        for subject in ("cpus", "registers -a", "mtree", "qtree", "pci", "version", "name", "uuid", "chardev",
                        "kvm", "accel", "nosuch", ""):
            assert q.command("human-monitor-command", {"command-line": f"info {subject}"})["return"], subject
        properties = q.command("device-list-properties", {"typename": "isa-serial"})["return"]
        assert "chardev" in [p["name"] for p in properties]
        assert error(q.command("device-list-properties", {"typename": "x"}))[0] == "DeviceNotFound"
        stats = q.command("x-query-stats")["return"]
        assert stats["accel"] == "soft" and len(stats["vcpus"]) == 4, stats
        tree(q, "/")
        assert q.command("qom-get", {"path": cpus[3]["qom-path"], "property": "type"})["return"] == "max-x86_64-cpu"
        assert q.command("qom-get", {"path": "/machine", "property": "hpet"})["return"] is True
        assert q.command("qom-get", {"path": "/objects/r", "property": "filename"})["return"] == "/dev/zero"
        assert q.command("qom-get", {"path": "/machine/peripheral/s1", "property": "chardev"})["return"] == "n"
        assert "cannot be changed" in error(q.command("qom-set", {"path": "/objects/r", "property": "filename",
                                                                  "value": "/dev/null"}))[1]
        for bad in ("", "x", "/nosuch", "/machine/peripheral/nosuch", "/machine/unattached/device[99]", "/objects/",
                    "/machine/unattached/device[]", "/machine/unattached/device[-1]", "//"):
            assert error(q.command("qom-list", {"path": bad}))[0] == "DeviceNotFound", bad
        assert error(q.command("qom-get", {"path": "/machine", "property": "nosuch"}))[0] == "GenericError"
        types = {t["name"] for t in q.command("qom-list-types")["return"]}
        assert {"isa-serial", "rng-random", "chardev-stdio", "pc-machine", "max-x86_64-cpu"} <= types, types
        chardevs = {t["name"] for t in q.command("qom-list-types", {"implements": "chardev"})["return"]}
        assert "chardev-pty" in chardevs and "rng-random" not in chardevs and "chardev" not in chardevs, chardevs
        assert error(q.command("nosuch"))[0] == "CommandNotFound"
        assert error(q.command("stop", {"now": True})) == ("GenericError", "Parameter 'now' is unexpected")
        assert error(q.command("human-monitor-command")) == ("GenericError", "Parameter 'command-line' is missing")
        assert "expected: string" in error(q.command("human-monitor-command", {"command-line": 1}))[1]
        assert error(q.command("query-status", more=1))[0] == "GenericError"
        # Many commands in one packet: replies in order.
        q.send("".join(f'{{"execute":"query-status","id":{i}}}' for i in range(200)))
        assert [q.reply()["id"] for i in range(200)] == list(range(200))
        # One command in many packets.
        for byte in b'{"execute" : "query-status", "id":"\\u00e9"}':
            q.send(bytes([byte]))
        assert q.reply()["id"] == "\u00e9"
        q.events.clear()
        assert q.command("system_powerdown") == {"return": {}}
        assert q.command("system_reset") == {"return": {}}
        assert [e["event"] for e in q.events] == ["POWERDOWN", "RESET"], q.events
        assert all(abs(e["timestamp"]["seconds"] - time.time()) < 60 for e in q.events)
        assert q.command("quit", id="bye") == {"return": {}, "id": "bye"}
        assert q.events[-1]["event"] == "SHUTDOWN" and q.events[-1]["data"]["guest"] is False
        assert m.process.wait(PATIENCE) == 0


def case_qmp_abuse():
    """Broken, huge and half-open input: an error or silence, never a crash; the next client is served."""
    with Machine() as m:
        q = Qmp("qmp")
        for bad in (b"nonsense\n", b'{"execute"\n}\n', b'{"execute": "stop" "x"}', b"[1,2]", b"}\n", b'{"a":"\xff\xfe"}',
                    b'{"execute": 5}', b'{"execute": "x", "arguments": []}', b"{}", b'{"a": "broken\n', b'{"a":1,"a":2}',
                    b'{"exec-oob": "stop"}', b'{"id": "\\u0000"}'):
            q.send(bad)
            reply = q.reply()
            assert "error" in reply, (bad, reply)
        assert q.command("qmp_capabilities") == {"return": {}}
        q.send(b'{"deep": ' + b"[" * 100000 + b"\n")
        assert "error" in q.reply()
        q.send(b'{"big": "' + b"x" * (3 << 20) + b'"}\n')
        assert "error" in q.reply()
        assert "return" in q.command("query-status")
        # A client that asks without end and never reads: it stalls itself, not the machine.
        q.socket.setblocking(False)
        try:
            for _ in range(2000):
                q.socket.send(b'{"execute":"query-commands"}' * 100)
        except BlockingIOError:
            pass
        else:
            raise AssertionError("unbounded replies are taken")
        q.close()
        for half in (b"", b"{", b'{"execute":"qmp_capabilities"}{"execute":"que', b"\x01x"):
            q = Qmp("qmp")
            q.send(half)
            q.close()
        q = Qmp("qmp")
        assert q.command("query-status")["error"]["class"] == "CommandNotFound", "negotiation outlived its client"
        with open(f"/proc/{m.process.pid}/status", encoding="ascii") as f:
            rss = int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))
        if "build-asan" not in KELVIN and "build-tsan" not in KELVIN:
            assert rss < 64 << 10, f"{rss} KiB resident"
        q.close()


def case_file_names():
    """Disks whose names have spaces, commas, quotes, line ends, UTF-8 and bytes that are none: opened, and QMP stays JSON."""
    names = [b"a b.img", b"c,d.img", b"q\"'\\\n\x01.img", "gr\u00fc\u00df.img".encode(), b"bad\xff\xc3.img"]
    args = []
    for name in names:
        with open(os.path.join(DIR.encode(), name), "wb") as f:
            f.truncate(1 << 20)
        args += ["-drive", b"if=virtio,format=raw,file=" + os.path.join(DIR.encode(), name).replace(b",", b",,")]
    with Machine(*args):
        q = Qmp("qmp")
        q.command("qmp_capabilities")
        disks = [d for d in q.command("query-block")["return"] if "inserted" in d]
        want = [os.path.join(DIR.encode(), n).decode("utf-8", "replace") for n in names]
        assert [d["inserted"]["file"] for d in disks] == want, disks
        assert all(d["inserted"]["image"]["virtual-size"] == 1 << 20 for d in disks)
        text = q.command("human-monitor-command", {"command-line": "info qtree"})["return"]
        assert text.count("dev: virtio-blk-pci") == len(names), text
        q.close()
    for name in names:
        os.unlink(os.path.join(DIR.encode(), name))


def case_media():
    """A medium is put in, changed and taken out through QMP and the human monitor."""
    for name, size in (("a.iso", 1), ("b c.iso", 2)):
        with open(path(name), "wb") as f:
            f.truncate(size << 20)
    with Machine("-drive", f"file={path('a.iso')},if=none,id=spare,format=raw,readonly=on"):
        q = Qmp("qmp")
        q.command("qmp_capabilities")

        def hmp(line):
            return q.command("human-monitor-command", {"command-line": line})["return"]

        def error(name, **args):
            return q.command(name, args)["error"]["desc"]

        def size():
            return [d.get("inserted", {}).get("image", {}).get("virtual-size") for d in q.command("query-block")["return"]
                    if d["removable"]]

        cd = {"device": "ide1-cd0"}
        assert size() == [None]
        assert hmp(f"change ide1-cd0 \"{path('b c.iso')}\" raw") == "", hmp("info block")
        assert size() == [2 << 20]
        assert "not found" in error("eject", device="nosuch")
        assert "is not removable" in error("eject", device="spare")
        assert "exactly one" in error("eject")
        assert "No such file" in error("blockdev-change-medium", **cd, filename=path("nosuch"))
        assert "read-only" in error("blockdev-change-medium", **cd, filename=path("a.iso"), **{"read-only-mode": "read-write"})
        assert size() == [2 << 20], "a change that failed took the medium away"
        assert "return" in q.command("blockdev-open-tray", cd)
        assert hmp("eject ide1-cd0") == "" and size() == [None]
        assert "return" in q.command("blockdev-close-tray", cd)
        assert "id" in error("blockdev-insert-medium", **{"node-name": "spare"})
        q.close()
    for name in ("a.iso", "b c.iso"):
        os.unlink(path(name))


def case_field_disks():
    """The disks of the machines M1 to M9 of the field reports, as their lines give them: places, names, what is read-only."""
    for name in ("f11-test.img", "sdb", "test.img", "raw.img", "Fedora.iso"):
        with open(path(name), "wb") as f:
            f.truncate(1 << 20)
    f11 = f"file={path('f11-test.img')},if=virtio,index=0,boot=on"
    sdb = f"file={path('sdb')}"
    machines = {
        "M1": (["-drive", "file=,if=ide,media=cdrom,index=2", "-drive", f11, "-drive", f"{sdb},if=virtio,index=1"],
               ["ide1-cd0", "virtio0", "virtio1"]),
        "M2": (["-drive", "file=,if=ide,media=cdrom,index=2", "-drive", f11, "-drive", f"{sdb},if=virtio,index=1,cache=none"],
               ["ide1-cd0", "virtio0", "virtio1"]),
        "M3": (["-drive", f11, "-drive", f"{sdb},if=ide,index=1"], ["virtio0", "ide0-hd1", "ide1-cd0"]),
        "M4": (["-drive", f11, "-drive", f"{sdb},if=ide,index=1,cache=none"], ["virtio0", "ide0-hd1", "ide1-cd0"]),
        "M5": (["-drive", f"file={path('Fedora.iso')},if=virtio,media=cdrom,index=2", "-drive", f11, "-drive",
                f"{sdb},if=virtio,index=1"], ["virtio2", "virtio0", "virtio1", "ide1-cd0"]),
        "M6": (["-drive", f"file={path('Fedora.iso')},if=virtio,media=cdrom,index=2", "-drive", f11, "-drive",
                f"{sdb},if=virtio,index=1", "-drive", f"file={path('test.img')},if=virtio,index=3"],
               ["virtio2", "virtio0", "virtio1", "virtio3", "ide1-cd0"]),
        "M8": (["-hda", path("sdb")], ["ide0-hd0", "ide1-cd0"]),
    }
    for cache in ("none", "writethrough", "writeback", "unsafe", "directsync"):
        machines["M9 " + cache] = (["-drive", f"file={path('raw.img')},if=virtio,cache={cache}"], ["virtio0", "ide1-cd0"])
    for name, (args, want) in machines.items():
        with Machine("-m", "64", "-boot", "c", *args):
            q = Qmp("qmp")
            q.command("qmp_capabilities")
            disks = q.command("query-block")["return"]
            assert [d["device"] for d in disks] == want, (name, disks)
            for d in disks:
                ro = d.get("inserted", {}).get("ro")
                assert ro in (None, d["device"] == "virtio2"), (name, d)
            q.close()
    for name in ("f11-test.img", "sdb", "test.img", "raw.img", "Fedora.iso"):
        os.unlink(path(name))


def case_monitor_socket():
    """The human monitor on a Unix socket and on TCP; two clients after each other."""
    with Machine("-monitor", f"unix:{path('mon')},server,nowait") as m:
        for _ in range(2):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(PATIENCE)
            wait_for("the monitor", lambda: s.connect_ex(path("mon")) == 0)
            s.sendall(b"info version\n")
            text = b""
            while b"kelvin-" not in text and b"7.2.0 (kelvin" not in text:
                text += s.recv(4096)
            assert b"monitor - type 'help'" in text
            s.close()
        s = socket.socket(socket.AF_UNIX)
        wait_for("the monitor", lambda: s.connect_ex(path("mon")) == 0)
        s.sendall(b"quit\n")
        assert m.process.wait(PATIENCE) == 0
        s.close()


def case_pty():
    """-monitor pty -serial pty: the lines tools look for; the monitor answers there."""
    p = start("-display", "none", "-monitor", "pty", "-serial", "pty", stdout=subprocess.PIPE, text=True)
    found = {}
    while len(found) < 2:
        line = p.stdout.readline()
        assert line, "it ended"
        m = re.match(r"char device redirected to (/dev/pts/\d+) \(label (\S+)\)", line)
        if m:
            found[m.group(2)] = m.group(1)
    assert set(found) == {"serial0", "compat_monitor0"}, found
    fd = os.open(found["compat_monitor0"], os.O_RDWR | os.O_NOCTTY)
    text = b""
    os.write(fd, b"info status\r")
    while b"prelaunch" not in text:
        assert select.select([fd], [], [], PATIENCE)[0], text
        text += os.read(fd, 4096)
    os.write(fd, b"quit\r")
    assert p.wait(PATIENCE) == 0
    os.close(fd)


def case_inherited():
    """fd=: a listening socket of the caller's, as libvirt gives it; a bad or doubled number is an error or works, never a crash."""
    s = socket.socket(socket.AF_UNIX)
    s.bind(path("qmp"))
    s.listen(1)
    a = f"socket,id=m,fd={s.fileno()},server=on,wait=off"
    p = start("-display", "none", "-chardev", a, "-mon", "chardev=m,mode=control", pass_fds=[s.fileno()])
    q = Qmp("qmp")
    q.command("qmp_capabilities")
    q.command("quit")
    assert p.wait(PATIENCE) == 0
    p = start("-display", "none", "-chardev", a, "-chardev", a.replace("id=m", "id=n"), pass_fds=[s.fileno()])
    time.sleep(0.3)
    p.terminate()
    assert p.wait(PATIENCE) == 0
    for bad in (0, 1, 999, 99999999999, -2):
        p = subprocess.run([KELVIN, *STOPPED, "-display", "none", "-chardev", f"socket,id=m,fd={bad},server=on"],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
        assert p.returncode == 1 and p.stderr.count("\n") == 1, p
    os.unlink(path("qmp"))


def case_pidfile():
    """Written, locked against a second machine, removed; a stale one is taken over."""
    with open(path("pid"), "w", encoding="ascii") as f:
        f.write("99999999\n")
    with Machine("-pidfile", path("pid")) as m:
        Qmp("qmp").close()
        with open(path("pid"), encoding="ascii") as f:
            assert int(f.read()) == m.process.pid
        p = subprocess.run([KELVIN, *STOPPED, "-display", "none", "-pidfile", path("pid")], stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, timeout=PATIENCE)
        assert p.returncode == 1 and f"process {m.process.pid} uses it" in p.stderr, p
    assert not os.path.exists(path("pid"))


def case_daemonize():
    """The caller returns when the machine is ready, with its verdict; relative paths still work."""
    p = subprocess.run([KELVIN, *STOPPED, "-display", "none", "-daemonize", "-pidfile", "pid", "-stats", "stats.json",
                        "-qmp", "unix:qmp,server,nowait"], cwd=DIR, stdin=subprocess.DEVNULL, timeout=PATIENCE,
                       capture_output=True, check=False)
    assert p.returncode == 0 and not p.stderr, p
    q = Qmp("qmp")  # it listens already
    q.command("qmp_capabilities")
    with open(path("pid"), encoding="ascii") as f:
        pid = int(f.read())
    assert os.getsid(pid) == pid
    os.kill(pid, signal.SIGUSR1)
    wait_for("the counters", lambda: os.path.exists(path("stats.json")) and os.path.getsize(path("stats.json")))
    q.command("quit")
    wait_for("the end", lambda: not os.path.exists(path("pid")))
    with open(path("stats.json"), encoding="ascii") as f:
        assert isinstance(json.load(f), dict)
    p = subprocess.run([KELVIN, *STOPPED, "-display", "none", "-daemonize", "-device", "nosuch"], timeout=PATIENCE,
                       stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert p.returncode == 1 and "nosuch" in p.stderr, p
    p = subprocess.run([KELVIN, *STOPPED, "-daemonize", "-serial", "stdio"], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=PATIENCE)
    assert p.returncode == 1 and "daemonize" in p.stderr, p


def case_top():
    """kelvin top finds this user's machines through the runtime folder, which only he may enter, and reads their counters."""
    runtime = tempfile.mkdtemp(dir=DIR)
    env = {**os.environ, "XDG_RUNTIME_DIR": runtime}
    folder = os.path.join(runtime, "kelvin")

    def machines(program=KELVIN):
        p = subprocess.run([program, "top", "--once", "--json", "--interval", "0.2"], capture_output=True, text=True, timeout=PATIENCE, env=env)
        assert p.returncode == 0, p
        return json.loads(p.stdout)["machines"]

    with Machine("-name", "the machine", env=env) as m:
        pid = str(m.process.pid)
        wait_for("the socket", lambda: os.path.exists(os.path.join(folder, pid + ".sock")))
        assert os.stat(folder).st_mode & 0o777 == 0o700
        # Left over from a machine that was killed: it is not shown, and goes.
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(os.path.join(folder, "1.sock"))
        stale.close()
        got = machines()
        assert list(got) == [pid] and got[pid]["name"] == "the machine" and got[pid]["accel"] == "soft", got
        assert got[pid]["totals"]["vcpu.insns"] == 0 and "exits" in got[pid]["rates"], got
        assert os.listdir(folder) == [pid + ".sock"]
        # It needs none of the lab's files: a program copied elsewhere, under another name, sees the same.
        assert list(machines(shutil.copy(KELVIN, path("another-name")))) == [pid]
        text = subprocess.run([KELVIN, "top", "--once", "--interval", "0.2"], capture_output=True, text=True, timeout=PATIENCE, env=env).stdout
        assert "1 machine" in text and "the machine" in text, text
    assert os.listdir(folder) == [] and machines() == {}
    # A folder that others may write to is not used; the machine runs all the same.
    os.chmod(folder, 0o777)
    with Machine("-monitor", f"unix:{path('hmp')},server=on,wait=off", env=env):
        wait_for("the monitor", lambda: os.path.exists(path("hmp")))
        assert os.listdir(folder) == []
    os.rmdir(folder)
    os.rmdir(runtime)


def case_wait():
    """server=on waits for its client before the machine exists; a signal ends the wait and cleans up."""
    p = start("-display", "none", "-qmp", f"unix:{path('wait')},server=on", stderr=subprocess.PIPE, text=True)
    assert "waiting for a connection" in p.stderr.readline()
    p.send_signal(signal.SIGTERM)
    assert p.wait(PATIENCE) == 1
    assert not os.path.exists(path("wait"))
    p = start("-display", "none", "-qmp", f"unix:{path('wait')},server=on", stderr=subprocess.PIPE, text=True)
    q = Qmp("wait")
    q.command("qmp_capabilities")
    q.command("quit")
    assert p.wait(PATIENCE) == 0


def case_manual():
    """The manual page names every option that help lists."""
    manual = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "kelvin.1")
    with open(manual, encoding="utf-8") as f:
        known = set(re.findall(r"\\-([A-Za-z_][\w]*(?:\\-\w+)*)", f.read()))
    known = {name.replace("\\-", "-") for name in known}
    text = subprocess.run([KELVIN, "help"], capture_output=True, text=True, check=True).stdout
    options = set(re.findall(r"^  -(\S+)", text, re.M))
    assert options and options <= known, f"not in the manual: {sorted(options - known)}"


def main():
    # nohup and background jobs leave these ignored, and children inherit that: Kelvin then rightly leaves them ignored.
    for sig in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        if signal.getsignal(sig) == signal.SIG_IGN:
            signal.signal(sig, signal.SIG_DFL)
    tiny_kernel()
    cases = {name[5:]: fn for name, fn in globals().items() if name.startswith("case_")}
    failed = 0
    for name in sys.argv[2:] or cases:
        try:
            cases[name]()
            print(f"ok {name}", flush=True)
        except Exception as e:  # each case reports, the others still run
            failed += 1
            print(f"FAILED {name}: {type(e).__name__}: {e}", flush=True)
    for name in os.listdir(DIR):
        os.unlink(path(name))
    os.rmdir(DIR)
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
