/* SPDX-License-Identifier: MIT
 * Processes of a test: workers with pipes, waiting with a deadline, facts from /proc, and time.
 * Every process started here dies with its parent. */
#ifndef PROCESS_H
#define PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Built with the thread sanitizer, the address sanitizer: each has its own heap and threads. */
#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif
#ifndef TSAN
#define TSAN 0
#endif
#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
#ifndef ASAN
#define ASAN 0
#endif

/* CLOCK_BOOTTIME in milliseconds; in microseconds. */
int64_t now_ms(void);
int64_t now_us(void);
/* Let time pass: for think times and for leases that must expire, never to wait for a state. */
void nap_ms(int64_t ms);

/* Evaluate cond each millisecond until it is true or ms have passed; the value is the last
 * result. */
#define WITHIN(ms, cond)                                                                           \
	({                                                                                         \
		int64_t within_end_ = now_ms() + (ms);                                             \
		bool within_met_;                                                                  \
		while (!(within_met_ = (cond)) && now_ms() < within_end_)                          \
			nap_ms(1);                                                                 \
		within_met_;                                                                       \
	})

/* A worker: a forked process that runs one function. in and out are the parent's ends. */
struct process {
	pid_t pid;
	int in;  /* the parent writes here, and the worker reads its in */
	int out; /* the worker writes to its out, and the parent reads here */
};

/* The worker's function; its result is the exit status. */
typedef int process_fn(void *arg, int in, int out);

/* fork(), of which the parent fails the test on an error.  A child that may begin after its test
 * has ended must assert nothing, even what is true: each assert writes to a file whose position
 * Check shares among all processes, and Check reads that file from its beginning. */
pid_t process_fork(void);
/* Fork a worker; fails the test on an error.  Start workers before any thread exists. */
void process_start(struct process *process, process_fn *fn, void *arg);
/* The wait status once the worker has ended; -1 if it did not within ms. */
int process_wait(struct process *process, int64_t ms);
/* Did it exit with status 0 within ms? */
bool process_succeeded(struct process *process, int64_t ms);
void process_kill(struct process *process);     /* SIGKILL, and waits for it */
void process_pause(struct process *process);    /* SIGSTOP, and waits until it is stopped */
void process_continue(struct process *process); /* SIGCONT */

/* One line without its newline within ms; NULL on end of file or time-out.  Static memory. */
const char *line_read(int fd, int64_t ms);
/* Write a line; false if the reader has closed. */
bool line_write(int fd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* From /proc; pid 0 is this process. -1 if there is no such process. */
int proc_thread_count(pid_t pid);
int proc_fd_count(pid_t pid);
int proc_socket_count(pid_t pid);
int64_t proc_cpu_ms(pid_t pid);  /* user and system time used so far, of all threads */
char proc_state(pid_t pid);      /* 'R', 'S', 'T', 'Z'...; 0 if there is no such process */
int64_t proc_size_kb(pid_t pid); /* address space */
/* Does that thread of this process sleep?  One that is in a call waits there.  id may be 0 = it has
 * not begun. */
bool proc_thread_sleeps(int id);

/* A fresh 0700 folder, removed when the test program ends; fails the test on an error. */
void folder_make(char *path, size_t size);
/* Remove a folder with its content. */
void folder_remove(const char *path);

/* Run a command line by /bin/sh; its exit status. */
int shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
