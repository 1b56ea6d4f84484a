/* SPDX-License-Identifier: MIT
 * Processes of a test: workers with pipes, waiting with a deadline, what /proc knows, and time.
 * Every process started here dies with the one that started it. */
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
/* Let time pass: for think times and for leases that must run out, never to wait for a state. */
void nap_ms(int64_t ms);

/* Evaluate cond each millisecond until it holds or ms have passed; the value is whether it held. */
#define WITHIN(ms, cond)                                                                           \
	({                                                                                         \
		int64_t within_end_ = now_ms() + (ms);                                             \
		bool within_met_;                                                                  \
		while (!(within_met_ = (cond)) && now_ms() < within_end_)                          \
			nap_ms(1);                                                                 \
		within_met_;                                                                       \
	})

/* A worker: a forked copy that runs one function.  in and out are the parent's ends. */
struct process {
	pid_t pid;
	int in;  /* what is written here the worker reads from its in */
	int out; /* what the worker writes to its out is read here */
};

/* The worker's part; its value is the exit status. */
typedef int process_fn(void *arg, int in, int out);

/* Fork a worker.  Fails the test when it cannot.  Start workers before any thread exists. */
void process_start(struct process *process, process_fn *fn, void *arg);
/* The wait status once it has ended; -1 when it did not within ms. */
int process_wait(struct process *process, int64_t ms);
/* It ended by itself with status 0 within ms. */
bool process_succeeded(struct process *process, int64_t ms);
void process_kill(struct process *process);     /* SIGKILL, and waits for it */
void process_pause(struct process *process);    /* SIGSTOP, and waits until it is stopped */
void process_continue(struct process *process); /* SIGCONT */

/* One line without its newline within ms; NULL on end of file or time-out.  Static memory. */
const char *line_read(int fd, int64_t ms);
/* Write a line; false when nobody reads. */
bool line_write(int fd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* From /proc; pid 0 is this process.  -1 when there is none such. */
int proc_thread_count(pid_t pid);
int proc_fd_count(pid_t pid);
int proc_socket_count(pid_t pid);
int64_t proc_cpu_ms(pid_t pid);  /* user and system time used so far, of all threads */
char proc_state(pid_t pid);      /* 'R', 'S', 'T', 'Z'...; 0 when there is none */
int64_t proc_size_kb(pid_t pid); /* address space */

/* A fresh 0700 folder, removed when the test program ends; fails the test when it cannot. */
void folder_make(char *path, size_t size);
/* Remove a folder and all that is in it. */
void folder_remove(const char *path);

/* Run a command line by /bin/sh; its exit status. */
int shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
