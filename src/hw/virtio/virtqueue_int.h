/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between virtqueue.c (the interface, split rings, what both layouts share) and virtqueue_packed.c. */
#ifndef KELVIN_HW_VIRTIO_VIRTQUEUE_INT_H
#define KELVIN_HW_VIRTIO_VIRTQUEUE_INT_H

#include "hw/virtio/virtqueue.h"

int virtq_break(struct virtq *q, const char *why); /* -EINVAL */
/* A ring part in one piece of RAM; writable when the device writes it. */
void *virtq_ring_ptr(struct mem_map *mem, uint64_t gpa, uint64_t len, bool write);
/* Append a buffer to the chain; `flags` are VIRTQ_DESC_F_. */
int virtq_chain_add(struct virtq *q, struct virtq_chain *c, uint64_t addr, uint32_t len, uint16_t flags);

void virtq_packed_start(struct virtq *q);
bool virtq_packed_has_work(const struct virtq *q);
int virtq_packed_pop(struct virtq *q, struct virtq_chain *c);
void virtq_packed_unpop(struct virtq *q);
void virtq_packed_push(struct virtq *q, uint32_t head, uint32_t written);
bool virtq_packed_want_interrupt(struct virtq *q);
void virtq_packed_notify(struct virtq *q, bool on);

#endif
