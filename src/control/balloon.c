// SPDX-License-Identifier: GPL-2.0-or-later
/* QMP's balloon and query-balloon, the human monitor's balloon and "info balloon": QEMU's meaning and texts. */
#include "control/balloon.h"

#include <errno.h>

#include "base/util.h"
#include "hw/virtio/virtio_balloon.h"

static struct dev *find(struct vm *vm, struct err *err)
{
	struct dev *d = virtio_balloon_find(vm_bus(vm));

	if (!d)
		err_set(err, -ENODEV, "No balloon device has been activated");
	return d;
}

static int set(struct vm *vm, int64_t bytes, struct err *err)
{
	struct dev *d = find(vm, err);

	if (!d)
		return -ENODEV;
	if (bytes <= 0)
		return err_set(err, -EINVAL, "Parameter 'target' expects a size");
	virtio_balloon_set(d, (uint64_t)bytes);
	return 0;
}

json_t *cmd_balloon(struct vm *vm, json_t *args, struct err *err)
{
	return set(vm, json_integer_value(json_object_get(args, "value")), err) ? NULL : json_object();
}

json_t *cmd_query_balloon(struct vm *vm, json_t *args, struct err *err)
{
	struct dev *d = find(vm, err);

	return d ? json_pack("{s:I}", "actual", (json_int_t)virtio_balloon_actual(d)) : NULL;
}

/* In MiB, unless a suffix says otherwise. */
void hmp_balloon(struct vm *vm, const char *args, struct textbuf *out)
{
	struct err e = {0};
	uint64_t bytes;

	if (text_parse_size(args, MIB, &bytes) || bytes > INT64_MAX)
		textbuf_printf(out, "balloon SIZE: the memory the guest shall have, in MiB\n");
	else if (set(vm, (int64_t)bytes, &e))
		textbuf_printf(out, "Error: %s\n", e.msg);
}

void info_balloon(struct vm *vm, const char *args, struct textbuf *out)
{
	struct err e = {0};
	struct dev *d = find(vm, &e);

	if (d)
		textbuf_printf(out, "balloon: actual=%llu\n", (unsigned long long)(virtio_balloon_actual(d) / MIB));
	else
		textbuf_printf(out, "Error: %s\n", e.msg);
}
