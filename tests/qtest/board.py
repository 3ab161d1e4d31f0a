#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The board's chips over the test protocol: timers, interrupt controllers, PCI, serial, fw_cfg, and QEMU's test devices."""
import socket
import struct
from qtest import KELVIN, Failed, Machine, case, expect, expect_fail, main, temp

PIT_HZ, PM_HZ = 1193182, 3579545
MS, SECOND = 1000000, 1000000000


# ---- the protocol ----------------------------------------------------------------


@case(timed=False)
def protocol(m):
    expect(m.command("endianness"), "little")
    m.writel(0x1000, 0x12345678)
    expect(m.command("read", 0x1000, 6), "0x785634120000", "read")
    expect(m.command("readb", "0x1003"), "0x0000000000000012", "readb")
    expect(m.command("readw", "4098"), "0x0000000000001234", "readw, decimal")
    m.writeq(0x1000, 0x1122334455667788)
    expect(m.readq(0x1000), 0x1122334455667788)
    m.writew(0x1002, 0xffffaaaa)
    m.writeb(0x1007, 0x99)
    expect(m.readq(0x1000), 0x99223344aaaa7788)
    m.command("write", 0x3000, 4, "0x0102")
    expect(m.command("read", 0x3000, 4), "0x01020000", "short data: zeros")
    m.command("b64write", 0x2000, 3, "YWJj")
    expect(m.command("b64read", 0x2000, 3), "YWJj", "b64read")
    m.command("memset", 0x2000, 4, "0x5a")
    expect(m.command("read", 0x2000, 5), "0x5a5a5a5a00", "memset")
    expect(m.command("inb", "0x70"), "0x00ff", "form of inb's reply")
    expect(expect_fail(m.command, "bogus"), "FAIL Unknown command 'bogus'")
    m.command("irq_intercept_in", "ioapic")
    m.command("irq_intercept_in", "ioapic")
    m.command("set_irq_in", "ioapic", "unnamed-gpio-in", 5, 1)
    m.command("set_irq_in", "ioapic", "unnamed-gpio-in", 5, 1)
    m.command("set_irq_in", "ioapic", "unnamed-gpio-in", 5, 0)
    expect(m.take_irqs(), [("raise", 5), ("lower", 5)], "changes only")


@case("-qtest-log", temp("log"))
def log(m):
    m.outb(0x70, 0x0f)
    expect(m.inb(0x71), 0)
    lines = [line.split("] ", 1) for line in open(temp("log"), encoding="ascii").read().splitlines()]
    expect([(head[:3], text) for head, text in lines],
           [("[I ", "OPENED"), ("[R ", "outb 112 15"), ("[S ", "OK"), ("[R ", "inb 113"), ("[S ", "OK 0x0000")])


@case()
def hostile(m):
    """Each line is answered by one FAIL, and the machine goes on."""
    for line in ("inb", "inb 1 2", "inb x", "inb 0x10000", "inb -1", "inb 1x", "outb 0x80", "readq 0x1ffffffffffffffff",
                 "read 0 0", "read 0 0xffffffff", "read 0 999999999999", "write 0 4", "write 0 4 0102", "write 0 4 0x1",
                 "write 0 4 0xzz", "b64write 0 3 YWJ", "b64write 0 3 Y=Jj", "b64write 0 3 ====", "memset 0 99999999 0",
                 "memset 0 4 -1", "clock_step x", "clock_step -1", "clock_step 0x8000000000000000", "clock_set",
                 "irq_intercept_in", "irq_intercept_in /machine/nothing", "irq_intercept_out ioapic",
                 "set_irq_in ioapic x 24 1", "set_irq_in rtc x 0 1", "set_irq_in i8259 x 16 1", "rtas 1 2 3",
                 "a b c d e f g", "\x7f", "inb\x000x70"):
        assert expect_fail(m.command, line).startswith("FAIL"), line
    m.socket.sendall(b"\n\r\n   \n")  # nothing is no command
    m.socket.sendall(b"inb 0x70\r\n")
    expect(m.reply(), "OK 0x00ff")
    m.socket.sendall(b"write 0 4 0x" + b"0" * (40 << 20) + b"\n")
    expect(m.reply(), "FAIL the command is too long")
    # Everywhere, whole: no place in the address space hurts.
    for addr in (0, 0x9fff8, 0xa0000, 0x3fffff8, 0xfec00000, 0xfed00000, 0xfee00000, 0xfffffff8, 2**64 - 8, 2**63):
        m.command("readq", addr)
        m.command("read", addr, 16)
        m.command("writeq", addr, 2**64 - 1)
    # Commands in a row without a wait for replies, in odd pieces.
    text = b"".join(b"writel 0x%x %d\nreadl 0x%x\n" % (0x4000 + 4 * i, i, 0x4000 + 4 * i) for i in range(3000))
    for i in range(0, len(text), 4093):
        m.socket.sendall(text[i:i + 4093])
    for i in range(3000):
        expect(m.reply(), "OK")
        expect(m.reply(), "OK 0x%016x" % i)
    # A client that asks for much and reads late.
    for _ in range(8):
        m.socket.sendall(b"read 0 0x100000\n")
    for _ in range(8):
        expect(len(m.reply()), 5 + 2 * 0x100000)
    # A step with very many timers in it: the machine can still be ended (the frame looks at its status).
    m.outb(0x43, 0x34)
    m.outb(0x40, 2)
    m.outb(0x40, 0)
    m.socket.sendall(b"clock_set 0x7fffffffffffffff\n")


@case()
def quick_reader(m):
    """Output that never waits: what stood behind a long reply in the input is run all the same."""
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    ours.sendall(b"read 0 0x80000\n" * 3)
    quick = Machine(KELVIN, False, link=(ours, theirs))
    try:
        for _ in range(3):
            expect(len(quick.reply()), 5 + 2 * 0x80000)
    finally:
        quick.close()


# ---- timers -----------------------------------------------------------------------


def pit_load(m, channel, mode, count):
    m.outb(0x43, channel << 6 | 0x30 | mode << 1)
    m.outb(0x40 + channel, count & 0xff)
    m.outb(0x40 + channel, count >> 8)


def pit_count(m, channel):
    m.outb(0x43, channel << 6)
    return m.inb(0x40 + channel) | m.inb(0x40 + channel) << 8


@case()
def pit(m):
    m.command("irq_intercept_in", "ioapic")
    pit_load(m, 0, 0, 11932)
    m.take_irqs()
    m.step(5 * MS)
    assert abs(pit_count(m, 0) - (11932 - 5966)) <= 2, "counts down at 1.193182 MHz"
    expect(m.take_irqs(), [])
    m.step(5 * MS + 10000)
    expect(m.take_irqs(), [("raise", 0)], "mode 0: OUT rises at the terminal count")
    pit_load(m, 0, 2, 1193)
    m.take_irqs()
    start = m.step(0)
    m.step(100 * MS)
    expect(len([1 for what, _ in m.take_irqs() if what == "raise"]), 100, "mode 2: one interrupt a millisecond")
    expect(m.step() - start > 100 * MS, True, "clock_step without a time goes to the next timer")
    # Read back: latch count and status of channel 2.
    pit_load(m, 2, 3, 1000)
    m.outb(0x43, 0xc0 | 1 << 3)
    expect(m.inb(0x42) & 0x3f, 0x36, "status: mode 3, both bytes")


@case(timed=False)
def pit_registers(m):
    """The gate and speaker port, and programming without time."""
    expect(m.inb(0x61) & 3, 0)
    m.outb(0x61, 1)
    expect(m.inb(0x61) & 3, 1)
    for mode in (0, 2, 3, 4):
        pit_load(m, 2, mode, 0x1234)
        m.outb(0x43, 0xe0 | 1 << 3)  # status only
        expect(m.inb(0x42) & 0x3f, 0x30 | mode << 1)


def cmos(m, reg, value=None):
    m.outb(0x70, reg)
    if value is not None:
        m.outb(0x71, value)
    return m.inb(0x71)


@case(timed=False)
def rtc_cmos(m):
    expect(cmos(m, 0x0d), 0x80, "valid RAM and time")
    expect(cmos(m, 0x40, 0xa5), 0xa5)
    expect(cmos(m, 0x0b) & 0x02, 0x02, "24 hours")
    expect(cmos(m, 0x15) | cmos(m, 0x16) << 8, 640, "base memory")
    expect(cmos(m, 0x17) | cmos(m, 0x18) << 8, 63 * 1024, "extended memory, KiB")
    expect(cmos(m, 0x34) | cmos(m, 0x35) << 8, 48 * 16, "above 16 MiB, 64 KiB")


@case("-rtc", "base=2009-06-15T12:34:56,clock=vm")
def rtc(m):
    m.command("irq_intercept_in", "ioapic")
    expect([cmos(m, r) for r in (9, 8, 7, 4, 2, 0)], [0x09, 0x06, 0x15, 0x12, 0x34, 0x56])
    m.step(3 * SECOND)
    expect(cmos(m, 0), 0x59)
    m.step(SECOND)
    expect([cmos(m, r) for r in (4, 2, 0)], [0x12, 0x35, 0x00], "a minute is over")
    cmos(m, 0x0c)
    m.take_irqs()
    # Update ended
    cmos(m, 0x0b, 0x12)
    m.step(SECOND + 10 * MS)
    expect(m.take_irqs(), [("raise", 8)])
    expect(cmos(m, 0x0c) & 0x90, 0x90)
    expect(m.take_irqs(), [("lower", 8)], "reading register C takes it back")
    # Alarm ten seconds from now, any minute and hour
    second = cmos(m, 0)
    target = (second >> 4) * 10 + (second & 15) + 10
    cmos(m, 0x01, target // 10 << 4 | target % 10)
    cmos(m, 0x03, 0xff)
    cmos(m, 0x05, 0xff)
    cmos(m, 0x0b, 0x22)
    m.step(8 * SECOND)
    expect(m.take_irqs(), [])
    m.step(3 * SECOND)
    expect(m.take_irqs(), [("raise", 8)])
    expect(cmos(m, 0x0c) & 0xa0, 0xa0)
    # Periodic, 1024 Hz; each must be acknowledged
    m.take_irqs()
    cmos(m, 0x0a, 0x26)
    cmos(m, 0x0b, 0x42)
    count = 0
    for _ in range(50):
        m.step(SECOND // 1024)
        count += m.take_irqs().count(("raise", 8))
        cmos(m, 0x0c)
        m.take_irqs()
    assert 49 <= count <= 50, f"{count} of 50 periodic interrupts"


HPET = 0xfed00000


@case(timed=False)
def hpet_registers(m):
    expect(m.readl(HPET) & 0xffff0000, 0x80860000)
    expect(m.readl(HPET) & 0x8000, 0x8000, "legacy route possible")
    expect(m.readl(HPET + 4), 10000000, "period in femtoseconds")
    m.writeq(HPET + 0xf0, 0x123456789)
    expect(m.readq(HPET + 0xf0), 0x123456789)
    m.writeq(HPET + 0x108, 0x55)
    expect(m.readl(HPET + 0x108), 0x55)
    expect(m.readq(HPET + 0x10), 0)


@case()
def hpet(m):
    m.command("irq_intercept_in", "ioapic")
    m.writeq(HPET + 0x10, 1)
    m.step(MS)
    expect(m.readq(HPET + 0xf0), MS // 10, "counts 10 ns")
    # Timer 1, one shot, to IOAPIC input 20
    m.writeq(HPET + 0x120, 20 << 9 | 4)
    m.writeq(HPET + 0x128, 2 * MS // 10)
    m.step(MS // 2)
    expect(m.take_irqs(), [])
    m.step(MS)
    expect([i for i in m.take_irqs() if i[1] == 20][:1], [("raise", 20)])
    # Timer 0, periodic, legacy route: it is the PIT's interrupt 0 then
    now = m.readq(HPET + 0xf0)
    m.writeq(HPET + 0x10, 0)
    m.writeq(HPET + 0x100, 0x4c)
    m.writeq(HPET + 0x108, now + 1000)
    m.writeq(HPET + 0x108, 100000)
    m.writeq(HPET + 0x10, 3)
    m.take_irqs()
    m.step(10 * MS)
    expect(m.take_irqs().count(("raise", 0)), 10, "one interrupt a millisecond")


PM_DEVFN = 0x0b


def pm_base(m):
    m.cfg_write(PM_DEVFN, 0x40, 0x601)
    m.cfg_write(PM_DEVFN, 0x80, 1, 1)
    return 0x600


@case()
def acpi_pm(m):
    base = pm_base(m)
    m.command("irq_intercept_in", "ioapic")
    t0 = m.inl(base + 8)
    m.step(SECOND)
    assert abs(((m.inl(base + 8) - t0) & 0xffffff) - PM_HZ) <= 1
    m.outw(base + 2, 1)  # timer enable
    expect(m.inw(base + 4) & 1, 0)
    m.outb(0xb2, 0xf1)  # the firmware's port: from now on ACPI's interrupt
    expect(m.inw(base + 4) & 1, 1, "SCI_EN")
    m.outw(base, 1)
    m.take_irqs()
    m.step(int(2**23 / PM_HZ * SECOND) + MS)
    expect(m.take_irqs(), [("raise", 9)], "bit 23 changed")
    expect(m.inw(base) & 1, 1)
    m.outw(base, 1)
    expect(m.take_irqs(), [("lower", 9)])


# ---- interrupt controllers -----------------------------------------------------------


def pic_init(m):
    for port, base, cascade in ((0x20, 0x30, 4), (0xa0, 0x38, 2)):
        m.outb(port, 0x11)
        m.outb(port + 1, base)
        m.outb(port + 1, cascade)
        m.outb(port + 1, 1)


@case(timed=False)
def pic(m):
    pic_init(m)
    m.outb(0x21, 0x00)
    m.outb(0xa1, 0x00)
    expect(m.inb(0x21), 0)
    m.outb(0x20, 0x0a)
    expect(m.inb(0x20) & ~1, 0, "IRR")
    m.outb(0x21, 0xfa)
    expect(m.inb(0x21), 0xfa, "the mask")
    m.outb(0x4d0, 0x20)
    m.outb(0x4d1, 0x0c)
    expect(m.inb(0x4d0), 0x20, "edge and level")
    expect(m.inb(0x4d1), 0x0c)
    m.outb(0x4d0, 0xff)
    m.outb(0x4d1, 0xff)
    expect(m.inb(0x4d0), 0xf8, "0 to 2 are always edges")
    expect(m.inb(0x4d1), 0xde, "and so are 8 and 13")


@case()
def pic_output(m):
    """INTR of the pair, seen from outside; the poll command answers in the CPU's place."""
    pic_init(m)
    m.outb(0x21, 0xdb)  # 2 and 5
    m.outb(0xa1, 0xf7)  # 11
    m.command("irq_intercept_out", "i8259")
    m.command("set_irq_in", "i8259", "unnamed-gpio-in", 5, 1)
    expect(m.take_irqs(), [("raise", 0)])
    m.outb(0x20, 0x0a)
    expect(m.inb(0x20) & 0x20, 0x20, "requested")
    m.outb(0x20, 0x0c)
    expect(m.inb(0x20), 0x85, "poll: line 5")
    expect(m.take_irqs(), [("lower", 0)], "in service now")
    m.outb(0x20, 0x0b)
    expect(m.inb(0x20) & 0x20, 0x20)
    m.command("set_irq_in", "i8259", "unnamed-gpio-in", 11, 1)
    expect(m.take_irqs(), [("raise", 0)], "11 comes through 2, which is above 5")
    m.outb(0x20, 0x0c)
    expect(m.inb(0x20), 0x82)
    m.outb(0xa0, 0x0c)
    expect(m.inb(0xa0), 0x83, "poll of the slave: its line 3")
    m.outb(0xa0, 0x20)
    m.outb(0x20, 0x20)
    m.outb(0x20, 0x20)
    expect(m.inb(0x20) & 0x24, 0, "all done")
    expect_fail(m.command, "irq_intercept_in", "ioapic")  # one chip at a time


def ioapic(m, reg, value=None):
    m.writel(0xfec00000, reg)
    if value is not None:
        m.writel(0xfec00010, value)
    return m.readl(0xfec00010)


@case(timed=False)
def ioapic_registers(m):
    expect(ioapic(m, 1) >> 16 & 0xff, 23, "24 inputs")
    expect(ioapic(m, 0, 0x0f000000), 0x0f000000, "ID")
    for pin in range(24):
        expect(ioapic(m, 0x10 + 2 * pin), 0x10000, f"input {pin} is masked")
    expect(ioapic(m, 0x10 + 2 * 9, 0xffffffff) & 0x1afff, 0x1afff)
    expect(ioapic(m, 0x10 + 2 * 9) & 0x5000, 0, "status and remote IRR are read-only")
    expect(ioapic(m, 0x11 + 2 * 9, 0xab000000) & 0xff000000, 0xab000000)


@case("-serial", "null")
def gsi_routes(m):
    """What each source pulls: ISA devices, and PCI functions through the PIIX3's four routes."""
    m.command("irq_intercept_in", "ioapic")
    m.outb(0x3f9, 2)  # COM1: transmitter empty
    m.outb(0x3fc, 8)
    expect(m.take_irqs(), [("raise", 4)])
    m.outb(0x3f9, 0)
    expect(m.take_irqs(), [("lower", 4)])
    pit_load(m, 0, 2, 100)
    assert ("raise", 0) in m.take_irqs()


# ---- PCI --------------------------------------------------------------------------------


@case(timed=False)
def pci_board(m):
    ids = {0x00: (0x12378086, 0x0600), 0x08: (0x70008086, 0x0601), 0x09: (0x70108086, 0x0101), 0x0b: (0x71138086, 0x0680)}
    for devfn, (vendor_device, klass) in ids.items():
        expect(m.cfg_read(devfn, 0), vendor_device)
        expect(m.cfg_read(devfn, 0x0a, 2), klass)
        expect(m.cfg_read(devfn, 0x0e, 1) & 0x7f, 0)
    expect(m.cfg_read(0x08, 0x0e, 1), 0x80, "the ISA bridge has more functions")
    expect(m.cfg_read(0xf0, 0), 0xffffffff, "nobody")
    expect(m.pci_bar_size(0x09, 4), 16, "bus master IDE")
    m.outl(0xcf8, 0x80000000)
    m.outb(0xcf8, 0x12)  # a byte there is no address
    expect(m.inl(0xcfc), 0x12378086)
    m.outl(0xcf8, 0)
    expect(m.inl(0xcfc), 0xffffffff, "not enabled")
    # Byte and word accesses
    expect(m.cfg_read(0x08, 0, 2), 0x8086)
    expect(m.cfg_read(0x08, 2, 2), 0x7000)
    expect(m.cfg_read(0x08, 1, 1), 0x80)
    m.cfg_write(0x08, 0x60, 0x0b, 1)
    expect(m.cfg_read(0x08, 0x60, 1), 0x0b, "route of PIRQA")
    m.cfg_write(0x00, 0, 0xdeadbeef)
    expect(m.cfg_read(0x00, 0), 0x12378086, "read-only")


@case("-device", "virtio-rng-pci,addr=5,id=rng", timed=False)
def pci_bars(m):
    devfn = m.pci_find(0x1af4, 0x1005)
    expect(devfn, 5 << 3)
    sizes = [m.pci_bar_size(devfn, n) for n in range(6)]
    expect(sizes[0], 32, "legacy registers")
    assert sizes[1] in (4096, 8192), "MSI-X"
    expect(sizes[4], 16384, "modern registers")
    assert 0x11 in dict(m.pci_caps(devfn)) and 0x09 in dict(m.pci_caps(devfn))


# ---- serial, fw_cfg -----------------------------------------------------------------------


@case("-chardev", "file,id=out,path=" + temp("serial"), "-serial", "chardev:out", timed=False)
def serial(m):
    expect(m.inb(0x3fd), 0x60, "line status: empty")
    m.outb(0x3ff, 0x5a)
    expect(m.inb(0x3ff), 0x5a, "scratch")
    m.outb(0x3fb, 0x83)
    m.outb(0x3f8, 0x0c)
    m.outb(0x3f9, 0x00)
    expect((m.inb(0x3f8), m.inb(0x3f9)), (0x0c, 0), "divisor")
    m.outb(0x3fb, 0x03)
    expect(m.inb(0x3f9), 0, "interrupts off")
    expect(m.inb(0x3fa), 0x01, "none pending")
    m.outb(0x3fa, 0x01)
    expect(m.inb(0x3fa), 0xc1, "FIFOs on")
    m.outb(0x3fc, 0x1f)  # loopback
    expect(m.inb(0x3fe) & 0xf0, 0xf0, "MCR comes back in MSR")
    m.outb(0x3fc, 0x1a)
    expect(m.inb(0x3fe) & 0xf0, 0x90)
    m.outb(0x3fc, 0x00)
    for c in b"qtest\n":
        m.outb(0x3f8, c)
    m.wait("the output", lambda: open(temp("serial"), "rb").read() == b"qtest\n")


def fw_cfg(m, key, n):
    m.outw(0x510, key)
    return bytes(m.inb(0x511) for _ in range(n))


@case("-fw_cfg", "name=opt/org.kelvin/test,string=hello", "-smp", "2", timed=False)
def fw_cfg_entries(m):
    expect(fw_cfg(m, 0, 4), b"QEMU")
    features = struct.unpack("<I", fw_cfg(m, 1, 4))[0]
    expect(features & 3, 3, "with DMA")
    expect(struct.unpack("<Q", fw_cfg(m, 3, 8))[0], 64 << 20, "RAM size")
    expect(struct.unpack("<H", fw_cfg(m, 5, 2))[0], 2, "CPUs")
    count = struct.unpack(">I", fw_cfg(m, 0x19, 4))[0]
    raw = fw_cfg(m, 0x19, 4 + 64 * count)[4:]
    files = {}
    for i in range(count):
        size, select, _, name = struct.unpack(">IHH56s", raw[64 * i:64 * i + 64])
        files[name.rstrip(b"\0").decode()] = (select, size)
    select, size = files["opt/org.kelvin/test"]
    expect(fw_cfg(m, select, size), b"hello")
    # The same by DMA
    expect(struct.unpack(">II", struct.pack("<II", m.inl(0x514), m.inl(0x518))), (0x51454d55, 0x20434647))
    m.write(0x1000, struct.pack(">IIQ", select << 16 | 8 | 2, size, 0x2000))
    m.outl(0x514, 0)
    m.outl(0x518, int.from_bytes(struct.pack(">I", 0x1000), "little"))
    m.wait("DMA", lambda: m.readl(0x1000) == 0)
    expect(m.read(0x2000, size), b"hello")
    m.write(0x1000, struct.pack(">IIQ", select << 16 | 8 | 2, size, 0x7fffffffffff0000))
    m.outl(0x518, int.from_bytes(struct.pack(">I", 0x1000), "little"))
    expect(m.read(0x1000, 4)[3] & 1, 1, "DMA to nowhere is an error")


# ---- QEMU's test devices ---------------------------------------------------------------------


@case("-device", "pc-testdev", timed=False)
def pc_testdev(m):
    m.command("irq_intercept_in", "ioapic")
    m.outl(0xe0, 0x12345678)
    expect(m.inl(0xe0), 0x12345678, "port e0h, four bytes")
    expect(m.inw(0xe0), 0x5678)
    expect(m.inb(0xe3), 0x12, "and each of them")
    m.outb(0xe1, 0xaa)
    expect(m.inl(0xe0), 0x1234aa78)
    m.outw(0xe2, 0xbbcc)
    expect(m.inl(0xe0), 0xbbccaa78)
    m.outb(0xe8, 0x5a)
    expect(m.inb(0xe8), 0x5a, "port e8h")
    m.outb(0x2005, 1)
    m.outb(0x2005, 1)
    m.outb(0x2005, 0)
    expect(m.take_irqs(), [("raise", 5), ("lower", 5)])
    if not m.peer:  # QEMU 7.2 aborts there
        m.outb(0x2017, 1)
        m.outb(0x2017, 0)
        expect(m.take_irqs(), [("raise", 23), ("lower", 23)])
    for size, read, write in ((1, m.readb, m.writeb), (2, m.readw, m.writew), (4, m.readl, m.writel)):
        value = 0x89abcdef & (1 << 8 * size) - 1
        write(0xff000100 + 8 * size, value)
        expect(read(0xff000100 + 8 * size), value, f"memory, {size}")
    m.writel(0xff000200, 0x11223344)
    expect(m.readb(0xff000201), 0x33)
    expect(m.readw(0xff000202), 0x1122)
    m.writel(0xff00fffc, 0x77)
    expect(m.readl(0xff00fffc), 0x77, "the last of 64 KiB")
    expect(m.read(0x500000, 4), bytes(4))
    m.outl(0xe4, 0x500000)  # flush: nothing to see
    expect(m.read(0x500000, 4), bytes(4))


def testdev_header(m, read):
    test, width = read(0), read(1)
    word = (lambda off: int.from_bytes(bytes(read(off + i) for i in range(4)), "little"))
    name = bytearray()
    while read(16 + len(name)):
        name.append(read(16 + len(name)))
    return test, width, word(4), word(8), word(12), name.decode()


@case("-device", "pci-testdev", timed=False)
def pci_testdev(m):
    devfn = m.pci_find(0x1b36, 0x0005)
    expect(m.cfg_read(devfn, 0x0a, 2), 0x00ff)
    expect((m.cfg_read(devfn, 0x2c, 2), m.cfg_read(devfn, 0x2e, 2)), (0x1af4, 0x1100))
    expect([m.pci_bar_size(devfn, n) for n in range(3)], [4096, 256, 0])
    mem, io = m.pci_bar(devfn, 0), m.pci_bar(devfn, 1)
    kinds = (("mmio", mem, m.readb, m.writeb, 0x800, 0), ("portio", io, m.inb, m.outb, 0x80, 3))
    for kind, base, read, write, area, first in kinds:
        def header():
            return testdev_header(m, lambda off: read(base + off))
        for n, test in enumerate(("no-eventfd", "wildcard-eventfd", "datamatch-eventfd")):
            write(base, n)
            got, width, offset, data, count, name = header()
            expect((got, width, offset, count, name), (first + n, 1, area + first + n, 0, f"{kind}-{test}"))
            expect(data, 0xce if n == 1 else 0xfa)
            for _ in range(3):
                write(base + offset, data)
            write(base + offset + 64, data)  # elsewhere
            write(base + offset, ~data & 0xff)  # something else
            expect(header()[4], 0 if n else 3, f"{kind}-{test}: an eventfd takes what it matches, the rest counts")
        write(base, 0)
        expect(header()[4], 0, "select clears the count")
        write(base, 3)
        expect(header(), (0, 0, 0, 0, 0, ""), "there is no fourth")
    m.outb(io, 0)
    expect(m.readb(mem), 3, "one test at a time: the other BAR shows the same")
    m.writel(mem, 1)
    expect((m.readl(mem), m.readw(mem + 4), m.inb(io)), (0x101, 0x801, 1), "wide accesses")
    expect(m.readb(mem + 0x300), 0)


@case("-device", "pci-testdev,membar=2M", timed=False)
def pci_testdev_membar(m):
    devfn = m.pci_find(0x1b36, 0x0005)
    expect(m.cfg_read(devfn, 0x18) & 15, 12, "64 bits, prefetchable")
    expect(m.pci_bar_size(devfn, 2), 2 << 20)


main()
