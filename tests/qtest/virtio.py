#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Every virtio transport test over every virtio device, from one table: registers (also on QEMU), rings of each kind with
what a hostile driver may do to them, reset, MSI-X."""
import struct
from qtest import case, expect, main, pattern, temp

DISK = temp("disk", pattern(64))
MODERN, TRANSITIONAL = "disable-legacy=on", "disable-legacy=off,disable-modern=off"
SLOT = 4 << 3
RING, BUFFER = 0x100000, 0x300000
ACKNOWLEDGE, DRIVER, DRIVER_OK, FEATURES_OK, NEEDS_RESET, FAILED = 1, 2, 4, 8, 64, 128
F_INDIRECT, F_EVENT, F_VERSION_1, F_PACKED, F_IN_ORDER = 1 << 28, 1 << 29, 1 << 32, 1 << 34, 1 << 35


def blk_request(m):
    """Read sector 3: header, data, status; then what must be in memory."""
    m.write(BUFFER, struct.pack("<IIQ", 0, 0, 3))
    m.write(BUFFER + 0x1000, b"\xee" * 513)
    return ([(BUFFER, 16, False), (BUFFER + 0x1000, 512, True), (BUFFER + 0x1200, 1, True)],
            lambda: expect(m.read(BUFFER + 0x1000, 513), struct.pack("<Q", 3) * 64 + b"\0"))


def rng_request(m):
    m.write(BUFFER, bytes(64))
    return [(BUFFER, 64, True)], lambda: expect(m.read(BUFFER, 64) != bytes(64), True)


def scsi_request(m):
    """REPORT LUNS of target 0, LUN 0, which need not be there: some answer comes."""
    m.write(BUFFER, bytes([1, 0, 0x40, 0, 0, 0, 0, 0]) + struct.pack("<QBBB", 7, 0, 0, 0) +
            bytes([0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]).ljust(32, b"\0"))
    m.write(BUFFER + 0x1000, b"\xee" * 108)
    return ([(BUFFER, 51, False), (BUFFER + 0x1000, 108, True), (BUFFER + 0x2000, 256, True)],
            lambda: expect(m.readb(BUFFER + 0x1000 + 11) in (0, 3), True, "response"))


def serial_request(m):
    """DEVICE_READY on the control queue."""
    m.write(BUFFER, struct.pack("<IHH", 0, 0, 1))
    return [(BUFFER, 8, False)], lambda: None


def balloon_request(m):
    m.write(BUFFER, struct.pack("<I", 0x200))
    return [(BUFFER, 4, False)], lambda: None


# type, options of the command line beside it, properties, device id (virtio's), queues, the queue a request is for
TABLE = [
    ("virtio-blk-pci", ("-drive", f"if=none,id=d0,format=raw,file={DISK},snapshot=on"), "drive=d0,num-queues=2", 2, 2, 0,
     blk_request),
    ("virtio-rng-pci", (), "", 4, 1, 0, rng_request),
    ("virtio-scsi-pci", (), "num_queues=2", 8, 4, 2, scsi_request),
    ("virtio-serial-pci", (), "max_ports=3", 3, 8, 3, serial_request),
    ("virtio-balloon-pci", (), "", 5, 3, 0, balloon_request),
]


def over_devices(*modes, timed=True):
    """The test is run for each device of the table and each of the modes (properties)."""
    def mark(fn):
        for row in TABLE:
            for mode in modes:
                if row[0] == "virtio-scsi-pci" and "in_order" in mode:
                    continue  # refused by name: its commands overtake each other
                props = ",".join(p for p in (row[0], "id=v,addr=4", row[2], mode) if p)

                def run(m, row=row, mode=mode):
                    fn(m, row, mode)
                case(*row[1], "-device", props, timed=timed, name=f"{fn.__name__}:{row[0]}:{mode or 'default'}")(run)
        return fn
    return mark


class Modern:
    """The register layout of VIRTIO 1.x, found by its capabilities."""

    def __init__(self, m):
        self.m, self.where, bars = m, {}, {}
        for cap, off in m.pci_caps(SLOT):
            if cap != 9:
                continue
            kind, bar = m.cfg_read(SLOT, off + 3, 1), m.cfg_read(SLOT, off + 4, 1)
            offset = m.cfg_read(SLOT, off + 8)
            if kind == 2:
                self.multiplier = m.cfg_read(SLOT, off + 16)
            if kind in (1, 2, 3, 4):
                if bar not in bars:
                    bars[bar] = m.pci_bar(SLOT, bar)
                self.where[kind] = bars[bar] + offset
        self.common, self.isr_at, self.device = self.where[1], self.where[3], self.where.get(4)  # a device without configuration has none
        self.packed = False

    def get(self, off, size): return {1: self.m.readb, 2: self.m.readw, 4: self.m.readl}[size](self.common + off)
    def put(self, off, size, v): {1: self.m.writeb, 2: self.m.writew, 4: self.m.writel}[size](self.common + off, v)
    def status(self): return self.get(20, 1)
    def set_status(self, v): self.put(20, 1, v)
    def isr(self): return self.m.readb(self.isr_at)
    def config(self, off, size): return {1: self.m.readb, 2: self.m.readw, 4: self.m.readl}[size](self.device + off)

    def features(self):
        words = []
        for i in (0, 1):
            self.put(0, 4, i)
            words.append(self.get(4, 4))
        return words[0] | words[1] << 32

    def set_features(self, v):
        for i in (0, 1):
            self.put(8, 4, i)
            self.put(12, 4, v >> 32 * i & 0xffffffff)

    def select(self, q): self.put(22, 2, q)
    def size(self): return self.get(24, 2)

    def reset(self):
        self.set_status(0)
        self.m.wait("the reset", lambda: self.status() == 0)

    def negotiate(self, wanted):
        self.reset()
        self.set_status(ACKNOWLEDGE)
        self.set_status(ACKNOWLEDGE | DRIVER)
        features = self.features() & (wanted | F_VERSION_1)
        self.set_features(features)
        self.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK)
        expect(self.status() & FEATURES_OK, FEATURES_OK, "the device takes its own features")
        self.packed = bool(features & F_PACKED)
        return features

    def queue(self, q, num):
        self.select(q)
        base = RING + 0x10000 * q
        self.put(24, 2, num)
        for reg, addr in ((32, base), (40, base + 0x4000), (48, base + 0x8000)):
            self.put(reg, 4, addr)
            self.put(reg + 4, 4, 0)
        self.m.write(base, bytes(0xc000))
        self.put(28, 2, 1)
        expect(self.get(28, 2), 1, "queue enabled")
        return base, base + 0x4000, base + 0x8000

    def go(self): self.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK | DRIVER_OK)

    def notify(self, q):
        self.select(q)
        self.m.writew(self.where[2] + self.get(30, 2) * self.multiplier, q)


class Legacy:
    """The register layout before VIRTIO 1.0, in ports."""

    def __init__(self, m):
        self.m, self.io, self.packed = m, m.pci_bar(SLOT, 0), False

    def status(self): return self.m.inb(self.io + 18)
    def set_status(self, v): self.m.outb(self.io + 18, v)
    def isr(self): return self.m.inb(self.io + 19)
    def features(self): return self.m.inl(self.io)
    def config(self, off, size): return {1: self.m.inb, 2: self.m.inw, 4: self.m.inl}[size](self.io + 20 + off)
    def select(self, q): self.m.outw(self.io + 14, q)
    def size(self): return self.m.inw(self.io + 12)

    def reset(self):
        self.set_status(0)
        expect(self.status(), 0)

    def negotiate(self, wanted):
        self.reset()
        self.set_status(ACKNOWLEDGE | DRIVER)
        features = self.features() & wanted & 0xffffffff
        self.m.outl(self.io + 4, features)
        return features

    def queue(self, q, num):
        """The size is the device's: the rings lie behind each other, the used ring on a page."""
        self.select(q)
        base, n = RING + 0x10000 * q, self.size()
        self.m.write(base, bytes(0xc000))
        self.m.outl(self.io + 8, base >> 12)
        expect(self.m.inl(self.io + 8), base >> 12, "address of the queue")
        return base, base + 16 * n, base + (16 * n + 6 + 2 * n + 4095 & -4096)

    def go(self): self.set_status(ACKNOWLEDGE | DRIVER | DRIVER_OK)
    def notify(self, q): self.m.outw(self.io + 16, q)


def transport(m, mode):
    return Legacy(m) if mode == TRANSITIONAL else Modern(m)


# ---- registers -----------------------------------------------------------------------


@over_devices(MODERN, timed=False)
def modern_registers(m, row, mode):
    _, _, _, number, queues, _, _ = row
    expect(m.cfg_read(SLOT, 0), 0x10401af4 + (number << 16), "modern device ID")
    expect(m.cfg_read(SLOT, 8, 1), 1, "revision")
    v = Modern(m)
    v.reset()
    features = v.features()
    expect(features & F_VERSION_1, F_VERSION_1)
    v.put(0, 4, 2)
    expect(v.get(4, 4), 0, "no third word of features")
    expect(v.get(18, 2), queues, "number of queues")
    for q in range(queues):
        v.select(q)
        size = v.size()
        assert size and size & size - 1 == 0, f"queue {q}: {size}"
        expect(v.get(28, 2), 0, "disabled")
        v.put(32, 4, 0x12345000)
        expect(v.get(32, 4), 0x12345000)
    for q in (queues, 1000, 65535):
        v.select(q)
        expect(v.size(), 0, f"there is no queue {q}")
        v.put(24, 2, 8)
        v.put(28, 2, 1)
        if not m.peer:  # QEMU 7.2 keeps the 1, which no queue sees
            expect(v.get(28, 2), 0)
    # FEATURES_OK is refused for what was not offered
    v.reset()
    v.set_status(ACKNOWLEDGE | DRIVER)
    v.set_features(F_VERSION_1 | 1 << 62)
    v.set_status(ACKNOWLEDGE | DRIVER | FEATURES_OK)
    if not m.peer:  # QEMU 7.2 masks the bit and agrees
        expect(v.status() & FEATURES_OK, 0, "a feature that was not offered")
    v.reset()
    expect(v.isr(), 0)


@over_devices(TRANSITIONAL, timed=False)
def legacy_registers(m, row, mode):
    _, _, _, number, queues, _, _ = row
    legacy_id = {2: 0x1001, 4: 0x1005, 8: 0x1004, 3: 0x1003, 5: 0x1002}[number]
    expect(m.cfg_read(SLOT, 0), legacy_id << 16 | 0x1af4)
    expect(m.cfg_read(SLOT, 8, 1), 0, "revision")
    expect(m.cfg_read(SLOT, 0x2e, 2), number, "subsystem")
    v = Legacy(m)
    v.negotiate(0)
    expect(m.inl(v.io + 4), 0)
    for q in range(queues):
        v.select(q)
        assert v.size(), f"queue {q}"
        expect(m.inl(v.io + 8), 0, "no address yet")
    v.select(queues)
    expect(v.size(), 0)
    v.set_status(ACKNOWLEDGE | DRIVER | FAILED)
    expect(v.status(), ACKNOWLEDGE | DRIVER | FAILED)
    v.reset()
    # The same device by its modern half
    v = Modern(m)
    expect(v.features() & F_VERSION_1, F_VERSION_1)


@over_devices(MODERN, timed=False)
def msix_registers(m, row, mode):
    v = Modern(m)
    caps = dict(m.pci_caps(SLOT))
    if m.peer and row[0] == "virtio-balloon-pci":
        return  # without vectors there
    expect(0x11 in caps, True, "MSI-X")
    expect(v.get(16, 2), 0xffff, "no vector for configuration changes")
    n = (m.cfg_read(SLOT, caps[0x11] + 2, 2) & 0x7ff) + 1
    m.pci_bar(SLOT, 1)
    m.cfg_write(SLOT, caps[0x11] + 2, 0x8000, 2)
    v.put(16, 2, n - 1)
    expect(v.get(16, 2), n - 1)
    v.put(16, 2, n)
    expect(v.get(16, 2), 0xffff, "a vector that is not there")
    v.select(0)
    v.put(26, 2, 0)
    expect(v.get(26, 2), 0)
    v.put(26, 2, 0xfffe)
    expect(v.get(26, 2), 0xffff)


# ---- rings --------------------------------------------------------------------------------


class Split:
    def __init__(self, m, v, q, num):
        self.m, self.v, self.q = m, v, q
        self.desc, self.avail, self.used = v.queue(q, num)
        v.select(q)
        self.num, self.idx = v.size(), 0

    def describe(self, i, addr, length, flags, after):
        self.m.write(self.desc + 16 * i, struct.pack("<QIHH", addr & 2**64 - 1, length & 0xffffffff, flags, after))

    def offer(self, head, count=1):
        self.m.writew(self.avail + 4 + 2 * (self.idx % self.num), head)
        self.idx = self.idx + count & 0xffff
        self.m.writew(self.avail + 2, self.idx)
        self.v.notify(self.q)

    def request(self, pieces):
        for i, (addr, length, device_writes) in enumerate(pieces):
            self.describe(i, addr, length, device_writes << 1 | (i + 1 < len(pieces)), i + 1)
        self.offer(0)

    def done(self):
        return self.m.readw(self.used + 2) == self.idx


class Packed:
    def __init__(self, m, v, q, num):
        self.m, self.v, self.q, self.num, self.at, self.wrap = m, v, q, num, 0, 1
        self.desc, self.driver_events, self.device_events = v.queue(q, num)

    def describe(self, i, addr, length, flags, ident=0, available=True):
        wrap = self.wrap if self.at + i < self.num else self.wrap ^ 1
        flags |= (wrap << 7 | (wrap ^ 1) << 15) if available else 0
        self.m.write(self.desc + 16 * ((self.at + i) % self.num),
                     struct.pack("<QIHH", addr & 2**64 - 1, length & 0xffffffff, ident, flags))

    def request(self, pieces):
        # The first becomes available last.
        for i in reversed(range(len(pieces))):
            addr, length, device_writes = pieces[i]
            self.describe(i, addr, length, device_writes << 1 | (i + 1 < len(pieces)), 5)
        self.first, self.first_wrap = self.at, self.wrap
        if self.at + len(pieces) >= self.num:
            self.wrap ^= 1
        self.at = (self.at + len(pieces)) % self.num
        self.v.notify(self.q)

    def done(self):
        flags = self.m.readw(self.desc + 16 * self.first + 14)
        return flags >> 7 & 1 == self.first_wrap and flags >> 15 & 1 == self.first_wrap


RINGS = (TRANSITIONAL, MODERN, f"{MODERN},in_order=on", f"{MODERN},packed=on", f"{MODERN},packed=on,in_order=on",
         "disable-legacy=off,packed=on,in_order=on")


def start(m, row, mode, events=True):
    v = transport(m, mode)
    features = v.negotiate(F_PACKED | F_IN_ORDER | F_INDIRECT | (F_EVENT if events else 0))
    expect(bool(features & F_PACKED), "packed" in mode)
    expect(bool(features & F_IN_ORDER), "in_order" in mode)
    for q in range(row[4]):
        if q != row[5]:
            v.queue(q, 8)
    ring = (Packed if v.packed else Split)(m, v, row[5], 8)
    v.go()
    return v, ring


@over_devices(*RINGS)
def requests(m, row, mode):
    """Around the ring several times, the line rises and the ISR tells; then a reset, and again."""
    m.command("irq_intercept_in", "ioapic")
    m.cfg_write(0x08, 0x60, 0x0b0b0a0a)
    for _ in range(2):
        v, ring = start(m, row, mode, events=False)
        m.take_irqs()
        for _ in range(20):
            pieces, check = row[6](m)
            ring.request(pieces)
            m.wait("a used descriptor", ring.done)
            check()
            m.wait("the interrupt", lambda: ("raise", 11) in m.irqs)
            expect(v.isr() & 1, 1)
            expect(m.take_irqs()[-1], ("lower", 11), "reading the ISR")
        expect(v.status() & NEEDS_RESET, 0)


def hostile_split(ring):
    """What may be in a split ring, and whether a device must call it broken (None: either is right)."""
    n = ring.num
    yield True, lambda: (ring.describe(0, BUFFER, 16, 1, 0), ring.offer(0))  # a loop of one
    yield True, lambda: ([ring.describe(i, BUFFER, 16, 1, (i + 1) % n) for i in range(n)], ring.offer(0))
    yield True, lambda: (ring.describe(0, BUFFER, 16, 1, n), ring.offer(0))  # next outside
    yield True, lambda: (ring.describe(0, BUFFER, 16, 1, 0xffff), ring.offer(0))
    yield True, lambda: ring.offer(n)  # a head outside
    yield True, lambda: ring.offer(0xffff)
    yield True, lambda: ring.offer(0, n + 1)  # an index that jumps
    yield True, lambda: ring.offer(0, 0x8000)
    yield True, lambda: (ring.describe(0, 2**64 - 16, 4096, 0, 0), ring.offer(0))  # wraps
    yield None, lambda: (ring.describe(0, 0xf0000000, 512, 2, 0), ring.offer(0))  # no RAM
    yield None, lambda: (ring.describe(0, 0xfee00000, 512, 2, 0), ring.offer(0))  # a device
    yield None, lambda: (ring.describe(0, BUFFER, 0, 0, 0), ring.offer(0))  # nothing
    yield None, lambda: (ring.describe(0, BUFFER, 0xffffffff, 2, 0), ring.offer(0))  # too long
    yield None, lambda: (ring.describe(0, ring.desc, 4096, 2, 0), ring.offer(0))  # the ring itself
    yield True, lambda: (ring.describe(0, BUFFER, 16, 4, 0), ring.m.write(BUFFER, struct.pack("<QIHH", BUFFER, 16, 4, 0)),
                         ring.offer(0))  # indirect in indirect
    yield True, lambda: (ring.describe(0, BUFFER, 17, 4, 0), ring.offer(0))  # a table of an odd size
    yield True, lambda: (ring.describe(0, BUFFER, 0, 4, 0), ring.offer(0))
    yield True, lambda: (ring.describe(0, 0xf0000000, 64, 4, 0), ring.offer(0))  # a table in no RAM
    yield True, lambda: (ring.describe(0, BUFFER, 16, 2 | 1, 1), ring.describe(1, BUFFER, 16, 0, 0), ring.offer(0))


def hostile_packed(ring):
    def chain(*pieces):
        for i in reversed(range(len(pieces))):
            ring.describe(i, *pieces[i])
        ring.v.notify(ring.q)

    yield True, lambda: chain(*[(BUFFER, 16, 1)] * ring.num)  # a chain without an end
    yield True, lambda: chain((2**64 - 16, 4096, 0))
    yield None, lambda: chain((0xf0000000, 512, 2))
    yield None, lambda: chain((0xfee00000, 512, 2))
    yield None, lambda: chain((BUFFER, 0, 0))
    yield None, lambda: chain((BUFFER, 0xffffffff, 2))
    yield None, lambda: chain((ring.desc, 128, 2))
    yield True, lambda: (ring.m.write(BUFFER, struct.pack("<QIHH", BUFFER, 16, 0, 4)), chain((BUFFER, 16, 4)))
    yield True, lambda: chain((BUFFER, 17, 4))
    yield True, lambda: chain((BUFFER, 0, 4))
    yield True, lambda: chain((0xf0000000, 64, 4))
    yield True, lambda: chain((BUFFER, 16, 4 | 1), (BUFFER, 16, 0))  # indirect and next
    yield None, lambda: chain((BUFFER, 16, 0xff7f))  # every flag


@over_devices(*RINGS)
def hostile(m, row, mode):
    """Each broken ring ends in NEEDS_RESET or an error of the request, and after a reset the device works."""
    count = 0
    while True:
        v, ring = start(m, row, mode)
        tricks = list((hostile_packed if v.packed else hostile_split)(ring))
        if count == len(tricks):
            break
        broken, play = tricks[count]
        play()
        if broken and mode != TRANSITIONAL:
            m.wait(f"NEEDS_RESET after trick {count}", lambda: v.status() & NEEDS_RESET)
        else:
            m.step(1000000)
            m.step(1000000)
        count += 1
        v, ring = start(m, row, mode)
        pieces, check = row[6](m)
        ring.request(pieces)
        m.wait("a used descriptor", ring.done)
        check()


@over_devices(MODERN, TRANSITIONAL)
def hostile_setup(m, row, mode):
    """Registers in every wrong order, rings outside RAM, doorbells of queues that are not there."""
    v = transport(m, mode)
    for q in range(row[4] + 2):
        v.notify(q % 65536)  # before anything
    v.set_status(DRIVER_OK)
    for q in range(row[4]):
        v.notify(q)
    v.negotiate(2**64 - 1 & ~(1 << 31))
    for q in range(row[4]):
        v.select(q)
        if mode == TRANSITIONAL:
            m.outl(v.io + 8, 0xfffff)
        else:
            for reg in (32, 40, 48):
                v.put(reg, 4, 0xfffffff0)
                v.put(reg + 4, 4, 0xffffffff)
            for size in (0, 3, 0xffff):
                v.put(24, 2, size)
            v.put(28, 2, 1)
    v.go()
    for q in range(row[4]):
        v.notify(q)
    m.step(1000000)
    for off in range(0, 64, 4) if mode == TRANSITIONAL or v.device else ():
        v.config(off, 4)
    v, ring = start(m, row, mode)
    pieces, check = row[6](m)
    ring.request(pieces)
    m.wait("a used descriptor", ring.done)
    check()


main()
