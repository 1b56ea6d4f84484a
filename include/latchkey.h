/* SPDX-License-Identifier: MIT
 *
 * Latchkey: distributed locks, latches and semaphores for C programs.  State lives in Redis, every
 * step is one atomic script, waiting is a message and a condition variable.
 *
 * Caveats, before anything else
 *
 *  - A lock in one Redis is as good as that Redis: a server that loses its memory (a crash without
 *    persistence, a failover to a replica that had not caught up, an operator's FLUSHALL) forgets
 *    the holder.  Pass the fence of lk_lock_acquire() to whatever you protect and let it refuse
 *    smaller numbers.
 *  - A server's clock that runs, or is slewed, more than 1 % faster than the client's ends
 *    leases too early; latchkey doctor measures it.
 *  - A process that is stopped past its lease loses the lock while it cannot run.  It learns of it
 *    as soon as it runs again and asks; it cannot learn of it while it is stopped.  Fences again.
 *  - After fork() the child must open a client of its own; calls on the parent's return LK_EFORKED.
 *
 * Conventions
 *
 *  - Every function that can fail returns an lk_err, LK_OK being 0.  Results go through the last
 *    argument, written only on success.  lk_errmsg() has the detail of this thread's last failure.
 *  - Times are milliseconds in int64_t.  A wait of 0 tries once, LK_FOREVER (-1) has no limit.
 *  - A name is bytes and their number; a number of 0 stands for the length up to the NUL.
 *  - Strings passed in are copied.  Strings passed out are borrowed until their handle is closed.
 *  - NULL for a handle, a name, a result or a function is LK_EINVALID unless a comment below allows
 *    it.  A function without an lk_err returns 0, false, "" or LK_STATE_NONE.  Options may be NULL:
 *    all defaults.  Closing NULL is a no-op.
 *  - A call on a handle that is being closed returns LK_ECLOSED.  After the close its memory is
 *    freed, and a use of it is not checked: it is a use of freed memory.
 *  - Options structs: all zero means all defaults.  Initialise them with {0} and set what you need.
 *  - Structs that the library fills end in reserved members, which it sets to 0.  Later versions
 * put new members there, so that the size of a struct stays and programs need not be compiled
 * again.
 *  - Each function says which threads may call it.  Callbacks run on a thread of the library with
 *    no lock held; they may call everything but lk_client_close() and lk_lock_close(),
 *    lk_semaphore_close(), lk_latch_close().  The log hook must not call the library.
 *  - No call prints, exits, aborts, changes a signal disposition or lets SIGPIPE reach you. */
#ifndef LATCHKEY_H
#define LATCHKEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LK_API __attribute__((visibility("default")))
#define LK_MUST_USE __attribute__((warn_unused_result))
#else
#define LK_API
#define LK_MUST_USE
#endif

#define LK_VERSION "0.2.0"
#define LK_VERSION_NUM 200 /* 10000 * major + 100 * minor + patch, for #if */
#define LK_FOREVER ((int64_t)-1)
#define LK_NAME_MAX 512 /* bytes in a name; at least 1, any bytes */
#define LK_LEASE_MIN_MS 100
#define LK_LEASE_MAX_MS 86400000
#define LK_LEASE_DEFAULT_MS 10000
#define LK_LABEL_MAX 128           /* bytes in a label, without the NUL */
#define LK_HOLDER_ID_SIZE 40       /* bytes of a holder id with its NUL */
#define LK_PERMITS_MAX 2147483647  /* of a semaphore */
#define LK_COUNT_MAX 2147483647    /* of a latch */
#define LK_STEP_MAX 256            /* bytes in the name of a latch's step; at least 1, any bytes */
#define LK_TTL_MIN_MS 1000         /* of what outlives its use */
#define LK_TTL_MAX_MS 86400000000  /* 1,000 days */
#define LK_TTL_DEFAULT_MS 86400000 /* a day */

/* The library's version, "0.2.0"; compare with LK_VERSION to see what was linked.  Any thread. */
LK_API const char *lk_version(void);

/* ---- Errors ------------------------------------------------------------------------------- */

/* Each error: its name, its number, what it means in one line. */
#define LK_ERR_MAP(X)                                                                              \
	X(LK_OK, 0, "success")                                                                     \
	X(LK_EBUSY, 1, "held by another, and the wait was 0")                                      \
	X(LK_ETIMEDOUT, 2, "not acquired in time; nothing was left behind")                        \
	X(LK_ECANCELED, 3, "the wait was cancelled; nothing was left behind")                      \
	X(LK_ELOST, 4, "the hold was lost")                                                        \
	X(LK_ENOTOWNER, 5, "the caller does not hold it")                                          \
	X(LK_ECLOSED, 6,                                                                           \
	  "the handle or its client is being closed (a use after that is not checked)")            \
	X(LK_EFORKED, 7, "this handle belongs to the parent process")                              \
	X(LK_ECONN, 8, "the store cannot be reached; it did not happen")                           \
	X(LK_EUNKNOWN, 9, "no answer; it may have happened")                                       \
	X(LK_EAUTH, 10, "the store refused the credentials or a right is missing")                 \
	X(LK_ESERVER, 11, "the store answered with an error")                                      \
	X(LK_EINVALID, 12, "an argument is not valid")                                             \
	X(LK_EFOREIGN, 13, "a key is not Latchkey's or of another protocol version")               \
	X(LK_ENOMEM, 14, "out of memory")                                                          \
	X(LK_ESYSTEM, 15, "the operating system refused (descriptors, threads, files)")            \
	X(LK_EAGAIN, 16, "the store refuses for a moment; it did not happen")                      \
	X(LK_EDEADLOCK, 17, "the call would wait for itself")                                      \
	X(LK_ELIMIT, 18, "a count would pass its limit")                                           \
	X(LK_ENOSERVER, 19, "no redis-server or valkey-server is installed")                       \
	X(LK_EMISMATCH, 20, "it is not as the caller expects")                                     \
	X(LK_EABSENT, 21, "there is no such thing, or no holder, in the store")

typedef enum lk_err {
#define LK_ERR_ENUM(name, number, text) name = number,
	LK_ERR_MAP(LK_ERR_ENUM)
#undef LK_ERR_ENUM
} lk_err;

/* "LK_EBUSY"; "LK_E?" for a number that is none.  Never NULL.  Any thread. */
LK_API const char *lk_err_name(lk_err err);

/* The one-line meaning of an error.  Never NULL.  Any thread. */
LK_API const char *lk_err_text(lk_err err);

/* Two questions about an error.  Ambiguous: may the call have had its effect, now or later?
 * Retryable: did nothing happen, and may the same call succeed later?  A repeated call may act
 * twice after an ambiguous error, so that is never retryable here: functions for which repeating is
 * safe say so.
 *
 *   error         what happened                                              ambiguous  retryable
 *   LK_OK         what was asked for                                         -          -
 *   LK_EBUSY      nothing: another holds it                                  -          yes
 *   LK_ETIMEDOUT  nothing within the wait                                    -          yes
 *   LK_ECANCELED  nothing: this program ended the wait                       -          -
 *   LK_ELOST      the hold had ended before                                  -          -
 *   LK_ENOTOWNER  nothing                                                    -          -
 *   LK_ECLOSED    nothing: this program closes the handle or the client      -          -
 *   LK_EFORKED    nothing: the child process needs a client of its own       -          -
 *   LK_ECONN      nothing: the request did not reach the store               -          yes
 *   LK_EUNKNOWN   the request was sent and may have its effect, also later   yes        -
 *   LK_EAUTH      nothing, until an operator grants the right                -          -
 *   LK_ESERVER    nothing: an operator has to look at the server             -          -
 *   LK_EINVALID   nothing: the call is wrong                                 -          -
 *   LK_EFOREIGN   nothing: another program or version uses the key           -          -
 *   LK_ENOMEM     nothing                                                    -          -
 *   LK_ESYSTEM    nothing                                                    -          -
 *   LK_EAGAIN     nothing: it is loading, busy, a replica or short of them   -          yes
 *   LK_EDEADLOCK  nothing: the call could never end                          -          -
 *   LK_ELIMIT     nothing                                                    -          -
 *   LK_ENOSERVER  nothing                                                    -          -
 *   LK_EMISMATCH  nothing: look at the present state first                   -          -
 *   LK_EABSENT    nothing                                                    -          -
 *
 * Any thread. */
LK_API bool lk_err_is_ambiguous(lk_err err);
LK_API bool lk_err_is_retryable(lk_err err);

/* What went wrong in this thread's last failing call, in a sentence that names the thing:
 * "127.0.0.1:6379: connection refused".  Text that came from elsewhere is escaped: printable ASCII
 * only.  Never NULL; "" before the first failure.  Valid until this thread's next failing call. */
LK_API const char *lk_errmsg(void);

/* ---- Client ------------------------------------------------------------------------------- */

/* One identity at one store: two connections and one thread, shared by all its handles. */
typedef struct lk_client lk_client;

typedef enum lk_log_level { LK_LOG_ERROR = 1, LK_LOG_WARN, LK_LOG_INFO, LK_LOG_DEBUG } lk_log_level;

/* One line, escaped, without a newline.  Called from a thread of the library's own; no lock is
 * held.  Be brief: the next connection, and lk_client_close(), wait for it.
 *
 * After lk_client_open() the connection's lines are "connection lost: WHY" and, for each attempt
 * that failed, "cannot connect: WHY" at LK_LOG_WARN, and "WHERE: connected" at LK_LOG_INFO. */
typedef void lk_log_fn(void *arg, lk_log_level level, const char *line);

/* Options of lk_client_open(); what is set here wins over the URL. */
typedef struct lk_client_options {
	int64_t connect_timeout_ms; /* name look-up to ready, 0 = 5,000 */
	int64_t command_timeout_ms; /* for one request, 0 = 2,000 */
	int64_t keepalive_ms;       /* silence before TCP probes, 0 = 15,000 */
	const char *prefix;         /* of keys and channels, NULL = "lk"; [A-Za-z0-9._-]{1,32} */
	const char *user;           /* NULL = the URL's, or the server's default user */
	const char *password;       /* NULL = the URL's, or none */
	const char *client_name;    /* shown by CLIENT LIST, NULL = "latchkey" */
	const char *label;          /* who we are, for people; NULL = the program's name */
	lk_log_fn *log;             /* NULL = silent */
	void *log_arg;              /* passed to log; stays yours */
	lk_log_level log_level;     /* 0 = LK_LOG_WARN */
	bool lazy;                  /* connect at the first call that needs the store */
	int64_t reserved[8];        /* zero */
} lk_client_options;

/* Open a client.
 *
 *   url  redis://[user[:password]@]host[:port][/db][?OPTION=VALUE&...]
 *        redis+unix:///path[?db=N&...]
 *        local:  (also NULL) a private server of this user on this machine, started if need be
 *        options: db, user, password, client_name, prefix, connect_timeout, command_timeout,
 *        keepalive (milliseconds), lazy (0 or 1); percent-encoded where a byte would be misread
 *
 * LK_OK        connected, authenticated, subscribed, rights for messages checked; with lazy: the
 *              URL and the options are valid
 * LK_EINVALID  the URL or an option is wrong; lk_errmsg() names it
 * LK_ECONN     not reached within the connect timeout, or not ready: loading its data, busy, a
 *              replica
 * LK_EAUTH     wrong credentials, or a right is missing (which one: lk_errmsg())
 * LK_ESERVER   the server answered with another error, or not like a Redis
 * LK_ENOSERVER local: and no server binary; lk_errmsg() says what to install
 * LK_ESYSTEM   no descriptor, no thread, or the folder of local: is not safe to use
 * LK_ENOMEM
 *
 * With lazy the call looks up no name, opens no connection and starts no server.  A thread of the
 * library connects at the first call that needs the store.  Until it is connected for the first
 * time, such a call returns by its wait plus one command timeout: LK_ECONN if nothing was asked.
 * A reason that waiting cannot cure (LK_EAUTH, LK_ESERVER, LK_ENOSERVER, LK_EINVALID) ends it at
 * once.  From then on the client is like any other.
 *
 * Any thread.  Any number of clients in a process. */
LK_API LK_MUST_USE lk_err lk_client_open(const char *url, const lk_client_options *options,
                                         lk_client **client);

/* Close a client and every handle opened from it (do not use them afterwards).
 * Waits in progress in other threads end with LK_ECLOSED (LK_EUNKNOWN if the store does not confirm
 * it); what is held is released, without an on_lost call.  Returns when that is done, at the latest
 * one command timeout later, and when no callback runs any more.  A hold that expired, or that the
 * store reported as broken or gone, needs no confirmation: the call does not wait for it.
 *
 * LK_OK         nothing is left behind
 * LK_EUNKNOWN   closed, but a release was not confirmed, or was refused: the hold expires with its
 *               lease
 * LK_EDEADLOCK  called from a callback of this client; nothing was done
 * LK_EFORKED    called in a child: its copies of the sockets are closed, nothing was sent
 *
 * NULL is a no-op.  One thread; no other may start a call on this client or its handles
 * meanwhile. */
LK_API lk_err lk_client_close(lk_client *client);

/* The client's identity, 22 characters, never the same twice.  Borrowed.  Any thread. */
LK_API const char *lk_client_id(const lk_client *client);

/* What a client did since it was opened, for whoever watches it from time to time.  Counts and sums
 * only grow; what is called max is the largest so far.  Names that end in _us are microseconds of
 * the client's own clock, each time rounded before it is added. */
typedef struct lk_counters {
	/* Calls of lk_lock_acquire() and lk_semaphore_acquire(): each is one of acquired,
	 * reentered, busy, timed_out, canceled, failed.  Those that were refused before anything
	 * was tried are none (LK_EINVALID, LK_ENOMEM, LK_EFORKED, LK_ECLOSED of a client that was
	 * closed). */
	int64_t acquired;      /* LK_OK, and not held before; permits of one call count as one */
	int64_t acquired_us;   /* of these: from the call to the grant */
	int64_t by_thread;     /* of these: from a thread of this client, without a request */
	int64_t by_message;    /* of these: somebody's release gave it to this client */
	int64_t waited;        /* of these: stood in the store's queue, or behind a thread */
	int64_t waited_us;     /* of those that waited: from the call to the grant */
	int64_t waited_max_us; /* the longest of them */
	int64_t reentered;     /* LK_OK, held before by the same owner */
	int64_t busy;          /* LK_EBUSY */
	int64_t timed_out;     /* LK_ETIMEDOUT */
	int64_t canceled;      /* LK_ECANCELED, LK_ECLOSED */
	int64_t failed;        /* any other error */
	/* Holds that have ended: released, passed on to a thread, lost, or closed.  Permits that
	 * were acquired with hold NULL make none. */
	int64_t holds;
	int64_t held_us;     /* from the grant until the release was called or the loss was seen */
	int64_t held_max_us; /* the longest of them */
	int64_t lost[8];     /* by lk_lost_reason; lost[0] is the sum.  A release that finds the
	                      * store without the hold counts as taken */
	/* Renewals that the store confirmed, extensions of renewed holds included.  One is due when
	 * a third of the lease is gone, or a little earlier, so that several are sent together; and
	 * once when a thread begins to wait behind the hold, which the store is told that way. */
	int64_t renewed;
	int64_t late_us;            /* sent after they were due */
	int64_t late_max_us;        /* the latest of them */
	int64_t lease_max_permille; /* how much of a lease was gone when the confirmation came, at
	                             * most: up to 340 is as it should be, above 500 the hold
	                             * was UNSURE, at 1,000 it would be lost */
	/* Calls on latches that returned LK_OK. */
	int64_t awaited; /* lk_latch_await() */
	int64_t stepped; /* lk_latch_down() */
	/* The store. */
	int64_t requests;  /* of locks, permits and latches, repeated ones too; not queries, PING */
	int64_t connected; /* times, 1 after lk_client_open(), 0 if lazy */
	int64_t reserved[8]; /* zero */
} lk_counters;

/* The client's counters, all of one moment.  No I/O, never blocks.
 *
 * LK_OK, LK_EFORKED.  Any thread, but not while lk_client_close() runs. */
LK_API lk_err lk_client_counters(lk_client *client, lk_counters *counters);

/* ---- Lock --------------------------------------------------------------------------------- */

/* A handle on one named lock.  Any number of handles may name the same lock. */
typedef struct lk_lock lk_lock;

typedef enum lk_owner {
	LK_OWNER_THREAD = 0, /* the acquiring thread owns it; it alone re-enters and releases */
	/* The handle owns it, and any thread that has the handle may release.  It is another owner
	 * than any thread: a thread that holds the lock as a thread and waits for it through such a
	 * handle would wait for itself, and gets LK_EDEADLOCK. */
	LK_OWNER_HANDLE = 1,
} lk_owner;

typedef enum lk_state {
	LK_STATE_NONE = 0,   /* the caller holds nothing */
	LK_STATE_HELD = 1,   /* held, lease running, store in reach */
	LK_STATE_UNSURE = 2, /* held and the lease still runs, but renewing it does not succeed */
	LK_STATE_LOST = 3,   /* no longer held; release to acknowledge */
} lk_state;

typedef enum lk_lost_reason {
	LK_LOST_EXPIRED = 1,  /* the lease ran out before it could be renewed */
	LK_LOST_TAKEN = 2,    /* the store no longer knows it: emptied, failed over, deleted */
	LK_LOST_BROKEN = 3,   /* somebody broke the lock */
	LK_LOST_MAX_HOLD = 4, /* max_hold_ms passed; the lock was released */
	LK_LOST_THREAD = 5,   /* the owning thread ended while holding; the lock was released */
} lk_lost_reason;

/* "expired", "taken", "broken", "max-hold", "thread-ended".  Never NULL.  Any thread. */
LK_API const char *lk_lost_reason_name(lk_lost_reason reason);

/* Told once for each hold that is lost, no later than its lease's end (scheduling aside).
 * Runs on the client's callback thread, one at a time, no lock held; blocking here delays other
 * callbacks and nothing else. */
typedef void lk_lost_fn(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason);

typedef struct lk_lock_options {
	int64_t lease_ms;    /* LK_LEASE_MIN_MS..LK_LEASE_MAX_MS, 0 = 10,000 */
	int64_t max_hold_ms; /* a hold ends after this long, 1,000 days at most; 0 = no limit */
	bool fixed;          /* do not renew: the hold ends with its lease unless extended */
	lk_owner owner;      /* who owns a hold, 0 = the calling thread */
	const char *label;   /* for people, instead of the client's label */
	lk_lost_fn *on_lost; /* NULL = none */
	void *on_lost_arg;   /* passed to on_lost; stays yours */
	int64_t reserved[8]; /* zero */
} lk_lock_options;

/* Open a handle on the lock of that name; asks the store nothing.
 *
 *   name      1..LK_NAME_MAX bytes, any; two names never collide
 *   name_len  bytes in name; 0 = up to its NUL
 *
 * LK_OK, LK_EINVALID (which option: lk_errmsg()), LK_ENOMEM, LK_ESYSTEM (no thread for
 * callbacks), LK_ECLOSED, LK_EFORKED.  Any thread. */
LK_API LK_MUST_USE lk_err lk_lock_open(lk_client *client, const char *name, size_t name_len,
                                       const lk_lock_options *options, lk_lock **lock);

/* Close a handle.  Waits on it end as by lk_lock_cancel(); what was acquired through it is released
 * in the background.  NULL is a no-op.  Returns when no call and no callback uses it any more.
 *
 * LK_OK, LK_EDEADLOCK (from a callback of this client; nothing was done), LK_EFORKED.
 * One thread; no other may start a call on it meanwhile. */
LK_API lk_err lk_lock_close(lk_lock *lock);

/* Acquire the lock, waiting at most wait_ms for it, in order of arrival.  An owner that holds it
 * already re-enters at once without a request, through any handle of the client.
 *
 *   wait_ms  milliseconds; 0 = try once, LK_FOREVER = no limit
 *   fence    gets the hold's fencing token, which is larger than that of every hold before it; a
 *            re-entry gets the hold's again.  Send it with each write to the resource that the lock
 *            protects, and let the resource refuse a write whose fence is smaller than the largest
 *            that it has seen: no client can stop a holder that was suspended past its lease from
 *            writing late.  NULL if nothing that the lock protects can compare fences
 *
 * LK_OK         held; renewed in the background until released, or until its end if fixed
 * LK_EBUSY      not held: another has it (wait_ms 0); nothing left behind
 * LK_ETIMEDOUT  not held; nothing left behind
 * LK_ECANCELED  not held; lk_lock_cancel() or lk_lock_close(); nothing left behind
 * LK_ECLOSED    not held; lk_client_close(), or the handle is being closed
 * LK_ELOST      the caller's hold on this lock was lost and not yet released; nothing changed
 * LK_ECONN      not held; the store was not reached, nothing was asked
 * LK_EUNKNOWN   not held; a request was not answered, or the store refused to withdraw it: the
 *               client releases a later grant when its message arrives; the grant expires one
 *               lease later at most.  Repeating the call is safe
 * LK_EAUTH, LK_ESERVER, LK_EFOREIGN   not held; the store's refusal, lk_errmsg().  LK_ESERVER also
 *               when the counter of fences is damaged or used up
 * LK_EAGAIN     not held; the server refused for a moment (wait_ms 0)
 * LK_EINVALID   wait_ms below -1
 * LK_EDEADLOCK  not held; the handle would own the hold (LK_OWNER_HANDLE), and the calling thread
 *               itself holds the lock as a thread, renewed and without max_hold_ms: the wait could
 *               not end.  With wait_ms 0 that is LK_EBUSY
 * LK_ELIMIT     re-entered 2^31 - 1 times; the hold is unchanged
 * LK_ENOMEM, LK_EFORKED   not held
 *
 * While the server refuses for a moment (see LK_EAGAIN), the library repeats the request until the
 * wait is over.
 *
 * Returns by wait_ms plus one command timeout.  Any thread.  The caller becomes the owner. */
LK_API LK_MUST_USE lk_err lk_lock_acquire(lk_lock *lock, int64_t wait_ms, uint64_t *fence);

/* Release one acquisition; the last one gives the lock to who waits first.
 *
 * LK_OK        released (or re-entered one time less)
 * LK_ELOST     the hold had been lost; a release for each acquisition acknowledges it
 * LK_ENOTOWNER the caller does not hold it; nothing changed
 * LK_EUNKNOWN  not confirmed by the store: done in the background, at the latest by the lease's
 *              end; the caller holds it no more.  There is nothing to repeat
 * LK_EFORKED, LK_ECLOSED
 *
 * Any thread (the owner, if that is a thread). */
LK_API lk_err lk_lock_release(lk_lock *lock);

/* End every wait that is now in progress on this handle with LK_ECANCELED (LK_EUNKNOWN if the
 * store does not confirm that nothing is left); later ones are not concerned.
 *
 * LK_OK (also when there was none), LK_EFORKED, LK_ECLOSED.  Any thread. */
LK_API lk_err lk_lock_cancel(lk_lock *lock);

/* Give the caller's hold a lease of lease_ms from now; meant for a fixed one, a renewed one goes on
 * being renewed.  The store never shortens a lease: with less than is left the hold ends earlier
 * for its owner, who then gives it up.
 *
 * LK_OK        the hold lasts lease_ms, less the margin of 1 % and 2 ms, from when it was asked
 * LK_ENOTOWNER the caller does not hold it
 * LK_ELOST     it was lost
 * LK_ECONN, LK_EAGAIN  did not happen;  LK_EUNKNOWN may have: for the caller the old end stands.
 *              Repeating the call is safe
 * LK_EINVALID, LK_ESERVER, LK_EAUTH, LK_ENOMEM, LK_EFORKED, LK_ECLOSED  the old end stands
 *
 * The owner. */
LK_API LK_MUST_USE lk_err lk_lock_extend(lk_lock *lock, int64_t lease_ms);

/* Called while the lock or the permits are held.  fence is the hold's: see lk_lock_acquire().  It
 * must return (no longjmp(), no pthread_exit()), and must close neither the handle nor its client.
 */
typedef int lk_run_fn(void *arg, uint64_t fence);

typedef enum lk_run_stage {
	LK_RUN_DONE = 0,    /* acquired, called, released */
	LK_RUN_ACQUIRE = 1, /* not acquired: the function was not called */
	LK_RUN_RELEASE = 2, /* the function returned, the release failed */
} lk_run_stage;

typedef struct lk_run {
	lk_run_stage stage;  /* how far it came */
	int result;          /* what the function returned, 0 if it was not called */
	uint64_t fence;      /* of the hold, 0 if the function was not called */
	lk_lost_reason lost; /* the hold was lost while the function ran; 0 = it was not */
	int64_t reserved[8]; /* zero */
} lk_run;

/* Acquire the lock, call a function, release the lock.
 *
 *   wait_ms  as for lk_lock_acquire()
 *   fn       called once, by this thread, if the lock was acquired
 *   arg      passed to fn
 *   out      gets what happened; may be NULL.  Written whatever the call returns, except
 *            LK_EINVALID
 *
 * LK_OK         fn was called, and the lock was held all the time; what fn returned is out->result
 * LK_ELOST      fn was called, but the hold was lost meanwhile (out->lost): another client may have
 *               held the lock while fn ran.  With LK_RUN_ACQUIRE: as lk_lock_acquire()
 * LK_EUNKNOWN   with LK_RUN_RELEASE: fn was called, and the release is not confirmed, as
 *               lk_lock_release().  With LK_RUN_ACQUIRE: as lk_lock_acquire()
 * LK_ENOTOWNER  fn was called, and has released the hold itself
 * LK_EINVALID   lock or fn is NULL, or wait_ms is below -1; fn was not called
 * Else as lk_lock_acquire() and lk_lock_release(); out->stage tells which of them failed.
 *
 * Any thread.  fn may acquire and release the lock again, like every owner. */
LK_API LK_MUST_USE lk_err lk_lock_run(lk_lock *lock, int64_t wait_ms, lk_run_fn *fn, void *arg,
                                      lk_run *out);

/* What the caller's own hold knows, all of one moment. */
typedef struct lk_hold {
	uint64_t fence;       /* 0 = the caller holds nothing */
	int64_t count;        /* a lock: acquisitions not yet released; a semaphore: permits */
	lk_state state;       /* LK_STATE_NONE: holds nothing, all other members are 0 */
	lk_lost_reason lost;  /* 0 unless the state is LK_STATE_LOST */
	int64_t remaining_ms; /* how long the hold is still sure, 0 if lost */
	char holder_id[LK_HOLDER_ID_SIZE]; /* as others see it (lk_party.id), "" if lost */
	int64_t reserved[8];               /* zero */
} lk_hold;

/* Look at the caller's hold.  No I/O, never blocks.  After a loss fence and count stay, until the
 * release.
 *
 * LK_OK, also when the caller holds nothing; LK_EFORKED.  Any thread. */
LK_API LK_MUST_USE lk_err lk_lock_snapshot(lk_lock *lock, lk_hold *hold);

/* The state of the caller's hold.  Computed from the clock, so it is right even when no thread of
 * the library could run.  No I/O, never blocks.  Any thread. */
LK_API lk_state lk_lock_state(lk_lock *lock);
/* The caller holds it and it is not lost.  Otherwise as lk_lock_state(). */
LK_API bool lk_lock_is_mine(lk_lock *lock);

/* Who holds or waits.  All text is escaped; empty or 0 where the party told nothing. */
typedef struct lk_party {
	char id[LK_HOLDER_ID_SIZE]; /* of this one hold or wait */
	char host[128];
	char user[64];
	char program[64];
	char label[LK_LABEL_MAX * 4 + 1]; /* "" if none */
	int64_t pid;
	int64_t reserved[8]; /* zero */
} lk_party;

typedef struct lk_lock_status {
	bool held;
	lk_party holder;       /* if held */
	uint64_t fence;        /* of the holder's grant, 0 if not held */
	int64_t held_ms;       /* since the grant, by the store's clock */
	int64_t lease_left_ms; /* until the lease ends unless renewed */
	int64_t queue_len;     /* tickets in the store: one a process and kind of lease */
	int64_t my_rank;       /* tickets before this client's first one, -1 = none waiting */
	int64_t reserved[8];   /* zero */
} lk_lock_status;

/* Ask the store who holds the lock.  LK_OK, LK_ECONN, LK_EUNKNOWN (no answer), LK_EAGAIN, LK_EAUTH,
 * LK_ESERVER, LK_EFOREIGN, LK_EFORKED, LK_ECLOSED, LK_ENOMEM.  Changes nothing, so repeating the
 * call is safe.  Any thread. */
LK_API LK_MUST_USE lk_err lk_lock_query(lk_lock *lock, lk_lock_status *status);

/* The first max waiters in their order, 1,000 at most; with max 0 waiters may be NULL.  *count is
 * how many; waiters may be written to on failure, too.  Else as above. */
LK_API LK_MUST_USE lk_err lk_lock_waiters(lk_lock *lock, size_t max, lk_party *waiters,
                                          size_t *count);

/* Take the lock from whoever holds it and give it to who waits first; the fence moves on, the
 * holder is told, as a rule within 100 ms.  Its process may still be at work: only the fence stops
 * it.
 *
 *   if_holder  only if this is the holder's id (lk_party.id), NULL = whoever it is
 *
 * LK_OK         broken
 * LK_EABSENT    nobody held it;  LK_EMISMATCH  another holder; nothing changed
 * LK_ECONN did not happen, LK_EUNKNOWN may have: repeating the call is safe with if_holder, and may
 * break the next hold without; else as lk_lock_query().  Any thread. */
LK_API LK_MUST_USE lk_err lk_lock_break(lk_lock *lock, const char *if_holder);

/* ---- Semaphore ---------------------------------------------------------------------------- */

/* A handle on one named counting semaphore.  It has a capacity of permits; each hold has some of
 * them, a fence, a lease that is renewed, and ends by release or loss.  The permits of a process
 * that dies come back when its lease ends.  Who waits is served in order of arrival: a request for
 * many permits is not starved by small ones that come after it.
 *
 * Permits with a fixed lease that are never released make a rate: open with fixed and a lease of
 * the window's length, and acquire with hold NULL.  Then no window of that length, wherever it
 * begins, sees more grants than the capacity, by the store's clock.  The grant is final: it counts
 * from the moment when the store made it, whenever the call returns.  So a client whose round trip
 * is as long as the window also gets its turns.  A waiter that has died costs one turn. */
typedef struct lk_semaphore lk_semaphore;

/* Told once for each hold that is lost, as lk_lost_fn. */
typedef void lk_semaphore_lost_fn(void *arg, lk_semaphore *semaphore, uint64_t hold,
                                  lk_lost_reason reason);

typedef struct lk_semaphore_options {
	int64_t capacity;    /* permits, 1..LK_PERMITS_MAX; 0 = what it has, it must exist */
	int64_t ttl_ms;      /* capacity is kept this long after the last use, 0 = a day;
	                        what the last opening with a capacity said counts */
	int64_t lease_ms;    /* LK_LEASE_MIN_MS..LK_LEASE_MAX_MS, 0 = 10,000 */
	int64_t max_hold_ms; /* a hold ends after this long, 1,000 days at most; 0 = no limit */
	bool fixed;          /* do not renew: a hold ends with its lease unless extended */
	const char *label;   /* for people, instead of the client's label */
	lk_semaphore_lost_fn *on_lost; /* NULL = none */
	void *on_lost_arg;             /* passed to on_lost; stays yours */
	int64_t reserved[8];           /* zero */
} lk_semaphore_options;

/* Open a handle on the semaphore of that name; the first opening gives it its capacity.  One
 * request.  The handle keeps the capacity: should the semaphore's memory end while the handle is
 * idle (its TTL, a flush), the next acquire makes it again.
 *
 * LK_OK
 * LK_EMISMATCH  it has another capacity (which: lk_errmsg()); lk_semaphore_resize() changes it
 * LK_EABSENT    capacity 0, and it does not exist
 * LK_EINVALID (which option: lk_errmsg()), LK_ENOMEM, LK_ESYSTEM, LK_ECONN, LK_EUNKNOWN, LK_EAGAIN,
 * LK_EAUTH, LK_ESERVER (also when the counter of fences is damaged), LK_EFOREIGN (the name is a
 * lock's or a latch's), LK_ECLOSED, LK_EFORKED: no handle; after LK_EUNKNOWN the store may have the
 * capacity, and repeating the call is safe.  Any thread. */
LK_API LK_MUST_USE lk_err lk_semaphore_open(lk_client *client, const char *name, size_t name_len,
                                            const lk_semaphore_options *options,
                                            lk_semaphore **semaphore);

/* As lk_lock_close(). */
LK_API lk_err lk_semaphore_close(lk_semaphore *semaphore);

/* Acquire permits, waiting at most wait_ms for them, in order of arrival.  Never re-entrant: each
 * call makes a hold of its own, which belongs to the handle; any thread may release it.
 *
 *   permits  1..LK_PERMITS_MAX, all or none
 *   wait_ms  milliseconds; 0 = try once, LK_FOREVER = no limit
 *   hold     gets the hold's fence, by which the calls below name it.  NULL, for a fixed handle
 *            only: the permits are never released and come back one lease after the grant,
 *            lk_semaphore_close(), lk_client_close() and a crash notwithstanding.  With a
 *            distant server that may be before the call returns
 *
 * LK_OK         held; renewed in the background until released, or until its end if fixed
 * LK_EBUSY      not held: too few are free, or others wait (wait_ms 0); nothing left behind
 * LK_ELIMIT     more than the semaphore's capacity; also a wait that a resize made impossible
 * LK_EINVALID   permits or wait_ms out of range, or hold NULL on a handle that is not fixed
 * LK_ETIMEDOUT, LK_ECANCELED, LK_ECLOSED, LK_ECONN, LK_EUNKNOWN, LK_EAUTH, LK_ESERVER, LK_EAGAIN,
 * LK_EFOREIGN, LK_ENOMEM, LK_EFORKED   not held; as lk_lock_acquire().  With hold NULL a call that
 * is repeated after LK_EUNKNOWN may use up permits twice
 *
 * Returns by wait_ms plus one command timeout.  Any thread. */
LK_API LK_MUST_USE lk_err lk_semaphore_acquire(lk_semaphore *semaphore, int64_t permits,
                                               int64_t wait_ms, uint64_t *hold);

/* Give back a whole hold; who waits and fits gets the permits.
 *
 * LK_OK        released
 * LK_ELOST     the hold had been lost; this acknowledges it
 * LK_ENOTOWNER this handle has no such hold; nothing changed
 * LK_EUNKNOWN  not confirmed by the store: done in the background, at the latest by the lease's
 *              end; the caller holds it no more.  There is nothing to repeat
 * LK_EFORKED, LK_ECLOSED.  Any thread. */
LK_API lk_err lk_semaphore_release(lk_semaphore *semaphore, uint64_t hold);

/* Give back some permits of a hold; all of them is as lk_semaphore_release().
 *
 * LK_OK        the hold has that many less
 * LK_ELIMIT    more than the hold has; nothing changed
 * LK_EINVALID  permits below 1; nothing changed
 * LK_EUNKNOWN  not confirmed by the store: done in the background; the caller has them no more.
 *              Do not repeat the call: it would give back as many again
 * LK_ELOST, LK_ENOTOWNER, LK_ENOMEM, LK_EFORKED, LK_ECLOSED.  Any thread. */
LK_API lk_err lk_semaphore_release_some(lk_semaphore *semaphore, uint64_t hold, int64_t permits);

/* As lk_lock_cancel(). */
LK_API lk_err lk_semaphore_cancel(lk_semaphore *semaphore);

/* As lk_lock_extend(), for that hold.  Any thread. */
LK_API LK_MUST_USE lk_err lk_semaphore_extend(lk_semaphore *semaphore, uint64_t hold,
                                              int64_t lease_ms);

/* As lk_lock_run(), with a hold of that many permits; the errors of acquiring are those of
 * lk_semaphore_acquire().  fence names the hold.  Any thread. */
LK_API LK_MUST_USE lk_err lk_semaphore_run(lk_semaphore *semaphore, int64_t permits,
                                           int64_t wait_ms, lk_run_fn *fn, void *arg, lk_run *out);

/* As lk_lock_snapshot(), of that hold of this handle.  hold_fence is what lk_semaphore_acquire()
 * gave; LK_OK also when this handle has no such hold. */
LK_API LK_MUST_USE lk_err lk_semaphore_snapshot(lk_semaphore *semaphore, uint64_t hold_fence,
                                                lk_hold *hold);

/* As lk_lock_state(); LK_STATE_NONE if this handle has no such hold. */
LK_API lk_state lk_semaphore_state(lk_semaphore *semaphore, uint64_t hold_fence);

typedef struct lk_semaphore_status {
	int64_t capacity;
	int64_t available;   /* capacity less what is held; below 0 after a resize down */
	int64_t holders;     /* holds, of all clients */
	int64_t queue_len;   /* waits, of all clients */
	int64_t my_rank;     /* waits before this client's first one, -1 = none waiting */
	int64_t ttl_ms;      /* until it is forgotten unless used */
	int64_t reserved[8]; /* zero */
} lk_semaphore_status;

/* Ask the store.  LK_EABSENT when it does not exist (any more); else as lk_lock_query(). */
LK_API LK_MUST_USE lk_err lk_semaphore_query(lk_semaphore *semaphore, lk_semaphore_status *status);

/* A hold, or (fence, held_ms and lease_left_ms 0) a wait. */
typedef struct lk_ticket {
	lk_party party;
	int64_t permits;
	uint64_t fence;
	int64_t held_ms;       /* since the grant, by the store's clock */
	int64_t lease_left_ms; /* until the lease ends unless renewed */
	int64_t reserved[8];   /* zero */
} lk_ticket;

/* The first max holds by the end of their leases, or waits in their order, 1,000 at most; with max
 * 0 the array may be NULL.  *count is how many; the array may be written to on failure, too.  Else
 * as lk_semaphore_query(). */
LK_API LK_MUST_USE lk_err lk_semaphore_holders(lk_semaphore *semaphore, size_t max,
                                               lk_ticket *holders, size_t *count);
LK_API LK_MUST_USE lk_err lk_semaphore_waiters(lk_semaphore *semaphore, size_t max,
                                               lk_ticket *waiters, size_t *count);

/* Give the semaphore another capacity.  Up: who waits and now fits is granted at once.  Down: holds
 * stay, and nothing is granted until it fits; a wait for more than the capacity ends with
 * LK_ELIMIT.  This handle keeps the new capacity; other handles go on with what the store has, and
 * with the capacity of their own opening should the store lose its memory.
 *
 * LK_OK, LK_EABSENT (it does not exist any more), LK_EINVALID (not 1..LK_PERMITS_MAX),
 * LK_ESERVER (also when the counter of fences is damaged), LK_ECONN did not happen, LK_EUNKNOWN may
 * have: repeating the call is safe; else as lk_lock_query().  Any thread. */
LK_API LK_MUST_USE lk_err lk_semaphore_resize(lk_semaphore *semaphore, int64_t capacity);

/* Take a hold from whoever has it and give its permits to who waits; the holder is told.
 *
 *   if_holder  the hold's id (lk_party.id); NULL = the one hold there is
 *
 * LK_OK         broken
 * LK_EABSENT    nobody holds any, or there is no such semaphore
 * LK_EMISMATCH  no such hold, or NULL and there are several; nothing changed
 * Else as lk_lock_break().  Any thread. */
LK_API LK_MUST_USE lk_err lk_semaphore_break(lk_semaphore *semaphore, const char *if_holder);

/* ---- Latch -------------------------------------------------------------------------------- */

/* A handle on one named count-down latch.  A latch is absent until its count is set, then counts
 * down, and is open at zero.  An open latch stays open for a while, for those who come late; then
 * it is absent again.  Setting it again once it is open, or resetting it, begins a new
 * generation: a step meant for the old one never counts on it. */
typedef struct lk_latch lk_latch;

typedef enum lk_latch_state {
	LK_LATCH_ABSENT = 0,   /* never set, removed, or its TTL is over */
	LK_LATCH_COUNTING = 1, /* steps are missing */
	LK_LATCH_OPEN = 2,
} lk_latch_state;

/* "absent", "counting", "open".  Never NULL.  Any thread. */
LK_API const char *lk_latch_state_name(lk_latch_state state);

typedef struct lk_latch_options {
	int64_t open_ttl_ms;     /* an open latch stays open this long, 0 = a day */
	int64_t counting_ttl_ms; /* a latch that counts is forgotten after this long; 0 = never */
	bool absent_is_open;     /* lk_latch_await() does not wait for an absent latch to be made */
	const char *label;       /* for people, instead of the client's label */
	int64_t reserved[8];     /* zero */
} lk_latch_options;

/* Open a handle on the latch of that name; asks the store nothing.  The TTLs are those of the
 * latches that this handle sets.  LK_OK, LK_EINVALID (which option: lk_errmsg()), LK_ENOMEM,
 * LK_ECLOSED, LK_EFORKED.  Any thread. */
LK_API LK_MUST_USE lk_err lk_latch_open(lk_client *client, const char *name, size_t name_len,
                                        const lk_latch_options *options, lk_latch **latch);

/* As lk_lock_close().  Steps that are not settled yet go on in the background. */
LK_API lk_err lk_latch_close(lk_latch *latch);

/* Make the latch: it counts from count, 0..LK_COUNT_MAX (0: it is open at once).
 *
 *   was  what it was before: LK_LATCH_ABSENT or LK_LATCH_OPEN; may be NULL
 *
 * LK_OK         a new generation counts
 * LK_EMISMATCH  it counts already (lk_errmsg() says how far); nothing changed
 * LK_EINVALID   count out of range;  LK_EFOREIGN  the name is a lock's or a semaphore's
 * LK_ESERVER    also: the counter that numbers generations is damaged or used up; nothing changed
 * LK_ECONN did not happen, LK_EUNKNOWN may have; else as lk_lock_query().  Any thread.
 *
 * A call that is repeated after LK_EUNKNOWN returns LK_EMISMATCH if the first one had its effect
 * and the latch still counts.  If it has opened since, the repeated call sets it anew. */
LK_API LK_MUST_USE lk_err lk_latch_set(lk_latch *latch, int64_t count, lk_latch_state *was);

/* The same in whatever state it is: a new generation.  Who waits goes on waiting, for this one.
 * Repeated after LK_EUNKNOWN it forgets steps that were counted since. */
LK_API LK_MUST_USE lk_err lk_latch_reset(lk_latch *latch, int64_t count, lk_latch_state *was);

/* Make it absent.  Who waits goes on waiting, for it to be made and opened; with absent_is_open the
 * wait ends.  LK_EABSENT when it was already.  Else as lk_latch_set(), but a call that is repeated
 * after LK_EUNKNOWN removes also a latch that was set since. */
LK_API LK_MUST_USE lk_err lk_latch_remove(lk_latch *latch);

typedef struct lk_latch_step {
	int64_t remaining; /* after it; 0 = open */
	bool counted; /* false: it had been counted before, by its name, or the latch was open */
	int64_t reserved[8]; /* zero */
} lk_latch_step;

/* Count down.  Counted exactly once, though a reply is lost and the request repeated.
 *
 *   n              1..LK_COUNT_MAX; more than remains opens the latch
 *   step_name      1..LK_STEP_MAX bytes, any; NULL = none.  A latch counts each name once, whoever
 *                  says it, until it opens: a job that crashed after it counted and was restarted
 *                  counts once
 *   step_name_len  bytes in step_name; 0 = up to its NUL
 *   step           what came of it; may be NULL
 *
 * LK_OK        counted, or had been before
 * LK_EABSENT   there is no such latch; nothing was counted
 * LK_ECONN     not counted: the store was not reached
 * LK_EUNKNOWN  no answer in time: it may have been counted, and if not it will be, in the
 *              background, unless the latch is gone or the client is closed first.  Also when
 *              the latch was made anew before an answer came, or the answer could not be read:
 *              then it is not repeated.  Repeating the call is safe for a step with a name, as
 *              long as the latch is not set again; one without may be counted twice
 * LK_EFOREIGN  not counted: the name is a lock's or a semaphore's; or the store lost which steps
 *              have counted, by eviction: reset it
 * LK_EAGAIN, LK_EINVALID, LK_EAUTH, LK_ESERVER, LK_ENOMEM, LK_EFORKED, LK_ECLOSED   not counted
 *
 * Steps of one client on one latch are settled one after the other.  Any thread. */
LK_API LK_MUST_USE lk_err lk_latch_down(lk_latch *latch, int64_t n, const char *step_name,
                                        size_t step_name_len, lk_latch_step *step);

/* Wait until the latch is open.  An absent one is waited for, to be made and opened (see
 * absent_is_open).  A wait that began on one generation ends with it, also if the latch was set
 * again since.
 *
 * LK_OK         it is open, or was since the call began
 * LK_EBUSY      not open (wait_ms 0)
 * LK_ETIMEDOUT  not open within wait_ms
 * LK_ECANCELED  lk_latch_cancel() or lk_latch_close();  LK_ECLOSED  lk_client_close()
 * LK_ECONN      the store was not reached, or did not answer: nothing is known
 * LK_EAGAIN     the server refused each request for a moment: nothing is known
 * LK_EAUTH, LK_ESERVER, LK_EFOREIGN, LK_EINVALID, LK_ENOMEM, LK_EFORKED
 *
 * Leaves nothing in the store.  Returns by wait_ms plus one command timeout.  Any thread. */
LK_API LK_MUST_USE lk_err lk_latch_await(lk_latch *latch, int64_t wait_ms);

/* End every wait that is now in progress on this handle with LK_ECANCELED.
 * LK_OK (also when there was none), LK_EFORKED, LK_ECLOSED.  Any thread. */
LK_API lk_err lk_latch_cancel(lk_latch *latch);

typedef struct lk_latch_status {
	lk_latch_state state;
	int64_t count;       /* remaining */
	int64_t initial;     /* what it was set to */
	uint64_t generation; /* grows with every set and reset; 0 = absent */
	int64_t ttl_ms;      /* until it is forgotten, -1 = never */
	int64_t reserved[8]; /* zero */
} lk_latch_status;

/* Ask the store.  An absent latch is a state, not an error.  Else as lk_lock_query(). */
LK_API LK_MUST_USE lk_err lk_latch_query(lk_latch *latch, lk_latch_status *status);

/* ---- Names ------------------------------------------------------------------------------- */

/* What a name stands for in the store.  One name is one thing at a time: a lock's name cannot be a
 * semaphore's, too; calls for another kind return LK_EFOREIGN. */
typedef enum lk_kind {
	LK_KIND_NONE = 0, /* nothing: a lock that is free, or never used */
	LK_KIND_LOCK = 1,
	LK_KIND_SEMAPHORE = 2,
	LK_KIND_LATCH = 3,
} lk_kind;

/* "nothing", "lock", "semaphore", "latch".  Never NULL.  Any thread. */
LK_API const char *lk_kind_name(lk_kind kind);

/* Ask the store what a name stands for.  LK_EFOREIGN when its key is not Latchkey's; else as
 * lk_lock_query().  Any thread. */
LK_API LK_MUST_USE lk_err lk_client_name_kind(lk_client *client, const char *name, size_t name_len,
                                              lk_kind *kind);

/* Called for each name, raw bytes as they were given when it was opened; false ends the walk. */
typedef bool lk_name_fn(void *arg, const char *name, size_t name_len);

/* Walk the names of all locks that are held or waited for, all semaphores and all latches; needs
 * the right to SCAN.  Names may come and go meanwhile; none comes twice.  LK_EAUTH says which right
 * is missing.  Else as lk_lock_query().  The callback runs in the caller's thread.  Any thread. */
LK_API LK_MUST_USE lk_err lk_client_names(lk_client *client, lk_name_fn *fn, void *arg);

/* ---- The private server of local: --------------------------------------------------------- */

typedef struct lk_local_info {
	bool running;
	int64_t pid;           /* of the server, 0 if not running */
	char socket_path[108]; /* where it listens, also when not running */
	char server_path[256]; /* the binary it was, or would be, started from; "" if none */
	int64_t reserved[8];   /* zero */
} lk_local_info;

/* Start it if it does not run; two at once start one.  LK_OK, LK_ENOSERVER, LK_ESYSTEM (folder not
 * ours or not 0700, cannot start: lk_errmsg()), LK_ECONN (started, never answered).  Any thread. */
LK_API LK_MUST_USE lk_err lk_local_start(lk_local_info *info);
/* End it, whatever is locked in it.  LK_OK, LK_EABSENT (did not run), LK_ESYSTEM.  Any thread. */
LK_API LK_MUST_USE lk_err lk_local_stop(void);
/* Look, start nothing.  LK_OK, LK_ESYSTEM.  Any thread. */
LK_API LK_MUST_USE lk_err lk_local_status(lk_local_info *info);

/* ---- Is a server fit for locks? ----------------------------------------------------------- */

typedef enum lk_fitness { LK_FIT = 0, LK_FIT_WARN = 1, LK_UNFIT = 2 } lk_fitness;

typedef struct lk_finding {
	lk_fitness fitness;
	const char *topic;   /* "reachable", "version", "latency", "eviction", "persistence",
	                        "replicas", "rights", "clock", "patterns" */
	const char *text;    /* what was found, escaped */
	const char *cure;    /* what to do, "" if nothing */
	int64_t reserved[8]; /* zero */
} lk_finding;

typedef void lk_finding_fn(void *arg, const lk_finding *finding);

/* Examine the server at url with these credentials; writes nothing that stays.  Each topic is
 * reported at least once.  *worst is the worst of all.  fn and worst may be NULL.
 *
 * LK_OK when it was examined, however unfit (an unreachable server is a finding); LK_EINVALID,
 * LK_ENOMEM, LK_ESYSTEM.  The callback runs in the caller's thread.  Any thread. */
LK_API LK_MUST_USE lk_err lk_doctor(const char *url, const lk_client_options *options,
                                    lk_finding_fn *fn, void *arg, lk_fitness *worst);

#ifdef __cplusplus
}
#endif

#endif
