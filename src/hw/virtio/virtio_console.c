// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The virtio console device: VIRTIO 1.1, 5.3, with multiple ports. The controller
 * ("virtio-serial-pci") has the queues; each port is a device of its own
 * (virtio_port.c) that joins a chardev to two of them.
 *
 *   queue 0, 1          receive and transmit of port 0
 *   queue 2, 3          control messages to and from the driver
 *   queue 2p+2, 2p+3    receive and transmit of port p
 *
 * Locking: everything is under the controller's dev.lock, the ports' state too,
 * except that bytes go to and come from chardevs without it.
 */
#include "hw/virtio/virtio_console.h"

#include <errno.h>
#include <string.h>

#include "base/iov.h"
#include "base/log.h"
#include "base/util.h"

#define VIRTIO_CONSOLE_F_MULTIPORT   1
#define VIRTIO_CONSOLE_F_EMERG_WRITE 2

/* 5.3.4: configuration */
enum { CFG_COLS = 0, CFG_ROWS = 2, CFG_MAX_NR_PORTS = 4, CFG_EMERG_WR = 8, CFG_SIZE = 12 };

/* 5.3.6.2: control messages {le32 port, le16 event, le16 value} */
enum {
	VIRTIO_CONSOLE_DEVICE_READY = 0,
	VIRTIO_CONSOLE_PORT_ADD = 1,
	VIRTIO_CONSOLE_PORT_READY = 3,
	VIRTIO_CONSOLE_CONSOLE_PORT = 4,
	VIRTIO_CONSOLE_PORT_OPEN = 6,
	VIRTIO_CONSOLE_PORT_NAME = 7,
};
#define CONTROL_LEN 8

#define QUEUE_SIZE	 128
#define QUEUE_CONTROL_RX 2
#define QUEUE_CONTROL_TX 3

/* MSI-X vectors: one for the configuration and one that all queues share. */
#define VECTORS 2

static struct vserial *vserial_of(struct virtio *v)
{
	return container_of(v, struct vserial, t.vio);
}

struct virtio_queue *vserial_rx_queue(struct vserial *s, unsigned port)
{
	return &s->t.vio.queue[port ? 2 * port + 2 : 0];
}

struct virtio_queue *vserial_tx_queue(struct vserial *s, unsigned port)
{
	return &s->t.vio.queue[port ? 2 * port + 3 : 1];
}

static struct vport *port_of(struct virtio *v, const struct virtio_queue *q)
{
	return vserial_of(v)->port[q->index < 2 ? 0 : q->index / 2 - 1];
}

bool vserial_multiport(const struct vserial *s)
{
	return virtio_has(&s->t.vio, VIRTIO_CONSOLE_F_MULTIPORT);
}

/* ---- control messages to the driver ------------------------------------------- */

/* Give waiting messages to the driver as far as it has buffers. Lock held. */
static void control_flush(struct vserial *s)
{
	struct virtio *v = &s->t.vio;
	struct virtio_queue *q = &v->queue[QUEUE_CONTROL_RX];

	while (s->nmessages && virtio_pop(v, q)) {
		const struct vserial_message *m = &s->message[s->first_message];
		size_t n = iov_write(v->chain.iov + v->chain.nout, v->chain.nin, 0, m->data, m->len);
		virtio_push_now(v, q, (uint32_t)n);
		s->first_message = (s->first_message + 1) % VSERIAL_MESSAGES;
		s->nmessages--;
	}
	virtio_signal(v, q);
}

static void control_send(struct vserial *s, unsigned port, uint16_t event, uint16_t value, const char *text)
{
	struct vserial_message *m;
	size_t n = text ? strlen(text) : 0;

	if (s->nmessages == VSERIAL_MESSAGES) { /* a driver that asks and never listens */
		counter_add(&s->messages_dropped, 1);
		return;
	}
	m = &s->message[(s->first_message + s->nmessages++) % VSERIAL_MESSAGES];
	n = MIN(n, sizeof(m->data) - CONTROL_LEN);
	st32le(m->data, port);
	st16le(m->data + 4, event);
	st16le(m->data + 6, value);
	if (n)
		memcpy(m->data + CONTROL_LEN, text, n);
	m->len = CONTROL_LEN + n;
}

void vserial_port_connected(struct vserial *s, unsigned port, bool connected)
{
	if (!s->device_ready)
		return;
	control_send(s, port, VIRTIO_CONSOLE_PORT_OPEN, connected, NULL);
	control_flush(s);
}

/* ---- control messages from the driver ------------------------------------------- */

static void port_ready(struct vserial *s, struct vport *p)
{
	if (p->is_console)
		control_send(s, p->id, VIRTIO_CONSOLE_CONSOLE_PORT, 1, NULL);
	if (p->name)
		control_send(s, p->id, VIRTIO_CONSOLE_PORT_NAME, 1, p->name);
	if (p->host_open)
		control_send(s, p->id, VIRTIO_CONSOLE_PORT_OPEN, 1, NULL);
}

/* Returns the port that must look for input again, or NULL. */
static struct vport *control_message(struct vserial *s, const uint8_t *m)
{
	const uint32_t id = ld32le(m);
	const uint16_t event = ld16le(m + 4), value = ld16le(m + 6);
	struct vport *p = id < VSERIAL_MAX_PORTS ? s->port[id] : NULL;

	if (event == VIRTIO_CONSOLE_DEVICE_READY) {
		s->device_ready = value == 1;
		for (unsigned i = 0; s->device_ready && i < VSERIAL_MAX_PORTS; i++)
			if (s->port[i])
				control_send(s, i, VIRTIO_CONSOLE_PORT_ADD, 1, NULL);
		return NULL;
	}
	if (!p) {
		log_diag(LOG_GUEST_ERRORS, "virtio-serial: control message %u for port %u, which does not exist", event,
			 id);
		return NULL;
	}
	switch (event) {
	case VIRTIO_CONSOLE_PORT_READY:
		if (value == 1)
			port_ready(s, p);
		return p;
	case VIRTIO_CONSOLE_PORT_OPEN: p->guest_open = value != 0; return p;
	default: return NULL;
	}
}

static void control_tx(struct virtio *v, struct virtio_queue *q)
{
	struct vserial *s = vserial_of(v);
	struct vport *again[QUEUE_SIZE];
	uint8_t m[CONTROL_LEN];
	unsigned n = 0;

	virtio_lock(v);
	do {
		virtq_notify_off(&q->vq);
		while (n < QUEUE_SIZE && virtio_pop(v, q)) {
			if (iov_read(v->chain.iov, v->chain.nout, 0, m, sizeof(m)) == sizeof(m))
				again[n] = control_message(s, m);
			else
				again[n] = NULL;
			n++;
			virtio_push_now(v, q, 0);
		}
	} while (virtio_notify_on(v, q) && n < QUEUE_SIZE);
	virtio_signal(v, q);
	control_flush(s);
	if (n == QUEUE_SIZE)
		virtio_kick(v, q);
	virtio_unlock(v);
	for (unsigned i = 0; i < n; i++)
		if (again[i])
			vport_input_possible(again[i]);
}

static void control_rx(struct virtio *v, struct virtio_queue *q)
{
	virtio_lock(v);
	control_flush(vserial_of(v));
	virtio_unlock(v);
}

/* ---- the ports' queues ----------------------------------------------------------- */

static void port_rx(struct virtio *v, struct virtio_queue *q)
{
	struct vport *p = port_of(v, q);

	if (p)
		vport_input_possible(p);
}

static void port_tx(struct virtio *v, struct virtio_queue *q)
{
	struct vport *p = port_of(v, q);
	unsigned n = 0;

	if (p) {
		vport_transmit(p);
		return;
	}
	/* No such port: take what comes, so that the driver does not wait. */
	virtio_lock(v);
	while (n < QUEUE_SIZE && virtio_pop(v, q)) {
		virtio_push_now(v, q, 0);
		n++;
	}
	virtio_signal(v, q);
	if (n == QUEUE_SIZE)
		virtio_kick(v, q);
	virtio_unlock(v);
}

/* ---- controller -------------------------------------------------------------------- */

/* 5.3.5: a byte for the first console, without any queue: for early boot and panics. */
static void vserial_config_write(struct virtio *v, unsigned off, unsigned size, uint32_t val)
{
	struct vserial *s = vserial_of(v);
	const uint8_t byte = (uint8_t)val;

	if (off == CFG_EMERG_WR && s->port[0] && s->port[0]->chr)
		chr_write(s->port[0]->chr, &byte, 1);
}

static void vserial_started(struct virtio *v)
{
	struct vserial *s = vserial_of(v);

	for (unsigned i = 0; i < VSERIAL_MAX_PORTS; i++)
		if (s->port[i])
			vport_input_possible(s->port[i]);
}

static void vserial_reset(struct virtio *v)
{
	struct vserial *s = vserial_of(v);

	s->device_ready = false;
	s->nmessages = 0;
	for (unsigned i = 0; i < VSERIAL_MAX_PORTS; i++)
		if (s->port[i])
			vport_reset(s->port[i]);
}

static const struct virtio_ops vserial_ops = {
    .id = VIRTIO_ID_CONSOLE,
    .class_code = 0x078000,
    .config_write = vserial_config_write,
    .started = vserial_started,
    .reset = vserial_reset,
};

static void vserial_unrealize(struct dev *d)
{
	virtio_pci_unrealize(&container_of(d, struct vserial, t.pci.dev)->t);
}

static int vserial_realize(struct dev *d, struct err *err)
{
	struct vserial *s = container_of(d, struct vserial, t.pci.dev);
	struct virtio *v = &s->t.vio;
	unsigned n;
	int ret;

	if (s->max_ports < 1 || s->max_ports > VSERIAL_MAX_PORTS)
		return err_set(err, -EINVAL, "max_ports=%u: must be 1 to %d", s->max_ports, VSERIAL_MAX_PORTS);
	n = 2 * (s->max_ports + 1);
	ret = virtio_init(v, d, NULL, &vserial_ops, n, err);
	if (!ret) {
		for (unsigned i = 0; i < n; i += 2) {
			virtio_set_queue(v, i, "receive", QUEUE_SIZE, port_rx);
			virtio_set_queue(v, i + 1, "transmit", QUEUE_SIZE, port_tx);
		}
		virtio_set_queue(v, QUEUE_CONTROL_RX, "control receive", 32, control_rx);
		virtio_set_queue(v, QUEUE_CONTROL_TX, "control transmit", 32, control_tx);
		v->config_len = CFG_SIZE;
		st32le(v->config + CFG_MAX_NR_PORTS, s->max_ports);
		v->host_features |= BIT(VIRTIO_CONSOLE_F_MULTIPORT) | BIT(VIRTIO_CONSOLE_F_EMERG_WRITE);
		if (s->t.vectors == VIRTIO_PCI_VECTORS_AUTO)
			s->t.vectors = VECTORS;
		/* Bytes that people read are not worth 64 eventfds. */
		s->t.no_doorbells = true;
		ret = virtio_pci_realize(&s->t, err);
	}
	if (ret)
		vserial_unrealize(d);
	return ret;
}

static const struct prop vserial_props[] = {
    {.name = "max_ports",
     .kind = PROP_U32,
     .offset = offsetof(struct vserial, max_ports),
     .def = "31",
     .help = "ports at most, 1 to 31"},
    {0},
};

static const struct state_field message_fields[] = {
    STATE_INT_MAX(struct vserial_message, len, sizeof(((struct vserial_message *)0)->data)),
    STATE_RAW(struct vserial_message, data),
    {0}};
static const struct state_field vserial_fields[] = {
    STATE_INT(struct vserial, device_ready),
    STATE_INT_MAX(struct vserial, first_message, VSERIAL_MESSAGES - 1),
    STATE_INT_MAX(struct vserial, nmessages, VSERIAL_MESSAGES),
    STATE_STRUCTS(struct vserial, message, message_fields),
    {0},
};
static const struct state vserial_state = {
    .name = "virtio-serial", .version = 1, .min_version = 1, .parent = &virtio_pci_state, .fields = vserial_fields};

static const struct counter vserial_counters[] = {
    VIRTIO_PCI_COUNTERS,
    {"messages_dropped", offsetof(struct vserial, messages_dropped), "control messages a driver did not take"},
    {0},
};

const struct dev_ops virtio_serial_pci_ops = {
    .type = {.name = "virtio-serial-pci",
	     .about = "controller of virtio consoles and serial ports",
	     .parent = "virtio-pci",
	     .size = sizeof(struct vserial),
	     .props = vserial_props},
    .bus_kind = DEV_BUS_PCI,
    .user_creatable = true,
    .realize = vserial_realize,
    .unrealize = vserial_unrealize,
    .reset = virtio_pci_reset,
    .pause = virtio_pci_pause,
    .resume = virtio_pci_resume,
    .state = &vserial_state,
    .counters = vserial_counters,
};

/* QEMU's short name for it. */
const struct dev_ops virtio_serial_ops = {
    .type = {.name = "virtio-serial",
	     .about = "the same as virtio-serial-pci",
	     .parent = "virtio-serial-pci",
	     .size = sizeof(struct vserial),
	     .props = NULL},
    .bus_kind = DEV_BUS_PCI,
    .user_creatable = true,
    .realize = vserial_realize,
    .unrealize = vserial_unrealize,
    .reset = virtio_pci_reset,
    .pause = virtio_pci_pause,
    .resume = virtio_pci_resume,
    .state = &vserial_state,
    .counters = vserial_counters,
};
