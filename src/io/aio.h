/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Asynchronous file I/O: one `struct aio` per loop, over io_uring, a small
 * thread pool, or plain system calls. Vectored on the caller's (guest) pages,
 * so no copies. Completion callbacks run in the loop's thread.
 */
#ifndef KELVIN_IO_AIO_H
#define KELVIN_IO_AIO_H

#include <stdint.h>
#include <sys/uio.h>
#include "base/counter.h"
#include "io/loop.h"

enum aio_op { AIO_READV, AIO_WRITEV, AIO_FDATASYNC, AIO_FALLOCATE, AIO_BLKDISCARD, AIO_BLKZEROOUT };
enum aio_engine { AIO_AUTO, AIO_URING, AIO_THREADS, AIO_SYNC };

struct aio;

/* Owned by the submitter until done() runs. iov must stay valid until then. */
struct aio_req {
	enum aio_op op;
	int fd;
	int mode;	 /* AIO_FALLOCATE: its mode flags */
	uint64_t offset; /* bytes */
	uint64_t len;	 /* bytes; FALLOCATE, DISCARD, ZEROOUT */
	const struct iovec *iov;
	int niov;
	bool slow;  /* long copies expected (a large transfer with the page cache): better not in the loop's thread */
	bool quick; /* a write that usually only copies to the page cache: may be done at once where the loop is patient
		     */
	bool disk;  /* goes to the disk at once (O_DIRECT), so that starting it early pays */
	int64_t result; /* bytes or -errno; short transfers are the submitter's to continue */
	void (*done)(struct aio_req *req);
	struct aio_req *next; /* the engine's */
};

/*
 * AIO_AUTO: io_uring when the kernel allows it, else threads with one log line
 * saying why. Errors only when a named engine is impossible.
 */
struct aio *aio_create(struct loop *l, enum aio_engine engine, struct err *err);
void aio_destroy(struct aio *a); /* nothing may be in flight */
enum aio_engine aio_engine_of(const struct aio *a);
const char *aio_engine_name(enum aio_engine e);

/* Queue; starts at the next aio_flush or when the queue is full. Loop's thread only. Never fails:
 * errors arrive in result. */
void aio_submit(struct aio *a, struct aio_req *req);
/* Start what is queued with as few system calls as possible. The loop also does it before it sleeps. */
void aio_flush(struct aio *a);
/* Run the loop until nothing is in flight (pause, shutdown). */
void aio_drain(struct aio *a);

struct aio_stats {
	uint64_t submitted, completed, syscalls;
};
const struct aio_stats *aio_stats_of(const struct aio *a);

#endif
