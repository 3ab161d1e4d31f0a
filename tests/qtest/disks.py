#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Disks over the test protocol: IDE by ports and by bus master, AHCI, NVMe: identify, read, write, and errors."""
import struct
from qtest import case, expect, main, pattern, temp

SECTORS = 8192
DISK = temp("disk", pattern(SECTORS))
DRIVE = ("-drive", f"if=none,id=d0,format=raw,file={DISK},snapshot=on")


def ata_text(words, start, count):
    return b"".join(struct.pack(">H", w) for w in words[start:start + count]).decode().strip()


def sector(n):
    return struct.pack("<Q", n) * 64


# ---- IDE ---------------------------------------------------------------------

IDE_DEVFN = 0x09
CMD, CTL = 0x1f0, 0x3f6


def ide_on(m):
    m.cfg_write(IDE_DEVFN, 0x40, 0x80008000)


def ide_command(m, command, lba=0, count=1, drive=0):
    m.outb(CMD + 6, 0xe0 | drive << 4 | lba >> 24 & 15)
    for reg, value in ((2, count), (3, lba), (4, lba >> 8), (5, lba >> 16)):
        m.outb(CMD + reg, value & 0xff)
    m.outb(CMD + 7, command)


def ide_idle(m):
    m.wait("BSY clear", lambda: not m.inb(CTL) & 0x80)
    return m.inb(CMD + 7)


@case(*DRIVE, "-device", "ide-hd,drive=d0,bus=ide.0,serial=QTEST", timed=False)
def ide_pio(m):
    ide_on(m)
    expect((m.inb(CMD + 2), m.inb(CMD + 3), m.inb(CMD + 4), m.inb(CMD + 5)), (1, 1, 0, 0), "signature of a disk")
    ide_command(m, 0xec)
    expect(ide_idle(m) & 0xc9, 0x48, "DRDY and DRQ")
    words = [m.inw(CMD) for _ in range(256)]
    expect(ide_idle(m) & 0x89, 0, "nothing is left")
    expect(ata_text(words, 10, 10), "QTEST")
    expect(words[60] | words[61] << 16, SECTORS)
    expect(words[49] & 0x300, 0x300, "DMA and LBA")
    ide_command(m, 0x20, 5, 2)
    for n in (5, 6):
        expect(ide_idle(m) & 0x89, 0x08)
        expect(b"".join(struct.pack("<H", m.inw(CMD)) for _ in range(256)), sector(n), f"sector {n}")
    ide_idle(m)
    ide_command(m, 0x20, SECTORS, 1)
    expect(ide_idle(m) & 0x09, 1, "past the end: an error, no data")
    expect(m.inb(CMD + 1) & 0x14 != 0, True, "IDNF or ABRT")
    ide_command(m, 0x5f)  # nothing
    expect(ide_idle(m) & 0x09, 1)
    expect(m.inb(CMD + 1), 4, "ABRT")
    m.outb(CMD + 6, 0xf0)
    expect(m.inb(CMD + 7), 0, "no second drive")


@case("-drive", f"if=ide,index=0,format=raw,file={DISK},snapshot=on")
def ide_dma(m):
    """Bus master: a PRD table of two pieces; the interrupt is 14."""
    ide_on(m)
    bm = m.pci_bar(IDE_DEVFN, 4)
    m.command("irq_intercept_in", "ioapic")
    m.write(0x1000, struct.pack("<IIII", 0x10000, 512, 0x20000, 0x80000000 | 1536))
    m.outl(bm + 4, 0x1000)
    m.outb(bm + 2, 6)
    m.outb(bm, 8)
    ide_command(m, 0xc8, 100, 4)
    m.outb(bm, 9)
    m.wait("the interrupt", lambda: m.inb(bm + 2) & 4)
    expect(m.take_irqs(), [("raise", 14)])
    expect(m.inb(CMD + 7) & 0x89, 0)
    expect(m.take_irqs(), [("lower", 14)], "reading the status")
    expect(m.inb(bm + 2) & 3, 0, "not active, no error")
    m.outb(bm, 0)
    expect(m.read(0x10000, 512), sector(100))
    expect(m.read(0x20000, 1536), sector(101) + sector(102) + sector(103))
    expect(m.read(0x10000 + 512, 16), bytes(16), "not a byte more")
    # Write two, read them back by PIO
    m.outb(bm + 2, 6)
    m.write(0x10000, b"\xa5" * 1024)
    m.write(0x1000, struct.pack("<II", 0x10000, 0x80000000 | 1024))
    m.outl(bm + 4, 0x1000)
    m.outb(bm, 0)
    ide_command(m, 0xca, 7, 2)
    m.outb(bm, 1)
    m.wait("the interrupt", lambda: m.inb(bm + 2) & 4)
    m.inb(CMD + 7)
    m.outb(bm, 0)
    ide_command(m, 0x20, 8, 1)
    expect(ide_idle(m) & 0x89, 8)
    expect(struct.pack("<H", m.inw(CMD)), b"\xa5\xa5")
    # A table too short for the command, then one outside RAM: no hang, no data elsewhere
    m.outb(CTL, 6)
    m.outb(CTL, 0)
    for table in (struct.pack("<II", 0x10000, 0x80000000 | 512), struct.pack("<II", 0xf0000000, 0x80000000 | 2048)):
        m.write(0x1000, table)
        m.outl(bm + 4, 0x1000)
        m.outb(bm + 2, 6)
        ide_command(m, 0xc8, 1, 4)
        m.outb(bm, 9)
        m.step(1000000)
        m.outb(bm, 0)
        m.outb(CTL, 4)
        m.outb(CTL, 0)
    ide_command(m, 0xec)
    expect(ide_idle(m) & 0x89, 8, "and it works on")


# ---- AHCI ------------------------------------------------------------------------

AHCI = ("-device", "ich9-ahci,id=ahci,addr=4", "-device", "ide-hd,bus=ahci.0,drive=d0,serial=SATA0", *DRIVE)
LIST, FIS, TABLE, DATA = 0x10000, 0x11000, 0x12000, 0x20000


def ahci_start(m):
    devfn = 4 << 3
    abar = m.pci_bar(devfn, 5)
    m.writel(abar + 4, 0x80000002)  # AE, IE
    port = abar + 0x100
    m.writel(port + 0x00, LIST)
    m.writel(port + 0x08, FIS)
    m.writel(port + 0x14, 0xffffffff)
    m.writel(port + 0x30, 0xffffffff)
    m.writel(port + 0x18, 0x11)
    return abar, port


def ahci_issue(m, port, command, size, lba=0, count=1, write=False, addr=DATA, slot=0):
    """A command by register FIS with one PRD of `size` bytes, or none."""
    fis = struct.pack("<BBBBBBBBBBBBHBB4x", 0x27, 0x80, command, 0, lba & 0xff, lba >> 8 & 0xff, lba >> 16 & 0xff, 0x40,
                      lba >> 24, 0, 0, 0, count, 0, 0)
    m.write(TABLE, fis)
    m.write(TABLE + 0x80, struct.pack("<QII", addr, 0, size - 1 if size else 0))
    m.write(LIST + 32 * slot, struct.pack("<HHIQ", 5 | write << 6, size > 0, 0, TABLE) + bytes(16))
    m.writel(port + 0x38, 1 << slot)


@case(*AHCI, timed=False)
def ahci_registers(m):
    devfn = 4 << 3
    expect(m.cfg_read(devfn, 0), 0x29228086)
    expect(m.cfg_read(devfn, 8) >> 8, 0x010601)
    abar, port = ahci_start(m)
    expect(m.readl(abar) & 0x1f, 5, "six ports")
    expect(m.readl(abar) >> 8 & 0x1f, 31, "32 slots")
    expect(m.readl(abar + 0x0c), 0x3f, "ports implemented")
    expect(m.readl(abar + 0x10) >> 16, 1, "AHCI 1")
    expect(m.readl(port + 0x28) & 0xf0f, 0x103, "a device at speed")
    expect(m.readl(abar + 0x180 + 0x28) & 0xf, 0, "and none in the second port")
    expect(m.readl(port + 0x24), 0x101, "signature of a disk")
    expect(m.readl(port + 0x18) & 0xc000, 0xc000, "FR and CR run")


@case(*AHCI)
def ahci_commands(m):
    m.command("irq_intercept_in", "ioapic")
    m.cfg_write(0x08, 0x60, 0x0b0b0a0a)  # the PIIX3's routes: slot 4's pin A is the fourth
    abar, port = ahci_start(m)
    ahci_issue(m, port, 0xec, 512)
    m.wait("IDENTIFY", lambda: not m.readl(port + 0x38))
    words = struct.unpack("<256H", m.read(DATA, 512))
    expect(ata_text(words, 10, 10), "SATA0")
    expect(words[60] | words[61] << 16, SECTORS)
    expect(m.readl(LIST + 4), 512, "byte count of the command header")
    assert m.readl(port + 0x10), "an interrupt status"
    expect(m.take_irqs(), [("raise", 11)])
    m.writel(port + 0x10, 0xffffffff)
    m.writel(abar + 8, 0xffffffff)
    expect(m.take_irqs(), [("lower", 11)], "acknowledged")
    # READ DMA EXT and WRITE DMA EXT in another slot
    ahci_issue(m, port, 0x25, 4096, lba=42, count=8, slot=3)
    m.wait("READ", lambda: not m.readl(port + 0x38))
    expect(m.read(DATA, 4096), b"".join(sector(42 + i) for i in range(8)))
    m.write(DATA, b"\x5a" * 512)
    ahci_issue(m, port, 0x35, 512, lba=43, count=1, write=True)
    m.wait("WRITE", lambda: not m.readl(port + 0x38))
    ahci_issue(m, port, 0x25, 1024, lba=43, count=2)
    m.wait("READ", lambda: not m.readl(port + 0x38))
    expect(m.read(DATA, 1024), b"\x5a" * 512 + sector(44))
    expect(m.readl(port + 0x20) & 1, 0, "task file: no error")
    # Data to where no RAM is; a list outside RAM
    ahci_issue(m, port, 0x25, 512, lba=1, addr=0xf0000000)
    m.step(1000000)
    m.writel(port + 0x18, 0)
    m.writel(port + 0x00, 0xf0000000)
    m.writel(port + 0x18, 0x11)
    m.writel(port + 0x38, 1)
    m.step(1000000)
    m.writel(abar + 4, 0x80000001)
    m.wait("the reset", lambda: not m.readl(abar + 4) & 1)
    abar, port = ahci_start(m)
    ahci_issue(m, port, 0xec, 512)
    m.wait("IDENTIFY", lambda: not m.readl(port + 0x38))
    expect(m.read(DATA + 20, 2), b"AS", "and it works on")


# ---- NVMe -----------------------------------------------------------------------------

NVME = ("-device", "nvme,drive=d0,serial=NVME0,addr=4", *DRIVE)
ASQ, ACQ, IOSQ, IOCQ = 0x30000, 0x31000, 0x32000, 0x33000


class Nvme:
    """One admin and one I/O queue of 16 entries each."""

    def __init__(self, m):
        self.m, self.tail, self.head, self.phase, self.cid = m, [0, 0], [0, 0], [1, 1], 0
        self.regs = m.pci_bar(4 << 3, 0)
        m.writel(self.regs + 0x14, 0)
        m.wait("not ready", lambda: not m.readl(self.regs + 0x1c) & 1)
        m.writel(self.regs + 0x24, 15 << 16 | 15)
        m.writeq(self.regs + 0x28, ASQ)
        m.writeq(self.regs + 0x30, ACQ)
        m.writel(self.regs + 0x14, 4 << 20 | 6 << 16 | 1)
        m.wait("ready", lambda: m.readl(self.regs + 0x1c) & 1)

    def run(self, q, opcode, nsid=0, prp1=0, prp2=0, cdw10=0, cdw11=0, cdw12=0):
        """Submit and wait; (status, result)."""
        m, sq, cq = self.m, (ASQ, IOSQ)[q], (ACQ, IOCQ)[q]
        self.cid += 1
        m.write(sq + 64 * self.tail[q], struct.pack("<BBHI16xQQIIIIII", opcode, 0, self.cid, nsid, prp1, prp2, cdw10, cdw11,
                                                    cdw12, 0, 0, 0))
        self.tail[q] = (self.tail[q] + 1) % 16
        m.writel(self.regs + 0x1000 + 8 * q, self.tail[q])
        entry = cq + 16 * self.head[q]
        m.wait("a completion", lambda: m.readw(entry + 14) & 1 == self.phase[q])
        result, _, _, _, cid, status = struct.unpack("<IIHHHH", m.read(entry, 16))
        expect(cid, self.cid, "command identifier")
        self.head[q] = (self.head[q] + 1) % 16
        self.phase[q] ^= self.head[q] == 0
        m.writel(self.regs + 0x1004 + 8 * q, self.head[q])
        return status >> 1, result

    def io_queues(self, vector=None):
        irq = 0 if vector is None else 2 | vector << 16
        expect(self.run(0, 5, prp1=IOCQ, cdw10=15 << 16 | 1, cdw11=1 | irq)[0], 0, "create the completion queue")
        expect(self.run(0, 1, prp1=IOSQ, cdw10=15 << 16 | 1, cdw11=1 << 16 | 1)[0], 0, "create the submission queue")


@case(*NVME)
def nvme_commands(m):
    n = Nvme(m)
    expect(m.readl(n.regs + 8) >> 16, 1, "version 1.x")
    expect(n.run(0, 6, prp1=DATA, cdw10=1)[0], 0, "identify controller")
    expect(m.read(DATA + 4, 20).strip(), b"NVME0")
    expect(m.readl(DATA + 516), m.readl(DATA + 516))
    expect(n.run(0, 6, nsid=1, prp1=DATA)[0], 0, "identify namespace 1")
    expect(m.readq(DATA), SECTORS)
    expect(m.readl(DATA + 128 + 4 * (m.readb(DATA + 26) & 15)) >> 16 & 0xff, 9, "blocks of 512 bytes")
    expect(n.run(0, 6, nsid=99, prp1=DATA)[0] & 0x7ff, 0x00b, "no such namespace")
    expect(n.run(0, 0x7f)[0] & 0x7ff, 1, "no such command")
    n.io_queues()
    expect(n.run(1, 2, 1, DATA, 0, 77, 0, 7)[0], 0, "read 8 blocks")
    expect(m.read(DATA, 4096), b"".join(sector(77 + i) for i in range(8)))
    m.write(DATA, b"\x3c" * 512)
    expect(n.run(1, 1, 1, DATA, 0, 78, 0, 0)[0], 0, "write")
    expect(n.run(1, 0)[0] & 0x7ff in (0, 0x00b), True, "flush")
    expect(n.run(1, 2, 1, DATA + 0x1000, 0, 77, 0, 2)[0], 0)
    expect(m.read(DATA + 0x1000, 1536), sector(77) + b"\x3c" * 512 + sector(79))
    expect(n.run(1, 2, 1, DATA, 0, SECTORS, 0, 0)[0] & 0x7ff, 0x080, "LBA out of range")
    assert n.run(1, 2, 1, 0xf0000000, 0, 0, 0, 0)[0], "DMA to where no RAM is"
    for i in range(40):  # around the ring
        expect(n.run(1, 2, 1, DATA, 0, i, 0, 0)[0], 0)
        expect(m.readq(DATA), i)


@case(*NVME)
def msix_to_ram(m):
    """A test client without a CPU sees messages by giving them an address in RAM; and masked ones by the pending bits."""
    devfn = 4 << 3
    n = Nvme(m)
    cap = dict(m.pci_caps(devfn))[0x11]
    info = m.cfg_read(devfn, cap + 4)
    expect(info & 7, 0, "the table is in BAR 0")
    table, pba = n.regs + (info & ~7), n.regs + (m.cfg_read(devfn, cap + 8) & ~7)
    m.cfg_write(devfn, cap + 2, 0x8000, 2)
    for vector, mask in ((0, 1), (1, 0)):
        m.writeq(table + 16 * vector, 0x40000 + 4 * vector)
        m.writel(table + 16 * vector + 8, 0xbeef + vector)
        m.writel(table + 16 * vector + 12, mask)
    n.io_queues(vector=1)
    expect(m.readl(0x40000), 0, "masked")
    expect(m.readl(pba) & 1, 1, "pending")
    m.writel(table + 12, 0)
    expect(m.readl(0x40000), 0xbeef, "unmasked: sent")
    expect(n.run(1, 2, 1, DATA, 0, 1, 0, 0)[0], 0)
    m.wait("the message", lambda: m.readl(0x40004) == 0xbef0)
    # A message whose address is no RAM and no LAPIC goes nowhere.
    m.writel(table + 16, 0xf0000000)
    expect(n.run(1, 2, 1, DATA, 0, 1, 0, 0)[0], 0)


main()
