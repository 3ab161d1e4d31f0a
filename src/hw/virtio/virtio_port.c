// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Ports of the virtio console device: "virtconsole" (a console, hvc in Linux) and
 * "virtserialport" (a named byte stream, /dev/vport* in Linux). VIRTIO 1.1, 5.3.6.
 *
 * Locking: a port's state is under its controller's lock. Transmission writes to
 * the chardev without it: the chain was copied, and only the loop's thread works
 * on it; a reset meanwhile is seen by its generation.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "base/iov.h"
#include "hw/virtio/virtio_console.h"

/* Chains written in one go, so that a chatty guest does not keep the loop. */
#define TX_BATCH 64

/* ---- transmit: guest to chardev --------------------------------------------- */

/* Take the next chain into p->tx. Lock held; false when there is none. */
static bool tx_take(struct vport *p)
{
	struct virtio *v = &p->bus->t.vio;
	struct virtio_queue *q = vserial_tx_queue(p->bus, p->id);
	const struct virtq_chain *c = &v->chain;
	struct vport_tx *t = &p->tx;

	virtq_notify_off(&q->vq);
	while (!virtio_pop(v, q))
		if (!virtio_notify_on(v, q))
			return false;
	if (c->nout > t->room) {
		struct iovec *iov = realloc(t->iov, (size_t)c->nout * sizeof(*iov));
		if (!iov) {
			virtq_unpop(&q->vq);
			return false;
		}
		t->iov = iov;
		t->room = c->nout;
	}
	if (c->nout)
		memcpy(t->iov, c->iov, (size_t)c->nout * sizeof(*t->iov));
	t->n = c->nout;
	t->pos = 0;
	t->head = c->head;
	t->generation = v->generation;
	t->active = true;
	return true;
}

/* Write what is left of the chain: true when all of it is out. No lock. */
static bool tx_write(struct vport *p)
{
	struct vport_tx *t = &p->tx;
	uint64_t skip = t->pos;

	for (int i = 0; i < t->n; i++) {
		const size_t len = t->iov[i].iov_len;
		size_t want, done;
		if (skip >= len) {
			skip -= len;
			continue;
		}
		want = len - (size_t)skip;
		done = p->chr ? chr_write(p->chr, (const uint8_t *)t->iov[i].iov_base + skip, want) : want;
		t->pos += done;
		counter_add(&p->tx_bytes, done);
		if (done < want)
			return false;
		skip = 0;
	}
	return true;
}

void vport_transmit(struct vport *p)
{
	struct virtio *v = &p->bus->t.vio;
	struct virtio_queue *q = vserial_tx_queue(p->bus, p->id);
	unsigned n = 0;

	virtio_lock(v);
	while (!v->paused && n++ < TX_BATCH && (p->tx.active || tx_take(p))) {
		bool all;
		virtio_unlock(v);
		all = tx_write(p);
		virtio_lock(v);
		if (!p->tx.active || p->tx.generation != v->generation) {
			p->tx.active = false; /* the driver reset the device meanwhile */
			continue;
		}
		if (!all)
			break; /* vport_writable goes on */
		p->tx.active = false;
		virtq_push(&q->vq, p->tx.head, NULL, 0, 0);
		q->pushed = true;
	}
	virtio_signal(v, q);
	if (n > TX_BATCH)
		virtio_kick(v, q);
	virtio_unlock(v);
}

static void vport_writable(void *opaque)
{
	vport_transmit(opaque);
}

/* ---- receive: chardev to guest ------------------------------------------------ */

static bool rx_wanted(const struct vport *p)
{
	const struct virtio *v = &p->bus->t.vio;

	if (!(v->status & VIRTIO_STATUS_DRIVER_OK) || v->resetting || v->broken)
		return false;
	return p->guest_open || !vserial_multiport(p->bus);
}

/* Move waiting bytes into the driver's buffers. Lock held. */
static void rx_flush(struct vport *p)
{
	struct virtio *v = &p->bus->t.vio;
	struct virtio_queue *q = vserial_rx_queue(p->bus, p->id);

	while (p->fifo_len && virtio_pop(v, q)) {
		const size_t n = iov_write(v->chain.iov + v->chain.nout, v->chain.nin, 0, p->fifo, p->fifo_len);
		memmove(p->fifo, p->fifo + n, p->fifo_len - n);
		p->fifo_len -= n;
		virtio_push_now(v, q, (uint32_t)n);
		counter_add(&p->rx_bytes, n);
	}
	virtio_signal(v, q);
}

static size_t vport_can_receive(void *opaque)
{
	struct vport *p = opaque;
	struct virtio *v = &p->bus->t.vio;
	size_t n;

	virtio_lock(v);
	n = rx_wanted(p) ? sizeof(p->fifo) - p->fifo_len : 0;
	virtio_unlock(v);
	return n;
}

static void vport_receive(void *opaque, const uint8_t *buf, size_t len)
{
	struct vport *p = opaque;
	struct virtio *v = &p->bus->t.vio;
	size_t n;

	virtio_lock(v);
	n = MIN(len, sizeof(p->fifo) - p->fifo_len);
	memcpy(p->fifo + p->fifo_len, buf, n);
	p->fifo_len += n;
	rx_flush(p);
	virtio_unlock(v);
}

static void vport_event(void *opaque, enum chr_event event)
{
	struct vport *p = opaque;
	struct virtio *v = &p->bus->t.vio;
	const bool open = event == CHR_OPENED;

	if (event == CHR_BREAK || p->is_console) /* a console is always open */
		return;
	virtio_lock(v);
	if (open != p->host_open) {
		p->host_open = open;
		vserial_port_connected(p->bus, p->id, open);
	}
	virtio_unlock(v);
}

void vport_input_possible(struct vport *p)
{
	struct virtio *v = &p->bus->t.vio;
	bool room;

	virtio_lock(v);
	rx_flush(p);
	room = rx_wanted(p) && p->fifo_len < sizeof(p->fifo);
	virtio_unlock(v);
	if (room && p->chr)
		chr_fe_ready(p->chr, p);
}

void vport_reset(struct vport *p)
{
	p->guest_open = false;
	p->fifo_len = 0;
	p->tx.active = false;
}

/* ---- life cycle ------------------------------------------------------------------ */

static bool is_controller(const struct dev *d)
{
	return d->ops == &virtio_serial_pci_ops || d->ops == &virtio_serial_ops;
}

/* "bus=ID.0" or the first controller with a free port. */
static int find_controller(struct vport *p, struct err *err)
{
	const char *want = p->bus_name;

	for (struct dev *d = p->dev.bus->devices; d; d = d->next) {
		if (!is_controller(d))
			continue;
		if (want && !(d->id && strncmp(want, d->id, strlen(d->id)) == 0 && !strcmp(want + strlen(d->id), ".0")))
			continue;
		p->bus = container_of(d, struct vserial, t.pci.dev);
		return 0;
	}
	if (want)
		return err_set(err, -ENODEV, "Bus '%s' not found", want);
	return err_set(err, -ENODEV,
		       "No 'virtio-serial-bus' bus found for device '%s': -device virtio-serial-pci must come before",
		       p->dev.ops->type.name);
}

/* Port 0 is the console of drivers that know one port only: it is kept for a virtconsole. */
static int choose_number(struct vport *p, struct err *err)
{
	struct vserial *s = p->bus;
	unsigned i = p->is_console ? 0 : 1;

	if (p->nr < -1 || p->nr >= s->max_ports)
		return err_set(err, -EINVAL, "nr=%lld: ports are 0 to %u", (long long)p->nr, s->max_ports - 1);
	if (p->nr == 0 && !p->is_console)
		return err_set(err, -EINVAL, "nr=0: port 0 is reserved for a virtconsole");
	if (p->nr >= 0) {
		if (s->port[p->nr])
			return err_set(err, -EBUSY, "nr=%lld: this port exists already", (long long)p->nr);
		p->id = (unsigned)p->nr;
		return 0;
	}
	while (i < s->max_ports && s->port[i])
		i++;
	if (i == s->max_ports)
		return err_set(err, -ENOSPC, "all %u ports of the controller are in use", s->max_ports);
	p->id = i;
	return 0;
}

static void vport_unrealize(struct dev *d)
{
	struct vport *p = container_of(d, struct vport, dev);

	if (p->attached) {
		chr_set_writable(p->chr, NULL, p);
		chr_detach(p->chr, p);
	}
	if (p->bus) {
		virtio_lock(&p->bus->t.vio);
		if (p->bus->port[p->id] == p)
			p->bus->port[p->id] = NULL;
		virtio_unlock(&p->bus->t.vio);
	}
	free(p->tx.iov);
	p->tx.iov = NULL;
}

static int vport_realize(struct dev *d, struct err *err)
{
	struct vport *p = container_of(d, struct vport, dev);
	const struct chr_fe fe = {vport_can_receive, vport_receive, vport_event, p};
	int ret;

	p->is_console = d->ops == &virtconsole_ops;
	ret = find_controller(p, err);
	if (!ret)
		ret = choose_number(p, err);
	if (ret)
		return ret;
	if (p->chr) {
		ret = chr_attach(p->chr, &fe, p->name ? p->name : d->ops->type.name, err);
		if (ret)
			return ret;
		p->attached = true;
		chr_set_writable(p->chr, vport_writable, p);
	}
	virtio_lock(&p->bus->t.vio);
	p->host_open = p->is_console || (p->chr && chr_connected(p->chr));
	p->bus->port[p->id] = p;
	virtio_unlock(&p->bus->t.vio);
	return 0;
}

#define OFFSET(f) offsetof(struct vport, f)
static const struct prop vport_props[] = {
    {.name = "chardev", .kind = PROP_LINK, .offset = OFFSET(chr), .link_kind = "chardev", .help = "-chardev's id"},
    {.name = "name", .kind = PROP_STR, .offset = OFFSET(name), .help = "found in /dev/virtio-ports by this name"},
    {.name = "nr", .kind = PROP_I64, .offset = OFFSET(nr), .def = "-1", .help = "port number; the next free one"},
    {.name = "bus", .kind = PROP_STR, .offset = OFFSET(bus_name), .help = "controller: its id and .0"},
    {0},
};

static const struct state_field vport_fields[] = {STATE_INT(struct vport, saved_open),
						  STATE_INT(struct vport, guest_open),
						  STATE_RAW(struct vport, fifo),
						  STATE_INT_MAX(struct vport, fifo_len, VPORT_FIFO),
						  {0}};

static int vport_pre_save(void *obj, struct err *err)
{
	struct vport *p = obj;

	if (p->tx.active)
		return err_set(err, -EAGAIN, "its chardev does not take what the guest wrote: read it, or disconnect");
	p->saved_open = p->host_open;
	return 0;
}

/* The other end may have come or gone since: the driver hears of it when it goes on. */
static int vport_post_load(void *obj, struct err *err)
{
	struct vport *p = obj;

	virtio_lock(&p->bus->t.vio);
	if (p->saved_open != p->host_open && vserial_multiport(p->bus))
		vserial_port_connected(p->bus, p->id, p->host_open);
	virtio_unlock(&p->bus->t.vio);
	return 0;
}

static const struct state vport_state = {.name = "virtio-port",
					 .version = 1,
					 .min_version = 1,
					 .fields = vport_fields,
					 .pre_save = vport_pre_save,
					 .post_load = vport_post_load};

static const struct counter vport_counters[] = {
    {"rx_bytes", OFFSET(rx_bytes), "bytes to the guest"},
    {"tx_bytes", OFFSET(tx_bytes), "bytes from the guest"},
    {0},
};

const struct dev_ops virtserialport_ops = {
    .type = {.name = "virtserialport",
	     .about = "a named byte stream between guest and host",
	     .size = sizeof(struct vport),
	     .props = vport_props},
    .bus_kind = DEV_BUS_VIRTIO_SERIAL,
    .user_creatable = true,
    .realize = vport_realize,
    .unrealize = vport_unrealize,
    .state = &vport_state,
    .counters = vport_counters,
};

const struct dev_ops virtconsole_ops = {
    .type = {.name = "virtconsole", .about = "a virtio console", .size = sizeof(struct vport), .props = vport_props},
    .bus_kind = DEV_BUS_VIRTIO_SERIAL,
    .user_creatable = true,
    .realize = vport_realize,
    .unrealize = vport_unrealize,
    .state = &vport_state,
    .counters = vport_counters,
};
