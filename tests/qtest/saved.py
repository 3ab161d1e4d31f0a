# SPDX-License-Identifier: GPL-2.0-or-later
"""A machine with something of everything to lose, and its monitor: for the tests that save and load machines."""
import os
import sys
import tempfile

import qtest
from qtest import KELVIN, PATIENCE, Machine, expect

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "boot"))
from qmp import Qmp  # pylint: disable=wrong-import-position


def machine(*options, client=Qmp, command=KELVIN, **keep):
    """The machine and a second connection, for the monitor."""
    path = tempfile.mktemp(prefix="qmp", dir=qtest.DIR)
    m = Machine(command, False, "-qmp", f"unix:{path},server=on,wait=off", "-device", "virtio-rng-pci", *options, **keep)
    return m, client(path, PATIENCE)


def change(m, n=0):
    """n: each gives another state."""
    for page in range(0, 64, 7):
        m.write(0x200000 + page * 4096, bytes([page + 1 + n]) * 100)
    m.write(0x3ffff00, b"the last page" * 10)
    m.outb(0x70, 0x50)
    m.outb(0x71, 0x99 - n)
    m.outb(0x21, 0x5a + n)
    m.cfg_write(m.pci_find(0x1af4, 0x1005), 0x3c, 0x77 + n, 1)


def check(m, n=0):
    for page in range(0, 64, 7):
        expect(m.read(0x200000 + page * 4096, 100), bytes([page + 1 + n]) * 100)
    expect(m.read(0x200000 + 4096, 100), bytes(100))
    expect(m.read(0x3ffff00, 13), b"the last page")
    m.outb(0x70, 0x50)
    expect(m.inb(0x71), 0x99 - n)
    expect(m.inb(0x21), 0x5a + n)
    expect(m.cfg_read(m.pci_find(0x1af4, 0x1005), 0x3c, 1), 0x77 + n)
