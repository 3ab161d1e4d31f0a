// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * control: whole command lines, as people type them: what they set, and the one
 * line that says what is wrong. Nothing is opened or started.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/util.h"
#include "control/cmdline.h"

#define ARGS_MAX 80

/* Split at '|', since arguments contain spaces. */
static int parse(struct cmdline *c, const char *line, struct err *err)
{
	static char copy[4096];
	char *argv[ARGS_MAX], *s = copy;
	int argc = 0;

	assert_true(strlen(line) < sizeof(copy));
	strcpy(copy, line);
	argv[argc++] = (char *)"kelvin";
	while (s && *s) {
		char *end = strchr(s, '|');
		if (end)
			*end = 0;
		argv[argc++] = s;
		s = end ? end + 1 : NULL;
	}
	return cmdline_parse(c, argc, argv, err);
}

/* Lines that must be refused in one line that contains `part`. */
static const struct {
	const char *line, *part;
} bad_table[] = {
    {"-net|nic,vlan=0,macaddr=54:52:00:46:48:0e,model=virtio", "do not exist in Kelvin yet"},
    {"-netdev|user,id=n", "'-netdev' does not exist in Kelvin yet"},
    {"-redir|tcp:5555::22", "'-redir' does not exist in Kelvin yet"},
    {"-soundhw|es1370", "'-soundhw' does not exist in Kelvin yet"},
    {"-vnc|127.0.0.1:0", "'-vnc' does not exist in Kelvin yet"},
    {"-usb", "'-usb' does not exist in Kelvin yet"},
    {"-usbdevice|tablet", "'-usbdevice' does not exist in Kelvin yet"},
    {"-localtime", "use -rtc base=localtime"},
    {"-display|gtk", "-display gtk does not exist in Kelvin yet"},
    {"-vga|std", "-vga std does not exist in Kelvin yet"},
    {"-parallel|pty", "use -parallel none"},
    {"-sreial|pty", "no option '-sreial'; did you mean '-serial'?"},
    {"--enable_kvm", "no option '--enable_kvm'; did you mean '-enable-kvm'?"},
    {"-xyzzy", "no option '-xyzzy'"},
    {"disk.img", "'disk.img' is not an option; a disk is given as -drive file=disk.img"},
    {"-m", "option '-m' needs an argument"},
    {"-m|lots", "'lots' is not a size"},
    {"-m|-5", "'-5' is not a size"},
    {"-m|99999999T", "outside"},
    {"-m|4G,slots=2,maxmem=8G", "'slots' does not exist in Kelvin yet"},
    {"-smp|x", "'cpus' cannot be 'x'"},
    {"-smp|4,sockets=3", "is not cpus (4)"},
    {"-smp|2,maxcpus=4", "CPU hotplug does not exist in Kelvin yet"},
    {"-smp|4,dies=2", "dies="},
    {"-smp|4,coers=2", "did you mean 'cores'?"},
    {"-smp|100000", "from 0 to 255"},
    {"-M|q35", "'q35' does not exist in Kelvin yet: use -M pc"},
    {"-M|pcc", "no machine type 'pcc'; did you mean 'pc'?"},
    {"-M|pc,nosuch=1", "pc has no property 'nosuch'"},
    {"-M|pc,usb=on", "usb=on does not exist in Kelvin yet"},
    {"-M|pc,accel=xen", "'xen' does not exist in Kelvin"},
    {"-accel|kvn", "no CPU engine 'kvn'; did you mean 'kvm'?"},
    {"-accel|kvm:soft:", "'kvm:soft:' has an empty name"},
    {"-accel|:soft", "':soft' has an empty name"},
    {"-kernel|k|-initrd|a,,b,", "'a,,b,' has an empty file name"},
    {"-kernel|k|-initrd|,", "',' has an empty file name"},
    {"-accel", "needs an argument"},
    {"-uuid|b7b4b7e4-9c07-22aa-0c95-d5c8a24176", "is not of the form"},
    {"-balloon|big", "neither none nor virtio"},
    {"-boot|z", "Invalid boot device 'z'"},
    {"-boot|cc", "twice"},
    {"-boot|nosuch=1", "no property 'nosuch'"},
    {"-rtc|base=yesterday", "'yesterday' is not utc"},
    {"-rtc|driftfix=slew", "does not exist in Kelvin yet"},
    {"-append|quiet", "need -kernel"},
    {"-initrd|a", "need -kernel"},
    {"-daemonize|-nographic", "cannot be used with -daemonize"},
    {"-mon|mode=control", "'chardev' is required"},
    {"-mon|chardev=c,mode=telepathy", "readline, control"},
    {"-d|nosuchclass", "no class 'nosuchclass'"},
    {"-device|nosuch,help", "no device 'nosuch'"},
    {"-device|{\"driver\":", "JSON"},
    {"-name|x,colour=red", "no property 'colour'"},
    {"-serial|null|-serial|null|-serial|null|-serial|null|-serial|null", "only 4 serial ports"},
    {"-sandbox|on", "does not exist in Kelvin yet"},
    {"-overcommit|cpu-pm=on", "does not exist in Kelvin yet"},
    {"-overcommit|mem-lock=maybe", "'mem-lock' cannot be 'maybe'"},
    {"-action|panic=explode", "does not exist in Kelvin yet"},
};

static void test_bad(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(bad_table); i++) {
		struct cmdline c;
		struct err e = {0};
		int ret = parse(&c, bad_table[i].line, &e);
		if (ret >= 0 || !strstr(e.msg, bad_table[i].part) || strchr(e.msg, '\n'))
			fail_msg("%s: %d '%s'", bad_table[i].line, ret, e.msg);
		cmdline_free(&c);
	}
}

/* R4's machine M1, without what Kelvin does not have yet; the rest as it was typed in 2009. */
static void test_m1(void **state)
{
	struct cmdline c;
	struct err e = {0};
	int ret =
	    parse(&c,
		  "-S|-M|pc|-m|4096|-smp|8|-name|f11-test|-uuid|b7b4b7e4-9c07-22aa-0c95-d5c8a24176c5|-monitor|pty|"
		  "-pidfile|/run/P|-boot|c|-drive|file=,if=ide,media=cdrom,index=2|"
		  "-drive|file=f11-test.img,if=virtio,index=0,boot=on|-drive|file=/dev/sdb,if=virtio,index=1|"
		  "-serial|pty|-parallel|none",
		  &e);

	assert_string_equal(e.msg, "");
	assert_int_equal(ret, 0);
	assert_true(c.vm.start_paused);
	assert_int_equal(c.vm.ram_size, 4 * GIB);
	assert_int_equal(c.vm.ram.size, 4 * GIB);
	assert_int_equal(c.vm.cpus, 8);
	assert_int_equal(c.vm.cores, 8);
	assert_string_equal(c.vm.machine, "pc");
	assert_string_equal(c.vm.name, "f11-test");
	assert_int_equal(c.vm.uuid_bytes[0], 0xb7);
	assert_int_equal(c.vm.uuid_bytes[15], 0xc5);
	assert_int_equal(c.drives.n, 3);
	assert_string_equal(c.drives.v[0], "file=,if=ide,media=cdrom,index=2");
	assert_int_equal(c.serials.n, 1);
	assert_int_equal(c.nmonitors, 1);
	assert_string_equal(c.pidfile, "/run/P");
	assert_string_equal(c.vm.boot, "c");
	assert_int_equal(c.console, CONSOLE_DEFAULT);
	cmdline_free(&c);
}

static void test_try(void **state)
{
	struct cmdline c;
	struct err e = {0};
	int ret = parse(
	    &c,
	    "-M|pc|-m|1G|-smp|2|-nodefaults|-no-reboot|-display|none|-kernel|/k|-initrd|/a,/b,,c|-append|console=ttyS0 "
	    "root=/dev/vda|-drive|file=a b.img,if=virtio,format=raw|-chardev|stdio,id=console,mux=on,signal=off|"
	    "-serial|chardev:console|-mon|chardev=console,mode=readline|-accel|kvm|-accel|soft|--stats|/s.json",
	    &e);

	assert_string_equal(e.msg, "");
	assert_int_equal(ret, 0);
	assert_int_equal(c.vm.ninitrd, 2);
	assert_string_equal(c.vm.initrd[1], "/b,c");
	assert_string_equal(c.vm.append, "console=ttyS0 root=/dev/vda");
	assert_string_equal(c.vm.accel, "kvm:soft");
	assert_string_equal(c.drives.v[0], "file=a b.img,if=virtio,format=raw");
	assert_true(c.vm.no_defaults && c.vm.no_reboot);
	assert_int_equal(c.console, CONSOLE_NONE);
	assert_true(c.nmonitors == 1 && c.monitors[0].by_id && !c.monitors[0].qmp);
	assert_string_equal(c.stats, "/s.json");
	cmdline_free(&c);
}

static const struct {
	const char *line;
	unsigned cpus, sockets, cores, threads;
} smp_table[] = {
    {"-smp|8", 8, 1, 8, 1},
    {"-smp|0", 1, 1, 1, 1},
    {"-smp|cpus=4,sockets=2", 4, 2, 2, 1},
    {"-smp|8,cores=2,threads=2", 8, 2, 2, 2},
    {"-smp|sockets=2,cores=3,threads=1", 6, 2, 3, 1},
    {"-smp|4,maxcpus=4,dies=1,clusters=1", 4, 1, 4, 1},
    {"-smp|1|-smp|3", 3, 1, 3, 1},
};

static void test_smp(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(smp_table); i++) {
		struct cmdline c;
		struct err e = {0};
		assert_int_equal(parse(&c, smp_table[i].line, &e), 0);
		if (c.vm.cpus != smp_table[i].cpus || c.vm.sockets != smp_table[i].sockets ||
		    c.vm.cores != smp_table[i].cores || c.vm.threads != smp_table[i].threads)
			fail_msg("%s: %u %u %u %u", smp_table[i].line, c.vm.cpus, c.vm.sockets, c.vm.cores,
				 c.vm.threads);
		cmdline_free(&c);
	}
}

static void test_memory(void **state)
{
	static const struct {
		const char *line;
		uint64_t bytes;
	} table[] = {
	    {"-S", 128 * MIB},	      {"-m|0", 128 * MIB},     {"-m|512", 512 * MIB}, {"-m|1.5G", 3 * GIB / 2},
	    {"-m|3500M", 3500 * MIB}, {"-m|size=6G", 6 * GIB}, {"-m|4096k", 4 * MIB},
	};
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct cmdline c;
		struct err e = {0};
		assert_int_equal(parse(&c, table[i].line, &e), 0);
		assert_int_equal(c.vm.ram_size, table[i].bytes);
		cmdline_free(&c);
	}
}

/* How libvirt starts a machine, but for its devices. */
static void test_libvirt(void **state)
{
	struct cmdline c;
	struct err e = {0};
	int ret =
	    parse(&c,
		  "-name|guest=vm1,debug-threads=on|-S|-machine|pc-i440fx-7.2,usb=off,dump-guest-core=off,"
		  "memory-backend=pc.ram|-accel|kvm|-cpu|host,migratable=on|-m|1024|-object|{\"qom-type\":\"memory-"
		  "backend-ram\",\"id\":\"pc.ram\",\"size\":1073741824}|-overcommit|mem-lock=off|-smp|2,sockets=2,"
		  "cores=1,threads=1|-uuid|b7b4b7e4-9c07-22aa-0c95-d5c8a24176c5|-display|none|-no-user-config|"
		  "-nodefaults|-chardev|socket,id=charmonitor,fd=20,server=on,wait=off|-mon|chardev=charmonitor,"
		  "id=monitor,mode=control|-rtc|base=utc|-no-shutdown|-boot|strict=on|-sandbox|off|-msg|timestamp=off",
		  &e);

	assert_string_equal(e.msg, "");
	assert_int_equal(ret, 0);
	assert_string_equal(c.vm.machine, "pc");
	assert_string_equal(c.memory_backend, "pc.ram");
	assert_int_equal(c.vm.sockets, 2);
	assert_true(c.nmonitors == 1 && c.monitors[0].qmp && c.monitors[0].by_id);
	cmdline_free(&c);
}

/* Old and new spellings of one wish. */
static void test_accel(void **state)
{
	static const struct {
		const char *line, *accel;
	} table[] = {
	    {"-S", NULL},
	    {"-enable-kvm", "kvm"},
	    {"--enable-kvm", "kvm"},
	    {"-no-kvm", "soft"},
	    {"-machine|accel=kvm:tcg", "kvm:tcg"},
	    {"-M|pc,accel=soft", "soft"},
	    {"-M|pc-i440fx-7.2,accel=kvm", "kvm"},
	    {"-accel|tcg,thread=multi", "tcg,thread=multi"},
	    {"-accel|kvm|-accel|tcg", "kvm:tcg"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct cmdline c;
		struct err e = {0};
		int ret = parse(&c, table[i].line, &e);
		if (ret)
			fail_msg("%s: %s", table[i].line, e.msg);
		if (table[i].accel)
			assert_string_equal(c.vm.accel, table[i].accel);
		else
			assert_null(c.vm.accel);
		assert_string_equal(c.vm.machine, "pc");
		cmdline_free(&c);
	}
}

static void test_misc(void **state)
{
	struct cmdline c;
	struct err e = {0};
	int ret =
	    parse(&c,
		  "-name|guest=a,,b,process=kv,debug-threads=on|-rtc|base=1996-01-01T00:00:00,clock=host|"
		  "-boot|order=cd,menu=on|-action|reboot=shutdown,shutdown=pause|-vga|none|-net|none|-nic|none|"
		  "-no-user-config|-qmp|unix:/q,server,nowait|-qmp-pretty|none|-monitor|none|-global|isa-serial.irq=3|"
		  "-M|pc,mem-merge=off,vmport=off|-no-acpi|-no-hpet|-mem-path|/x|-mem-prealloc|-daemonize|-timeline",
		  &e);

	assert_string_equal(e.msg, "");
	assert_int_equal(ret, 0);
	assert_string_equal(c.vm.name, "a,b");
	assert_string_equal(c.process_name, "kv");
	assert_string_equal(c.vm.rtc_base, "1996-01-01T00:00:00");
	assert_string_equal(c.globals.v[0], "mc146818rtc.clock=host");
	assert_true(c.vm.no_reboot && c.vm.no_shutdown && c.no_monitor && c.daemonize && c.vm.timeline);
	assert_true(c.vm.no_acpi && c.vm.no_hpet && c.vm.ram.prealloc);
	assert_true(c.nmonitors == 1 && c.monitors[0].qmp);
	assert_string_equal(c.vm.ram.path, "/x");
	cmdline_free(&c);

	struct cmdline d;
	char *argv[] = {(char *)"/usr/bin/qemu-system-x86_64", (char *)"-S"};
	assert_int_equal(cmdline_parse(&d, 2, argv, &e), 0);
	assert_true(d.as_qemu);
	cmdline_free(&d);
}

/* Each "help" prints and asks for a clean exit. */
static void test_balloon(void **state)
{
	struct cmdline c;
	struct err e = {0};

	assert_int_equal(parse(&c, "-balloon|none|-balloon|virtio|-balloon|virtio,addr=7", &e), 0);
	assert_int_equal(c.devices.n, 2);
	assert_string_equal(c.devices.v[0], "virtio-balloon-pci");
	assert_string_equal(c.devices.v[1], "virtio-balloon-pci,addr=7");
	cmdline_free(&c);
}

static void test_help(void **state)
{
	static const char *const lines[] = {"-M|help",	     "-machine|?",   "-accel|help",
					    "-device|help",  "-cpu|help",    "-d|help",
					    "-chardev|help", "-object|help", "-device|isa-serial,help",
					    "-help",	     "-version",     "-M|pc,help",
					    "-trace|help"};
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		struct cmdline c;
		struct err e = {0};
		int ret = parse(&c, lines[i], &e);
		if (ret != 1)
			fail_msg("%s: %d %s", lines[i], ret, e.msg);
		cmdline_free(&c);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_bad),	    cmocka_unit_test(test_m1),	    cmocka_unit_test(test_try),
	    cmocka_unit_test(test_smp),	    cmocka_unit_test(test_memory),  cmocka_unit_test(test_accel),
	    cmocka_unit_test(test_misc),    cmocka_unit_test(test_libvirt), cmocka_unit_test(test_help),
	    cmocka_unit_test(test_balloon),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
