// SPDX-License-Identifier: GPL-2.0-or-later
/* chr: backends, the mux, legacy shorthands, and a terminal that is as it was afterwards. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <pty.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>
#include <cmocka.h>
#include "base/clock.h"
#include "base/util.h"
#include "chr/chr.h"

static struct loop *loop;
static char dir[] = "/tmp/kelvin-chr-XXXXXX";

/* A frontend that keeps what it gets. */
struct fe {
	char got[8192];
	size_t len, room;
	int opened, closed, breaks, focus;
};
static size_t fe_can(void *o)
{
	return ((struct fe *)o)->room;
}
static void fe_receive(void *o, const uint8_t *b, size_t n)
{
	struct fe *f = o;
	assert_true(n <= f->room && f->len + n < sizeof(f->got));
	memcpy(f->got + f->len, b, n);
	f->len += n;
	f->got[f->len] = 0;
	if (f->room < 1000)
		f->room -= n;
}
static void fe_event(void *o, enum chr_event e)
{
	struct fe *f = o;
	f->opened += e == CHR_OPENED;
	f->closed += e == CHR_CLOSED;
	f->breaks += e == CHR_BREAK;
	f->focus += e == CHR_FOCUS_IN ? 1 : e == CHR_FOCUS_OUT ? -1 : 0;
}
static void attach(struct chr *c, struct fe *f)
{
	struct chr_fe fe = {fe_can, fe_receive, fe_event, f};
	struct err e = {0};
	assert_int_equal(chr_attach(c, &fe, "test", &e), 0);
}
static void turn(int n)
{
	while (n--)
		loop_run_once(loop, 2000000);
}
static void wait_len(struct fe *f, size_t len)
{
	for (int i = 0; i < 500 && f->len < len; i++)
		loop_run_once(loop, 10000000);
	assert_int_equal(f->len, len);
}
static char *in_dir(const char *name)
{
	static char path[2][200];
	static int i;
	i ^= 1;
	snprintf(path[i], sizeof(path[i]), "%s/%s", dir, name);
	return path[i];
}
static int dial(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	strcpy(sa.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

static void test_file_null(void **state)
{
	char text[300], buf[16];
	struct err e = {0};

	snprintf(text, sizeof(text), "file,id=f,path=%s", in_dir("out"));
	struct chr *c = chr_create(text, loop, &e);
	assert_non_null(c);
	assert_string_equal(chr_describe(c), "file");
	assert_int_equal(chr_write(c, "hello", 5), 5);
	int fd = open(in_dir("out"), O_RDONLY);
	assert_int_equal(read(fd, buf, sizeof(buf)), 5);
	close(fd);
	/* logfile= copies what was written; a named pipe gets its reader's data. */
	snprintf(text, sizeof(text), "null,id=g,logfile=%s", in_dir("log"));
	assert_non_null(c = chr_create(text, loop, &e));
	assert_int_equal(chr_write(c, "copy", 4), 4);
	fd = open(in_dir("log"), O_RDONLY);
	assert_int_equal(read(fd, buf, sizeof(buf)), 4);
	close(fd);
	unlink(in_dir("log"));
	assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
	fd = open(in_dir("fifo"), O_RDONLY | O_NONBLOCK);
	snprintf(text, sizeof(text), "file,id=p,path=%s", in_dir("fifo"));
	assert_non_null(c = chr_create(text, loop, &e));
	assert_int_equal(chr_write(c, "fifo", 4), 4);
	assert_int_equal(read(fd, buf, sizeof(buf)), 4);
	close(fd); /* the reader has gone: output is dropped */
	assert_int_equal(chr_write(c, "more", 4), 4);
	turn(1);
	assert_int_equal(chr_write(c, "more", 4), 4);
	unlink(in_dir("fifo"));
	c = chr_create("null,id=n", loop, &e);
	assert_int_equal(chr_write(c, "hello", 5), 5);
	assert_ptr_equal(chr_find("n"), c);
	chr_destroy_all();
	assert_null(chr_find("n"));
}

static void test_socket(void **state)
{
	char text[300], buf[64];
	struct err e = {0};
	struct fe f = {.room = 3};

	snprintf(text, sizeof(text), "socket,id=s,path=%s,server=on,wait=off", in_dir("sock"));
	struct chr *c = chr_create(text, loop, &e);
	assert_non_null(c);
	attach(c, &f);
	assert_false(chr_connected(c));
	assert_int_equal(chr_write(c, "lost", 4), 4); /* nobody there: dropped */
	int fd = dial(in_dir("sock"));
	turn(2);
	assert_int_equal(f.opened, 1);
	assert_int_equal(chr_write(c, "hi", 2), 2);
	assert_int_equal(read(fd, buf, sizeof(buf)), 2);
	/* Flow control: three bytes of room, then more. */
	assert_int_equal(write(fd, "abcdefg", 7), 7);
	wait_len(&f, 3);
	turn(3);
	assert_int_equal(f.len, 3);
	f.room = 2000;
	chr_fe_ready(c, &f);
	wait_len(&f, 7);
	assert_string_equal(f.got, "abcdefg");
	/* A full peer: the write is partial and never blocks. */
	static char big[1 << 20];
	size_t n = chr_write(c, big, sizeof(big));
	assert_true(n > 0 && n < sizeof(big));
	assert_int_equal(chr_write(c, big, 1), 0);
	/* The second client waits until the first has gone. */
	int fd2 = dial(in_dir("sock"));
	close(fd);
	for (int i = 0; i < 100 && f.opened < 2; i++)
		turn(1);
	assert_int_equal(f.closed, 1);
	assert_int_equal(f.opened, 2);
	assert_int_equal(write(fd2, "x", 1), 1);
	wait_len(&f, 8);
	close(fd2);
	/* A write finds the peer gone. */
	turn(3);
	assert_int_equal(chr_write(c, "y", 1), 1);
	turn(3);
	assert_int_equal(f.closed, 2);
	chr_destroy_all();
	assert_int_equal(access(in_dir("sock"), F_OK), -1); /* removed */
}

/* A client that leaves while the frontend has no room must not take the next one's input with it. */
static void test_socket_paused(void **state)
{
	char text[300];
	struct err e = {0};
	struct fe f = {0};

	snprintf(text, sizeof(text), "socket,id=s,path=%s,server=on,wait=off", in_dir("paused"));
	struct chr *c = chr_create(text, loop, &e);
	assert_non_null(c);
	attach(c, &f);
	int fd = dial(in_dir("paused"));
	turn(2);
	assert_int_equal(write(fd, "lost", 4), 4);
	turn(3);
	close(fd);
	/* A write finds the peer gone. */
	assert_int_equal(chr_write(c, "y", 1), 1);
	turn(3);
	assert_int_equal(f.closed, 1);
	f.room = 2000;
	fd = dial(in_dir("paused"));
	assert_int_equal(write(fd, "next", 4), 4);
	wait_len(&f, 4);
	assert_string_equal(f.got, "next");
	close(fd);
	chr_destroy_all();
}

static void test_telnet(void **state)
{
	struct err e = {0};
	struct fe f = {.room = 2000};
	struct chr *c;
	int port;

	assert_int_equal(chr_create_legacy("telnet:127.0.0.1:0,server,nowait", "t", loop, &c, &e), 0);
	assert_int_equal(sscanf(chr_describe(c), "telnet:127.0.0.1:%d,server=on", &port), 1);
	attach(c, &f);
	char client[100];
	snprintf(client, sizeof(client), "socket,id=c,host=localhost,port=%d,ipv4=on", port);
	struct chr *p = chr_create(client, loop, &e);
	assert_non_null(p);
	struct fe g = {.room = 2000};
	attach(p, &g);
	turn(4);
	assert_true(g.len >= 12); /* the negotiation */
	chr_write(p,
		  "a\xff\xfb\x01"
		  "b\xff\xfa\x18\x00x\xff\xf0"
		  "c\xff\xff"
		  "d",
		  16);
	wait_len(&f, 5);
	assert_string_equal(f.got, "abc\xff"
				   "d");
	chr_destroy_all();
}

static void test_pty(void **state)
{
	struct err e = {0};
	struct fe f = {.room = 2000};
	struct chr *c;
	char buf[64];

	assert_int_equal(chr_create_legacy("pty", "p", loop, &c, &e), 0);
	attach(c, &f);
	assert_int_equal(strncmp(chr_describe(c), "pty:/dev/pts/", 13), 0);
	for (int i = 0; i < 10000; i++) /* nobody reads: dropped, the guest never stalls */
		assert_int_equal(chr_write(c, "0123456789", 10), 10);
	int fd = open(chr_describe(c) + 4, O_RDWR | O_NOCTTY);
	for (int i = 0; i < 200 && !f.opened; i++)
		turn(1);
	assert_int_equal(f.opened, 1);
	assert_int_equal(write(fd, "abc\r\x03", 5), 5); /* raw: no translation, no signal */
	wait_len(&f, 5);
	assert_memory_equal(f.got, "abc\r\x03", 5);
	assert_int_equal(chr_write(c, "out\n", 4), 4);
	assert_int_equal(read(fd, buf, sizeof(buf)), 4);
	/* A reader that stops reading fills the buffer; when it leaves, output is dropped again. */
	while (chr_write(c, "x", 1))
		;
	close(fd);
	for (int i = 0; i < 100 && !f.closed; i++)
		turn(1);
	assert_int_equal(f.closed, 1);
	assert_int_equal(chr_write(c, "y", 1), 1);
	chr_destroy_all();
}

/* A vCPU writes without pause while clients come, read a little, and go. */
static struct chr *race_chr;
static _Atomic bool race_end;
static _Atomic unsigned race_room; /* the device's free input bytes */
static size_t race_can(void *o)
{
	return race_room;
}
static void race_receive(void *o, const uint8_t *b, size_t n)
{
	assert_true(n <= race_room);
	race_room -= (unsigned)n;
}
static void *race_writer(void *arg)
{
	while (!race_end) {
		size_t n = chr_write(race_chr, "0123456789abcdef", 16);
		assert_true(n <= 16);
		if (race_room == 0) {
			race_room = 7;
			chr_fe_ready(race_chr, arg);
		}
	}
	return NULL;
}
static void test_race(void **state)
{
	struct err e = {0};
	struct chr_fe fe = {race_can, race_receive, NULL, &race_end};
	char text[300], buf[4096];
	pthread_t thread;

	snprintf(text, sizeof(text), "socket,id=r,path=%s,server=on,wait=off", in_dir("race"));
	race_chr = chr_create(text, loop, &e);
	assert_int_equal(chr_attach(race_chr, &fe, "race", &e), 0);
	assert_int_equal(pthread_create(&thread, NULL, race_writer, &race_end), 0);
	for (int i = 0; i < 100; i++) {
		int fd = dial(in_dir("race"));
		assert_int_equal(write(fd, "some input for the guest", 24), 24);
		/* The last client's end must be seen before the backlog is full: this thread is the server too. */
		const uint64_t patience = clock_raw_ns() + 60000000000ull;
		while (recv(fd, buf, 1, MSG_DONTWAIT | MSG_PEEK) < 0) {
			assert_true(clock_raw_ns() < patience);
			turn(1);
		}
		for (int k = 0; k < 1 + i % 4; k++) {
			turn(1);
			if (recv(fd, buf, i % 2 ? 10 : sizeof(buf), MSG_DONTWAIT) < 0)
				assert_int_equal(errno, EAGAIN); /* not accepted yet */
		}
		close(fd);
		turn(i % 3);
	}
	race_end = true;
	pthread_join(thread, NULL);
	chr_destroy_all();
}

/* Two frontends on one pty with mux: escapes, focus, and a guest that reads nothing. */
static int quits;
static void quit(void)
{
	quits++;
}
static void test_mux(void **state)
{
	struct err e = {0};
	struct fe serial = {.room = 2000}, mon = {.room = 2000}, extra[3];
	struct chr_fe fe = {fe_can, fe_receive, fe_event, &extra[2]};
	char text[300];

	snprintf(text, sizeof(text), "socket,id=m,mux=on,path=%s,server=on,wait=off", in_dir("mux"));
	struct chr *c = chr_create(text, loop, &e);
	assert_non_null(c);
	chr_set_quit(quit);
	attach(c, &serial);
	attach(c, &mon);
	attach(c, &extra[0]);
	attach(c, &extra[1]);
	assert_int_equal(chr_attach(c, &fe, "fifth", &e), -EBUSY);
	chr_detach(c, &extra[0]);
	chr_detach(c, &extra[1]);
	assert_int_equal(serial.focus, 1);
	int fd = dial(in_dir("mux"));
	turn(2);
	assert_int_equal(write(fd,
			       "ab\x01\x01"
			       "c\x01"
			       "cinfo\x01"
			       "b\x01"
			       "cd",
			       16),
			 16);
	wait_len(&serial, 5);
	wait_len(&mon, 4);
	assert_string_equal(serial.got, "ab\x01"
					"cd");
	assert_string_equal(mon.got, "info");
	assert_int_equal(mon.breaks, 1);
	assert_int_equal(serial.focus, 1);
	assert_int_equal(mon.focus, 0);
	/* A hung guest takes nothing; Ctrl-a x still works; what was typed comes later. */
	serial.room = 0;
	assert_int_equal(write(fd, "late\x01x", 6), 6);
	for (int i = 0; i < 100 && !quits; i++)
		turn(1);
	assert_int_equal(quits, 1);
	serial.room = 2000;
	chr_fe_ready(c, &serial);
	wait_len(&serial, 9);
	close(fd);
	chr_destroy_all();
}

static const struct {
	const char *text;
	int ret;
	const char *part; /* of the description, or of the error */
} legacy_table[] = {
    {"none", 0, NULL},
    {"null", 0, "null"},
    {"nul", -EINVAL, "did you mean 'null'"},
    {"vc", -ENOTSUP, "does not exist in Kelvin yet"},
    {"vc:80Cx24C", -ENOTSUP, "does not exist in Kelvin yet"},
    {"/dev/ttyS0", -ENOTSUP, "does not exist in Kelvin yet"},
    {"udp:1234", -ENOTSUP, "does not exist in Kelvin yet"},
    {"chardev:nosuch", -ENOENT, "nosuch"},
    {"tcp:nohost", -EINVAL, "HOST:PORT"},
    {"tcp:127.0.0.1:0,server,nowait", 0, "tcp:127.0.0.1:"},
    {"tcp::0,server=on,wait=off,ipv4", 0, "tcp:0.0.0.0:"},
    {"tcp:127.0.0.1:0,server,nowait,nodelay", 0, "tcp:127.0.0.1:"},
    {"tcp:127.0.0.1:1,bogus=1", -ENOENT, "bogus"},
    {"unix:/nosuch/dir/s,server,nowait", -ENOENT, "/nosuch/dir/s"},
    {"unix:/nosuch/s", -ENOENT, "connect"},
    {"file:/nosuch/dir/f", -ENOENT, "/nosuch/dir/f"},
};

static void test_legacy(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(legacy_table); i++) {
		struct chr *c;
		struct err e = {0};
		int ret = chr_create_legacy(legacy_table[i].text, "l", loop, &c, &e);
		if (ret != legacy_table[i].ret)
			fail_msg("%s: %d %s", legacy_table[i].text, ret, e.msg);
		const char *where = ret ? e.msg : c ? chr_describe(c) : "";
		if (legacy_table[i].part && !strstr(where, legacy_table[i].part))
			fail_msg("%s: '%s'", legacy_table[i].text, where);
		chr_destroy_all();
	}
}

static void test_errors(void **state)
{
	static const struct {
		const char *text, *part;
	} table[] = {
	    {"null", "an id is missing"},
	    {"nul,id=x", "did you mean 'null'"},
	    {"udp,id=x,port=1", "does not exist in Kelvin yet"},
	    {"file,id=x", "'path' is required"},
	    {"null,id=x,foo=1", "'foo'"},
	    {"socket,id=x", "one of path="},
	    {"socket,id=x,path=/a,port=1", "one of path="},
	    {"socket,id=x,fd=999", "not a socket"},
	    {"socket,id=x,host=127.0.0.1,port=65536,server=on,wait=off", "is not a TCP port"},
	    {"socket,id=x,host=127.0.0.1,port=99999999999999999999,server=on,wait=off", "is not a TCP port"},
	    {"socket,id=x,host=127.0.0.1,port=,server=on,wait=off", "is not a TCP port"},
	    {"stdio,id=x,signal=maybe", "on or off"},
	    {"id=x", "backend is missing"},
	};
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct err e = {0};
		assert_null(chr_create(table[i].text, loop, &e));
		if (!strstr(e.msg, table[i].part))
			fail_msg("%s: %s", table[i].text, e.msg);
	}
	struct err e = {0};
	assert_non_null(chr_create("null,id=x", loop, &e));
	assert_null(chr_create("null,id=x", loop, &e));
	assert_non_null(strstr(e.msg, "exists already"));
	/* A regular file is never removed to make room for a socket. */
	fclose(fopen(in_dir("plain"), "w"));
	char text[300];
	snprintf(text, sizeof(text), "socket,id=y,path=%s,server=on,wait=off", in_dir("plain"));
	e = (struct err){0};
	assert_null(chr_create(text, loop, &e));
	assert_int_equal(access(in_dir("plain"), F_OK), 0);
	chr_destroy_all();
}

/* A fatal signal that comes when the terminal has just been made raw. */
static bool die_when_raw;
int tcsetattr(int fd, int how, const struct termios *t)
{
	int (*next)(int, int, const struct termios *) = dlsym(RTLD_NEXT, "tcsetattr");
	const int ret = next(fd, how, t);

	if (die_when_raw && !(t->c_lflag & ICANON)) {
		die_when_raw = false;
		raise(SIGABRT);
	}
	return ret;
}

/* A child with a pty as its terminal takes it as stdio and ends in the given way. */
static void on_signal(int sig)
{
	chr_restore_terminals();
	_exit(1);
}
static void stdio_child(int how)
{
	struct err e = {0};
	struct loop *l = loop_create("child", &e);
	struct chr *c;

	signal(SIGTERM, on_signal);
	signal(SIGSEGV, on_signal);
	signal(SIGABRT, on_signal);
	die_when_raw = how == SIGABRT;
	if (chr_create_legacy("mon:stdio", "s", l, &c, &e))
		_exit(2);
	struct chr *second;
	if (chr_create_legacy("stdio", "s2", l, &second, &e) != -EBUSY)
		_exit(3);
	chr_write(c, "ready", 5);
	struct termios t;
	if (tcgetattr(0, &t) || t.c_lflag & (ICANON | ECHO | ISIG) || fcntl(0, F_GETFL) & O_NONBLOCK)
		_exit(4);
	if (how == SIGTERM)
		for (;;)
			pause();
	if (how == SIGSEGV)
		raise(SIGSEGV);
	chr_destroy_all();
	_exit(0);
}

static void test_stdio(void **state)
{
	static const int how[] = {0, SIGTERM, SIGSEGV, SIGABRT};

	for (size_t i = 0; i < ARRAY_SIZE(how); i++) {
		int master, slave, status;
		char buf[64];
		struct termios before, after;
		memset(&before, 0, sizeof(before)); /* padding */
		memset(&after, 0, sizeof(after));
		assert_int_equal(openpty(&master, &slave, NULL, NULL, NULL), 0);
		assert_int_equal(tcgetattr(slave, &before), 0);
		int flags = fcntl(slave, F_GETFL);
		pid_t pid = fork();
		if (!pid) {
			close(master);
			login_tty(dup(slave));
			stdio_child(how[i]);
		}
		assert_true(how[i] == SIGABRT || read(master, buf, sizeof(buf)) >= 5);
		if (how[i] == SIGTERM)
			kill(pid, SIGTERM);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), how[i] ? 1 : 0);
		assert_int_equal(tcgetattr(slave, &after), 0);
		assert_memory_equal(&before, &after, sizeof(before));
		assert_int_equal(fcntl(slave, F_GETFL), flags);
		close(master);
		close(slave);
	}
}

static int setup(void **state)
{
	signal(SIGPIPE, SIG_IGN);
	loop = loop_create("test", NULL);
	return mkdtemp(dir) ? 0 : -1;
}
static int teardown(void **state)
{
	loop_destroy(loop);
	unlink(in_dir("out"));
	unlink(in_dir("plain"));
	return rmdir(dir);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_file_null), cmocka_unit_test(test_socket), cmocka_unit_test(test_socket_paused),
	    cmocka_unit_test(test_telnet),    cmocka_unit_test(test_pty),    cmocka_unit_test(test_race),
	    cmocka_unit_test(test_mux),	      cmocka_unit_test(test_legacy), cmocka_unit_test(test_errors),
	    cmocka_unit_test(test_stdio),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
