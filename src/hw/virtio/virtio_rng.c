// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The virtio entropy device: VIRTIO 1.1, 5.4. Random bytes come from the host
 * kernel (getrandom), which never blocks once the host is up.
 *
 * Locking: everything happens under dev.lock; a request is at most MAX_BYTES.
 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/object.h"
#include "base/iov.h"
#include "base/util.h"
#include "hw/virtio/devices.h"
#include "hw/virtio/virtio_pci.h"

/* A driver may ask for gigabytes; it gets a part, as the device may give. */
#define MAX_BYTES 4096
/* Requests served before other devices get their turn. */
#define MAX_BATCH 64

struct virtio_rng {
	struct virtio_pci t;
	struct object_rng *rng; /* or NULL: the host's kernel, as with one */
	uint64_t bytes;		/* counter */
};

static void rng_handle(struct virtio *v, struct virtio_queue *q)
{
	struct virtio_rng *r = container_of(v, struct virtio_rng, t.vio);
	uint8_t buf[MAX_BYTES];
	unsigned left = MAX_BATCH;

	virtio_lock(v);
	do {
		virtq_notify_off(&q->vq);
		while (left && virtio_pop(v, q)) {
			const size_t want = MIN(v->chain.in_len, sizeof(buf));
			ssize_t got = getrandom(buf, want, 0);
			size_t n = got > 0 ? (size_t)got : 0;
			iov_write(v->chain.iov + v->chain.nout, v->chain.nin, 0, buf, n);
			virtio_push_now(v, q, (uint32_t)n);
			counter_add(&r->bytes, n);
			left--;
		}
	} while (virtio_notify_on(v, q) && left);
	virtio_signal(v, q);
	if (!left)
		virtio_kick(v, q);
	virtio_unlock(v);
}

static const struct virtio_ops rng_ops = {.id = VIRTIO_ID_ENTROPY, .class_code = 0x00ff00};

static void rng_unrealize(struct dev *d)
{
	virtio_pci_unrealize(&container_of(d, struct virtio_rng, t.pci.dev)->t);
}

static int rng_realize(struct dev *d, struct err *err)
{
	struct virtio_rng *r = container_of(d, struct virtio_rng, t.pci.dev);
	const char *file = r->rng ? r->rng->filename : NULL;
	int ret;

	/* These two are getrandom by another name; a hardware generator could block the loop. */
	if (file && strcmp(file, "/dev/urandom") != 0 && strcmp(file, "/dev/random") != 0)
		return err_set(err, -ENOTSUP,
			       "rng-random filename=%s is not implemented: use /dev/urandom or /dev/random", file);
	ret = virtio_init(&r->t.vio, d, NULL, &rng_ops, 1, err);
	if (!ret) {
		virtio_set_queue(&r->t.vio, 0, "requests", 8, rng_handle);
		ret = virtio_pci_realize(&r->t, err);
	}
	if (ret)
		rng_unrealize(d);
	return ret;
}

static const struct prop rng_props[] = {
    {.name = "rng",
     .kind = PROP_LINK,
     .offset = offsetof(struct virtio_rng, rng),
     .link_kind = "rng",
     .help = "-object rng-random's or rng-builtin's id; without it the host's kernel"},
    {0},
};

static const struct counter rng_counters[] = {
    VIRTIO_PCI_COUNTERS,
    {"bytes", offsetof(struct virtio_rng, bytes), "random bytes given"},
    {0},
};

const struct dev_ops virtio_rng_pci_ops = {
    .type = {.name = "virtio-rng-pci",
	     .about = "random numbers from the host",
	     .parent = "virtio-pci",
	     .size = sizeof(struct virtio_rng),
	     .props = rng_props},
    .bus_kind = DEV_BUS_PCI,
    .user_creatable = true,
    .realize = rng_realize,
    .unrealize = rng_unrealize,
    .reset = virtio_pci_reset,
    .pause = virtio_pci_pause,
    .resume = virtio_pci_resume,
    .state = &virtio_pci_state,
    .counters = rng_counters,
};
