/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The process that runs the guest's user code: made, told to map, run, ended.
 *
 * It starts as an executable of one page, written here into a memory file: so
 * nothing of Kelvin is ever mapped in it, and a large monitor costs nothing to
 * leave. Then it drops its stack and vDSO and keeps the page of code, the list
 * of commands (read-only) and the file descriptors of guest RAM. A seccomp filter
 * allows mmap and munmap only; guest code runs under PTRACE_SYSEMU, where no
 * system call is executed at all.
 *
 * Why ptrace and not a signal handler inside the process: the handler, its stack
 * and a way out would be in reach of hostile guest code and need a secret to tell
 * its calls from ours. Here the process has nothing to protect. Measured on a
 * paravirtual host: 7 us for a stop and back, 12 with all registers; the handler
 * would have needed 8 for the signal and up to 12 for the hand-over.
 *
 * ptrace calls are the tracer's: the vCPU's thread.
 */
#include "cpu/soft/native.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define NATIVE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NATIVE_TSAN 1
#endif
#endif
#ifdef NATIVE_TSAN
/* It takes the clone below for a fork that goes on in the child, and would forbid the parent new threads. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "die_after_fork=0";
}
#endif

#define COMMAND_BYTES ((NATIVE_COMMANDS + 1) * sizeof(struct native_command))
#define COMMAND_AREA  ALIGN_UP(COMMAND_BYTES + sizeof(struct sock_filter) * 16 + sizeof(struct sock_fprog), PAGE_SIZE)
#define CODE_OFFSET   0x200u
#define USER_DEBUGREG 848u /* offsetof(struct user, u_debugreg) */
#define STUB_SIZE     128u

/* The stub's entries, as offsets of its code. */
enum { STUB_ONE = 0 /* one call, registers set by ptrace */, STUB_LIST = 3 /* rbx: the list */ };

extern const uint8_t native_stub[STUB_SIZE];
__asm__(".pushsection .rodata\n"
	".globl native_stub\n"
	".hidden native_stub\n"
	"native_stub:\n"
	"	syscall\n"
	"	int3\n"
	"1:	mov (%rbx), %rax\n"
	"	test %rax, %rax\n"
	"	js 2f\n"
	"	mov 8(%rbx), %rdi\n"
	"	mov 16(%rbx), %rsi\n"
	"	mov 24(%rbx), %rdx\n"
	"	mov 32(%rbx), %r10\n"
	"	mov 40(%rbx), %r8\n"
	"	mov 48(%rbx), %r9\n"
	"	syscall\n"
	"	cmp $-4095, %rax\n"
	"	jae 2f\n"
	"	add $56, %rbx\n"
	"	jmp 1b\n"
	"2:	int3\n"
	".org native_stub + 128\n"
	".popsection\n");

/* ---- the executable -------------------------------------------------------- */

struct image {
	Elf64_Ehdr head;
	Elf64_Phdr load, stack;
};

/* A file that execve takes: nobody may have it open for writing. */
static int image_file(uint64_t base)
{
	struct image im = {
	    .head = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
		     .e_type = ET_EXEC,
		     .e_machine = EM_X86_64,
		     .e_version = EV_CURRENT,
		     .e_entry = base + CODE_OFFSET,
		     .e_phoff = offsetof(struct image, load),
		     .e_ehsize = sizeof(Elf64_Ehdr),
		     .e_phentsize = sizeof(Elf64_Phdr),
		     .e_phnum = 2},
	    .load = {.p_type = PT_LOAD,
		     .p_flags = PF_R | PF_X,
		     .p_vaddr = base,
		     .p_filesz = PAGE_SIZE,
		     .p_memsz = PAGE_SIZE,
		     .p_align = PAGE_SIZE},
	    .stack = {.p_type = PT_GNU_STACK, .p_flags = PF_R | PF_W},
	};
	int fd = memfd_create("kelvin-native", MFD_CLOEXEC), ro;
	char path[40];

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)PAGE_SIZE) || pwrite(fd, &im, sizeof(im), 0) != (ssize_t)sizeof(im) ||
	    pwrite(fd, native_stub, STUB_SIZE, CODE_OFFSET) != (ssize_t)STUB_SIZE) {
		ro = -errno;
	} else {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ro = open(path, O_RDONLY | O_CLOEXEC);
		if (ro < 0)
			ro = -errno;
	}
	close(fd);
	return ro;
}

struct child {
	int exe;
	const int *fds;
	unsigned nfds;
};

/* In the child, which shares the monitor's memory until execve: nothing but system calls. */
static int __attribute__((no_sanitize("address", "thread", "undefined"))) child_main(void *arg)
{
	const struct child *ch = arg;
	char *const argv[] = {(char *)(uintptr_t) "kelvin-native", NULL}, *const env[] = {NULL};

	setpgid(0, 0);
	syscall(SYS_close_range, 0u, ~0u, CLOSE_RANGE_CLOEXEC);
	for (unsigned k = 0; k < ch->nfds; k++)
		fcntl(ch->fds[k], F_SETFD, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0)
		syscall(SYS_execveat, ch->exe, "", argv, env, AT_EMPTY_PATH);
	return 127;
}

/* A child stopped at its first instruction: its pid, or -errno. */
static pid_t child_start(const struct child *ch)
{
	static const size_t stack_size = 64 * KIB;
	uint8_t *stack = mmap(NULL, stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigset_t all, old;
	int status, ret;
	pid_t pid;

	if (stack == MAP_FAILED)
		return -errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pid = clone(child_main, stack + stack_size, CLONE_VM | CLONE_VFORK, (void *)(uintptr_t)ch);
	ret = pid < 0 ? -errno : 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	munmap(stack, stack_size);
	if (ret)
		return ret;
	while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
		;
	return WIFSTOPPED(status) ? pid : -EPERM;
}

/* ---- calls in the process ---------------------------------------------------- */

/* PTRACE_CONT until the stub's int3. 0, -ESRCH: gone, -EFAULT: it did something else. */
static int stub_run(struct native_proc *p, struct native_regs *r)
{
	int status;

	r->orig_rax = UINT64_MAX;
	if (ptrace(PTRACE_SETREGS, p->pid, NULL, r))
		return -errno;
	for (;;) {
		if (ptrace(PTRACE_CONT, p->pid, NULL, NULL))
			return -errno;
		while (waitpid(p->pid, &status, __WALL) < 0) {
			if (errno != EINTR)
				return -errno;
		}
		if (!WIFSTOPPED(status)) {
			p->pid = 0;
			return -ESRCH;
		}
		if (WSTOPSIG(status) == SIGTRAP)
			break;
		/* Kicks come again when guest code is to run; other signals are from people, who may use SIGKILL. */
		if (WSTOPSIG(status) == SIGSEGV || WSTOPSIG(status) == SIGSYS || WSTOPSIG(status) == SIGILL)
			return -EFAULT;
	}
	return ptrace(PTRACE_GETREGS, p->pid, NULL, r) ? -errno : 0;
}

static int64_t call_one(struct native_proc *p, int64_t nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
			uint64_t a4, uint64_t a5)
{
	struct native_regs r = p->initial;
	int ret;

	r.rip = p->stub + CODE_OFFSET + STUB_ONE;
	r.rax = (uint64_t)nr;
	r.rdi = a0;
	r.rsi = a1;
	r.rdx = a2;
	r.r10 = a3;
	r.r8 = a4;
	r.r9 = a5;
	ret = stub_run(p, &r);
	return ret ? ret : (int64_t)r.rax;
}

void native_proc_command(struct native_proc *p, int64_t nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
			 uint64_t a4, uint64_t a5)
{
	BUG_ON(p->ncommands >= NATIVE_COMMANDS);
	p->commands[p->ncommands++] = (struct native_command){nr, {a0, a1, a2, a3, a4, a5}};
}

int native_proc_flush(struct native_proc *p)
{
	struct native_regs r = p->initial;
	int ret;

	if (!p->ncommands)
		return 0;
	p->commands[p->ncommands] = (struct native_command){.nr = -1};
	p->ncommands = 0;
	r.rip = p->stub + CODE_OFFSET + STUB_LIST;
	r.rbx = p->stub + PAGE_SIZE;
	ret = stub_run(p, &r);
	if (ret)
		return ret;
	return (int64_t)r.rax == -1 ? 0 : (int64_t)r.rax < 0 ? (int)(int64_t)r.rax : -EFAULT;
}

/* ---- start and end --------------------------------------------------------------- */

/* mmap and munmap. Guest code comes here through the host's vsyscall page only, which SIGSYS lets undo (native.c). */
static void filter_write(uint8_t *at, uint64_t seen_at)
{
	const struct sock_filter f[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 3),
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 2, 0),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, 1, 0),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {
	    .len = ARRAY_SIZE(f),
	    .filter = (struct sock_filter *)(uintptr_t)(seen_at + sizeof(prog)),
	};

	_Static_assert(ARRAY_SIZE(f) <= 16, "room in COMMAND_AREA");
	memcpy(at, &prog, sizeof(prog));
	memcpy(at + sizeof(prog), f, sizeof(f));
}

/* The process is stopped at its first instruction. */
static int confine(struct native_proc *p, int commands_fd)
{
	uint64_t list = p->stub + PAGE_SIZE, set = 0;
	int64_t r;

	if (ptrace(PTRACE_SETOPTIONS, p->pid, NULL, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD) ||
	    ptrace(PTRACE_SETSIGMASK, p->pid, (void *)sizeof(set), &set) ||
	    ptrace(PTRACE_GETREGS, p->pid, NULL, &p->initial))
		return -errno;
	r = call_one(p, SYS_mmap, list, COMMAND_AREA, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE,
		     (uint64_t)commands_fd, 0);
	if (r != (int64_t)list)
		return r < 0 ? (int)r : -EFAULT;
	filter_write((uint8_t *)p->commands + COMMAND_BYTES, list + COMMAND_BYTES);
	if (call_one(p, SYS_close, (uint64_t)commands_fd, 0, 0, 0, 0, 0) ||
	    call_one(p, SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0) ||
	    call_one(p, SYS_munmap, 0, p->stub, 0, 0, 0, 0) ||
	    call_one(p, SYS_munmap, list + COMMAND_AREA, NATIVE_TOP - (list + COMMAND_AREA), 0, 0, 0, 0) ||
	    call_one(p, SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, list + COMMAND_BYTES, 0, 0, 0))
		return -EPERM;
	return 0;
}

int native_proc_start(struct native_proc *p, const int *fds, unsigned nfds, struct err *err)
{
	int keep[MEM_MAX_BLOCKS + 1], commands, ret;
	struct child ch = {.fds = keep, .nfds = nfds + 1};

	commands = memfd_create("kelvin-native-list", MFD_CLOEXEC);
	if (commands < 0)
		return err_set_errno(err, -errno, "no memory file for native user code");
	if (ftruncate(commands, COMMAND_AREA) ||
	    (p->commands = mmap(NULL, COMMAND_AREA, PROT_READ | PROT_WRITE, MAP_SHARED, commands, 0)) == MAP_FAILED) {
		ret = -errno;
		p->commands = NULL;
		goto out;
	}
	if (nfds)
		memcpy(keep, fds, nfds * sizeof(*fds));
	keep[nfds] = commands;
	ret = ch.exe = image_file(p->stub);
	if (ret < 0)
		goto out;
	ret = child_start(&ch);
	close(ch.exe);
	if (ret < 0)
		goto out;
	p->pid = ret;
	p->ncommands = 0;
	ret = confine(p, commands);
	if (ret)
		native_proc_end(p);
out:
	close(commands);
	if (ret && p->commands) {
		munmap(p->commands, COMMAND_AREA);
		p->commands = NULL;
	}
	return ret ? err_set_errno(err, ret, "cannot make a process for native user code") : 0;
}

void native_proc_end(struct native_proc *p)
{
	int status;

	if (p->pid > 0) {
		kill(p->pid, SIGKILL);
		while (waitpid(p->pid, &status, __WALL) >= 0 ? WIFSTOPPED(status) : errno == EINTR)
			;
	}
	p->pid = 0;
	if (p->commands)
		munmap(p->commands, COMMAND_AREA);
	p->commands = NULL;
}

bool native_proc_stop_at(struct native_proc *p, unsigned n, uint64_t address)
{
	const size_t dr = USER_DEBUGREG;
	long control;

	errno = 0;
	control = ptrace(PTRACE_PEEKUSER, p->pid, (void *)(dr + 7 * sizeof(long)), NULL);
	if (errno)
		return false;
	/* Off while it moves; then locally enabled, execution, one byte. */
	return !ptrace(PTRACE_POKEUSER, p->pid, (void *)(dr + 7 * sizeof(long)), control & ~(3ul << (2 * n))) &&
	       !ptrace(PTRACE_POKEUSER, p->pid, (void *)(dr + n * sizeof(long)), address) &&
	       !ptrace(PTRACE_POKEUSER, p->pid, (void *)(dr + 7 * sizeof(long)), control | 1ul << (2 * n));
}

/* ---- guest code --------------------------------------------------------------------- */

enum native_stop native_proc_run(struct native_proc *p, struct native_regs *regs, int *sig)
{
	int status;

	regs->orig_rax = UINT64_MAX; /* no system call to restart */
	if (ptrace(PTRACE_SETREGS, p->pid, NULL, regs) || ptrace(PTRACE_SYSEMU, p->pid, NULL, NULL))
		return NATIVE_STOP_DEAD;
	while (waitpid(p->pid, &status, __WALL) < 0) {
		if (errno != EINTR)
			return NATIVE_STOP_DEAD;
	}
	if (!WIFSTOPPED(status)) {
		p->pid = 0;
		return NATIVE_STOP_DEAD;
	}
	*sig = WSTOPSIG(status);
	if (ptrace(PTRACE_GETREGS, p->pid, NULL, regs))
		return NATIVE_STOP_DEAD;
	switch (*sig) {
	case SIGTRAP | 0x80: return NATIVE_STOP_SYSCALL;
	case SIGSEGV:
	case SIGBUS:
	case SIGILL:
	case SIGFPE:
	case SIGSYS:
	case SIGTRAP: return NATIVE_STOP_SIGNAL;
	default: return NATIVE_STOP_KICK;
	}
}
