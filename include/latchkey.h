/* SPDX-License-Identifier: MIT
 *
 * Latchkey: distributed locks for C programs.  State lives in Redis, every step is one atomic
 * script, waiting is a message and a condition variable.
 *
 * Caveats, before anything else
 *
 *  - A lock in one Redis is as good as that Redis: a server that loses its memory (a crash without
 *    persistence, a failover to a replica that had not caught up, an operator's FLUSHALL) forgets
 *    the holder.  Pass lk_lock_fence() to whatever you protect and let it refuse smaller numbers.
 *  - A process that is stopped past its lease loses the lock while it cannot run.  It learns of it
 *    as soon as it runs again and asks; it cannot learn of it while it is stopped.  Fences again.
 *  - After fork() the child must open a client of its own; calls on the parent's return LK_EFORKED.
 *
 * Conventions
 *
 *  - Every function that can fail returns an lk_err, LK_OK being 0.  Results go through the last
 *    argument, written only on success.  lk_errmsg() has the detail of this thread's last failure.
 *  - Times are milliseconds in int64_t.  A wait of 0 tries once, LK_FOREVER (-1) has no limit.
 *  - Strings passed in are copied.  Strings passed out are borrowed until their handle is closed.
 *  - Handles and pointers for results must not be NULL where nothing else is said.
 *  - Options structs: all zero means all defaults.  Initialise them with {0} and set what you need.
 *  - Each function says which threads may call it.  Callbacks run on a thread of the library with
 *    no lock held; they may call everything but lk_client_close() and lk_lock_close().  The log
 *    hook must not call the library.
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

#define LK_VERSION "0.1.0"
#define LK_FOREVER ((int64_t)-1)
#define LK_NAME_MAX 512 /* bytes in a name; at least 1, any bytes */
#define LK_LEASE_MIN_MS 100
#define LK_LEASE_MAX_MS 86400000
#define LK_LEASE_DEFAULT_MS 10000
#define LK_LABEL_MAX 128    /* bytes in a label, without the NUL */
#define LK_HOLDER_ID_SIZE 40 /* bytes of a holder id with its NUL */

/* The library's version, "0.1.0"; compare with LK_VERSION to see what was linked.  Any thread. */
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
	X(LK_ECLOSED, 6, "the handle or its client was closed")                                    \
	X(LK_EFORKED, 7, "this handle belongs to the parent process")                              \
	X(LK_ECONN, 8, "the store cannot be reached; it did not happen")                           \
	X(LK_EUNKNOWN, 9, "no answer; it may have happened")                                       \
	X(LK_EAUTH, 10, "the store refused the credentials or a right is missing")                 \
	X(LK_ESERVER, 11, "the store answered with an error")                                      \
	X(LK_EINVALID, 12, "an argument is not valid")                                             \
	X(LK_EFOREIGN, 13, "a key is not Latchkey's or of another protocol version")               \
	X(LK_ENOMEM, 14, "out of memory")                                                          \
	X(LK_ESYSTEM, 15, "the operating system refused (descriptors, threads, files)")            \
	X(LK_EFENCE, 16, "the fence counter is damaged or used up")                                \
	X(LK_EDEADLOCK, 17, "the call would wait for itself")                                      \
	X(LK_ELIMIT, 18, "a count would pass its limit")                                           \
	X(LK_ENOSERVER, 19, "no redis-server or valkey-server is installed")                       \
	X(LK_ENOTHELD, 20, "nobody holds it")                                                      \
	X(LK_EMISMATCH, 21, "it is not as the caller expects")

typedef enum lk_err {
#define LK_ERR_ENUM(name, number, text) name = number,
	LK_ERR_MAP(LK_ERR_ENUM)
#undef LK_ERR_ENUM
} lk_err;

/* "LK_EBUSY"; "LK_E?" for a number that is none.  Never NULL.  Any thread. */
LK_API const char *lk_err_name(lk_err err);

/* The one-line meaning of an error.  Never NULL.  Any thread. */
LK_API const char *lk_err_text(lk_err err);

/* What went wrong in this thread's last failing call, in a sentence that names the thing:
 * "127.0.0.1:6379: connection refused".  Text that came from elsewhere is escaped: printable ASCII
 * only.  Never NULL; "" before the first failure.  Valid until this thread's next failing call. */
LK_API const char *lk_errmsg(void);

/* ---- Client ------------------------------------------------------------------------------- */

/* One identity at one store: two connections and one thread, shared by all its locks. */
typedef struct lk_client lk_client;

typedef enum lk_log_level { LK_LOG_ERROR = 1, LK_LOG_WARN, LK_LOG_INFO, LK_LOG_DEBUG } lk_log_level;

/* One line, escaped, without a newline.  Called from any thread that is inside a call of the
 * library, or from the library's own; no lock is held.  Be brief: renewals may wait for it. */
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
	int64_t reserved[8];        /* zero */
} lk_client_options;

/* Open a client.
 *
 *   url  redis://[user[:password]@]host[:port][/db][?OPTION=VALUE&...]
 *        redis+unix:///path[?db=N&...]
 *        local:  (also NULL) a private server of this user on this machine, started if need be
 *        options: db, user, password, client_name, prefix, connect_timeout, command_timeout,
 *        keepalive (milliseconds); percent-encoded where a byte would be misread
 *
 * LK_OK        connected, authenticated, subscribed, rights for messages checked
 * LK_EINVALID  the URL or an option is wrong; lk_errmsg() names it
 * LK_ECONN     not reached within the connect timeout
 * LK_EAUTH     wrong credentials, or a right is missing (which one: lk_errmsg())
 * LK_ESERVER   the server answered with another error, or not like a Redis
 * LK_ENOSERVER local: and no server binary; lk_errmsg() says what to install
 * LK_ESYSTEM   no descriptor, no thread, or the folder of local: is not safe to use
 * LK_ENOMEM
 *
 * Any thread.  Any number of clients in a process. */
LK_API LK_MUST_USE lk_err lk_client_open(const char *url, const lk_client_options *options,
                                         lk_client **client);

/* Close a client and every lock handle opened from it (do not use them afterwards).
 * Waits in progress in other threads end with LK_ECLOSED (LK_EUNKNOWN if the store does not confirm
 * it); what is held is released, without an on_lost call.  Returns when that is done, at the latest
 * one command timeout later, and when no callback runs any more.
 *
 * LK_OK         nothing is left behind
 * LK_EUNKNOWN   closed, but a release was not confirmed: it runs out with its lease
 * LK_EDEADLOCK  called from a callback of this client; nothing was done
 * LK_EFORKED    called in a child: its copies of the sockets are closed, nothing was sent
 *
 * NULL is a no-op.  One thread; no other may start a call on this client or its locks meanwhile. */
LK_API lk_err lk_client_close(lk_client *client);

/* The client's identity, 22 characters, never the same twice.  Borrowed.  Any thread. */
LK_API const char *lk_client_id(const lk_client *client);

/* ---- Lock --------------------------------------------------------------------------------- */

/* A handle on one named lock.  Any number of handles may name the same lock. */
typedef struct lk_lock lk_lock;

typedef enum lk_owner {
	LK_OWNER_THREAD = 0, /* the acquiring thread owns it; it alone re-enters and releases */
	/* The handle owns it, and any thread that has the handle may release.  It is another owner
	 * than any thread: a thread that holds the lock would wait for itself. */
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
	size_t name_len;     /* bytes in name, 0 = up to its NUL */
	int64_t reserved[8]; /* zero */
} lk_lock_options;

/* Open a handle on the lock of that name; asks the store nothing.
 *
 *   name  1..LK_NAME_MAX bytes, any; two names never collide
 *
 * LK_OK, LK_EINVALID (which option: lk_errmsg()), LK_ENOMEM, LK_ESYSTEM (no thread for
 * callbacks), LK_ECLOSED, LK_EFORKED.  Any thread. */
LK_API LK_MUST_USE lk_err lk_lock_open(lk_client *client, const char *name,
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
 *
 * LK_OK         held; renewed in the background until released, or until its end if fixed
 * LK_EBUSY      not held: another has it (wait_ms 0); nothing left behind
 * LK_ETIMEDOUT  not held; nothing left behind
 * LK_ECANCELED  not held; lk_lock_cancel() or lk_lock_close(); nothing left behind
 * LK_ECLOSED    not held; lk_client_close(), or the handle is being closed
 * LK_ELOST      the caller's hold on this lock was lost and not yet released; nothing changed
 * LK_ECONN      not held; the store was not reached, nothing was asked
 * LK_EUNKNOWN   not held; a request was not answered: should it have been granted, nobody uses
 *               that grant and it ends by itself, one lease later at most
 * LK_EAUTH, LK_ESERVER, LK_EFOREIGN, LK_EFENCE   not held; the store's refusal, lk_errmsg()
 * LK_EINVALID   wait_ms below -1
 * LK_ELIMIT     re-entered 2^31 - 1 times; the hold is unchanged
 * LK_ENOMEM, LK_EFORKED   not held
 *
 * Returns by wait_ms plus one command timeout.  Any thread.  The caller becomes the owner. */
LK_API LK_MUST_USE lk_err lk_lock_acquire(lk_lock *lock, int64_t wait_ms);

/* Release one acquisition; the last one gives the lock to who waits first.
 *
 * LK_OK        released (or re-entered one time less)
 * LK_ELOST     the hold had been lost; a release for each acquisition acknowledges it
 * LK_ENOTOWNER the caller does not hold it; nothing changed
 * LK_EUNKNOWN  not confirmed by the store: done in the background, at the latest by the lease's
 *              end; the caller holds it no more
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
 * LK_OK        the hold lasts lease_ms from the start of this call
 * LK_ENOTOWNER the caller does not hold it
 * LK_ELOST     it was lost
 * LK_ECONN     did not happen;  LK_EUNKNOWN may have: for the caller the old end stands
 * LK_EINVALID, LK_ESERVER, LK_EAUTH, LK_ENOMEM, LK_EFORKED, LK_ECLOSED  the old end stands
 *
 * The owner. */
LK_API LK_MUST_USE lk_err lk_lock_extend(lk_lock *lock, int64_t lease_ms);

/* The next six ask about the caller's own hold.  No I/O, never block.  Any thread. */

/* Times acquired and not yet released; 0 if not the owner. */
LK_API uint32_t lk_lock_hold_count(lk_lock *lock);
/* The hold's fence, 0 if not the owner.  Stays readable after a loss, until released. */
LK_API uint64_t lk_lock_fence(lk_lock *lock);
/* Computed from the clock, so it is right even when no thread of the library could run. */
LK_API lk_state lk_lock_state(lk_lock *lock);
/* Milliseconds the hold is still sure, 0 if lost or not the owner. */
LK_API int64_t lk_lock_remaining_ms(lk_lock *lock);
/* The caller holds it and it is not lost. */
LK_API bool lk_lock_is_mine(lk_lock *lock);
/* The hold's id as others see it (see lk_party), "" if not the owner.  Always NUL-ended. */
LK_API void lk_lock_holder_id(lk_lock *lock, char id[LK_HOLDER_ID_SIZE]);

/* Who holds or waits.  All text is escaped; empty or 0 where the party told nothing. */
typedef struct lk_party {
	char id[LK_HOLDER_ID_SIZE]; /* of this one hold or wait */
	char host[128];
	char user[64];
	char program[64];
	char label[LK_LABEL_MAX * 4 + 1]; /* "" if none */
	int64_t pid;
} lk_party;

typedef struct lk_lock_status {
	bool held;
	lk_party holder;       /* if held */
	uint64_t fence;        /* of the holder's grant, 0 if not held */
	int64_t held_ms;       /* since the grant, by the store's clock */
	int64_t lease_left_ms; /* until the lease ends unless renewed */
	int64_t queue_len;     /* tickets in the store: one a process and kind of lease */
	int64_t my_rank;       /* tickets before this client's first one, -1 = none waiting */
} lk_lock_status;

/* Ask the store who holds the lock.  LK_OK, LK_ECONN, LK_EUNKNOWN (no answer), LK_EAUTH,
 * LK_ESERVER, LK_EFOREIGN, LK_EFORKED, LK_ECLOSED, LK_ENOMEM.  Changes nothing.  Any thread. */
LK_API LK_MUST_USE lk_err lk_lock_query(lk_lock *lock, lk_lock_status *status);

/* The first max waiters in their order, 1,000 at most.  *count is how many; waiters may be written
 * to on failure, too.  Else as above. */
LK_API LK_MUST_USE lk_err lk_lock_waiters(lk_lock *lock, size_t max, lk_party *waiters,
                                          size_t *count);

/* Take the lock from whoever holds it and give it to who waits first; the fence moves on, the
 * holder is told.  The holder's process may still be at work: only the fence stops it.
 *
 *   if_holder  only if this is the holder's id (lk_party.id), NULL = whoever it is
 *
 * LK_OK         broken
 * LK_ENOTHELD   nobody held it;  LK_EMISMATCH  another holder; nothing changed
 * LK_ECONN did not happen, LK_EUNKNOWN may have; else as lk_lock_query().  Any thread. */
LK_API LK_MUST_USE lk_err lk_lock_break(lk_lock *lock, const char *if_holder);

/* Called for each name, raw bytes as they were given to lk_lock_open(); false ends the walk. */
typedef bool lk_name_fn(void *arg, const char *name, size_t name_len);

/* Walk the names of all locks that are held or waited for; needs the right to SCAN.  Names may
 * come and go meanwhile; none comes twice.  LK_EAUTH says which right is missing.  Else as
 * lk_lock_query().  The callback runs in the caller's thread.  Any thread. */
LK_API LK_MUST_USE lk_err lk_client_list(lk_client *client, lk_name_fn *fn, void *arg);

/* ---- The private server of local: --------------------------------------------------------- */

typedef struct lk_local_info {
	bool running;
	int64_t pid;            /* of the server, 0 if not running */
	char socket_path[108];  /* where it listens, also when not running */
	char server_path[256];  /* the binary it was, or would be, started from; "" if none */
} lk_local_info;

/* Start it if it does not run; two at once start one.  LK_OK, LK_ENOSERVER, LK_ESYSTEM (folder not
 * ours or not 0700, cannot start: lk_errmsg()), LK_ECONN (started, never answered).  Any thread. */
LK_API LK_MUST_USE lk_err lk_local_start(lk_local_info *info);
/* End it, whatever is locked in it.  LK_OK, LK_ENOTHELD (did not run), LK_ESYSTEM.  Any thread. */
LK_API LK_MUST_USE lk_err lk_local_stop(void);
/* Look, start nothing.  LK_OK, LK_ESYSTEM.  Any thread. */
LK_API LK_MUST_USE lk_err lk_local_status(lk_local_info *info);

/* ---- Is a server fit for locks? ----------------------------------------------------------- */

typedef enum lk_fitness { LK_FIT = 0, LK_FIT_WARN = 1, LK_UNFIT = 2 } lk_fitness;

typedef struct lk_finding {
	lk_fitness fitness;
	const char *topic; /* "reachable", "version", "latency", "eviction", "persistence",
	                      "replicas", "rights", "clock", "patterns" */
	const char *text;  /* what was found, escaped */
	const char *cure;  /* what to do, "" if nothing */
} lk_finding;

typedef void lk_finding_fn(void *arg, const lk_finding *finding);

/* Examine the server at url with these credentials; writes nothing that stays.  Each topic is
 * reported at least once.  *worst is the worst of all.
 *
 * LK_OK when it was examined, however unfit (an unreachable server is a finding); LK_EINVALID,
 * LK_ENOMEM, LK_ESYSTEM.  The callback runs in the caller's thread.  Any thread. */
LK_API LK_MUST_USE lk_err lk_doctor(const char *url, const lk_client_options *options,
                                    lk_finding_fn *fn, void *arg, lk_fitness *worst);

#ifdef __cplusplus
}
#endif

#endif
