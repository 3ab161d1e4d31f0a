/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between the virtio console controller (virtio_console.c) and its ports (virtio_port.c). */
#ifndef KELVIN_HW_VIRTIO_VIRTIO_CONSOLE_H
#define KELVIN_HW_VIRTIO_VIRTIO_CONSOLE_H

#include "chr/chr.h"
#include "hw/virtio/devices.h"
#include "hw/virtio/virtio_pci.h"

#define VSERIAL_MAX_PORTS 31
#define VSERIAL_MESSAGES  128 /* control messages waiting for a buffer */
#define VPORT_FIFO	  4096

struct vport;

struct vserial_message {
	size_t len;
	uint8_t data[136];
};

struct vserial {
	struct virtio_pci t;
	uint32_t max_ports;
	struct vport *port[VSERIAL_MAX_PORTS];
	bool device_ready; /* the driver understands ports */
	struct vserial_message message[VSERIAL_MESSAGES];
	unsigned first_message, nmessages;
	uint64_t messages_dropped; /* counter */
};

/* A chain being written to the chardev. */
struct vport_tx {
	bool active;
	uint32_t head, generation;
	struct iovec *iov; /* a copy; room entries are allocated */
	int n, room;
	uint64_t pos; /* bytes done */
};

struct vport {
	struct dev dev;
	struct chr *chr;
	char *name, *bus_name;
	int64_t nr; /* property; -1: the next free one */
	struct vserial *bus;
	unsigned id;
	bool is_console;
	bool attached;	/* to the chardev */
	bool host_open; /* somebody is at the chardev's other end */
	bool guest_open;
	bool saved_open;	  /* host_open in a snapshot */
	uint8_t fifo[VPORT_FIFO]; /* input the driver has no buffers for yet */
	size_t fifo_len;
	struct vport_tx tx;
	uint64_t rx_bytes, tx_bytes; /* counters */
};

/* virtio_console.c; controller's lock held */
struct virtio_queue *vserial_rx_queue(struct vserial *s, unsigned port);
struct virtio_queue *vserial_tx_queue(struct vserial *s, unsigned port);
bool vserial_multiport(const struct vserial *s);
void vserial_port_connected(struct vserial *s, unsigned port, bool connected);

/* virtio_port.c; loop's thread without the lock, except vport_reset (lock held) */
void vport_input_possible(struct vport *p);
void vport_transmit(struct vport *p);
void vport_reset(struct vport *p);

#endif
