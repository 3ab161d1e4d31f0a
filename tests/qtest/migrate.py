#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The machine goes from one process to another by every URI that migrate and -incoming take, from QMP and from the human
monitor, cancelled and refused: memory, CMOS, the PIC, a disk's registers and the clock are as before."""
import json
import os
import shlex
import socket
import subprocess
import time

import saved
from qtest import KELVIN, PATIENCE, case, expect, main_alone, temp
from saved import Qmp


class Monitor(Qmp):
    """A second connection, for commands of the monitor; arguments by keyword."""

    def raw(self, command, arguments=None, **args):
        return super().raw(command, arguments or {k.replace("_", "-"): v for k, v in args.items()})

    def call(self, command, arguments=None, **args):
        return super().call(command, arguments or {k.replace("_", "-"): v for k, v in args.items()})

    def hmp(self, line):
        return self.call("human-monitor-command", command_line=line)

    def until(self, *states):
        deadline = time.monotonic() + PATIENCE
        while True:
            got = self.call("query-migrate")
            if got.get("status") in states:
                return got
            assert time.monotonic() < deadline and got.get("status") not in ("failed", "completed", "cancelled"), got
            time.sleep(0.02)


def machine(*options, **keep):
    return saved.machine(*options, client=Monitor, **keep)


def change(m):
    """Something of everything, time too."""
    saved.change(m)
    m.step(123456789)


def check(m):
    saved.check(m)
    expect(m.step(1), 123456790, "the clock goes on")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def arrive(target, qmp):
    qmp.until("completed")
    deadline = time.monotonic() + PATIENCE
    while qmp.call("query-status")["status"] == "inmigrate":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    check(target)


def file_like(save, load):
    """Saved whole, then loaded."""
    source, qmp = machine()
    change(source)
    expect(qmp.call("migrate", uri=save), {})
    got = qmp.until("completed")
    assert got["ram"]["total"] >= 64 << 20 and got["ram"]["remaining"] == 0, got
    expect(qmp.call("query-status")["status"], "postmigrate")
    again = qmp.raw("migrate", uri=save)
    assert "postmigrate" in json.dumps(again) or "previous migration" in json.dumps(again), again
    expect(source.close(), 0)
    target, qmp = machine("-incoming", load)
    arrive(target, qmp)
    expect(target.close(), 0)


def socket_like(uri, defer=False, hmp=False):
    """The target waits for the source."""
    target, to = machine("-incoming", "defer" if defer else uri)
    source, qmp = machine()
    change(source)
    expect(to.call("query-status")["status"], "inmigrate")
    if defer:
        expect(to.hmp(f"migrate_incoming {uri}"), "") if hmp else expect(to.call("migrate-incoming", uri=uri), {})
        assert "error" in to.raw("migrate-incoming", uri=uri), "a second time"
    if hmp:
        expect(qmp.hmp(f"migrate {uri}"), "")  # waits
        assert "completed" in qmp.hmp("info migrate")
    else:
        qmp.call("migrate", uri=uri)
        qmp.until("completed")
    arrive(target, to)
    said = [(e["event"], e.get("data", {}).get("status")) for e in to.event_list + qmp.event_list]
    assert ("MIGRATION", "completed") in said or hmp, said
    expect(source.close(), 0)
    expect(target.close(), 0)


@case(name="file")
def by_file(_):
    path = temp("with 'blanks' in it")
    file_like(f"file:{path}", f"file:{path}")
    assert os.stat(path).st_mode & 0o077 == 0, "for nobody else"


@case()
def sparse(_):
    """Memory that was never used costs nothing after saving and after loading, shared memory neither."""

    def frugal(m):
        with open(f"/proc/{m.process.pid}/status", encoding="ascii") as f:
            rss = next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))
        assert rss < 600 << 10, f"{rss} KiB resident"

    shared = ("-m", "1024", "-object", "memory-backend-memfd,id=ram,size=1G,share=on", "-M", "pc,memory-backend=ram")
    path = temp("sparse")
    source, qmp = machine(*shared)
    change(source)
    qmp.call("migrate", uri=f"file:{path}")
    qmp.until("completed")
    frugal(source)
    expect(source.close(), 0)
    target, qmp = machine("-incoming", f"file:{path}", *shared)
    arrive(target, qmp)
    frugal(target)
    expect(target.close(), 0)


@case(name="exec")
def by_exec(_):
    path = temp("zipped")
    file_like(f"exec:gzip -1 > {shlex.quote(path)}", f"exec:zcat {shlex.quote(path)}")


@case(name="unix")
def by_unix(_):
    path = temp("incoming")
    socket_like(f"unix:{path}")
    assert not os.path.exists(path), "the socket is gone"
    socket_like(f"unix:{path}", defer=True)
    socket_like(f"unix:{path}", defer=True, hmp=True)


@case(name="tcp")
def by_tcp(_):
    socket_like(f"tcp:127.0.0.1:{free_port()}")
    socket_like(f"tcp:localhost:{free_port()}", defer=True)


@case(name="fd")
def by_fd(_):
    a, b = socket.socketpair()
    b.setblocking(True)
    for s in (a, b):
        os.set_inheritable(s.fileno(), True)
    source, qmp = machine(pass_fds=(a.fileno(),))
    target, to = machine("-incoming", f"fd:{b.fileno()}", pass_fds=(b.fileno(),))
    change(source)
    qmp.call("migrate", uri=f"fd:{a.fileno()}")
    a.close()
    b.close()
    qmp.until("completed")
    arrive(target, to)
    source.close()
    target.close()


@case(name="cancel")
def cancel(_):
    """Nobody reads: cancelled, the machine is as it was; then it is saved after all."""
    a, b = socket.socketpair()
    os.set_inheritable(a.fileno(), True)
    source, qmp = machine(pass_fds=(a.fileno(),))
    change(source)
    for how in (lambda: qmp.call("migrate_cancel"), lambda: qmp.hmp("migrate_cancel")):
        qmp.call("migrate", uri=f"fd:{a.fileno()}")
        assert "error" in qmp.raw("migrate", uri="file:/dev/null"), "one at a time"
        expect(qmp.call("query-migrate")["status"], "active")
        how()
        qmp.until("cancelled")
        expect(qmp.call("query-status")["status"], "running")
    check(source)
    qmp.call("migrate_cancel")  # nothing to cancel
    path = temp("after all")
    expect(qmp.hmp(f"migrate -d file:{path}"), "")
    qmp.until("completed")
    source.close()
    b.close()
    a.close()


@case(name="failures")
def failures(_):
    """The machine runs on; no file is left half written; what does not exist is refused by name."""
    source, qmp = machine()
    for uri, word in (("rdma:host:1", "does not exist"), ("tcp:nobody", "HOST:PORT"), ("tcp:127.0.0.1:99999", "HOST:PORT"),
                      (f"tcp:127.0.0.1:{free_port()}", "refused"), ("unix:/nonexistent/socket", "No such file"),
                      ("fd:77", "open descriptor"), ("fd:name", "open descriptor"), ("file:/nonexistent/x", "cannot create"),
                      ("file:", "path"), ("unix:", "path")):
        got = qmp.raw("migrate", uri=uri)
        assert word in got.get("error", {}).get("desc", ""), (uri, got)
        assert word in qmp.hmp(f"migrate {uri}"), uri
        expect(qmp.call("query-status")["status"], "running")
    qmp.call("migrate", uri="exec:cat >/dev/null; exit 3")
    assert "status 3" in qmp.until("failed")["error-desc"]
    qmp.call("migrate", uri="exec:exit 0")  # the reader has gone
    qmp.until("failed")
    expect(qmp.call("query-status")["status"], "running")
    source.close()
    for uri in ("file:/nonexistent/x", "exec:false", "tcp:nobody", "fd:77"):
        got = subprocess.run([*KELVIN, "-accel", "qtest", "-display", "none", "-nodefaults", "-incoming", uri],
                             stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
        assert got.returncode == 1 and len(got.stderr.strip().splitlines()) == 1, (uri, got)


main_alone()
