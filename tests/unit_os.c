/* SPDX-License-Identifier: MIT
 * The operating system's part: clock, file descriptors for poll, threads and their serial numbers,
 * and descriptors in a forked child. */
#include "net/fork.h"
#include "base/os.h"
#include "process.h"
#include "rights.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static bool readable(int fd)
{
	return lk__poll2(fd, POLLIN, -1, 0) == 1;
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

TEST(clock_never_goes_back)
{
	int64_t last = lk__now_ns();

	ck_assert_int_gt(last, 0);
	for (int i = 0; i < 100000; i++) {
		int64_t now = lk__now_ns();

		ck_assert_int_ge(now, last);
		last = now;
	}
}

TEST(random_fills_all_bytes)
{
	unsigned char bytes[1000] = {0}, other[1000] = {0};
	int zeros = 0;

	ck_assert(lk__random(bytes, sizeof(bytes)) && lk__random(other, sizeof(other)));
	ck_assert(memcmp(bytes, other, sizeof(bytes)) != 0);
	for (size_t i = 0; i < sizeof(bytes); i++)
		zeros += bytes[i] == 0;
	ck_assert_int_lt(zeros, 40);
}

TEST(wake_is_readable_from_notify_to_drain)
{
	struct lk__wake wake;

	ck_assert(lk__wake_init(&wake));
	ck_assert(fcntl(wake.read_fd, F_GETFD) & FD_CLOEXEC);
	ck_assert(fcntl(wake.write_fd, F_GETFD) & FD_CLOEXEC);
	ck_assert(fcntl(wake.read_fd, F_GETFL) & O_NONBLOCK);
	ck_assert(!readable(wake.read_fd));
	lk__wake_drain(&wake);
	for (int i = 0; i < 100000; i++)
		lk__wake_notify(&wake);
	errno = EXDEV;
	lk__wake_notify(&wake);
	ck_assert_int_eq(errno, EXDEV);
	ck_assert(readable(wake.read_fd));
	lk__wake_drain(&wake);
	ck_assert(!readable(wake.read_fd));
	lk__wake_notify(&wake);
	ck_assert(readable(wake.read_fd));
	lk__wake_fini(&wake);
	ck_assert_int_eq(wake.read_fd, -1);
}

TEST(timer_is_readable_at_its_time)
{
	int fd = lk__timer_open();
	int64_t when = lk__now_ns() + 20 * LK__MS;

	ck_assert_int_ge(fd, 0);
	ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	lk__timer_drain(fd);
	lk__timer_set(fd, when);
	ck_assert_int_eq(lk__poll2(fd, POLLIN, -1, when + 5000 * LK__MS), 1);
	ck_assert_int_ge(lk__now_ns(), when);
	lk__timer_drain(fd);
	ck_assert(!readable(fd));
	lk__timer_set(fd, 1); /* a time in the past */
	ck_assert(readable(fd));
	lk__timer_set(fd, -5);
	ck_assert(readable(fd));
	lk__timer_set(fd, 0);
	ck_assert(!readable(fd));
	lk__timer_set(fd, INT64_MAX);
	ck_assert(!readable(fd));
	lk__timer_set(-1, when);
	lk__timer_drain(-1);
	close(fd);
}

static void on_alarm(int number)
{
	(void)number;
}

static void alarms(int64_t us)
{
	struct sigaction action = {.sa_handler = on_alarm}; /* without SA_RESTART */
	struct itimerval often = {{0, (suseconds_t)us}, {0, (suseconds_t)us}};

	ck_assert(!sigaction(SIGALRM, &action, NULL));
	ck_assert(!setitimer(ITIMER_REAL, &often, NULL));
}

TEST(poll_keeps_its_deadline_under_signals)
{
	struct lk__wake wake;
	int64_t end;

	ck_assert(lk__wake_init(&wake));
	alarms(1000);
	end = lk__now_ns() + 100 * LK__MS;
	ck_assert_int_eq(lk__poll2(wake.read_fd, POLLIN, -1, end), 0);
	ck_assert_int_ge(lk__now_ns(), end);
	ck_assert_int_lt(lk__now_ns(), end + 5000 * LK__MS);
	alarms(0);
	lk__wake_fini(&wake);
}

TEST(poll_says_which_is_ready)
{
	struct lk__wake one, two;

	ck_assert(lk__wake_init(&one) && lk__wake_init(&two));
	ck_assert_int_eq(lk__poll2(one.read_fd, POLLIN, two.read_fd, 0), 0);
	lk__wake_notify(&two);
	ck_assert_int_eq(lk__poll2(one.read_fd, POLLIN, two.read_fd, -1), 2);
	lk__wake_notify(&one);
	ck_assert_int_eq(lk__poll2(one.read_fd, POLLIN, two.read_fd, -1), 3);
	ck_assert_int_eq(lk__poll2(one.read_fd, POLLIN, -1, -1), 1);
	lk__wake_fini(&one);
	lk__wake_fini(&two);
}

/* ---- Threads ------------------------------------------------------------------------------ */

struct seen {
	char name[16];
	int cancel;
	bool blocked, faults_blocked;
};

static void *look_around(void *arg)
{
	struct seen *seen = arg;
	sigset_t mask;

	pthread_getname_np(pthread_self(), seen->name, sizeof(seen->name));
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &seen->cancel);
	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	seen->blocked = sigismember(&mask, SIGTERM) && sigismember(&mask, SIGALRM) &&
	                sigismember(&mask, SIGCHLD) && sigismember(&mask, SIGRTMIN);
	seen->faults_blocked = sigismember(&mask, SIGSEGV);
	return arg;
}

TEST(thread_is_named_and_takes_no_signals)
{
	struct seen seen = {.faults_blocked = true};
	sigset_t before, after;
	pthread_t thread;
	void *result;

	sigemptyset(&before);
	sigaddset(&before, SIGUSR1);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	ck_assert(lk__thread_start(&thread, "lk-a-name-of-many-bytes", look_around, &seen));
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	ck_assert(sigismember(&after, SIGUSR1) && !sigismember(&after, SIGTERM));
	ck_assert(!pthread_join(thread, &result));
	ck_assert_ptr_eq(result, &seen);
	ck_assert_str_eq(seen.name, "lk-a-name-of-ma");
	ck_assert_int_eq(seen.cancel, PTHREAD_CANCEL_DISABLE);
	ck_assert(seen.blocked && !seen.faults_blocked);
}

TEST(cond_waits_no_longer_than_asked)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t cond;
	int64_t start = lk__now_ns();

	ck_assert(lk__cond_init(&cond));
	pthread_mutex_lock(&mutex);
	lk__cond_wait(&cond, &mutex, 30 * LK__MS);
	pthread_mutex_unlock(&mutex);
	ck_assert_int_lt(lk__now_ns() - start, 5000 * LK__MS);
	pthread_cond_destroy(&cond);
}

struct meeting {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	bool waiting, go;
	int64_t ns;
};

static void *wait_for_go(void *arg)
{
	struct meeting *meeting = arg;

	pthread_mutex_lock(&meeting->mutex);
	meeting->waiting = true;
	while (!meeting->go)
		lk__cond_wait(&meeting->cond, &meeting->mutex, meeting->ns);
	pthread_mutex_unlock(&meeting->mutex);
	return NULL;
}

static bool is_waiting(struct meeting *meeting)
{
	bool waiting;

	pthread_mutex_lock(&meeting->mutex);
	waiting = meeting->waiting;
	pthread_mutex_unlock(&meeting->mutex);
	return waiting;
}

TEST(cond_waits_of_any_length_can_be_ended)
{
	static const int64_t lengths[] = {-1, INT64_MAX, INT64_MIN, 999999999};

	for (int i = 0; i < 4; i++) {
		struct meeting meeting = {.mutex = PTHREAD_MUTEX_INITIALIZER, .ns = lengths[i]};
		pthread_t thread;

		ck_assert(lk__cond_init(&meeting.cond));
		ck_assert(lk__thread_start(&thread, "lk-wait", wait_for_go, &meeting));
		ck_assert(WITHIN(5000, is_waiting(&meeting)));
		pthread_mutex_lock(&meeting.mutex);
		meeting.go = true;
		pthread_cond_signal(&meeting.cond);
		pthread_mutex_unlock(&meeting.mutex);
		ck_assert(!pthread_join(thread, NULL));
		pthread_cond_destroy(&meeting.cond);
	}
}

#define THREADS 200

static _Atomic uint64_t ended[THREADS];
static atomic_int ended_count;

static void note_end(uint64_t serial)
{
	ended[atomic_fetch_add(&ended_count, 1)] = serial;
}

static void *ask_serial(void *arg)
{
	uint64_t *serial = arg;

	*serial = lk__thread_serial();
	return lk__thread_serial() == *serial ? arg : NULL;
}

static void *ask_nothing(void *arg)
{
	return arg;
}

TEST(thread_serial_is_never_used_again)
{
	uint64_t serials[THREADS], mine = lk__thread_serial();

	ck_assert_uint_ne(mine, 0);
	lk__thread_on_exit(note_end);
	for (int i = 0; i < THREADS; i++) {
		pthread_t thread;
		void *result;

		ck_assert(!pthread_create(&thread, NULL, ask_serial, &serials[i]));
		ck_assert(!pthread_join(thread, &result));
		ck_assert_ptr_nonnull(result);
		ck_assert_uint_gt(serials[i], i ? serials[i - 1] : mine);
		/* Joined: its end has been reported. */
		ck_assert_int_eq(ended_count, i + 1);
		ck_assert_uint_eq(ended[i], serials[i]);
	}
	ck_assert_uint_eq(lk__thread_serial(), mine);
}

TEST(thread_that_asked_nothing_is_not_told_of)
{
	pthread_t thread;

	lk__thread_on_exit(note_end);
	ck_assert(!pthread_create(&thread, NULL, ask_nothing, NULL));
	ck_assert(!pthread_join(thread, NULL));
	ck_assert_int_eq(ended_count, 0);
}

static pthread_key_t late_key;
static uint64_t late_serial;

static void call_late(void *arg)
{
	uint64_t *count = arg;

	/* The first round of destructors may run before the library's own: continue in the next. */
	if (++*count < 2)
		pthread_setspecific(late_key, arg);
	else
		late_serial = lk__thread_serial();
}

static void *end_late(void *arg)
{
	lk__thread_serial();
	pthread_setspecific(late_key, arg);
	return NULL;
}

TEST(thread_that_asks_while_ending_is_a_new_one)
{
	uint64_t count = 0;
	pthread_t thread;

	lk__thread_on_exit(note_end);
	ck_assert(!pthread_key_create(&late_key, call_late));
	ck_assert(!pthread_create(&thread, NULL, end_late, &count));
	ck_assert(!pthread_join(thread, NULL));
	ck_assert_int_eq(ended_count, 2);
	ck_assert_uint_ne(ended[0], late_serial);
	ck_assert_uint_eq(ended[1], late_serial);
	pthread_key_delete(late_key);
}

TEST(process_knows_its_names)
{
	char host[256], user[64], program[64], tiny[4];

	lk__host_name(host, sizeof(host));
	lk__user_name(user, sizeof(user));
	lk__program_name(program, sizeof(program));
	ck_assert_int_eq(shell("[ \"$(uname -n)\" = '%s' ]", host), 0);
	/* A user without a name, as in many containers, gets "". */
	ck_assert_int_eq(shell("[ \"$(name=$(id -un 2>/dev/null) && echo $name)\" = '%s' ]", user),
	                 0);
	ck_assert_str_eq(program, "unit_os");
	lk__program_name(tiny, sizeof(tiny));
	ck_assert_str_eq(tiny, "uni");
}

/* ---- Fork --------------------------------------------------------------------------------- */

/* The child's findings as its exit status: one bit each, 0 = all correct. */
static int in_child(bool (*fn)(void *), void *arg)
{
	int status;
	pid_t pid = process_fork();
	if (pid == 0)
		_exit(fn(arg) ? 0 : 1);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

TEST(socket_is_nonblocking_and_ends_at_exec)
{
	int fd = lk__fork_socket(AF_UNIX, SOCK_STREAM, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
	lk__fork_close(fd);
	ck_assert(!is_open(fd));
}

TEST(socket_error_is_the_systems)
{
	errno = 0;
	ck_assert_int_eq(lk__fork_socket(AF_UNIX, 12345, 0), -1);
	ck_assert_int_eq(errno, EINVAL);
}

static unsigned first; /* the generation of the test's process */

static bool is_next(void *arg)
{
	(void)arg;
	return lk__fork_generation() == first + 1;
}

/* Else a fork() beside the first use in another thread would leave the child a locked mutex. */
TEST(forks_are_watched_before_the_first_use)
{
	first = lk__fork_generation();
	ck_assert_int_eq(in_child(is_next, NULL), 0);
}

static bool has_none(void *arg)
{
	int *fds = arg;

	for (int i = 0; i < 50; i++)
		if (is_open(fds[i]))
			return false;
	return lk__fork_generation() == first + 1;
}

TEST(child_has_no_socket_of_its_parent)
{
	int fds[50];

	first = lk__fork_generation();
	for (int i = 0; i < 50; i++)
		ck_assert_int_ge(fds[i] = lk__fork_socket(AF_UNIX, SOCK_STREAM, 0), 0);
	ck_assert_int_eq(in_child(has_none, fds), 0);
	for (int i = 0; i < 50; i++)
		ck_assert(is_open(fds[i]));
	ck_assert_uint_eq(lk__fork_generation(), first);
	/* Descriptors closed before are not closed again: the number may belong to other code by
	 * now. */
	for (int i = 0; i < 50; i++)
		lk__fork_close(fds[i]);
	ck_assert_int_eq(dup2(0, fds[0]), fds[0]);
	lk__fork_close(fds[0]);
	ck_assert(is_open(fds[0]));
	close(fds[0]);
}

static bool grandchild_counts(void *arg)
{
	(void)arg;
	return lk__fork_generation() == first + 2;
}

static bool child_opens_its_own(void *arg)
{
	int *parents = arg;
	int fd = lk__fork_socket(AF_UNIX, SOCK_STREAM, 0);
	bool good = fd >= 0 && lk__fork_generation() == first + 1;

	/* The number is free again, so likely the same: then it is the child's own. */
	if (fd != *parents)
		lk__fork_close(*parents);
	good = good && is_open(fd) && in_child(grandchild_counts, NULL) == 0 && is_open(fd);
	lk__fork_close(fd);
	return good && !is_open(fd);
}

TEST(child_can_open_sockets_of_its_own)
{
	int fd = lk__fork_socket(AF_UNIX, SOCK_STREAM, 0);

	first = lk__fork_generation();
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(in_child(child_opens_its_own, &fd), 0);
	ck_assert(is_open(fd));
	lk__fork_close(fd);
}

static atomic_bool stop_churning;

static void *churn(void *arg)
{
	while (!stop_churning) {
		int fd = lk__fork_socket(AF_UNIX, SOCK_STREAM, 0);

		if (fd < 0)
			return arg;
		lk__fork_close(fd);
	}
	return NULL;
}

static bool no_sockets(void *arg)
{
	(void)arg;
	return proc_socket_count(0) == 0;
}

/* At any moment of a fork, the child has no socket outside the table. */
TEST(child_has_no_socket_made_meanwhile)
{
	pthread_t threads[2];

	NEEDS_PROC;
	/* The Check library may have one of its own. */
	ck_assert_int_eq(proc_socket_count(0), 0);
	for (int i = 0; i < 2; i++)
		ck_assert(!pthread_create(&threads[i], NULL, churn, threads));
	for (int i = 0; i < 200; i++)
		ck_assert_int_eq(in_child(no_sockets, NULL), 0);
	stop_churning = true;
	for (int i = 0; i < 2; i++) {
		void *failed;

		ck_assert(!pthread_join(threads[i], &failed));
		ck_assert_ptr_null(failed);
	}
}
