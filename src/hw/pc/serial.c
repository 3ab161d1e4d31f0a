/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * 16550A UART. National Semiconductor PC16550D data sheet, section 8. Bytes take no
 * time on the line: the transmitter is empty as soon as the chardev's buffer has
 * room, so there is no baud rate to wait for.
 *
 * Everything runs under dev.lock; the chardev's callbacks take it.
 */
#include <errno.h>
#include <stdlib.h>
#include "base/util.h"
#include "hw/pc/chrout.h"
#include "hw/pc/devices.h"

/* Registers; 0 and 1 are the divisor latch while LCR.DLAB is set. */
enum { UART_RBR_THR, UART_IER, UART_IIR_FCR, UART_LCR, UART_MCR, UART_LSR, UART_MSR, UART_SCR };

#define IER_ERBFI BIT(0)
#define IER_ETBEI BIT(1)
#define IER_ELSI  BIT(2)
#define IER_EDSSI BIT(3)

#define IIR_NONE    0x01
#define IIR_MSI	    0x00
#define IIR_THRE    0x02
#define IIR_RDA	    0x04
#define IIR_RLS	    0x06
#define IIR_TIMEOUT 0x0c
#define IIR_FIFOS   0xc0

#define FCR_ENABLE     BIT(0)
#define FCR_RESET_RX   BIT(1)
#define FCR_TRIGGER(v) ((v) >> 6)

#define LCR_DLAB BIT(7)

#define MCR_DTR	 BIT(0)
#define MCR_RTS	 BIT(1)
#define MCR_OUT1 BIT(2)
#define MCR_OUT2 BIT(3)
#define MCR_LOOP BIT(4)

#define LSR_DR	 BIT(0)
#define LSR_OE	 BIT(1)
#define LSR_PE	 BIT(2)
#define LSR_FE	 BIT(3)
#define LSR_BI	 BIT(4)
#define LSR_THRE BIT(5)
#define LSR_TEMT BIT(6)
#define LSR_ERR	 BIT(7)

#define MSR_DCTS BIT(0)
#define MSR_DDSR BIT(1)
#define MSR_TERI BIT(2)
#define MSR_DDCD BIT(3)
#define MSR_CTS	 BIT(4)
#define MSR_DSR	 BIT(5)
#define MSR_RI	 BIT(6)
#define MSR_DCD	 BIT(7)

#define UART_FIFO 16

/* Ports that share an interrupt (COM1 and COM3): the line is high while any of them asks. */
struct serial_line {
	pthread_mutex_t lock; /* leaf */
	unsigned asking;      /* one bit per port index */
	struct irq irq;
};

struct serial {
	struct dev dev;
	uint32_t index, iobase, irq_line; /* properties */
	struct chr *chr;
	struct mem_region region;
	struct serial_line own_line, *line; /* the line of the first port on this interrupt */
	uint8_t ier, lcr, mcr, msr, scr, fcr;
	uint16_t divisor;
	bool thre_pending; /* the transmitter interrupt: cleared by reading IIR or writing THR */
	bool break_pending, overrun;
	bool rx_held; /* the chardev was told to wait */
	uint8_t rx[UART_FIFO];
	uint8_t rx_head, rx_len;
	struct chrout out;
	uint64_t rx_bytes;
};

static const char *const serial_ports[] = {"COM1", "COM2", "COM3", "COM4"};

/* ---- interrupts --------------------------------------------------------- */

static unsigned serial_rx_trigger(const struct serial *s)
{
	static const uint8_t trigger[4] = {1, 4, 8, 14};

	return s->fcr & FCR_ENABLE ? trigger[FCR_TRIGGER(s->fcr)] : 1;
}

/* The highest pending and enabled interrupt, as IIR's low bits. */
static uint8_t serial_iir(const struct serial *s)
{
	if ((s->ier & IER_ELSI) && (s->break_pending || s->overrun))
		return IIR_RLS;
	if ((s->ier & IER_ERBFI) && s->rx_len)
		/* Below the trigger level the line has already been quiet for the time-out. */
		return s->rx_len >= serial_rx_trigger(s) ? IIR_RDA : IIR_TIMEOUT;
	if ((s->ier & IER_ETBEI) && s->thre_pending)
		return IIR_THRE;
	if ((s->ier & IER_EDSSI) && (s->msr & (MSR_DCTS | MSR_DDSR | MSR_TERI | MSR_DDCD)))
		return IIR_MSI;
	return IIR_NONE;
}

/* OUT2 gates the line on the original adapter; here it does not, as in other virtual machines:
 * small systems that never set it work there. */
static void serial_update_irq(struct serial *s)
{
	struct serial_line *line = s->line;
	unsigned bit = 1u << s->index;

	pthread_mutex_lock(&line->lock);
	if (serial_iir(s) != IIR_NONE)
		line->asking |= bit;
	else
		line->asking &= ~bit;
	irq_set(&line->irq, line->asking != 0);
	pthread_mutex_unlock(&line->lock);
}

/* ---- transmitter, receiver ----------------------------------------------- */

static void serial_rx_push(struct serial *s, uint8_t byte)
{
	unsigned room = s->fcr & FCR_ENABLE ? UART_FIFO : 1;

	if (s->rx_len >= room) {
		s->overrun = true;
		return;
	}
	s->rx[(s->rx_head + s->rx_len++) % UART_FIFO] = byte;
}

static void serial_write_thr(struct serial *s, uint8_t byte)
{
	/* The line goes low in between, so that an edge-triggered input sees the next interrupt. */
	s->thre_pending = false;
	serial_update_irq(s);
	if (s->mcr & MCR_LOOP)
		serial_rx_push(s, byte);
	else
		chrout_put(&s->out, byte);
	s->thre_pending = chrout_room(&s->out);
	serial_update_irq(s);
}

/* lock held; the chardev has room again. */
static void serial_writable(void *opaque)
{
	struct serial *s = opaque;

	s->thre_pending = true;
	serial_update_irq(s);
}

static uint8_t serial_read_rbr(struct serial *s)
{
	uint8_t byte = s->rx[s->rx_head];

	if (!s->rx_len)
		return 0;
	s->rx_head = (s->rx_head + 1) % UART_FIFO;
	s->rx_len--;
	if (!s->rx_len && s->rx_held) {
		s->rx_held = false;
		chr_fe_ready(s->chr, s);
	}
	serial_update_irq(s);
	return byte;
}

static uint8_t serial_read_lsr(struct serial *s)
{
	uint8_t lsr = chrout_room(&s->out) ? LSR_THRE | LSR_TEMT : 0;

	if (s->rx_len)
		lsr |= LSR_DR;
	if (s->overrun)
		lsr |= LSR_OE;
	if (s->break_pending)
		lsr |= LSR_BI | (s->fcr & FCR_ENABLE ? LSR_ERR : 0);
	s->overrun = s->break_pending = false;
	serial_update_irq(s);
	return lsr;
}

/* Loopback ties the modem outputs to its inputs; else the peer is always there and ready. */
static void serial_update_msr(struct serial *s)
{
	uint8_t lines = MSR_CTS | MSR_DSR | MSR_DCD, changed;

	if (s->mcr & MCR_LOOP)
		lines = (s->mcr & MCR_RTS ? MSR_CTS : 0) | (s->mcr & MCR_DTR ? MSR_DSR : 0) |
			(s->mcr & MCR_OUT1 ? MSR_RI : 0) | (s->mcr & MCR_OUT2 ? MSR_DCD : 0);
	changed = (s->msr ^ lines) & 0xf0;
	/* Ring indicates its end only. */
	if (lines & MSR_RI)
		changed &= ~MSR_RI;
	s->msr = (s->msr & 0x0f) | lines | changed >> 4;
}

/* ---- registers ----------------------------------------------------------- */

static uint64_t serial_read(void *opaque, uint64_t off, unsigned size)
{
	struct serial *s = opaque;
	uint8_t val;

	switch (off) {
	case UART_RBR_THR: return s->lcr & LCR_DLAB ? s->divisor & 0xff : serial_read_rbr(s);
	case UART_IER: return s->lcr & LCR_DLAB ? s->divisor >> 8 : s->ier;
	case UART_IIR_FCR:
		val = serial_iir(s);
		if (val == IIR_THRE) {
			s->thre_pending = false;
			serial_update_irq(s);
		}
		return val | (s->fcr & FCR_ENABLE ? IIR_FIFOS : 0);
	case UART_LCR: return s->lcr;
	case UART_MCR: return s->mcr;
	case UART_LSR: return serial_read_lsr(s);
	case UART_MSR:
		val = s->msr;
		s->msr &= 0xf0;
		serial_update_irq(s);
		return val;
	default: return s->scr;
	}
}

static void serial_write_ier(struct serial *s, uint8_t val)
{
	uint8_t was = s->ier;

	s->ier = val & 0x0f;
	/* Enabling the transmitter interrupt while it is empty raises it. */
	if ((s->ier & ~was & IER_ETBEI) && chrout_room(&s->out))
		s->thre_pending = true;
	serial_update_irq(s);
}

static void serial_write_fcr(struct serial *s, uint8_t val)
{
	/* Turning the FIFOs on or off empties them. */
	if (((val ^ s->fcr) & FCR_ENABLE) || (val & FCR_RESET_RX)) {
		s->rx_len = 0;
		s->break_pending = false;
		if (s->rx_held) {
			s->rx_held = false;
			chr_fe_ready(s->chr, s);
		}
	}
	s->fcr = val & FCR_ENABLE ? val & 0xc1 : 0;
	serial_update_irq(s);
}

static void serial_write(void *opaque, uint64_t off, uint64_t v, unsigned size)
{
	struct serial *s = opaque;
	uint8_t val = (uint8_t)v;

	switch (off) {
	case UART_RBR_THR:
		if (s->lcr & LCR_DLAB)
			s->divisor = (s->divisor & 0xff00) | val;
		else
			serial_write_thr(s, val);
		break;
	case UART_IER:
		if (s->lcr & LCR_DLAB)
			s->divisor = (uint16_t)(val << 8) | (s->divisor & 0xff);
		else
			serial_write_ier(s, val);
		break;
	case UART_IIR_FCR: serial_write_fcr(s, val); break;
	case UART_LCR: s->lcr = val; break;
	case UART_MCR:
		s->mcr = val & 0x1f;
		serial_update_msr(s);
		serial_update_irq(s);
		break;
	case UART_SCR: s->scr = val; break;
	}
}

/* ---- chardev (the loop's thread) ------------------------------------------ */

static size_t serial_can_receive(void *opaque)
{
	struct serial *s = opaque;
	size_t n;

	pthread_mutex_lock(&s->dev.lock);
	n = (s->fcr & FCR_ENABLE ? UART_FIFO : 1);
	n = s->mcr & MCR_LOOP || s->rx_len >= n ? 0 : n - s->rx_len;
	if (!n)
		s->rx_held = true;
	pthread_mutex_unlock(&s->dev.lock);
	return n;
}

static void serial_receive(void *opaque, const uint8_t *buf, size_t len)
{
	struct serial *s = opaque;

	pthread_mutex_lock(&s->dev.lock);
	for (size_t i = 0; i < len; i++)
		serial_rx_push(s, buf[i]);
	counter_add(&s->rx_bytes, len);
	serial_update_irq(s);
	pthread_mutex_unlock(&s->dev.lock);
}

static void serial_event(void *opaque, enum chr_event event)
{
	struct serial *s = opaque;

	if (event != CHR_BREAK)
		return;
	pthread_mutex_lock(&s->dev.lock);
	serial_rx_push(s, 0);
	s->break_pending = true;
	serial_update_irq(s);
	pthread_mutex_unlock(&s->dev.lock);
}

/* ---- life cycle ------------------------------------------------------------ */

static void serial_reset(struct dev *d)
{
	struct serial *s = container_of(d, struct serial, dev);

	s->ier = s->lcr = s->scr = s->fcr = 0;
	s->mcr = MCR_OUT2;
	s->msr = MSR_CTS | MSR_DSR | MSR_DCD;
	s->divisor = 12; /* 9600 baud */
	s->thre_pending = s->break_pending = s->overrun = false;
	s->rx_len = 0;
	serial_update_irq(s);
	if (s->rx_held) {
		s->rx_held = false;
		chr_fe_ready(s->chr, s);
	}
}

static const struct region_ops serial_ops = {serial_read, serial_write, 1, 1};

/* Defaults of the four ports; refuses what a PC does not have. */
static int serial_place(struct serial *s, struct err *err)
{
	static const struct {
		uint16_t iobase;
		uint8_t irq;
	} com[4] = {{0x3f8, 4}, {0x2f8, 3}, {0x3e8, 4}, {0x2e8, 3}};
	unsigned used = 0;

	for (struct dev *d = s->dev.bus->devices; d; d = d->next) {
		if (d->ops == &serial_dev_ops)
			used |= 1u << container_of(d, struct serial, dev)->index;
	}
	if (s->index == UINT32_MAX)
		s->index = (uint32_t)__builtin_ctz(~used);
	if (s->index >= ARRAY_SIZE(com))
		return err_set(err, -EINVAL, "a PC has four serial ports: remove one, or give an \"index\" of 0 to 3");
	if (used & 1u << s->index)
		return err_set(err, -EEXIST, "serial port %u (%s) exists already: give another \"index\"", s->index,
			       serial_ports[s->index]);
	if (s->iobase == UINT32_MAX)
		s->iobase = com[s->index].iobase;
	if (s->irq_line == UINT32_MAX)
		s->irq_line = com[s->index].irq;
	if (s->iobase > 0xfff8)
		return err_set(err, -EINVAL, "\"iobase\" 0x%x is beyond the last I/O port", s->iobase);
	if (s->irq_line > 15)
		return err_set(err, -EINVAL, "\"irq\" %u is not an ISA interrupt (0 to 15)", s->irq_line);
	return 0;
}

static void serial_find_line(struct serial *s)
{
	for (struct dev *d = s->dev.bus->devices; d; d = d->next) {
		struct serial *other = container_of(d, struct serial, dev);

		if (d->ops == &serial_dev_ops && other->irq_line == s->irq_line) {
			s->line = other->line;
			return;
		}
	}
	s->line = &s->own_line;
	pthread_mutex_init(&s->line->lock, NULL);
	s->line->irq = s->dev.bus->gsi[s->irq_line];
}

static int serial_realize(struct dev *d, struct err *err)
{
	struct serial *s = container_of(d, struct serial, dev);
	struct chr_fe fe = {serial_can_receive, serial_receive, serial_event, s};
	int r = serial_place(s, err);

	if (r)
		return r;
	r = chrout_init(&s->out, s->chr, d->bus->loop, &d->lock, serial_writable, s, err);
	if (r)
		return r;
	serial_find_line(s);
	serial_reset(d);
	r = s->chr ? chr_attach(s->chr, &fe, serial_ports[s->index], err) : 0;
	if (r) {
		chrout_fini(&s->out);
		return r;
	}
	s->region = (struct mem_region){.name = "serial", .size = 8, .ops = &serial_ops, .opaque = s, .lock = &d->lock};
	ports_map(d->bus->ports, &s->region, (uint16_t)s->iobase);
	return 0;
}

static void serial_unrealize(struct dev *d)
{
	struct serial *s = container_of(d, struct serial, dev);

	ports_unmap(d->bus->ports, &s->region);
	if (s->chr)
		chr_detach(s->chr, s);
	chrout_fini(&s->out);
}

static int serial_pause(struct dev *d)
{
	struct serial *s = container_of(d, struct serial, dev);

	pthread_mutex_lock(&d->lock);
	chrout_flush(&s->out);
	pthread_mutex_unlock(&d->lock);
	return 0;
}

static const struct prop serial_props[] = {
    {.name = "index",
     .kind = PROP_U32,
     .offset = offsetof(struct serial, index),
     .def = "0xffffffff",
     .help = "which port: 0 = COM1 (3f8h, IRQ 4), ... (default: the next)"},
    {.name = "iobase",
     .kind = PROP_U32,
     .offset = offsetof(struct serial, iobase),
     .def = "0xffffffff",
     .help = "first I/O port"},
    {.name = "irq",
     .kind = PROP_U32,
     .offset = offsetof(struct serial, irq_line),
     .def = "0xffffffff",
     .help = "ISA interrupt"},
    {.name = "chardev",
     .kind = PROP_LINK,
     .offset = offsetof(struct serial, chr),
     .link_kind = "chardev",
     .help = "where the bytes go"},
    {0},
};

static const struct state_field serial_fields[] = {
    STATE_INT(struct serial, ier),
    STATE_INT(struct serial, lcr),
    STATE_INT(struct serial, mcr),
    STATE_INT(struct serial, msr),
    STATE_INT(struct serial, scr),
    STATE_INT(struct serial, fcr),
    STATE_INT(struct serial, divisor),
    STATE_INT(struct serial, thre_pending),
    STATE_INT(struct serial, break_pending),
    STATE_INT(struct serial, overrun),
    STATE_RAW(struct serial, rx),
    STATE_INT_MAX(struct serial, rx_head, UART_FIFO - 1),
    STATE_INT_MAX(struct serial, rx_len, UART_FIFO),
    {0},
};

/* The wire's level is saved with the interrupt controllers; here only who asks. */
static int serial_post_load(void *obj, struct err *err)
{
	struct serial *s = obj;

	pthread_mutex_lock(&s->line->lock);
	if (serial_iir(s) != IIR_NONE)
		s->line->asking |= 1u << s->index;
	else
		s->line->asking &= ~(1u << s->index);
	pthread_mutex_unlock(&s->line->lock);
	return 0;
}

static const struct state serial_state = {
    .name = "serial", .version = 1, .min_version = 1, .fields = serial_fields, .post_load = serial_post_load};

static const struct counter serial_counters[] = {
    {"tx_bytes", offsetof(struct serial, out.bytes), "bytes the guest sent"},
    {"tx_dropped", offsetof(struct serial, out.dropped),
     "of these, lost: the guest wrote on although the reader was slow"},
    {"rx_bytes", offsetof(struct serial, rx_bytes), "bytes given to the guest"},
    {0},
};

const struct dev_ops serial_dev_ops = {
    .type = {.name = "isa-serial", .about = "16550A serial port", .size = sizeof(struct serial), .props = serial_props},
    .bus_kind = DEV_BUS_SYSTEM,
    .user_creatable = true,
    .realize = serial_realize,
    .unrealize = serial_unrealize,
    .reset = serial_reset,
    .pause = serial_pause,
    .state = &serial_state,
    .counters = serial_counters,
};
