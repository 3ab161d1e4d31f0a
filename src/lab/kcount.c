// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * bpf(2): two maps (the processes that are watched; counters) and one program for each tracepoint. A tracepoint slows
 * what it counts, also for other processes, so programs are attached only while a monitor runs, never beside the host
 * baseline.
 */
#include "lab/kcount.h"
#include <errno.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/util.h"

#define PROCESSES	    4096	/* that a monitor may make while it is watched */
#define FIRST_PID_NAMESPACE 0xeffffffcu /* its inode: Linux, include/linux/proc_ns.h */
#define FIRST		    1		/* who[]: the monitor itself */
#define CALLS		    512 /* counters below are system calls by number, what does not fit is in the last of them */
#define COUNTERS	    (CALLS + 2)

/* Tracepoints. A counter, or BY_NUMBER: by the number of the system call, the tracepoint's second argument. */
enum { BY_NUMBER = -1, FOLLOW = -2 };

static const struct {
	const char *tracepoint, *name;
	int counter;
	bool needed;
} events[] = {
    {"sys_enter", NULL, BY_NUMBER, true},
    {"sys_exit", NULL, FOLLOW, true},
    {"kvm_exit", "kvm.exits", CALLS, false},
    {"kvm_userspace_exit", "kvm.exits_to_user", CALLS + 1, false},
};

/* Calls that monitors make; others are counted in the sum alone. */
static const struct {
	int number;
	const char *name;
} calls[] = {
    {SYS_read, "read"},
    {SYS_write, "write"},
    {SYS_readv, "readv"},
    {SYS_writev, "writev"},
    {SYS_pread64, "pread"},
    {SYS_pwrite64, "pwrite"},
    {SYS_preadv, "preadv"},
    {SYS_pwritev, "pwritev"},
    {SYS_preadv2, "preadv2"},
    {SYS_pwritev2, "pwritev2"},
    {SYS_fdatasync, "fdatasync"},
    {SYS_fsync, "fsync"},
    {SYS_fallocate, "fallocate"},
    {SYS_ioctl, "ioctl"},
    {SYS_poll, "poll"},
    {SYS_ppoll, "ppoll"},
    {SYS_epoll_wait, "epoll_wait"},
    {SYS_epoll_pwait, "epoll_pwait"},
    {SYS_epoll_pwait2, "epoll_pwait2"},
    {SYS_epoll_ctl, "epoll_ctl"},
    {SYS_futex, "futex"},
    {SYS_io_uring_enter, "io_uring_enter"},
    {SYS_io_submit, "io_submit"},
    {SYS_io_getevents, "io_getevents"},
    {SYS_rt_sigreturn, "rt_sigreturn"},
    {SYS_tgkill, "tgkill"},
    {SYS_madvise, "madvise"},
    {SYS_mprotect, "mprotect"},
    {SYS_mmap, "mmap"},
    {SYS_munmap, "munmap"},
    {SYS_ptrace, "ptrace"},
    {SYS_wait4, "wait4"},
    {SYS_sendmsg, "sendmsg"},
    {SYS_recvmsg, "recvmsg"},
    {SYS_timerfd_settime, "timerfd_settime"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
};

struct kcount {
	int who, counters; /* maps */
	int program[ARRAY_SIZE(events)], link[ARRAY_SIZE(events)];
};

static int bpf(int command, union bpf_attr *a)
{
	return (int)syscall(SYS_bpf, command, a, sizeof(*a));
}

static int map_make(enum bpf_map_type type, uint32_t entries)
{
	union bpf_attr a = {.map_type = type, .key_size = 4, .value_size = 8, .max_entries = entries};

	return bpf(BPF_MAP_CREATE, &a);
}

static uint64_t map_get(int map, uint32_t key)
{
	uint64_t v = 0;
	union bpf_attr a = {.map_fd = (uint32_t)map, .key = (uintptr_t)&key, .value = (uintptr_t)&v};

	return bpf(BPF_MAP_LOOKUP_ELEM, &a) ? 0 : v;
}

/* A jump to the last two instructions of a program, which return 0. */
#define TO_END INT16_MAX
/* The process that runs: a map's key, on the stack. */
#define TGID_KEY                                                                                                       \
	{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_get_current_pid_tgid},                                            \
	    {.code = BPF_ALU64 | BPF_RSH | BPF_K, .dst_reg = BPF_REG_0, .imm = 32},                                    \
	{                                                                                                              \
		.code = BPF_STX | BPF_MEM | BPF_W, .dst_reg = BPF_REG_10, .src_reg = BPF_REG_0, .off = -4              \
	}
/* r0 = the value that a map has for the key; nothing further without one. */
#define LOOKUP(map)                                                                                                    \
	{.code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = BPF_REG_1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = (map)}, {0},    \
	    {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_2, .src_reg = BPF_REG_10},                        \
	    {.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_2, .imm = -4},                                    \
	    {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_map_lookup_elem},                                             \
	{                                                                                                              \
		.code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = BPF_REG_0, .imm = 0, .off = TO_END                       \
	}

static int load(struct bpf_insn *p, size_t n)
{
	static const char license[] = "GPL";
	union bpf_attr a = {.prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT,
			    .insns = (uintptr_t)p,
			    .insn_cnt = (uint32_t)n,
			    .license = (uintptr_t)license};

	for (size_t i = 0; i < n; i++)
		if (p[i].off == TO_END)
			p[i].off = (int16_t)(n - 2 - i - 1);
	return bpf(BPF_PROG_LOAD, &a);
}

/*
 * if (who[current tgid] exists) counters[index]++. Instruction encodings: Linux, Documentation/bpf/instruction-set.
 * r6 keeps the context, whose second word is the number of the system call.
 */
static int program_load(const struct kcount *k, int counter)
{
	struct bpf_insn p[] = {
	    {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_6, .src_reg = BPF_REG_1},
	    TGID_KEY,
	    LOOKUP(k->who),
	    {.code = BPF_LDX | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_1, .src_reg = BPF_REG_6, .off = 8},
	    {.code = BPF_JMP | BPF_JLT | BPF_K, .dst_reg = BPF_REG_1, .imm = CALLS, .off = 1},
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .imm = CALLS - 1},
	    {.code = BPF_STX | BPF_MEM | BPF_W, .dst_reg = BPF_REG_10, .src_reg = BPF_REG_1, .off = -4},
	    LOOKUP(k->counters),
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .imm = 1},
	    {.code = BPF_STX | BPF_ATOMIC | BPF_DW, .dst_reg = BPF_REG_0, .src_reg = BPF_REG_1, .imm = BPF_ADD},
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 0},
	    {.code = BPF_JMP | BPF_EXIT},
	};
	const size_t number = 10;

	/* A counter of its own: in place of the number. */
	if (counter >= 0) {
		p[number] =
		    (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .imm = counter};
		p[number + 1].imm = COUNTERS;
	}
	return load(p, ARRAY_SIZE(p));
}

/*
 * A process that the watched one makes is watched as well (native ring 3's run guest code): at sys_exit, whose
 * arguments are the registers and the result, if (who[current tgid] == FIRST and the call was clone, fork, vfork or
 * clone3 and the result is positive) who[result] = FIRST + 1. Threads get there too and do no harm. Children of
 * children do not: their registers are the guest's to choose.
 */
static int follow_load(const struct kcount *k)
{
	enum { orig_ax = 120 /* in struct pt_regs */ };
	struct bpf_insn p[] = {
	    {.code = BPF_LDX | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_7, .src_reg = BPF_REG_1, .off = 8},
	    {.code = BPF_JMP | BPF_JSLE | BPF_K, .dst_reg = BPF_REG_7, .imm = 1, .off = TO_END},
	    {.code = BPF_LDX | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_3, .src_reg = BPF_REG_1},
	    {.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_3, .imm = orig_ax},
	    {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_1, .src_reg = BPF_REG_10},
	    {.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_1, .imm = -16},
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_2, .imm = 8},
	    {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_probe_read_kernel},
	    {.code = BPF_LDX | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_1, .src_reg = BPF_REG_10, .off = -16},
	    {.code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = BPF_REG_1, .imm = SYS_clone, .off = 4},
	    {.code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = BPF_REG_1, .imm = SYS_fork, .off = 3},
	    {.code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = BPF_REG_1, .imm = SYS_vfork, .off = 2},
	    {.code = BPF_JMP | BPF_JEQ | BPF_K, .dst_reg = BPF_REG_1, .imm = SYS_clone3, .off = 1},
	    {.code = BPF_JMP | BPF_JA, .off = TO_END},
	    TGID_KEY,
	    LOOKUP(k->who),
	    {.code = BPF_LDX | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_1, .src_reg = BPF_REG_0},
	    {.code = BPF_JMP | BPF_JNE | BPF_K, .dst_reg = BPF_REG_1, .imm = FIRST, .off = TO_END},
	    {.code = BPF_STX | BPF_MEM | BPF_W, .dst_reg = BPF_REG_10, .src_reg = BPF_REG_7, .off = -4},
	    {.code = BPF_ST | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_10, .off = -16, .imm = FIRST + 1},
	    {.code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = BPF_REG_1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = k->who},
	    {0},
	    {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_2, .src_reg = BPF_REG_10},
	    {.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_2, .imm = -4},
	    {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_3, .src_reg = BPF_REG_10},
	    {.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_3, .imm = -16},
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_4, .imm = BPF_ANY},
	    {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_map_update_elem},
	    {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 0},
	    {.code = BPF_JMP | BPF_EXIT},
	};

	return load(p, ARRAY_SIZE(p));
}

static int attach(const char *tracepoint, int program)
{
	union bpf_attr a = {
	    .raw_tracepoint = {.name = (uintptr_t)tracepoint, .prog_fd = (uint32_t)program},
	};

	return bpf(BPF_RAW_TRACEPOINT_OPEN, &a);
}

struct kcount *kcount_start(pid_t pid, struct err *err)
{
	struct kcount *k = calloc(1, sizeof(*k));
	uint32_t key = (uint32_t)pid;
	uint64_t first = FIRST;
	struct stat st;

	if (!k) {
		err_set_errno(err, -ENOMEM, "counters of the kernel");
		return NULL;
	}
	k->who = map_make(BPF_MAP_TYPE_HASH, PROCESSES);
	k->counters = k->who < 0 ? -1 : map_make(BPF_MAP_TYPE_ARRAY, COUNTERS);
	for (size_t i = 0; i < ARRAY_SIZE(events); i++)
		k->program[i] = k->link[i] = -1;
	union bpf_attr a = {.map_fd = (uint32_t)k->who, .key = (uintptr_t)&key, .value = (uintptr_t)&first};
	/* In a container the kernel's numbers of processes are others. */
	bool contained = stat("/proc/self/ns/pid", &st) == 0 && st.st_ino != FIRST_PID_NAMESPACE;
	int ret = contained ? -EPERM : k->counters < 0 || bpf(BPF_MAP_UPDATE_ELEM, &a) ? -errno : 0;
	for (size_t i = 0; i < ARRAY_SIZE(events) && !ret; i++) {
		k->program[i] = events[i].counter == FOLLOW ? follow_load(k) : program_load(k, events[i].counter);
		if (k->program[i] >= 0)
			k->link[i] = attach(events[i].tracepoint, k->program[i]);
		/* Without kvm.ko there are no exits to count. */
		if (k->link[i] < 0 && events[i].needed)
			ret = -errno;
	}
	if (!ret)
		return k;
	kcount_stop(k);
	err_set_errno(err, ret,
		      "host system calls were not counted (eBPF, which needs root and a kernel that permits it)");
	return NULL;
}

static void put(json_t *out, const char *name, double v)
{
	json_object_set_new(out, name, json_real(v));
}

void kcount_read(const struct kcount *k, json_t *out)
{
	double all = 0;
	char name[64];

	for (uint32_t i = 0; i < CALLS; i++)
		all += (double)map_get(k->counters, i);
	put(out, "vmm.calls", all);
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		double n = (double)map_get(k->counters, (uint32_t)calls[i].number);
		snprintf(name, sizeof(name), "vmm.calls.%s", calls[i].name);
		if (n > 0)
			put(out, name, n);
	}
	for (size_t i = 0; i < ARRAY_SIZE(events); i++)
		if (events[i].name && k->link[i] >= 0)
			put(out, events[i].name, (double)map_get(k->counters, (uint32_t)events[i].counter));
}

void kcount_stop(struct kcount *k)
{
	if (!k)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		if (k->link[i] >= 0)
			close(k->link[i]);
		if (k->program[i] >= 0)
			close(k->program[i]);
	}
	if (k->counters >= 0)
		close(k->counters);
	if (k->who >= 0)
		close(k->who);
	free(k);
}

static double call_ns(void)
{
	enum { rounds = 5, each = 2000 };
	double best = 1e9;

	for (int r = 0; r < rounds; r++) {
		uint64_t start = clock_raw_ns();
		for (int i = 0; i < each; i++)
			syscall(SYS_getppid);
		best = MIN(best, (double)(clock_raw_ns() - start) / each);
	}
	return best;
}

double kcount_cost_ns(void)
{
	double without = call_ns();
	struct kcount *k = kcount_start(getpid(), NULL);

	if (!k)
		return -1;
	double with = call_ns();
	kcount_stop(k);
	return MAX(with - without, 0.0);
}
