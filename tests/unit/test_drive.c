/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Where a -drive lands: if=, bus=, unit=, index= and media= give QEMU's places and names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include "base/util.h"
#include "block/block.h"

/* A line of drives without media (separated by blanks), the names they get, or the error of the last. */
static const struct {
	const char *drives[4], *names;
} table[] = {
    {{"if=ide"}, "ide0-cd0"},
    {{"if=ide", "if=ide", "if=ide", "if=ide"}, "ide0-cd0 ide0-cd1 ide1-cd0 ide1-cd1"},
    {{"index=2"}, "ide1-cd0"},
    {{"bus=1,unit=1"}, "ide1-cd1"},
    {{"bus=1"}, "ide1-cd0"},
    {{"unit=1", "unit=0", "unit=1"}, "drive with bus=0, unit=1 (index=1) exists"},
    {{"index=0", "if=ide"}, "ide0-cd0 ide0-cd1"},
    {{"if=scsi,index=8"}, "scsi1-cd1"},
    {{"if=scsi,unit=7"}, "unit 7 too big (max is 6)"},
    {{"if=none,id=x", "if=none"}, "x none1"},
    {{"if=none,id=x,index=1", "if=none,id=y,index=1"}, "x y"},
    {{"if=virtio,index=3", "if=virtio"}, "virtio3 virtio0"},
    {{"index=0,unit=1"}, "index cannot be used with bus and unit"},
    {{"index=1000"}, "index 1000 is out of range"},
    {{"if=ide", "if=none,id=ide0-cd0"}, "Duplicate ID 'ide0-cd0'"},
};

static void test_places(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		char got[256] = "", text[128];
		struct err e = {0};

		for (size_t k = 0; k < ARRAY_SIZE(table[i].drives) && table[i].drives[k]; k++) {
			snprintf(text, sizeof(text), "%s,media=cdrom", table[i].drives[k]);
			const struct drive *d = drive_create(text, NULL, &e);
			if (!d)
				break;
			snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s", *got ? " " : "", d->id);
			assert_true(d->cdrom && !d->node);
		}
		if (e.code ? !strstr(e.msg, table[i].names) : strcmp(got, table[i].names) != 0)
			fail_msg("case %zu: got '%s' '%s', not '%s'", i, got, e.msg, table[i].names);
		drive_close_all();
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_places)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
