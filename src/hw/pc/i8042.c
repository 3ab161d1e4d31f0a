/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * 8042 keyboard controller (IBM PS/2 technical reference, "Keyboard and Auxiliary
 * Device Controller"), ports 60h and 64h, and port 92h of the same chipset: reset and
 * A20 are what a machine without a display needs of them. No keyboard or mouse is
 * attached yet: a byte for one is answered at once the way the controller reports a
 * device that does not answer (FEh with the time-out bit), so that no driver waits.
 *
 * Address line 20 is always enabled, as on every PC since 2013: its bits are kept and
 * have no effect. Everything runs under dev.lock.
 */
#include "base/util.h"
#include "hw/pc/devices.h"

#define STATUS_OBF	BIT(0)
#define STATUS_SYSTEM	BIT(2)
#define STATUS_COMMAND	BIT(3)
#define STATUS_UNLOCKED BIT(4)
#define STATUS_AUX	BIT(5)
#define STATUS_TIMEOUT	BIT(6)

#define CCB_KBD_INT BIT(0)
#define CCB_AUX_INT BIT(1)
#define CCB_SYSTEM  BIT(2)
#define CCB_KBD_OFF BIT(4)
#define CCB_AUX_OFF BIT(5)

#define OUTPORT_RESET BIT(0) /* low: the processor is held in reset */
#define OUTPORT_A20   BIT(1)
#define OUTPORT_FIXED 0xcc

#define RESPONSE_RESEND 0xfe

enum {
	CMD_READ_CCB = 0x20,
	CMD_WRITE_CCB = 0x60,
	CMD_DISABLE_AUX = 0xa7,
	CMD_ENABLE_AUX = 0xa8,
	CMD_TEST_AUX = 0xa9,
	CMD_SELF_TEST = 0xaa,
	CMD_TEST_KBD = 0xab,
	CMD_DISABLE_KBD = 0xad,
	CMD_ENABLE_KBD = 0xae,
	CMD_READ_INPORT = 0xc0,
	CMD_READ_OUTPORT = 0xd0,
	CMD_WRITE_OUTPORT = 0xd1,
	CMD_WRITE_KBD_OUTPUT = 0xd2,
	CMD_WRITE_AUX_OUTPUT = 0xd3,
	CMD_WRITE_AUX = 0xd4,
	CMD_A20_OFF = 0xdd,
	CMD_A20_ON = 0xdf,
	CMD_PULSE = 0xf0, /* ..0xff: low bits that are 0 pulse low */
};

#define I8042_QUEUE 16

struct i8042 {
	struct dev dev;
	struct mem_region data_region, command_region;
	struct irq irq_kbd, irq_aux;
	uint8_t ccb, outport;
	uint8_t command; /* that waits for its data byte; 0: none */
	bool last_was_command;
	uint8_t head, len;
	struct i8042_answer {
		uint8_t byte, status; /* STATUS_AUX, STATUS_TIMEOUT */
	} queue[I8042_QUEUE];
};

static void i8042_update_irq(struct i8042 *s)
{
	bool aux = s->len && (s->queue[s->head].status & STATUS_AUX);

	irq_set(&s->irq_kbd, s->len && !aux && (s->ccb & CCB_KBD_INT));
	irq_set(&s->irq_aux, aux && (s->ccb & CCB_AUX_INT));
}

static void i8042_answer(struct i8042 *s, uint8_t byte, uint8_t status)
{
	unsigned at = (s->head + s->len) % I8042_QUEUE;

	if (s->len == I8042_QUEUE) /* a guest that never reads loses answers */
		return;
	s->queue[at].byte = byte;
	s->queue[at].status = status;
	s->len++;
	i8042_update_irq(s);
}

static void i8042_reset_machine(struct i8042 *s, const char *why)
{
	s->dev.bus->request(s->dev.bus->opaque, VM_RESET, 0, why);
}

/* The A20 gate has two masters, this and port 92h; the last that moved it wins. */
static void i8042_write_outport(struct i8042 *s, uint8_t val)
{
	if ((s->outport ^ val) & OUTPORT_A20)
		mem_set_a20(s->dev.bus->mem, val & OUTPORT_A20);
	s->outport = val;
	if (!(val & OUTPORT_RESET))
		i8042_reset_machine(s, "keyboard controller");
}

static void i8042_write_command(struct i8042 *s, uint8_t cmd)
{
	s->last_was_command = true;
	s->command = 0;
	switch (cmd) {
	case CMD_READ_CCB: i8042_answer(s, s->ccb, 0); break;
	case CMD_DISABLE_AUX: s->ccb |= CCB_AUX_OFF; break;
	case CMD_ENABLE_AUX: s->ccb &= ~CCB_AUX_OFF; break;
	case CMD_TEST_AUX: i8042_answer(s, 0x01, 0); break; /* clock line low: there is no such port */
	case CMD_SELF_TEST:
		s->ccb |= CCB_SYSTEM;
		s->len = 0;
		i8042_answer(s, 0x55, 0);
		break;
	case CMD_TEST_KBD: i8042_answer(s, 0x00, 0); break;
	case CMD_DISABLE_KBD: s->ccb |= CCB_KBD_OFF; break;
	case CMD_ENABLE_KBD: s->ccb &= ~CCB_KBD_OFF; break;
	case CMD_READ_INPORT: i8042_answer(s, 0x80, 0); break; /* keyboard not locked */
	case CMD_READ_OUTPORT: i8042_answer(s, s->outport, 0); break;
	case CMD_WRITE_CCB:
	case CMD_WRITE_OUTPORT:
	case CMD_WRITE_KBD_OUTPUT:
	case CMD_WRITE_AUX_OUTPUT:
	case CMD_WRITE_AUX: s->command = cmd; break;
	case CMD_A20_OFF: i8042_write_outport(s, s->outport & ~OUTPORT_A20); break;
	case CMD_A20_ON: i8042_write_outport(s, s->outport | OUTPORT_A20); break;
	default:
		if (cmd >= CMD_PULSE && !(cmd & OUTPORT_RESET))
			i8042_reset_machine(s, "keyboard controller");
		break;
	}
}

static void i8042_write_data(struct i8042 *s, uint8_t val)
{
	uint8_t cmd = s->command;

	s->last_was_command = false;
	s->command = 0;
	switch (cmd) {
	case CMD_WRITE_CCB:
		s->ccb = val & 0x7f;
		i8042_update_irq(s);
		break;
	case CMD_WRITE_OUTPORT: i8042_write_outport(s, val); break;
	case CMD_WRITE_KBD_OUTPUT: i8042_answer(s, val, 0); break;
	/* Without an auxiliary port the byte comes back as the keyboard's: how drivers find that out. */
	case CMD_WRITE_AUX_OUTPUT: i8042_answer(s, val, 0); break;
	case CMD_WRITE_AUX: i8042_answer(s, RESPONSE_RESEND, STATUS_AUX | STATUS_TIMEOUT); break;
	default: i8042_answer(s, RESPONSE_RESEND, STATUS_TIMEOUT); break;
	}
}

static uint64_t i8042_read(void *opaque, uint64_t off, unsigned size)
{
	struct i8042 *s = opaque;
	uint8_t byte = s->queue[s->head].byte;

	if (!s->len) /* the last byte stays readable */
		return s->queue[(s->head + I8042_QUEUE - 1) % I8042_QUEUE].byte;
	s->head = (s->head + 1) % I8042_QUEUE;
	s->len--;
	/* The line falls between two bytes, or an edge-triggered input would miss the second. */
	irq_set(&s->irq_kbd, 0);
	irq_set(&s->irq_aux, 0);
	i8042_update_irq(s);
	return byte;
}

static void i8042_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	i8042_write_data(opaque, (uint8_t)val);
}

static uint64_t i8042_read_status(void *opaque, uint64_t off, unsigned size)
{
	const struct i8042 *s = opaque;
	uint8_t status = STATUS_UNLOCKED;

	if (s->len)
		status |= STATUS_OBF | s->queue[s->head].status;
	if (s->ccb & CCB_SYSTEM)
		status |= STATUS_SYSTEM;
	if (s->last_was_command)
		status |= STATUS_COMMAND;
	return status;
}

static void i8042_write_status(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	i8042_write_command(opaque, (uint8_t)val);
}

static void i8042_reset(struct dev *d)
{
	struct i8042 *s = container_of(d, struct i8042, dev);

	s->ccb = CCB_KBD_INT | CCB_AUX_INT | CCB_AUX_OFF;
	s->outport = OUTPORT_FIXED | OUTPORT_A20 | OUTPORT_RESET;
	s->command = s->head = s->len = 0;
	s->last_was_command = false;
	i8042_update_irq(s);
}

static const struct region_ops i8042_data_ops = {i8042_read, i8042_write, 1, 1};
static const struct region_ops i8042_command_ops = {i8042_read_status, i8042_write_status, 1, 1};

static int i8042_realize(struct dev *d, struct err *err)
{
	struct i8042 *s = container_of(d, struct i8042, dev);

	s->irq_kbd = d->bus->gsi[1];
	s->irq_aux = d->bus->gsi[12];
	i8042_reset(d);
	s->data_region =
	    (struct mem_region){.name = "i8042-data", .size = 1, .ops = &i8042_data_ops, .opaque = s, .lock = &d->lock};
	s->command_region = (struct mem_region){
	    .name = "i8042-command", .size = 1, .ops = &i8042_command_ops, .opaque = s, .lock = &d->lock};
	ports_map(d->bus->ports, &s->data_region, 0x60);
	ports_map(d->bus->ports, &s->command_region, 0x64);
	return 0;
}

static void i8042_unrealize(struct dev *d)
{
	struct i8042 *s = container_of(d, struct i8042, dev);

	ports_unmap(d->bus->ports, &s->command_region);
	ports_unmap(d->bus->ports, &s->data_region);
}

static const struct state_field i8042_answer_fields[] = {
    STATE_INT(struct i8042_answer, byte), STATE_INT(struct i8042_answer, status), {0}};
static const struct state_field i8042_fields[] = {
    STATE_INT(struct i8042, ccb),
    STATE_INT(struct i8042, outport),
    STATE_INT(struct i8042, command),
    STATE_INT(struct i8042, last_was_command),
    STATE_INT_MAX(struct i8042, head, I8042_QUEUE - 1),
    STATE_INT_MAX(struct i8042, len, I8042_QUEUE),
    STATE_STRUCTS(struct i8042, queue, i8042_answer_fields),
    {0},
};
static const struct state i8042_state = {.name = "i8042", .version = 1, .min_version = 1, .fields = i8042_fields};

const struct dev_ops i8042_dev_ops = {
    .type = {.name = "i8042", .about = "keyboard controller without devices", .size = sizeof(struct i8042)},
    .bus_kind = DEV_BUS_SYSTEM,
    .realize = i8042_realize,
    .unrealize = i8042_unrealize,
    .reset = i8042_reset,
    .state = &i8042_state,
};

/* ---- port 92h: bit 0 resets the processor when it goes from 0 to 1, bit 1 is A20 ---- */

struct port92 {
	struct dev dev;
	struct mem_region region;
	uint8_t val;
};

static uint64_t port92_read(void *opaque, uint64_t off, unsigned size)
{
	const struct port92 *s = opaque;

	return s->val;
}

static void port92_write(void *opaque, uint64_t off, uint64_t val, unsigned size)
{
	struct port92 *s = opaque;
	bool reset = val & ~s->val & 1;

	if ((s->val ^ val) & 2)
		mem_set_a20(s->dev.bus->mem, val & 2);
	s->val = val & 3;
	if (reset)
		s->dev.bus->request(s->dev.bus->opaque, VM_RESET, 0, "port 92h");
}

static void port92_reset(struct dev *d)
{
	container_of(d, struct port92, dev)->val = 2;
	mem_set_a20(d->bus->mem, true);
}

static const struct region_ops port92_ops = {port92_read, port92_write, 1, 1};

static int port92_realize(struct dev *d, struct err *err)
{
	struct port92 *s = container_of(d, struct port92, dev);

	port92_reset(d);
	s->region = (struct mem_region){.name = "port92", .size = 1, .ops = &port92_ops, .opaque = s, .lock = &d->lock};
	ports_map(d->bus->ports, &s->region, 0x92);
	return 0;
}

static void port92_unrealize(struct dev *d)
{
	ports_unmap(d->bus->ports, &container_of(d, struct port92, dev)->region);
}

static const struct state_field port92_fields[] = {STATE_INT_MAX(struct port92, val, 3), {0}};
static const struct state port92_state = {.name = "port92", .version = 1, .min_version = 1, .fields = port92_fields};

const struct dev_ops port92_dev_ops = {
    .type = {.name = "port92", .about = "A20 and fast reset", .size = sizeof(struct port92)},
    .bus_kind = DEV_BUS_SYSTEM,
    .realize = port92_realize,
    .unrealize = port92_unrealize,
    .reset = port92_reset,
    .state = &port92_state,
};
