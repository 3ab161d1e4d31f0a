#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""shell.py ACCEL: ./try --shell on a terminal: the root shell answers, Ctrl-a c reaches the monitor and comes back, the exit
status is the shell's, Ctrl-a x leaves, and the terminal's settings are as before each time."""
import os
import pty
import select
import subprocess
import sys
import termios
import time

import guest


class Terminal:
    """./try --shell behind a pseudo terminal."""

    def __init__(self, accel):
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        argv = [os.path.join(guest.TOP, "try"), "--accel", accel, "--shell"]
        if "KELVIN" in os.environ:
            argv[1:1] = ["--vmm", os.environ["KELVIN"]]
        self.process = subprocess.Popen(argv, stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True)
        self.seen = ""

    def expect(self, text, timeout):
        """Wait for text in the output that came since the last match."""
        end = time.monotonic() + timeout
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise guest.GuestFailed(f"no '{text}' within {timeout} s; the terminal shows\n{self.seen[-2000:]}")
            self.seen += os.read(self.master, 65536).decode(errors="replace")
        self.seen = self.seen[self.seen.index(text) + len(text):]

    def send(self, text):
        os.write(self.master, text.encode())

    def finish(self, timeout):
        """Wait for the end; returns the status. What is printed meanwhile is read, so that nothing blocks."""
        end = time.monotonic() + timeout
        while self.process.poll() is None:
            if time.monotonic() > end:
                self.process.kill()
                raise guest.GuestFailed(f"still there after {timeout} s; the terminal shows\n{self.seen[-2000:]}")
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
        if termios.tcgetattr(self.slave) != self.before:
            raise guest.GuestFailed("the terminal's settings changed")
        return self.process.returncode


def main():
    accel = sys.argv[1]
    first = Terminal(accel)
    first.expect("root@kelvin", 300)
    first.send("echo answer-$((6 * 7))\n")
    first.expect("answer-42", 60)
    first.send("\x01c")
    first.expect("(kelvin)", 30)
    first.send("info status\r")
    first.expect("running", 30)
    first.send("\x01c")
    first.send("exit 3\n")
    status = first.finish(120)
    if status != 3:
        raise guest.GuestFailed(f"status {status}, not the shell's 3\n{first.seen[-2000:]}")
    second = Terminal(accel)
    second.expect("root@kelvin", 300)
    second.send("\x01x")
    status = second.finish(30)
    if status:
        raise guest.GuestFailed(f"status {status} after Ctrl-a x\n{second.seen[-2000:]}")
    print("shell, monitor, exit status, Ctrl-a x, and the terminal as before")


guest.run_test(main)
