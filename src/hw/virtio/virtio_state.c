// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * What a snapshot keeps of any virtio device: registers, negotiated features, and
 * how far its queues are. The rings themselves are guest memory, which is loaded
 * before. Nothing is in flight while it is saved.
 *
 * Locking: main thread, vCPUs stopped, device paused; dev.lock for the transport's hooks.
 */
#include "hw/virtio/virtio_pci.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"

static const struct state_field queue_fields[] = {
    STATE_INT_MAX(struct virtio_queue, vq.num, VIRTQ_MAX_SIZE),
    STATE_INT(struct virtio_queue, vq.enabled),
    STATE_INT(struct virtio_queue, vq.desc_gpa),
    STATE_INT(struct virtio_queue, vq.avail_gpa),
    STATE_INT(struct virtio_queue, vq.used_gpa),
    STATE_INT(struct virtio_queue, vq.last_avail),
    STATE_INT(struct virtio_queue, vq.used_idx),
    STATE_INT(struct virtio_queue, vq.signalled_used),
    STATE_INT(struct virtio_queue, vq.signalled_valid),
    STATE_INT_MAX(struct virtio_queue, vq.inuse, VIRTQ_MAX_SIZE),
    STATE_INT(struct virtio_queue, vq.avail_wrap),
    STATE_INT(struct virtio_queue, vq.used_wrap),
    STATE_INT_MAX(struct virtio_queue, vq.unsignalled, VIRTQ_MAX_SIZE),
    STATE_INT(struct virtio_queue, vector),
    {0},
};

static const struct state_field virtio_fields[] = {
    STATE_INT(struct virtio_pci, feature_select),
    STATE_INT(struct virtio_pci, guest_feature_select),
    STATE_INT(struct virtio_pci, queue_select),
    STATE_INT(struct virtio_pci, config_vector),
    STATE_INT(struct virtio_pci, isr),
    STATE_INT(struct virtio_pci, vio.guest_features),
    STATE_INT(struct virtio_pci, vio.status),
    STATE_INT(struct virtio_pci, vio.config_generation),
    STATE_INT(struct virtio_pci, vio.legacy_driver),
    STATE_INT(struct virtio_pci, vio.broken),
    STATE_INT(struct virtio_pci, vio.start_pending),
    STATE_RAW(struct virtio_pci, vio.saved_config),
    STATE_POINTED(struct virtio_pci, vio.queue, vio.nqueues, queue_fields),
    {0},
};

static int virtio_pre_save(void *obj, struct err *err)
{
	struct virtio *v = &((struct virtio_pci *)obj)->vio;

	if (v->inflight || v->done || v->resetting)
		return err_set(err, -EAGAIN, "a request is in flight, or failed and waits for 'cont'");
	memcpy(v->saved_config, v->config, sizeof(v->config));
	return 0;
}

/* What the host decides must be the same; what the driver writes is taken. */
static int take_config(struct virtio *v, struct err *err)
{
	const unsigned from = v->ops->config_changing, end = from + v->ops->config_changing_len;

	for (unsigned i = 0; i < sizeof(v->config); i++) {
		if ((i < from || i >= end) && v->saved_config[i] != v->config[i])
			return err_set(
			    err, -EINVAL,
			    "its configuration differs at byte %u (a disk of another size, or other options)", i);
		v->config[i] = v->saved_config[i];
	}
	return 0;
}

static bool vector_possible(const struct virtio_pci *p, uint16_t vector)
{
	return vector == VIRTIO_NO_VECTOR || vector < p->pci.msix_n;
}

static int restart_queue(struct virtio_pci *p, struct virtio_queue *q, struct err *err)
{
	const uint16_t num = q->vq.num;
	const bool packed = virtio_has(&p->vio, VIRTIO_F_RING_PACKED);

	if (!vector_possible(p, q->vector) || num > q->max || !num != !q->max || (!packed && (num & (num - 1))) ||
	    (q->vq.enabled && virtq_restart(&q->vq, p->vio.mem, p->vio.guest_features)))
		return err_set(err, -EINVAL, "queue %u cannot be as it is: other options, or the snapshot is corrupted",
			       q->index);
	/* Rings outside RAM, which the driver gave, broke the device when it did. */
	if (q->vq.broken && !p->vio.broken)
		return err_set(err, -EINVAL, "queue %u: %s: the snapshot is corrupted", q->index, q->vq.broken);
	return 0;
}

static int restart_queues(struct virtio_pci *p, struct err *err)
{
	struct virtio *v = &p->vio;
	const bool final = v->status & VIRTIO_STATUS_FEATURES_OK;
	int rc = take_config(v, err);

	if (rc == 0 && final && v->guest_features & ~v->host_features)
		return err_set(err, -EINVAL,
			       "its driver uses features 0x%llx, which are not offered here: use the same options",
			       (unsigned long long)(v->guest_features & ~v->host_features));
	if (rc == 0 && !vector_possible(p, p->config_vector))
		return err_set(err, -EINVAL, "an impossible vector: the snapshot is corrupted");
	for (unsigned i = 0; i < v->nqueues && rc == 0; i++)
		rc = restart_queue(p, &v->queue[i], err);
	return rc;
}

static int virtio_post_load(void *obj, struct err *err)
{
	struct virtio_pci *p = obj;
	int rc;

	virtio_lock(&p->vio);
	rc = restart_queues(p, err);
	if (rc == 0)
		virtio_pci_restored(p);
	virtio_unlock(&p->vio);
	return rc;
}

const struct state virtio_pci_state = {.name = "virtio",
				       .version = 1,
				       .min_version = 1,
				       .parent = &pci_state,
				       .fields = virtio_fields,
				       .pre_save = virtio_pre_save,
				       .post_load = virtio_post_load};
