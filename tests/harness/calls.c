/* SPDX-License-Identifier: MIT
 * Count system calls by ptrace(): each thread stops as it enters one.  The child marks the
 * beginning and the end of a piece of work by a close() that fails. */
#include "calls.h"

#include "process.h"

#include <check.h>
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TURNS 8
#define MARK_BEGIN (-4701)
#define MARK_END (-4702)

static int child(void *arg, int in, int out)
{
	const struct calls_work *work = arg;

	(void)out;
	if (!line_read(in, 10000))
		return 2;
	work->prepare(work->arg);
	for (int i = 0; i < TURNS; i++) {
		close(MARK_BEGIN);
		work->work(work->arg);
		close(MARK_END);
	}
	return 0;
}

static void count(struct calls *calls, uint64_t number, uint64_t operation)
{
	calls->all++;
	switch (number) {
	case SYS_sendto:
	case SYS_sendmsg:
		calls->sends++;
		break;
	case SYS_recvfrom:
	case SYS_recvmsg:
		calls->receives++;
		break;
#ifdef SYS_poll
	case SYS_poll:
#endif
	case SYS_ppoll:
		calls->polls++;
		break;
	case SYS_futex:
		operation &= (uint64_t)FUTEX_CMD_MASK;
		if (operation == FUTEX_WAIT || operation == FUTEX_WAIT_BITSET)
			calls->sleeps++;
		else
			calls->wakes++;
		break;
	case SYS_timerfd_settime:
		calls->timers++;
		break;
	case SYS_read:
	case SYS_write:
		calls->descriptors++;
		break;
	case SYS_mmap:
	case SYS_munmap:
	case SYS_brk:
	case SYS_madvise:
	case SYS_mprotect:
		calls->memory++;
		break;
	default:
		break;
	}
}

struct tally {
	struct calls now, best;
	bool counting;
	int turns;
};

/* A thread enters a system call. */
static void enter(struct tally *tally, pid_t thread)
{
	struct __ptrace_syscall_info info;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, (void *)sizeof(info), &info) <= 0 ||
	    info.op != PTRACE_SYSCALL_INFO_ENTRY)
		return;
	if (info.entry.nr == SYS_close && (int)info.entry.args[0] == MARK_BEGIN) {
		tally->now = (struct calls){0};
		tally->counting = true;
	} else if (info.entry.nr == SYS_close && (int)info.entry.args[0] == MARK_END) {
		if (!tally->turns++ || tally->now.all < tally->best.all)
			tally->best = tally->now;
		tally->counting = false;
	} else if (tally->counting) {
		count(&tally->now, info.entry.nr, info.entry.args[1]);
	}
}

/* Let the child run from stop to stop until it ends. */
static int follow(struct tally *tally, pid_t pid)
{
	int status;
	pid_t thread;

	for (;;) {
		int signal_to_pass = 0;
		thread = waitpid(-1, &status, __WALL);
		ck_assert_msg(thread > 0, "waitpid: errno %d", errno);
		if (!WIFSTOPPED(status)) {
			if (thread == pid)
				return status;
			continue;
		}
		if (WSTOPSIG(status) == (SIGTRAP | 0x80))
			enter(tally, thread);
		else if (status >> 16 == 0)
			signal_to_pass = WSTOPSIG(status);
		ptrace(PTRACE_SYSCALL, thread, NULL, (void *)(intptr_t)signal_to_pass);
	}
}

struct calls calls_of(const struct calls_work *work)
{
	const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
	struct calls_work copy = *work;
	struct tally tally = {.turns = 0};
	struct process process;
	double *each = (double *)&tally.best;
	int status;

	process_start(&process, child, &copy);
	/* Before the child has other threads: each new thread is traced from its start. */
	ck_assert_msg(!ptrace(PTRACE_SEIZE, process.pid, NULL, (void *)options) &&
	                      !ptrace(PTRACE_INTERRUPT, process.pid, NULL, NULL),
	              "ptrace: errno %d", errno);
	line_write(process.in, "go");
	status = follow(&tally, process.pid);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status %x", status);
	ck_assert_int_eq(tally.turns, TURNS);
	for (size_t i = 0; i < sizeof(tally.best) / sizeof(double); i++)
		each[i] /= work->each;
	return tally.best;
}
