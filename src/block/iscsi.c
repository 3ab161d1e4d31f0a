// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * iSCSI client through libiscsi, loaded when first used: one LUN as a disk (SBC-3
 * commands READ(16), WRITE(16), SYNCHRONIZE CACHE(16), UNMAP, WRITE SAME(16)).
 * iscsi://[USER[%PASSWORD]@]HOST[:PORT]/TARGET/LUN, with ?initiator-name=IQN of
 * ours; the initiator's name is QEMU's scheme with the machine's id otherwise.
 *
 * Requests are asynchronous, several tasks each when they are longer than the
 * target takes. A lost connection ends them with errors. Locking: none; the loop's
 * thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/iov.h"
#include "base/util.h"
#include "block/dynlib.h"
#include "block/file.h"
#include "io/iothread.h"

#define CONNECT_SECONDS 30
#define MAX_TRIES	8
#define ASCQ_NO_SPACE	0x2707 /* space allocation failed write protect */
#define MAX_PIECE	(16 * MIB)

/* The functions used, by their names without "iscsi_". */
/* clang-format off */
#define ISCSI_FUNCTIONS(X)                                                                                             \
	X(create_context)                                                                                              \
	X(destroy_context)                                                                                             \
	X(parse_full_url)                                                                                              \
	X(destroy_url)                                                                                                 \
	X(set_targetname)                                                                                              \
	X(set_session_type)                                                                                            \
	X(set_header_digest) X(set_initiator_username_pwd) X(set_target_username_pwd) X(set_timeout)                   \
	    X(full_connect_async) X(logout_async) X(get_error) X(get_fd) X(which_events) X(service) X(inquiry_task)      \
		X(readcapacity16_task) X(modesense6_task) X(read16_iov_task) X(write16_iov_task)                       \
		    X(synchronizecache16_task) X(unmap_task) X(writesame16_task) X(set_noautoreconnect)                \
			X(is_logged_in) X(scsi_cancel_all_tasks)
/* clang-format on */
static struct {
#define X(name) __typeof__(&iscsi_##name) name;
	ISCSI_FUNCTIONS(X)
#undef X
	__typeof__(&scsi_free_scsi_task) free_task;
	__typeof__(&scsi_datain_unmarshall) unmarshall;
} lib;
static const struct dynlib_symbol symbols[] = {
#define X(name) {"iscsi_" #name, (void **)&lib.name},
    ISCSI_FUNCTIONS(X)
#undef X
	{"scsi_free_scsi_task", (void **)&lib.free_task},
    {"scsi_datain_unmarshall", (void **)&lib.unmarshall},
};

struct lun {
	struct iscsi_context *c;
	struct block_file *file;
	struct loop *loop;
	int number, fd; /* fd: ours, of the library's connection, which may close its own; -1: the connection is lost */
	int lib_fd;
	unsigned events;
	uint32_t block, max_blocks; /* bytes; blocks of one command */
	uint32_t max_unmap;	    /* blocks; 0: cannot */
	bool can_same, said;
	uint8_t *zeros;	     /* one block */
	struct op *ops;	     /* under way */
	struct call *calls;  /* of opening and closing */
	struct op *given_up; /* ended here, the library may still know them: freed after it */
};

/*
 * A command that is waited for. Not on the stack: the library calls back what it forgot as late as when its context
 * goes, and its own _sync functions, which have returned by then, let it write into whatever the stack holds.
 */
struct call {
	struct scsi_task *task;
	int status;
	bool done;
	char why[160]; /* it failed; the library's later errors hide the first */
	struct call *next;
};

struct op;
/* One command of a request. */
struct piece {
	struct op *op;
	struct scsi_task *task; /* NULL: not queued, or done */
	uint64_t lba;
	uint32_t blocks;
	unsigned tries;
	struct iovec *iov;
	int niov;
	struct unmap_list range;
};
struct op {
	struct lun *l;
	struct aio_req *req; /* NULL: given up */
	struct op *next, **link;
	unsigned pending;
	int error; /* negative errno */
	struct iovec *iov;
	struct piece *pieces;
	unsigned npieces;
};

static bool start(struct piece *p);

static void op_link(struct op *op, struct op **list)
{
	op->next = *list;
	op->link = list;
	if (op->next)
		op->next->link = &op->next;
	*list = op;
}

static void op_unlink(struct op *op)
{
	*op->link = op->next;
	if (op->next)
		op->next->link = op->link;
}

static void op_free(struct op *op)
{
	for (unsigned i = 0; i < op->npieces; i++)
		if (op->pieces[i].task)
			lib.free_task(op->pieces[i].task);
	free(op->iov);
	free(op->pieces);
	free(op);
}

static void finish(struct op *op)
{
	struct aio_req *req = op->req;

	op_unlink(op);
	req->result = op->error;
	if (!op->error && (req->op == AIO_READV || req->op == AIO_WRITEV))
		for (int i = 0; i < req->niov; i++)
			req->result += (int64_t)req->iov[i].iov_len;
	op_free(op);
	req->done(req);
}

static int error_of(const struct scsi_task *task)
{
	const struct scsi_sense *s = &task->sense;

	switch (s->key) {
	case SCSI_SENSE_DATA_PROTECTION: return s->ascq == ASCQ_NO_SPACE ? -ENOSPC : -EACCES;
	case SCSI_SENSE_ILLEGAL_REQUEST: return s->ascq == SCSI_SENSE_ASCQ_LBA_OUT_OF_RANGE ? -EINVAL : -EOPNOTSUPP;
	default: return -EIO;
	}
}

static void update_events(struct lun *l);

static void task_done(struct iscsi_context *c, int status, void *data, void *user)
{
	struct scsi_task *task = data;
	struct piece *p = user;
	struct op *op = p->op;
	int error = 0;
	bool again = false;

	if (!op->req) /* its task is freed with it */
		return;
	if (status == SCSI_STATUS_CHECK_CONDITION && task) {
		again = task->sense.key == SCSI_SENSE_UNIT_ATTENTION;
		error = error_of(task);
	} else if (status == SCSI_STATUS_BUSY || status == SCSI_STATUS_TASK_SET_FULL) {
		again = true;
		error = -EBUSY;
	} else if (status != SCSI_STATUS_GOOD) {
		error = -EIO;
	}
	if (p->task)
		lib.free_task(p->task);
	p->task = NULL;
	if (again && ++p->tries < MAX_TRIES && start(p))
		return;
	if (error && !op->error)
		op->error = error;
	if (--op->pending == 0)
		finish(op);
}

/* False: it could not be queued. */
static bool start(struct piece *p)
{
	struct op *op = p->op;
	struct lun *l = op->l;
	const uint32_t bytes = p->blocks * l->block;
	struct scsi_iovec *iov = (struct scsi_iovec *)p->iov;
	struct scsi_task *t;

	switch (op->req->op) {
	case AIO_READV:
		t = lib.read16_iov_task(l->c, l->number, p->lba, bytes, (int)l->block, 0, 0, 0, 0, 0, task_done, p, iov,
					p->niov);
		break;
	case AIO_WRITEV:
		t = lib.write16_iov_task(l->c, l->number, p->lba, NULL, bytes, (int)l->block, 0, 0, 0, 0, 0, task_done,
					 p, iov, p->niov);
		break;
	case AIO_FDATASYNC: t = lib.synchronizecache16_task(l->c, l->number, 0, 0, 0, 0, task_done, p); break;
	case AIO_BLKDISCARD:
		p->range = (struct unmap_list){.lba = p->lba, .num = p->blocks};
		t = lib.unmap_task(l->c, l->number, 0, 0, &p->range, 1, task_done, p);
		break;
	default:
		t = lib.writesame16_task(l->c, l->number, p->lba, l->zeros, l->block, p->blocks, 0, op->req->mode, 0, 0,
					 task_done, p);
		break;
	}
	p->task = t;
	return t != NULL;
}

/* ---- requests ------------------------------------------------------------------------ */

/* Returns what needs no command, or 1. */
static int without_command(const struct lun *l, const struct aio_req *req)
{
	if (l->fd < 0)
		return -EIO;
	if (req->op == AIO_BLKDISCARD && !l->max_unmap)
		return 0;
	if (req->op == AIO_FALLOCATE || (req->op == AIO_BLKZEROOUT && !l->can_same))
		return -EOPNOTSUPP;
	return 1;
}

static uint64_t length_of(const struct aio_req *req)
{
	uint64_t len = 0;

	if (req->op == AIO_FDATASYNC)
		return 0;
	if (req->op != AIO_READV && req->op != AIO_WRITEV)
		return req->len;
	for (int i = 0; i < req->niov; i++)
		len += req->iov[i].iov_len;
	return len;
}

static int make_pieces(struct op *op, unsigned *out)
{
	const struct aio_req *req = op->req;
	const struct lun *l = op->l;
	const bool data = req->op == AIO_READV || req->op == AIO_WRITEV;
	const uint32_t limit = req->op == AIO_BLKDISCARD ? l->max_unmap : l->max_blocks;
	const uint64_t blocks = length_of(req) / l->block, n = MAX((blocks + limit - 1) / limit, 1u);
	struct iovec *iov;

	op->pieces = calloc(n, sizeof(*op->pieces));
	/* A cut adds an entry to each piece at most. */
	op->iov = iov = data ? calloc((size_t)req->niov + n, sizeof(*op->iov)) : NULL;
	if (!op->pieces || (data && !op->iov))
		return -ENOMEM;
	for (uint64_t i = 0, at = 0; i < n; i++, at += limit) {
		struct piece *p = &op->pieces[i];
		p->op = op;
		p->lba = req->offset / l->block + at;
		p->blocks = (uint32_t)MIN(blocks - at, limit);
		p->iov = iov;
		if (!data)
			continue;
		p->niov = iov_cut(iov, req->iov, req->niov, at * l->block, (uint64_t)p->blocks * l->block);
		iov += p->niov;
	}
	*out = op->npieces = (unsigned)n;
	return 0;
}

static void iscsi_submit(struct block_file *f, struct aio_req *req)
{
	struct lun *l = f->store;
	struct op *op = NULL;
	unsigned n = 0;
	int ret = without_command(l, req);

	if (ret == 1) {
		op = calloc(1, sizeof(*op));
		ret = op ? 1 : -ENOMEM;
	}
	if (ret != 1) {
		req->result = ret;
		req->done(req);
		return;
	}
	op->l = l;
	op->req = req;
	op_link(op, &l->ops);
	op->pending = 1; /* not done before all pieces are queued */
	op->error = make_pieces(op, &n);
	for (unsigned i = 0; i < n && !op->error; i++) {
		op->pending++;
		if (!start(&op->pieces[i])) {
			op->pending--;
			op->error = -EIO;
		}
	}
	if (--op->pending == 0)
		finish(op);
	update_events(l);
}

/* ---- the connection --------------------------------------------------------------------- */

static void give_up(struct op *op)
{
	struct aio_req *req = op->req;

	op_unlink(op);
	op_link(op, &op->l->given_up);
	op->req = NULL;
	req->result = -EIO;
	req->done(req);
}

static void lost(struct lun *l)
{
	const char *why = lib.get_error(l->c);

	if (l->fd < 0)
		return;
	loop_unwatch(l->loop, l->fd);
	close(l->fd);
	l->fd = -1;
	if (!l->said)
		log_error("iSCSI: the connection is lost: %.*s", (int)strcspn(why, "\n"), why);
	l->said = true;
	/* Nothing will answer what is under way. The library forgets some tasks after a logout that the target asked
	 * for. */
	lib.scsi_cancel_all_tasks(l->c);
	while (l->ops)
		give_up(l->ops);
}

static void on_event(void *arg, unsigned events)
{
	struct lun *l = arg;
	const int revents =
	    (events & LOOP_READ ? POLLIN : 0) | (events & LOOP_WRITE ? POLLOUT : 0) | (events & LOOP_HUP ? POLLHUP : 0);

	if (lib.service(l->c, revents) < 0 || lib.get_fd(l->c) != l->lib_fd || !lib.is_logged_in(l->c))
		lost(l);
	update_events(l);
}

static void update_events(struct lun *l)
{
	const int want = l->fd < 0 ? 0 : lib.which_events(l->c);
	const unsigned events = (want & POLLIN ? LOOP_READ : 0) | (want & POLLOUT ? LOOP_WRITE : 0);

	if (l->fd >= 0 && events != l->events)
		loop_rewatch(l->loop, l->fd, events);
	l->events = events;
}

static int watch(struct lun *l, struct loop *loop)
{
	l->loop = loop;
	l->events = LOOP_READ;
	return loop_watch(loop, l->fd, l->events, on_event, l);
}

/* ---- opening -------------------------------------------------------------------------------- */

static struct call *call_new(struct lun *l)
{
	struct call *k = calloc(1, sizeof(*k));

	if (k) {
		k->next = l->calls;
		l->calls = k;
	}
	return k;
}

static void call_done(struct iscsi_context *c, int status, void *data, void *user)
{
	struct call *k = user;

	if (k->done)
		return;
	k->done = true;
	k->status = status;
	if (status != SCSI_STATUS_GOOD)
		snprintf(k->why, sizeof(k->why), "%.*s", (int)strcspn(lib.get_error(c), "\n"), lib.get_error(c));
}

/* True when it was answered and is good. The library counts the seconds. */
static bool call_wait(struct lun *l, struct call *k)
{
	while (!k->done) {
		struct pollfd p = {lib.get_fd(l->c), (short)lib.which_events(l->c), 0};

		if (p.fd < 0 || (poll(&p, 1, 1000) < 0 && errno != EINTR) || lib.service(l->c, p.revents) < 0)
			break;
	}
	return k->done && k->status == SCSI_STATUS_GOOD;
}

/* The data that `task` brought, a structure of the library's which lives as long as k; NULL: none. */
static void *call_data(struct lun *l, struct call *k, struct scsi_task *task)
{
	if (!k || !task)
		return NULL;
	k->task = task;
	return call_wait(l, k) ? lib.unmarshall(task) : NULL;
}

static int log_in(struct lun *l, const char *name, struct iscsi_url *u, struct err *err)
{
	struct call *k;

	lib.set_targetname(l->c, u->target);
	lib.set_session_type(l->c, ISCSI_SESSION_NORMAL);
	lib.set_header_digest(l->c, ISCSI_HEADER_DIGEST_NONE_CRC32C);
	if (u->user[0])
		lib.set_initiator_username_pwd(l->c, u->user, u->passwd);
	if (u->target_user[0])
		lib.set_target_username_pwd(l->c, u->target_user, u->target_passwd);
	lib.set_noautoreconnect(l->c, 1);
	lib.set_timeout(l->c, CONNECT_SECONDS);
	k = call_new(l);
	if (!k || lib.full_connect_async(l->c, u->portal, u->lun, call_done, k) != 0 || !call_wait(l, k))
		return err_set(err, -ECONNREFUSED, "Could not open '%s': %s", name,
			       k && k->why[0] ? k->why : lib.get_error(l->c));
	l->number = u->lun;
	l->lib_fd = lib.get_fd(l->c);
	l->fd = fcntl(l->lib_fd, F_DUPFD_CLOEXEC, 3);
	return l->fd < 0 ? err_set_errno(err, -errno, "Could not open '%s'", name) : 0;
}

/* A page of the vital product data; NULL: the target has it not. */
static void *vpd_page(struct lun *l, int page)
{
	struct call *k = call_new(l);

	return call_data(l, k, k ? lib.inquiry_task(l->c, l->number, 1, page, 255, call_done, k) : NULL);
}

static void find_limits(struct lun *l)
{
	const uint32_t most = (uint32_t)(MAX_PIECE / l->block);
	struct scsi_inquiry_block_limits *b;
	struct scsi_inquiry_logical_block_provisioning *prov;
	bool unmap = false;

	l->max_blocks = most;
	prov = vpd_page(l, SCSI_INQUIRY_PAGECODE_LOGICAL_BLOCK_PROVISIONING);
	if (prov) {
		unmap = prov->lbpu;
		l->can_same = prov->lbpws;
	}
	b = vpd_page(l, SCSI_INQUIRY_PAGECODE_BLOCK_LIMITS);
	if (b && b->max_xfer_len)
		l->max_blocks = MIN(most, b->max_xfer_len);
	if (b && unmap && b->max_unmap && b->max_unmap_bdc)
		l->max_unmap = MIN(b->max_unmap, UINT32_MAX / l->block);
	if (b && b->max_ws_len)
		l->can_same = l->can_same && b->max_ws_len >= l->max_blocks;
}

static int describe(struct lun *l, const char *name, struct err *err)
{
	struct call *k = call_new(l);
	struct scsi_readcapacity16 *rc =
	    call_data(l, k, k ? lib.readcapacity16_task(l->c, l->number, call_done, k) : NULL);
	struct scsi_mode_sense *ms;
	uint64_t last = 0;

	if (rc) {
		l->block = rc->block_length;
		last = rc->returned_lba;
	}
	if (!rc)
		return err_set(err, -EIO, "Could not open '%s': READ CAPACITY failed: %s", name, lib.get_error(l->c));
	if (l->block < 512 || l->block > 65536 || (l->block & (l->block - 1)) || last >= INT64_MAX / l->block)
		return err_set(err, -EINVAL, "Could not open '%s': blocks of %u bytes up to %llu are no disk", name,
			       l->block, (unsigned long long)last);
	l->file->size = (last + 1) * l->block;
	l->file->align = l->block;
	l->zeros = calloc(1, l->block);
	k = call_new(l);
	ms = call_data(
	    l, k,
	    k ? lib.modesense6_task(l->c, l->number, 1, SCSI_MODESENSE_PC_CURRENT, 0x3f, 0, 255, call_done, k) : NULL);
	l->file->store_read_only = ms && (ms->device_specific_parameter & 0x80);
	find_limits(l);
	return l->zeros ? 0 : err_set(err, -ENOMEM, "out of memory");
}

/* libiscsi's URL ends before our options. */
static struct iscsi_url *parse_url(struct lun *l, const char *name, struct err *err)
{
	char *plain = strndup(name, strcspn(name, "?"));
	struct iscsi_url *u = plain ? lib.parse_full_url(l->c, plain) : NULL;

	if (!u)
		err_set(err, -EINVAL, "Could not open '%s': %s", name, lib.get_error(l->c));
	free(plain);
	return u;
}

static void lun_free(struct lun *l)
{
	if (l->c)
		lib.destroy_context(l->c);
	for (struct op *op = l->given_up, *next; op; op = next) {
		next = op->next;
		op_free(op);
	}
	for (struct call *k = l->calls, *next; k; k = next) {
		next = k->next;
		if (k->task)
			lib.free_task(k->task);
		free(k);
	}
	if (l->fd >= 0)
		close(l->fd);
	free(l->zeros);
	free(l);
}

static int iscsi_open(struct block_file *f, const char *name, const struct block_open *o, struct err *err)
{
	char initiator[224] = "iqn.2008-11.org.linux-kvm:kelvin";
	struct lun *l = calloc(1, sizeof(*l));
	struct iscsi_url *u = NULL;
	int ret = l ? dynlib_load("libiscsi.so.7", "libiscsi7", symbols, ARRAY_SIZE(symbols), err)
		    : err_set(err, -ENOMEM, "out of memory");

	if (ret) {
		free(l);
		return ret;
	}
	l->file = f;
	l->fd = -1;
	block_url_option(name, "initiator-name", initiator, sizeof(initiator));
	l->c = lib.create_context(initiator);
	ret = l->c ? 0
		   : err_set(err, -EINVAL, "Could not open '%s': the initiator name '%s' is refused", name, initiator);
	if (!ret) {
		u = parse_url(l, name, err);
		ret = u ? log_in(l, name, u, err) : -EINVAL;
	}
	if (!ret)
		ret = describe(l, name, err);
	if (!ret) {
		ret = watch(l, f->loop);
		if (ret)
			err_set_errno(err, ret, "Could not open '%s'", name);
	}
	if (u)
		lib.destroy_url(u);
	if (ret)
		lun_free(l);
	else
		f->store = l;
	return ret;
}

static void unwatch(void *arg)
{
	struct lun *l = arg;

	if (l->fd >= 0)
		loop_unwatch(l->loop, l->fd);
}

static void iscsi_close(struct block_file *f)
{
	struct lun *l = f->store;
	struct call *k;

	iothread_call(l->loop, unwatch, l);
	if (l->fd >= 0) {
		lib.set_timeout(l->c, 5);
		k = call_new(l);
		if (k && lib.logout_async(l->c, call_done, k) == 0)
			call_wait(l, k);
	}
	lun_free(l);
}

static int iscsi_set_loop(struct block_file *f, struct loop *loop, struct err *err)
{
	struct lun *l = f->store;
	int ret;

	iothread_call(l->loop, unwatch, l);
	ret = l->fd >= 0 ? watch(l, loop) : 0;
	l->loop = loop;
	return ret ? err_set_errno(err, ret, "iSCSI connection") : 0;
}

static const char *const iscsi_schemes[] = {"iscsi", NULL};
const struct block_protocol block_iscsi_protocol = {
    .schemes = iscsi_schemes,
    .open = iscsi_open,
    .close = iscsi_close,
    .set_loop = iscsi_set_loop,
    .submit = iscsi_submit,
};
