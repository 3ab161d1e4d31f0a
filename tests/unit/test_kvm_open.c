/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Case D9: /dev/kvm missing, forbidden or not permitted are told apart, each with its own remedy. */
#include <errno.h>
#include <grp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "base/util.h"
#include "cpu/kvm/kvm_int.h"

static void test_open(void **state)
{
	const struct group *tty = getgrnam("tty");
	struct {
		int code;
		mode_t mode;
		gid_t gid;
		const char *says, *not ;
	} t[] = {
	    {-ENOENT, 0, 0, "no /dev/kvm", "group"},
	    {-EPERM, 0600, 0, "--device /dev/kvm", "module"},
	    {-ENODEV, 0600, 0, "module", "group"},
	    {-EACCES, 0660, tty ? tty->gr_gid : 5, tty ? "usermod -aG tty" : "join its group", "chmod"},
	    {-EACCES, 0600, 5, "chmod 660", "usermod"},
	    {-EACCES, 0660, 0, "chgrp kvm", "usermod"}, /* nobody should join group root */
	    {-EACCES, 0660, 4123456, "group 4123456", "usermod"},
	    {-EMFILE, 0660, 5, "cannot open /dev/kvm", "group"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct err err = {0};
		struct stat st = {.st_mode = S_IFCHR | t[i].mode, .st_gid = t[i].gid};

		assert_int_equal(kvm_explain_open(t[i].code, &st, &err), t[i].code);
		if (!strstr(err.msg, t[i].says) || strstr(err.msg, t[i].not ))
			fail_msg("case %zu: '%s'", i, err.msg);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_open)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
