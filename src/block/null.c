// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * null-co: a store that takes everything and keeps nothing, for measuring what is
 * above it. null-co://?size=1G&read-zeroes=on. No locks; requests end at once.
 */
#include <errno.h>
#include <string.h>

#include "base/type.h"
#include "base/util.h"
#include "block/file.h"

static int null_open(struct block_file *f, const char *name, const struct block_open *o, struct err *err)
{
	char text[40];

	f->size = GIB;
	if (block_url_option(name, "size", text, sizeof(text)) &&
	    (text_parse_size(text, 1, &f->size) || f->size > INT64_MAX))
		return err_set(err, -EINVAL, "Could not open '%s': the size '%s' is none", name, text);
	f->store = block_url_option(name, "read-zeroes", text, sizeof(text)) &&
			   (strcmp(text, "on") == 0 || strcmp(text, "true") == 0)
		       ? f
		       : NULL;
	return 0;
}

static void null_close(struct block_file *f) {}

static int null_set_loop(struct block_file *f, struct loop *l, struct err *err)
{
	return 0;
}

static void null_submit(struct block_file *f, struct aio_req *req)
{
	req->result = 0;
	for (int i = 0; i < req->niov && (req->op == AIO_READV || req->op == AIO_WRITEV); i++) {
		req->result += (int64_t)req->iov[i].iov_len;
		if (req->op == AIO_READV && f->store)
			memset(req->iov[i].iov_base, 0, req->iov[i].iov_len);
	}
	req->done(req);
}

static const char *const null_schemes[] = {"null-co", "null-aio", NULL};
const struct block_protocol block_null_protocol = {
    .schemes = null_schemes,
    .open = null_open,
    .close = null_close,
    .set_loop = null_set_loop,
    .submit = null_submit,
};
