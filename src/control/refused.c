// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Options that QEMU has (or had) and Kelvin has not yet: they are refused by
 * name, with what to use instead where there is something. A line leaves this
 * table when the feature arrives.
 */
#include <errno.h>
#include <string.h>
#include "base/util.h"
#include "control/cmdline.h"

static const struct {
	const char *name, *instead;
} refused_table[] = {
    {"pflash", "use -bios FILE"},
    {"curses", "use -nographic"},
    {"sdl", "use -nographic"},
    {"vnc", "use -nographic"},
    {"spice", "use -nographic"},
    {"localtime", "use -rtc base=localtime"},
    {"startdate", "use -rtc base=DATE"},
    {"fda", NULL},
    {"fdb", NULL},
    {"mtdblock", NULL},
    {"sd", NULL},
    {"fsdev", NULL},
    {"virtfs", NULL},
    {"netdev", NULL},
    {"redir", NULL},
    {"tftp", NULL},
    {"bootp", NULL},
    {"smb", NULL},
    {"usb", NULL},
    {"usbdevice", NULL},
    {"soundhw", NULL},
    {"audiodev", NULL},
    {"audio", NULL},
    {"audio-help", NULL},
    {"watchdog", NULL},
    {"watchdog-action", NULL},
    {"pcidevice", NULL},
    {"tpmdev", NULL},
    {"tdf", NULL},
    {"rtc-td-hack", NULL},
    {"clock", NULL},
    {"kvm-shadow-memory", NULL},
    {"no-kvm-irqchip", NULL},
    {"no-kvm-pit", NULL},
    {"no-kvm-pit-reinjection", NULL},
    {"std-vga", NULL},
    {"full-screen", NULL},
    {"alt-grab", NULL},
    {"ctrl-grab", NULL},
    {"no-quit", NULL},
    {"no-frame", NULL},
    {"show-cursor", NULL},
    {"rotate", NULL},
    {"portrait", NULL},
    {"k", NULL},
    {"g", NULL},
    {"hdachs", NULL},
    {"win2k-hack", NULL},
    {"no-fd-bootchk", NULL},
    {"acpitable", NULL},
    {"option-rom", NULL},
    {"prom-env", NULL},
    {"dtb", NULL},
    {"L", NULL},
    {"numa", NULL},
    {"add-fd", NULL},
    {"set", NULL},
    {"readconfig", NULL},
    {"writeconfig", NULL},
    {"nodefconfig", NULL},
    {"only-migratable", NULL},
    {"icount", NULL},
    {"singlestep", NULL},
    {"gdb", NULL},
    {"s", NULL},
    {"semihosting", NULL},
    {"semihosting-config", NULL},
    {"runas", NULL},
    {"chroot", NULL},
    {"iscsi", NULL},
    {"virtioconsole", NULL},
    {"debugcon", "use -device isa-debugcon,chardev=ID"},
    {"preconfig", NULL},
    {"plugin", NULL},
    {"dfilter", NULL},
    {"seed", NULL},
    {"echr", NULL},
    {"realtime", NULL},
    {"compat", NULL},
    {"dump-vmstate", NULL},
    {"enable-fips", NULL},
    {"enable-sync-profile", NULL},
    {"perfmap", NULL},
    {"jitdump", NULL},
    {"tb-size", "use -accel soft and its properties"},
    {"xen-domid", NULL},
    {"xen-attach", NULL},
    {"xen-domid-restrict", NULL},
    {"old-param", NULL},
    {"bt", NULL},
};

bool cmdline_refused(const char *name, struct err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(refused_table); i++)
		if (!strcmp(refused_table[i].name, name)) {
			const char *instead = refused_table[i].instead;
			err_set(err, -ENOTSUP, "the option '-%s' does not exist in Kelvin yet%s%s", name,
				instead ? ": " : "", instead ? instead : "");
			return true;
		}
	return false;
}
