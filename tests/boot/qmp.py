# SPDX-License-Identifier: GPL-2.0-or-later
"""A QMP client for the tests that drive a machine."""
import json
import socket
import time

import guest


class QmpFailed(guest.GuestFailed):
    """The monitor refused, or is gone."""


class Qmp:
    """A connection: commands in turn, events kept."""

    def __init__(self, path, wait=0):
        """wait: seconds until the monitor must be there."""
        self.events, self.event_list = [], []  # names, whole
        deadline = time.monotonic() + wait
        while True:
            try:
                self.socket = socket.socket(socket.AF_UNIX)
                self.socket.settimeout(100)
                self.socket.connect(path)
                break
            except OSError:
                self.socket.close()
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.02)
        self.file = self.socket.makefile("rw", encoding="utf-8")
        json.loads(self.file.readline())
        self.call("qmp_capabilities")

    def read(self):
        """What comes next, kept if it is an event."""
        line = self.file.readline()
        if not line:
            raise QmpFailed("the monitor is gone")
        got = json.loads(line)
        if "event" in got:
            self.events.append(got["event"])
            self.event_list.append(got)
        return got

    def raw(self, command, arguments=None):
        """The reply, be it an error."""
        self.file.write(json.dumps({"execute": command, "arguments": arguments or {}}) + "\n")
        self.file.flush()
        while "event" in (got := self.read()):
            pass
        return got

    def call(self, command, arguments=None):
        """What the command returns."""
        got = self.raw(command, arguments)
        if "return" not in got:
            raise QmpFailed(f"QMP {command}: {got}")
        return got["return"]

    def wait_event(self, name):
        """The first event of this name, also one that came before."""
        while name not in self.events:
            self.read()
        return self.event_list[self.events.index(name)]
