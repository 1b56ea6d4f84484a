/* SPDX-License-Identifier: MIT
 *
 * Latchkey: distributed locks, semaphores and latches for C programs.  The shared state lives in a
 * Redis server, several that act together, or an etcd cluster, called the store here; the README
 * compares them.  A waiting thread sleeps until a message arrives.  In case the message is lost,
 * the client also asks again after 10 s at most.
 *
 * Example
 *
 *	#include <latchkey.h>
 *	#include <stdio.h>
 *
 *	int main(void)
 *	{
 *		lk_client *client;
 *		lk_lock *lock;
 *		uint64_t fence;
 *
 *		if (lk_client_open("local:", NULL, &client) ||
 *		    lk_lock_open(client, "nightly", 0, NULL, &lock) ||
 *		    lk_lock_acquire(lock, 5000, &fence)) {
 *			fprintf(stderr, "nightly: %s\n", lk_errmsg());
 *			return 1;
 *		}
 *		printf("held, with fence %llu\n", (unsigned long long)fence);
 *		lk_lock_release(lock);
 *		return lk_client_close(client);
 *	}
 *
 * Limits
 *
 *  - Do not start a call on a handle once its close, or the close of its client, has begun (an
 *    on_lost function may; see below).  The library does not check this: the close frees the
 *    handle's memory.
 *  - A lock is only as reliable as its store.  A Redis server that loses its memory (a crash
 *    without persistence, FLUSHALL) grants nothing for a grace, while holders take their holds
 *    back; one that evicts keys, or that is led back to an older memory, forgets the holder.
 *    So send the fence of lk_lock_acquire() with each write, and let the protected resource refuse
 *    a fence that is smaller than the largest one it has seen.
 *  - The grants of a rate limit and the steps of a latch are not taken back: a server that forgot
 *    them grants the whole limit again, and the latch is absent or has an earlier count.
 *  - Names and fences of two stores have nothing to do with each other.  To move to another one,
 *    end all clients, and reset the fences that resources have stored while no client holds.
 *  - If the store's clock runs more than 1 % faster than the client's clock (even for a while, when
 *    it is slewed), leases end too early.  `latchkey doctor` measures the difference.
 *  - A process that is stopped for longer than its lease loses the lock, and learns of the loss
 *    only when it runs again.  The fence protects the resource in this case as well.
 *  - After fork(), calls of the child on its parent's handles return LK_EFORKED.  The child must
 *    open its own client.
 *
 * Conventions
 *
 *  - A function that can fail returns an lk_err, which is LK_OK (0) on success.  Results are
 *    written through pointers, the last arguments; a failed call leaves them unchanged unless a
 *    comment says otherwise.  lk_errmsg() describes the calling thread's last failure.
 *  - An error that a comment lists without a text has the meaning that lk_err_text() returns.
 *  - Times are milliseconds in an int64_t.  A wait of 0 is a try: the call does not enter the
 *    queue, and waits only for the store's response.  A wait of LK_FOREVER (-1) has no limit.
 *  - The library copies strings that it receives.  The strings that it returns are constant, unless
 *    a comment says how long they are valid.
 *  - A function that takes a name also takes its length in bytes; 0 means that the name ends at its
 *    NUL.
 *  - A function of the library returns LK_EINVALID if a handle, a name, the pointer to a result or
 *    a callback is NULL, unless its comment allows NULL; the lists of errors do not repeat this.  A
 *    function that returns no lk_err returns 0, false, "" or LK_STATE_NONE in this case.  Closing
 *    NULL does nothing.
 *  - Options may be NULL.  An options struct whose bytes are all zero selects all defaults:
 *    initialise it with {0} and set the members that you need.
 *  - A struct that the library fills ends in reserved members, which it sets to 0.  Later versions
 *    will put new members there, so that the size of the struct stays the same.
 *  - The close of a handle ends the waits on it with LK_ECANCELED; the close of a client ends all
 *    its waits with LK_ECLOSED.  LK_ECLOSED is also the result of a call that an on_lost function
 *    makes on a handle or client while it is being closed.
 *  - Each function says which threads may call it.  "Any thread" includes several threads at once.
 *  - on_lost and log functions run in threads of the library, which hold none of its mutexes
 *    meanwhile.  An on_lost function may call every function except lk_client_close(),
 *    lk_lock_close(), lk_semaphore_close() and lk_latch_close(); a log function may call none.
 *    The other functions that a program passes run in the calling thread.
 *  - No function prints, exits, aborts, changes the disposition of a signal, or raises SIGPIPE. */
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
#define LK_VERSION_NUM 200 /* 10000 * major + 100 * minor + patch, for use in #if */
#define LK_FOREVER ((int64_t)-1)
#define LK_NAME_MAX 512 /* the largest length of a name in bytes; the smallest is 1 */
#define LK_LEASE_MIN_MS 100
#define LK_LEASE_MAX_MS 86400000
#define LK_LEASE_DEFAULT_MS 10000
#define LK_LABEL_MAX 128           /* bytes in a label, without the NUL */
#define LK_HOLDER_ID_SIZE 40       /* bytes of a holder id, with its NUL */
#define LK_PERMITS_MAX 2147483647  /* the largest capacity of a semaphore */
#define LK_COUNT_MAX 2147483647    /* the largest count of a latch */
#define LK_STEP_MAX 256            /* bytes in the name of a latch's step, without the NUL */
#define LK_TTL_MIN_MS 1000         /* limits of the TTLs of semaphores and latches */
#define LK_TTL_MAX_MS 86400000000  /* 1,000 days */
#define LK_TTL_DEFAULT_MS 86400000 /* a day */

/* Return the version of the linked library; LK_VERSION is the version of this header.  Any
 * thread. */
LK_API const char *lk_version(void);

/* ---- Errors ------------------------------------------------------------------------------- */

/* Each error: its name, its number, its meaning in one line. */
#define LK_ERR_MAP(X)                                                                              \
	X(LK_OK, 0, "success")                                                                     \
	X(LK_EBUSY, 1, "not available at once, and the wait was 0")                                \
	X(LK_ETIMEDOUT, 2, "not acquired, or not open, in time; nothing was left behind")          \
	X(LK_ECANCELED, 3, "the wait was cancelled; nothing was left behind")                      \
	X(LK_ELOST, 4, "the hold was lost")                                                        \
	X(LK_ENOTOWNER, 5, "the caller does not hold the lock or the permits")                     \
	X(LK_ECLOSED, 6, "the client or the handle is being closed")                               \
	X(LK_EFORKED, 7, "this handle belongs to the parent process")                              \
	X(LK_ECONN, 8, "the store was not reached, or is not ready; the operation did not happen") \
	X(LK_EUNKNOWN, 9, "not confirmed by the store; the operation may have happened")           \
	X(LK_EAUTH, 10, "the store refused the credentials, or a right is missing")                \
	X(LK_ESERVER, 11, "the store returned an error")                                           \
	X(LK_EINVALID, 12, "an argument is not valid")                                             \
	X(LK_EFOREIGN, 13, "the key has another kind, format or protocol version")                 \
	X(LK_ENOMEM, 14, "out of memory")                                                          \
	X(LK_ESYSTEM, 15, "the operating system refused (descriptors, threads, files)")            \
	X(LK_EAGAIN, 16, "the store refuses temporarily; the operation did not happen")            \
	X(LK_EDEADLOCK, 17, "the call would wait for its own caller")                              \
	X(LK_ELIMIT, 18, "a count would exceed its limit")                                         \
	X(LK_ENOSERVER, 19, "no redis-server or valkey-server is installed")                       \
	X(LK_EMISMATCH, 20, "the state, the holder or the capacity is not the expected one")       \
	X(LK_EABSENT, 21, "there is no such semaphore, latch, holder or server")                   \
	X(LK_EREPLICAS, 22, "granted, but too few replicas confirmed it; it does not count")       \
	X(LK_EUNSUPPORTED, 23, "not supported by this store")

typedef enum lk_err {
#define LK_ERR_ENUM(name, number, text) name = number,
	LK_ERR_MAP(LK_ERR_ENUM)
#undef LK_ERR_ENUM
} lk_err;

/* Return the name of an error, such as "LK_EBUSY"; "LK_E?" for an unknown number.  Never NULL.  Any
 * thread. */
LK_API const char *lk_err_name(lk_err err);

/* Return the meaning of an error in one line.  Never NULL.  Any thread. */
LK_API const char *lk_err_text(lk_err err);

/* Ambiguous: the failed call may have had its effect, or may still have it later.
 * Retryable: nothing happened, and the same call may succeed later.
 * An ambiguous error is not retryable in this sense, because a repeated call may act twice.  If
 * repeating a function is safe, its comment says so.
 *
 *   error         cause, or what to do                                       ambiguous  retryable
 *   LK_OK         the call succeeded                                         -          -
 *   LK_EBUSY      held by another owner, too few permits, or not open        -          yes
 *   LK_ETIMEDOUT  the same, during the whole wait                            -          yes
 *   LK_ECANCELED  this program ended the wait                                -          -
 *   LK_ELOST      the hold has ended; a release acknowledges that            -          -
 *   LK_ENOTOWNER  never acquired by this owner, or released already          -          -
 *   LK_ECLOSED    this program closes the client or the handle               -          -
 *   LK_EFORKED    open a client in the child process                         -          -
 *   LK_ECONN      no connection, or the store is not ready for one           -          yes
 *   LK_EUNKNOWN   the request was sent, and may take effect even later       yes        -
 *   LK_EAUTH      an operator must grant the right                           -          -
 *   LK_ESERVER    an operator must examine the server                        -          -
 *   LK_EINVALID   mend the call; lk_errmsg() names the argument              -          -
 *   LK_EFOREIGN   another program, kind or version uses the key              -          -
 *   LK_ENOMEM     memory ran out in this process                             -          -
 *   LK_ESYSTEM    lk_errmsg() has the cause                                  -          -
 *   LK_EAGAIN     the store is loading, busy, a replica, or lacks replicas   -          yes
 *   LK_EDEADLOCK  the call could never end                                   -          -
 *   LK_ELIMIT     lk_errmsg() names the limit                                -          -
 *   LK_ENOSERVER  install one; lk_errmsg() says how                          -          -
 *   LK_EMISMATCH  query the present state first                              -          -
 *   LK_EABSENT    lk_errmsg() names what is absent                           -          -
 *   LK_EREPLICAS  replicas are missing, or lag: see lk_client_open()         -          yes
 *   LK_EUNSUPPORTED  lk_errmsg() says what to use instead                    -          -
 *
 * With the errors that are not ambiguous the call has changed nothing, unless the function's
 * comment says otherwise.  For example, lk_lock_run() returns LK_ELOST or LK_ENOTOWNER after its
 * function was called, and lk_local_start() may return LK_ECONN after it started the server.
 * If the client has the right to run the scripts, but lacks the right to one of the commands in
 * them, the server may stop in the middle of a script: then the result is LK_EUNKNOWN, and
 * lk_errmsg() has the server's reason.
 *
 * Any thread. */
LK_API bool lk_err_is_ambiguous(lk_err err);
LK_API bool lk_err_is_retryable(lk_err err);

/* Describe the calling thread's last failed call in one sentence that names what failed, such as
 * "127.0.0.1:6379: connection refused".  Text from other programs is escaped to printable ASCII.
 * Never NULL; "" before the first failure.  Valid until the thread's next failed call. */
LK_API const char *lk_errmsg(void);

/* ---- Client ------------------------------------------------------------------------------- */

/* A client has one identity, at one store.  Its handles share two connections and one thread.  If a
 * handle has an on_lost function, or the client a log function, a second thread calls it.  While
 * the client reconnects, more threads run.  With Sentinel there are one more thread and one more
 * connection for each sentinel; in a Cluster, two connections to each node that its names need; of
 * a quorum, two to each server; on etcd, one in all. */
typedef struct lk_client lk_client;

typedef enum lk_log_level { LK_LOG_ERROR = 1, LK_LOG_WARN, LK_LOG_INFO, LK_LOG_DEBUG } lk_log_level;

/* Receive one log line, escaped and without a newline.  The function must return quickly: until
 * it returns, the client cannot reconnect, on_lost is not called, and lk_client_close() waits.  Two
 * threads may call it at once.
 *
 * The lines about the connection, after lk_client_open(), are "connection lost: WHY" and, for each
 * failed attempt, "cannot connect: WHY" (both LK_LOG_WARN), and "WHERE: connected" (LK_LOG_INFO).
 * If the store refuses to renew a hold, as after a right was taken away, there is one line "cannot
 * renew: WHY" (LK_LOG_WARN) until it renews one again.
 * With verify=none each connection, also the first one, has a line (LK_LOG_WARN).
 *
 * Other lines report that the server has lost its memory and for how long nothing is granted, that
 * this user may not run INFO, and once a lease longer than grace_ms (LK_LOG_WARN); a grace that
 * already ran when the client came, how many holds were taken back, and a grace that was ended by
 * hand (LK_LOG_INFO).  Of a quorum, each server that does not vote because it has lost its memory
 * has a line.
 *
 * With Sentinel, "SERVICE: no sentinel answers: ..." (LK_LOG_WARN) and "SERVICE: a sentinel answers
 * again" (LK_LOG_INFO) are about a connection that goes on. */
typedef void lk_log_fn(void *arg, lk_log_level level, const char *line);

#define LK_HOST_SIZE 256 /* bytes of a host name or an address, with its NUL */

/* Translate the address of a server, as a sentinel or a node of a Cluster names it, to the address
 * to connect to: for containers and NAT.  To translate, write both results; to connect to the
 * address itself, change nothing.  Return 0; any other value fails this attempt to connect, which
 * is repeated as after LK_ECONN.  Runs in the thread that connects, which holds no mutex of the
 * library: in lk_client_open(), later in a thread of the library.  It may block for a while, until
 * the connect timeout for instance, but must not call the library. */
typedef int lk_resolve_fn(void *arg, const char *host, int port, char host_out[LK_HOST_SIZE],
                          int *port_out);

/* Options of lk_client_open(); those that are not 0 take precedence over the URL. */
typedef struct lk_client_options {
	int64_t connect_timeout_ms; /* from name look-up to log-in, 0 = the URL's, or 5,000 */
	int64_t command_timeout_ms; /* for one request, 0 = the URL's, or 2,000 */
	int64_t keepalive_ms;       /* idle time before a TCP probe, 0 = the URL's, or 15,000 */
	const char *prefix;         /* of keys and channels, NULL = the URL's, or "lk";
	                             * [A-Za-z0-9._-]{1,32} */
	const char *user;           /* NULL = the URL's, or the server's default user */
	const char *password;       /* NULL = the URL's, or none */
	const char *client_name;    /* shown by CLIENT LIST, NULL = the URL's, or "latchkey"; of
	                             * no use on etcd */
	const char *label;          /* shown to people with its holds; NULL = the program's name */
	lk_log_fn *log;             /* NULL = no log */
	void *log_arg;              /* passed to log; the library does not free it */
	lk_log_level log_level;     /* 0 = LK_LOG_WARN */
	bool lazy;                  /* as lazy=1: connect at the first call that needs the store */
	/* TLS, for rediss://, rediss+...:// and etcds:// only.  The files are in PEM format, and
	 * read again for each connection, so that they may be renewed. */
	const char *tls_ca;          /* file of trusted CAs, NULL = the URL's, or the system's */
	const char *tls_cert;        /* file of this client's certificate, with those between it
	                              * and its CA; NULL = the URL's, or none */
	const char *tls_key;         /* file of its key; NULL = the URL's, or in the file of cert */
	const char *tls_server_name; /* name or address in the server's certificate; NULL = the
	                              * URL's, or the URL's host */
	const char *tls_verify;      /* "none" = trust any server; NULL = the URL's, or verify */
	int64_t grace_ms;            /* after the server lost its memory, nothing new is granted for
	                              * this time; 0 = the URL's, or 10,000 (13,000 with Sentinel);
	                              * -1 = none */
	/* Sentinel, for redis+sentinel:// only.  A sentinel never receives the user and the
	 * password of the store. */
	const char *sentinel_user;     /* NULL = the URL's, or the sentinels' default user */
	const char *sentinel_password; /* NULL = in the URL's sentinel_password_file, or none */
	lk_resolve_fn *resolve;        /* also for a Cluster; NULL = connect to what is named */
	void *resolve_arg;             /* passed to resolve; the library does not free it */
	int64_t replicas;    /* so many replicas of the server must confirm each grant: see "With
	                      * replicas" below; 1 to 100, 0 = the URL's, or none */
	int64_t reserved[3]; /* zero */
} lk_client_options;

/* Open a client: connect to the store and log in.
 *
 *   url  redis://[[user][:password]@]host[:port][/db][?OPTION=VALUE&...]
 *        rediss://...  the same by TLS 1.2 or 1.3; further options: ca, cert, key, server_name,
 *        verify=none; see tls_ca and the following members of lk_client_options
 *        redis+unix:///path[?db=N&...]
 *        redis+sentinel://[[user][:password]@]host[:port][,host[:port]...]/SERVICE[/db][?...]
 *        rediss+sentinel://...  the same, with TLS to the sentinels and the servers.  The client
 *        connects to the master that these sentinels (at most 16, port 26379) name for SERVICE, and
 *        follows a failover.  user and password are those of the servers; the sentinels' own are
 *        in the options sentinel_user and sentinel_password_file (a path; see also
 *        lk_client_options).  Also: redis-sentinel://[password@]host[:port][,...][/db]
 *        ?sentinelMasterId=SERVICE, as lettuce writes it, and rediss-sentinel://
 *        redis+cluster://[[user][:password]@]host[:port][,host[:port]...][?...]
 *        rediss+cluster://...  the same by TLS.  A Redis Cluster, of which these (at most 16) are
 *        nodes: masters or replicas, and those that do not answer are passed over.  Each name is
 *        on the master of its slot; the client follows slots that move, and failovers.  A Cluster
 *        has only database 0.  A redis:// URL of a node does the same, unless it is lazy
 *        redis+quorum://[[user][:password]@]host[:port],host[:port],host[:port]...[/db][?...]
 *        rediss+quorum://...  the same by TLS.  A quorum of these independent servers: 3, 5 or
 *        7 of them (1 is for tests).  A majority decides, so a lock survives that the others
 *        crash, hang or lose their memories.  It has locks only: see lk_quorum_begin()
 *        etcd://[user:password@]host[:port][,host[:port]...][?...]
 *        etcds://...  the same by TLS.  An etcd cluster of version 3.5.13 or later, or 3.4.31 or
 *        later of 3.4, of which these (at most 16, port 2379) are members: one of them is used, and
 *        another one if it fails.  It has no rate limits, and no options db, grace and replicas,
 *        not even with the value 0: see "On etcd" below
 *        local:  (also NULL) a private server of this user on this machine; the call starts it if
 *        it does not run
 *        options: db, user, password, client_name, prefix, connect_timeout, command_timeout,
 *        keepalive, grace (milliseconds), lazy (0 or 1), replicas (0 to 100); percent-encode
 *        bytes that have a meaning in URLs
 *
 * LK_OK         connected, logged in, subscribed to the client's channel, and able to publish
 *               there; with lazy: the URL and the options are valid
 * LK_EINVALID   the URL or an option is wrong, or a file of TLS is not usable, or the library was
 *               built without TLS or etcd; lk_errmsg() names it.  Also: the server of a redis://
 *               URL is a sentinel, or the other way round, or no sentinel knows the service; or a
 *               node of a Cluster, and the URL is lazy or has a database other than 0; or the
 *               servers belong to a quorum of another number of servers than the URL has
 * LK_ECONN      the store was not reached within the connect timeout, or it is not ready: it loads
 *               its data, is busy, is a replica, or has its maximum of clients; or no sentinel,
 *               or no node of the Cluster, answers; or no majority of a quorum votes: lk_errmsg()
 *               has the reason of each server, and another error if waiting does not cure one
 * LK_EAUTH      the credentials are wrong, a right is missing, or the server wants another client
 *               certificate; lk_errmsg() names the right, or how to find it
 * LK_ESERVER    the server returned another error, or is no Redis; or with TLS it is not the server
 *               of the URL, or its certificate is not valid
 * LK_EUNSUPPORTED  etcd: the plug-in is not installed, or is that of another version; lk_errmsg()
 *               names its package, or both versions, and its file
 * LK_ENOSERVER  local: without a server binary; lk_errmsg() says what to install
 * LK_ESYSTEM    no descriptor, no thread, or the directory of local: is not safe to use
 * LK_ENOMEM
 *
 * With lazy, the call looks up no host name, opens no connection and starts no server.  (It does
 * start the client's thread.)  The library connects at the first call that needs the store.  Until
 * the first connection succeeds, a call that could send no request returns LK_ECONN after its wait
 * plus one command timeout at most.  If waiting cannot help (LK_EAUTH, LK_ESERVER, LK_EFOREIGN,
 * LK_ENOSERVER, LK_ESYSTEM, LK_EINVALID), every function that needs the store returns that error at
 * once, also functions that do not list it.  The library tries again after a pause (5 s at most
 * after LK_EAUTH, otherwise 0.5 s at most); calls during the pause return the same error.  After
 * the first connection, a lazy client behaves as any other.
 *
 * With replicas, a grant, a renewal and an extension of a lock or of permits count only when so
 * many replicas have confirmed them to the server, which waits for the replicas (command WAIT) for
 * 1,000 ms at most, and for half of a command timeout at most.  If replicas is the number of all
 * replicas of the server, a failover forgets no hold.  If too few confirm, the acquiring or
 * extending call returns LK_EREPLICAS and makes no hold or extension; a renewal does not move the
 * end of the hold, so its state is LK_STATE_UNSURE and later LK_STATE_LOST.  Releases, latches and
 * permits that are never released (lk_semaphore_acquire() with NULL) do not wait for replicas.
 * While the server waits, all threads of the client wait for their responses, up to 100 ms longer
 * than that; so a try that begins then may end by its timeout (LK_EUNKNOWN).  The command timeout
 * must be 200 ms at least, or the client takes the server for dead meanwhile.  All clients of a
 * name need the same value.  If the user lacks the right to WAIT, calls that acquire or extend
 * return LK_EAUTH.
 *
 * On etcd, a majority of the members confirms each grant and each renewal, so a crash or a failover
 * forgets no hold, and there is no grace.  Leases there are of whole seconds, of 2 at least (more
 * if the cluster's election timeout is longer than 1.3 s).  A renewed lease is rounded up; a hold
 * with the option fixed ends when it was asked to, by the client's clock, and the client then
 * releases it.  If the process of a holder dies, etcd frees the lock after the rounded lease and up
 * to 1.5 s more; a change of etcd's leader in that time begins the lease again.  Before 3.5.13, and
 * 3.4.31 of 3.4, etcd may end a renewed lease early after its leader stood still: the client logs
 * that at each connection (LK_LOG_WARN).  The capacity of a semaphore is 10,000 at most, and less
 * for names of more than 100 bytes or so.  Rate limits (permits that are never released) are
 * LK_EUNSUPPORTED, since a transaction of etcd has no clock.  The times to live of latches are
 * rounded up to whole seconds, to 2 at least.
 *
 * Any thread.  A process may have any number of clients. */
LK_API LK_MUST_USE lk_err lk_client_open(const char *url, const lk_client_options *options,
                                         lk_client **client);

/* Make a new quorum of the servers in a redis+quorum:// or rediss+quorum:// URL.  Call it before
 * any client uses them, when nothing can be held there: otherwise a second holder may be granted.
 * Without it, the first client that reaches all servers makes the quorum; then nothing is granted
 * for the quorum's longest lease, 60,000 ms.
 *
 * longest_lease_ms: LK_LEASE_MIN_MS..60,000, 0 = 60,000.  No client of the quorum can have a longer
 * lease, and a server that has lost its memory does not vote for that time.  A server whose
 * database is not empty begins like one that has lost its memory.  If all servers lose their
 * memories at once, the next quorum has 60,000.
 *
 * LK_EMISMATCH  a server belongs to a quorum already; nothing was changed
 * LK_EINVALID   the URL names no quorum, or longest_lease_ms is out of its limits
 * LK_ECONN      not all servers were reached within the connect timeout.  After this and other
 *               errors of lk_client_open() some servers may belong to the new quorum: the first
 *               client that reaches all completes it, and the others begin like servers that have
 *               lost their memories
 *
 * Any thread. */
LK_API LK_MUST_USE lk_err lk_quorum_begin(const char *url, const lk_client_options *options,
                                          int64_t longest_lease_ms);

/* Close a client and all its handles; do not use any of them afterwards.  Waits in other threads
 * end with LK_ECLOSED (LK_EUNKNOWN, if the store does not confirm the end).  All holds are
 * released, without a call of on_lost.  The function waits for the confirmation of the releases,
 * one command timeout at most, and for running callbacks, without a limit.  Holds that have
 * expired, or that the store reported as broken or gone, need no confirmation.
 *
 * LK_OK         nothing is left behind
 * LK_EUNKNOWN   closed, but the store did not confirm a release, or refused it: that hold expires
 *               with its lease.  Or a step of a latch is not confirmed: it may have been counted
 * LK_EDEADLOCK  called in a callback of this client; nothing changed
 * LK_EFORKED    called in a child process; closed the child's copies of the sockets, sent nothing
 *
 * One thread; from then on no other thread may start a call on this client or on its handles. */
LK_API lk_err lk_client_close(lk_client *client);

/* Return the client's identity, 22 characters that no other client ever has.  Valid until the
 * close.  Any thread. */
LK_API const char *lk_client_id(const lk_client *client);

/* Counters of a client since it was opened, for monitoring.  All of them only grow.
 * A member with max in its name is the largest value so far.  A member whose name ends in _us is in
 * microseconds of the client's clock; each time is rounded before it is added. */
typedef struct lk_counters {
	/* Calls of lk_lock_acquire() and lk_semaphore_acquire().  Each call counts as one of
	 * acquired, reentered, busy, timed_out, canceled, failed.  A call that fails before its
	 * first attempt is not counted (LK_EINVALID, LK_ENOMEM, LK_EFORKED, LK_ECLOSED because the
	 * close had begun). */
	int64_t acquired;      /* LK_OK, a new hold; several permits of one call count as one */
	int64_t acquired_us;   /* sum of their times from the call to the grant */
	int64_t by_thread;     /* of acquired: handed over by a thread of this client, no request */
	int64_t by_message;    /* of acquired: granted by a message, after another hold's end */
	int64_t waited;        /* of acquired: waited in the store's queue or behind a thread */
	int64_t waited_us;     /* sum of their times from the call to the grant */
	int64_t waited_max_us; /* the longest of them */
	int64_t reentered;     /* LK_OK, the same owner held it already */
	int64_t busy;          /* LK_EBUSY */
	int64_t timed_out;     /* LK_ETIMEDOUT */
	int64_t canceled;      /* LK_ECANCELED, LK_ECLOSED */
	int64_t failed;        /* any other error */
	/* Holds that have ended: released, handed over to a thread, lost, or ended by the close of
	 * their handle or client.  Permits that were acquired with NULL for the hold are not
	 * counted here. */
	int64_t holds;
	int64_t held_us;     /* from the grant to the call that released it, or to the loss */
	int64_t held_max_us; /* the longest of them */
	int64_t lost[8];     /* by lk_lost_reason; lost[0] is the sum.  A release that finds no
	                      * hold in the store counts as LK_LOST_TAKEN */
	/* Renewals that the store confirmed, including extensions of renewed holds.  A renewal is
	 * due after a third of the lease, or a little earlier, so that several are sent together.
	 * Another one, which reports the wait to the store, is due when a thread of this client
	 * starts to wait for a lock that the client holds. */
	int64_t renewed;
	int64_t late_us;            /* sum of the times by which they were sent too late */
	int64_t late_max_us;        /* the longest of them */
	int64_t lease_max_permille; /* the largest part of a lease that had passed when its renewal
	                             * was confirmed: up to 340 is normal, above 500 the hold was
	                             * UNSURE, at 1,000 it is lost */
	/* Calls on latches that returned LK_OK. */
	int64_t awaited; /* lk_latch_await() */
	int64_t stepped; /* lk_latch_down() */
	/* The store. */
	int64_t requests;  /* on locks, permits, latches, with repeats, WAIT; not queries, PING */
	int64_t connected; /* connections made; 1 after lk_client_open(), 0 if lazy; of a quorum one
	                    * to each server */
	/* The server's memory: see grace_ms. */
	int64_t reclaimed;   /* holds that were taken back after the server had lost its memory */
	int64_t grace_us;    /* sum of the times that calls waited because of the grace */
	int64_t reserved[6]; /* zero */
} lk_counters;

/* Read all counters, as they were at one moment.  No I/O, never blocks.
 *
 * LK_OK, LK_EFORKED.  Any thread, but not during lk_client_close(). */
LK_API lk_err lk_client_counters(lk_client *client, lk_counters *counters);

/* ---- Lock --------------------------------------------------------------------------------- */

/* A handle on one named lock.  Several handles may name the same lock. */
typedef struct lk_lock lk_lock;

typedef enum lk_owner {
	LK_OWNER_THREAD = 0, /* the acquiring thread; only this thread re-enters and releases */
	/* The handle owns the hold, and any thread may release it through the handle.  A handle is
	 * a different owner from every thread.  So a thread that holds the lock by LK_OWNER_THREAD,
	 * and waits for it through such a handle, would wait for itself: LK_EDEADLOCK. */
	LK_OWNER_HANDLE = 1,
} lk_owner;

typedef enum lk_state {
	LK_STATE_NONE = 0,   /* the caller holds nothing */
	LK_STATE_HELD = 1,   /* held */
	LK_STATE_UNSURE = 2, /* held, but the lease may end: the connection is down, or a renewal
	                      * failed or is late (half of the lease has passed), or no sentinel
	                      * has answered for a grace; never with the option fixed */
	LK_STATE_LOST = 3,   /* no longer held; a release acknowledges this */
} lk_state;

typedef enum lk_lost_reason {
	LK_LOST_EXPIRED = 1,  /* the lease ended before it could be renewed */
	LK_LOST_TAKEN = 2,    /* gone: the key was deleted, or the hold could not be taken back, or
	                       * a majority of a quorum's servers has lost its memory */
	LK_LOST_BROKEN = 3,   /* another client broke the lock */
	LK_LOST_MAX_HOLD = 4, /* max_hold_ms passed; the library released the lock */
	LK_LOST_THREAD = 5,   /* the owning thread ended; the library released the lock */
} lk_lost_reason;

/* "expired", "taken", "broken", "max-hold", "thread-ended".  Never NULL.  Any thread. */
LK_API const char *lk_lost_reason_name(lk_lost_reason reason);

/* Receive the report of a loss: once for each lost hold, at the latest when its lease ends (unless
 * the scheduler delays the thread).  The client's callback thread calls one function at a time, so
 * a function that blocks delays only other callbacks. */
typedef void lk_lost_fn(void *arg, lk_lock *lock, uint64_t fence, lk_lost_reason reason);

typedef struct lk_lock_options {
	int64_t lease_ms; /* LK_LEASE_MIN_MS..LK_LEASE_MAX_MS, 0 = 10,000; of a quorum at most its
	                   * longest lease (the default is cut); on etcd, unless fixed, rounded up
	                   * to whole seconds and to 2,000 at least: lk_hold.lease_ms has it */
	int64_t max_hold_ms; /* a hold ends after this time, 1,000 days at most; 0 = no limit */
	bool fixed;          /* do not renew: the hold ends with its lease unless extended */
	lk_owner owner;      /* the owner of a hold, 0 = the calling thread */
	const char *label;   /* shown to people instead of the client's label */
	lk_lost_fn *on_lost; /* NULL = none */
	void *on_lost_arg;   /* passed to on_lost; the library does not free it */
	int64_t reserved[8]; /* zero */
} lk_lock_options;

/* Open a handle on a lock.  Sends no request.
 *
 *   name  1..LK_NAME_MAX bytes of any value; different names never collide
 *
 * LK_OK, LK_EINVALID (lk_errmsg() names the option), LK_ENOMEM, LK_ESYSTEM (no thread for
 * callbacks), LK_ECLOSED, LK_EFORKED.  Any thread. */
LK_API LK_MUST_USE lk_err lk_lock_open(lk_client *client, const char *name, size_t name_len,
                                       const lk_lock_options *options, lk_lock **lock);

/* Close a handle.  Its waits end as if lk_lock_cancel() had been called.  The holds that were
 * acquired through it are released in the background.  The function returns when no other call and
 * no callback uses the handle any more.
 *
 * LK_OK, LK_EDEADLOCK (called in a callback of this client; nothing changed), LK_EFORKED.
 * One thread; from then on no other thread may start a call on the handle. */
LK_API lk_err lk_lock_close(lk_lock *lock);

/* Acquire the lock; wait at most wait_ms.  Waiters are served FIFO, except that threads of one
 * client may hand the lock over to each other first: 16 times in a row at most while another client
 * waits.  A thread that already holds the lock re-enters at once and without a request, through any
 * LK_OWNER_THREAD handle of the client on this name.  A handle that owns the hold (LK_OWNER_HANDLE)
 * re-enters in the same way.
 *
 *   wait_ms  milliseconds; 0 = try once, LK_FOREVER = no limit
 *   fence    receives the hold's fence (fencing token), a number that is larger than the fence of
 *            every earlier hold of the lock; the README says when this is true even if the store
 *            loses its memory.  A re-entry receives the hold's fence again.  Send the fence with
 *            each write to the resource that the lock protects, and let the resource refuse a fence
 *            that is smaller than the largest one it has seen.  Nothing else stops a late write of
 *            a holder that was suspended for longer than its lease.  May be NULL, if the resource
 *            cannot compare fences
 *
 * LK_OK         held.  The lease is renewed in the background until the release.  With the option
 *               fixed, the lease is not renewed, and the hold ends with the lease
 * LK_EBUSY      not held: another owner holds the lock, or others wait for it, or the server has
 *               lost its memory (see grace_ms), and wait_ms is 0; nothing is left behind
 * LK_ETIMEDOUT  not held; nothing is left behind
 * LK_ECANCELED  not held: lk_lock_cancel() or lk_lock_close(); nothing is left behind
 * LK_ECLOSED    not held: lk_client_close() ended the wait, or an on_lost function made the call
 *               while the client or the handle was being closed
 * LK_ELOST      the caller's hold was lost, and is not released yet: acknowledge the loss first
 * LK_ECONN      not held: the store was not reached, and no request was sent
 * LK_EUNKNOWN   not held: the store did not respond, or did not confirm that the wait has ended.
 *               So the store may still grant the lock.  The client releases such a grant when its
 *               message arrives; if the message is lost, the grant expires after one lease at most.
 *               Repeating the call is safe
 * LK_EREPLICAS  not held: too few replicas confirmed the grant in time, however long the wait may
 *               last (see lk_client_open()); the client releases what the server has granted
 * LK_EAUTH, LK_ESERVER, LK_EFOREIGN   not held: the store refused; lk_errmsg() has the reason.
 *               LK_ESERVER also means that the counter of fences is damaged or used up; or that
 *               etcd is full, which the call finds out only at the end of its wait
 * LK_EAGAIN     not held: the store refused temporarily, and wait_ms is 0.  With a longer wait,
 *               the call repeats the request until the wait is over
 * LK_EINVALID   wait_ms is below -1
 * LK_EDEADLOCK  not held: the handle has LK_OWNER_HANDLE and, as far as the client knows, the
 *               calling thread itself holds the lock through an LK_OWNER_THREAD handle of this
 *               client, with a renewed lease and without max_hold_ms.  So the wait could never end.
 *               With wait_ms 0, the result is LK_EBUSY instead
 * LK_ELIMIT     re-entered 2^31 - 1 times; the hold is unchanged
 * LK_ENOMEM, LK_EFORKED   not held
 *
 * Returns within wait_ms plus one command timeout.  Any thread.  The owner of the hold is the
 * calling thread, or the handle (LK_OWNER_HANDLE). */
LK_API LK_MUST_USE lk_err lk_lock_acquire(lk_lock *lock, int64_t wait_ms, uint64_t *fence);

/* Release one acquisition.  The release of the last one hands the lock to the next waiter.
 *
 * LK_OK         released; after a re-entry: the hold's count is one lower
 * LK_ELOST      the hold had been lost; release once for each acquisition, to acknowledge the loss
 * LK_ENOTOWNER  the caller does not hold the lock; nothing changed
 * LK_EUNKNOWN   the caller no longer holds the lock, but the store has not confirmed the release.
 *               The library repeats it in the background; the hold expires when its lease ends, at
 *               the latest.  Repeating the call is not needed
 * LK_EFORKED, LK_ECLOSED
 *
 * Any thread if the handle owns the hold; otherwise only the owner. */
LK_API lk_err lk_lock_release(lk_lock *lock);

/* End every wait that is in progress on this handle with LK_ECANCELED (LK_EUNKNOWN, if the store
 * does not confirm that nothing is left behind).  Later waits are not affected.
 *
 * LK_OK (also if there was no wait), LK_EFORKED, LK_ECLOSED.  Any thread. */
LK_API lk_err lk_lock_cancel(lk_lock *lock);

/* Give the caller's hold a lease of lease_ms from now.  This is meant for holds with the option
 * fixed; other holds are still renewed as before.  The store never shortens a lease: if lease_ms is
 * less than what is left, the client ends and releases the hold after lease_ms, unless the hold is
 * renewed or extended before.
 *
 * LK_OK         the hold lasts for lease_ms, less a margin of 1 % and 2 ms, counted from when the
 *               request was sent
 * LK_ENOTOWNER  the caller does not hold the lock
 * LK_ELOST      the hold was lost
 * LK_ECONN, LK_EAGAIN  not extended
 * LK_EREPLICAS  the server has extended the lease, but too few replicas confirmed that in time;
 *               only the old end of the lease is certain.  Repeating the call is safe
 * LK_EUNKNOWN   perhaps extended; only the old end of the lease is certain.  Repeating the call is
 *               safe
 * LK_EINVALID, LK_ESERVER, LK_EAUTH, LK_ENOMEM, LK_EFORKED, LK_ECLOSED   not extended
 * LK_EFOREIGN   another program uses the key, so the hold is lost
 *
 * Any thread if the handle owns the hold; otherwise only the owner. */
LK_API LK_MUST_USE lk_err lk_lock_extend(lk_lock *lock, int64_t lease_ms);

/* A function that is called while the lock or the permits are held.  fence is the fence of the
 * hold; see lk_lock_acquire().  The function must return (no longjmp(), no pthread_exit(), no C++
 * exception: latchkey.hpp has run() for functions that throw), and must not close the handle or its
 * client. */
typedef int lk_run_fn(void *arg, uint64_t fence);

typedef enum lk_run_stage {
	LK_RUN_DONE = 0,    /* acquired, called, released */
	LK_RUN_ACQUIRE = 1, /* not acquired; the function was not called */
	LK_RUN_RELEASE = 2, /* the function returned, but the release failed */
} lk_run_stage;

typedef struct lk_run {
	lk_run_stage stage;  /* where the call failed, if it did */
	int result;          /* the function's result, 0 if it was not called */
	uint64_t fence;      /* of the hold, 0 if the function was not called */
	lk_lost_reason lost; /* with LK_ELOST: why the hold was lost while the function ran */
	int64_t reserved[8]; /* zero */
} lk_run;

/* Acquire the lock, call a function, release the lock.
 *
 *   wait_ms  as for lk_lock_acquire()
 *   fn       called once, in the calling thread, if the lock was acquired
 *   arg      passed to fn
 *   out      receives the outcome, also if the call fails, except with LK_EINVALID; may be NULL
 *
 * If out->stage is LK_RUN_ACQUIRE, fn was not called, and the error is that of lk_lock_acquire().
 * Otherwise fn was called:
 *
 * LK_OK         the lock was held all the time; out->result is the result of fn
 * LK_ELOST      the hold was lost while fn ran (out->lost): another client may have held the lock
 *               at the same time
 * LK_EUNKNOWN   the release is not confirmed; see lk_lock_release()
 * LK_ENOTOWNER  fn ended the hold itself: it released the hold, or acknowledged its loss.  If fn
 *               acquired the lock again, that hold is not released
 * Other errors as lk_lock_release().
 *
 * LK_EINVALID means that lock or fn is NULL, or that wait_ms is below -1; fn was not called.
 *
 * Any thread.  fn may acquire the lock again (a re-entry); it must then release what it acquired.
 * If the handle owns its holds (LK_OWNER_HANDLE), another thread that runs a function through the
 * same handle re-enters: both functions run at the same time. */
LK_API LK_MUST_USE lk_err lk_lock_run(lk_lock *lock, int64_t wait_ms, lk_run_fn *fn, void *arg,
                                      lk_run *out);

/* The caller's own hold, as it was at one moment. */
typedef struct lk_hold {
	uint64_t fence;       /* 0 = the caller holds nothing */
	int64_t count;        /* a lock: acquisitions not yet released; a semaphore: permits */
	lk_state state;       /* LK_STATE_NONE: the caller holds nothing, and all members are 0 */
	lk_lost_reason lost;  /* 0 unless the state is LK_STATE_LOST */
	int64_t remaining_ms; /* the hold lasts for this time even without a renewal, 0 if lost */
	char holder_id[LK_HOLDER_ID_SIZE]; /* shown to other clients (lk_party.id), "" if lost */
	int64_t lease_ms;                  /* in force: the time from each renewal on, 0 if lost */
	int64_t reserved[7];               /* zero */
} lk_hold;

/* Read the caller's hold.  No I/O, never blocks.  After a loss, fence and count remain until the
 * release.
 *
 * LK_OK (also if the caller holds nothing), LK_EFORKED.  Any thread. */
LK_API LK_MUST_USE lk_err lk_lock_snapshot(lk_lock *lock, lk_hold *hold);

#define LK_GUARD_KEY_SIZE 1664 /* bytes of any guard key, with its NUL */

/* Write the key that guards the caller's hold on etcd, for the caller's own transactions there.
 * Compare its create revision with the fence:
 *
 *     If create(key) = fence >> 16 Then ...
 *
 * Such a transaction has an effect only while the store has this hold, whatever any clock shows: it
 * fails as soon as the hold has ended, before the next one begins.  Between threads of this client
 * that hand the lock over, it does not distinguish; compare whole fences for that.
 *
 *   size  LK_GUARD_KEY_SIZE is enough for any key
 *
 * LK_OK
 * LK_EUNSUPPORTED  the store is not etcd: let the protected resource refuse smaller fences
 * LK_ENOTOWNER     the caller does not hold the lock
 * LK_ELOST         the hold is lost
 * LK_EINVALID      lock or key is NULL, or size is too small
 * LK_EFORKED
 *
 * No I/O, never blocks.  Any thread. */
LK_API LK_MUST_USE lk_err lk_lock_guard_key(lk_lock *lock, char *key, size_t size);

/* Return the state of the caller's hold.  It is computed from the clock, so it is right even if no
 * thread of the library could run.  No I/O, never blocks.  Any thread. */
LK_API lk_state lk_lock_state(lk_lock *lock);
/* True if that state is LK_STATE_HELD or LK_STATE_UNSURE.  No I/O, never blocks.  Any thread. */
LK_API bool lk_lock_is_mine(lk_lock *lock);

/* A holder or a waiter.  All text is escaped.  What the client did not supply, or what the store
 * did not send in time, is "" or 0. */
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
	uint64_t fence;        /* of the holder's grant, 0 if not held; of a quorum it may be
	                        * another one that a majority of the servers has reached */
	int64_t held_ms;       /* since the grant, by the store's clock; -1 = unknown (etcd) */
	int64_t lease_left_ms; /* until the lease ends, unless it is renewed */
	int64_t queue_len;     /* entries in the queue: the threads of a client share one if their
	                        * handles have the same values of lease_ms and fixed */
	int64_t my_rank;       /* entries before this client's first one, -1 = it does not wait; on
	                        * etcd at least so many if it is 999 or more */
	int64_t grace_ms;    /* nothing new is granted for this time: the server may have forgotten
	                      * a holder; 0 = no grace.  As this client knows it. */
	int64_t reserved[7]; /* zero */
} lk_lock_status;

/* Query the holder of the lock.  Changes nothing, so repeating the call is safe.  Returns within
 * one command timeout, although it needs two responses; the second one describes the holder.
 *
 * Of a quorum, all servers that vote are asked, and a majority must answer.  The holder is the one
 * that a majority names; a client with fewer servers still waits.
 *
 * LK_OK, LK_ECONN, LK_EUNKNOWN (no response), LK_EAGAIN, LK_EAUTH, LK_ESERVER, LK_EFOREIGN,
 * LK_EFORKED, LK_ECLOSED, LK_ENOMEM.  Any thread. */
LK_API LK_MUST_USE lk_err lk_lock_query(lk_lock *lock, lk_lock_status *status);

/* Query the first waiters in the order of the queue, at most max and at most 1,000, and write their
 * number to *count.  If max is 0, waiters may be NULL.  A failed call may also write to waiters.
 * Other errors as lk_lock_query().  Any thread. */
LK_API LK_MUST_USE lk_err lk_lock_waiters(lk_lock *lock, size_t max, lk_party *waiters,
                                          size_t *count);

/* Take the lock from its holder and hand it to the first waiter.  Later fences are larger.  The
 * holder is notified, usually within 100 ms.  Its process may continue to work; only the fence
 * protects against that.
 *
 *   if_holder  break only if the holder has this id (lk_party.id); NULL = any holder
 *
 * LK_OK         broken; of a quorum: a majority of the servers has confirmed it
 * LK_EABSENT    there was no holder
 * LK_EMISMATCH  there is another holder; nothing changed
 * LK_ECONN      not broken
 * LK_EUNKNOWN   perhaps broken.  Repeating the call is safe with if_holder; without it, the second
 *               call may break the next hold
 * Other errors as lk_lock_query().  Any thread. */
LK_API LK_MUST_USE lk_err lk_lock_break(lk_lock *lock, const char *if_holder);

/* ---- Semaphore ---------------------------------------------------------------------------- */

/* A handle on one named counting semaphore.  A semaphore has a capacity of permits.  Each hold has
 * some of the permits, a fence, and a lease that is renewed; the hold ends when it is released or
 * lost.  If its process dies, the permits become free when the lease ends.  Waiters are served
 * FIFO: later requests for few permits do not starve a request for many.
 *
 * For a rate limit of N per window, open a semaphore with capacity = N, fixed = true and lease_ms =
 * the window's length.  Acquire its permits with NULL for the hold: they are then never released,
 * and become free one lease after the grant.  So at most N permits are granted in any window of
 * that length, wherever it begins, by the store's clock.  Such a grant is final: it counts from the
 * moment when the store made it.  So a call succeeds even if its response takes as long as the
 * window.  A dead waiter may use up one grant. */
typedef struct lk_semaphore lk_semaphore;

/* Receive the report of a loss; as lk_lost_fn. */
typedef void lk_semaphore_lost_fn(void *arg, lk_semaphore *semaphore, uint64_t hold,
                                  lk_lost_reason reason);

typedef struct lk_semaphore_options {
	int64_t capacity;    /* permits, 1..LK_PERMITS_MAX; 0 = that which the semaphore has */
	int64_t ttl_ms;      /* the store keeps the capacity for this time after the last use,
	                      * 0 = a day; each opening with a capacity sets this TTL anew */
	int64_t lease_ms;    /* LK_LEASE_MIN_MS..LK_LEASE_MAX_MS, 0 = 10,000 */
	int64_t max_hold_ms; /* a hold ends after this time, 1,000 days at most; 0 = no limit */
	bool fixed;          /* do not renew: a hold ends with its lease unless extended */
	const char *label;   /* shown to people instead of the client's label */
	lk_semaphore_lost_fn *on_lost; /* NULL = none */
	void *on_lost_arg;             /* passed to on_lost; the library does not free it */
	int64_t reserved[8];           /* zero */
} lk_semaphore_options;

/* Open a handle on a semaphore; the first opening of a name sets its capacity.  Sends one request.
 * The handle keeps the capacity, even if the option was 0: if the store forgets the semaphore while
 * the handle is idle (TTL, FLUSHALL), the next acquire makes it again.
 *
 * LK_OK
 * LK_EMISMATCH  the semaphore has another capacity, which lk_errmsg() names; lk_semaphore_resize()
 *               changes it
 * LK_EABSENT    capacity is 0, and the semaphore does not exist
 * LK_EUNKNOWN   no handle, but the store may have made the semaphore.  Repeating the call is safe
 * LK_EUNSUPPORTED  the store is a quorum.  Its votes decide between two claims, not how many
 *               permits are in use: with two permits, each of three clients can have two of three
 *               servers.  Use one server, or a lock for each permit
 * LK_EINVALID (lk_errmsg() names the option), LK_ENOMEM, LK_ESYSTEM, LK_ECONN, LK_EAGAIN, LK_EAUTH,
 * LK_ESERVER (also if the counter of fences is damaged), LK_EFOREIGN (the name is a lock's or a
 * latch's), LK_ECLOSED, LK_EFORKED   no handle
 *
 * Any thread. */
LK_API LK_MUST_USE lk_err lk_semaphore_open(lk_client *client, const char *name, size_t name_len,
                                            const lk_semaphore_options *options,
                                            lk_semaphore **semaphore);

/* As lk_lock_close(). */
LK_API lk_err lk_semaphore_close(lk_semaphore *semaphore);

/* Acquire permits; wait at most wait_ms.  Waiters are served FIFO.  Never re-entrant: each call
 * makes a new hold.  The hold belongs to the handle, and any thread may release it.
 *
 *   permits  1..LK_PERMITS_MAX, all or none
 *   wait_ms  milliseconds; 0 = try once, LK_FOREVER = no limit
 *   hold     receives the hold's fence, which names the hold in the functions below.  NULL is
 *            allowed for a fixed handle: then the permits are never released, and come back one
 *            lease after the grant, even after lk_semaphore_close(), lk_client_close() or a crash.
 *            If the response is slow, that may be before the call returns
 *
 * LK_OK         held; see lk_lock_acquire() about the lease
 * LK_EBUSY      not held: too few permits are free, or others wait, or the server has lost its
 *               memory (see grace_ms), and wait_ms is 0; nothing is left behind
 * LK_ELIMIT     not held: permits exceeds the capacity, which a resize may have lowered during the
 *               wait
 * LK_EINVALID   permits or wait_ms is out of range, or hold is NULL and the handle is not fixed
 * LK_ETIMEDOUT, LK_ECANCELED, LK_ECLOSED, LK_ECONN, LK_EUNKNOWN, LK_EAUTH, LK_ESERVER, LK_EAGAIN,
 * LK_EREPLICAS, LK_EFOREIGN, LK_ENOMEM, LK_EFORKED   not held; as lk_lock_acquire().  But if hold
 *               is NULL, a call that is repeated after LK_EUNKNOWN may use up permits twice
 *
 * Returns within wait_ms plus one command timeout.  Any thread. */
LK_API LK_MUST_USE lk_err lk_semaphore_acquire(lk_semaphore *semaphore, int64_t permits,
                                               int64_t wait_ms, uint64_t *hold);

/* Release a hold.  Waiters whose requests now fit get the hold's permits.
 *
 * LK_OK         released
 * LK_ELOST      the hold had been lost; this call acknowledges the loss
 * LK_ENOTOWNER  this handle has no such hold; nothing changed
 * LK_EUNKNOWN   the caller no longer has the hold, but the store has not confirmed the release.
 *               The library repeats it in the background; the hold expires when its lease ends, at
 *               the latest.  Repeating the call is not needed
 * LK_EFORKED, LK_ECLOSED
 *
 * Any thread. */
LK_API lk_err lk_semaphore_release(lk_semaphore *semaphore, uint64_t hold);

/* Release some permits of a hold.  Releasing all of them is the same as lk_semaphore_release().
 *
 * LK_OK         released; the hold keeps the rest
 * LK_ELIMIT     permits is more than the hold has; nothing changed
 * LK_EINVALID   permits is below 1; nothing changed
 * LK_EUNKNOWN   the caller no longer has these permits, but the store has not confirmed the
 *               release.  The library completes it in the background.  Do not repeat the call: it
 *               would release as many permits again
 * LK_ELOST, LK_ENOTOWNER, LK_ENOMEM, LK_EFORKED, LK_ECLOSED
 *
 * Any thread. */
LK_API lk_err lk_semaphore_release_some(lk_semaphore *semaphore, uint64_t hold, int64_t permits);

/* As lk_lock_cancel(). */
LK_API lk_err lk_semaphore_cancel(lk_semaphore *semaphore);

/* As lk_lock_extend(), for the given hold.  Any thread. */
LK_API LK_MUST_USE lk_err lk_semaphore_extend(lk_semaphore *semaphore, uint64_t hold,
                                              int64_t lease_ms);

/* As lk_lock_run(), with a hold on the given number of permits; its fence names the hold.  If the
 * hold cannot be acquired, the errors are those of lk_semaphore_acquire().  Any thread. */
LK_API LK_MUST_USE lk_err lk_semaphore_run(lk_semaphore *semaphore, int64_t permits,
                                           int64_t wait_ms, lk_run_fn *fn, void *arg, lk_run *out);

/* As lk_lock_snapshot(), for the hold whose fence lk_semaphore_acquire() returned.  LK_OK also if
 * this handle has no such hold. */
LK_API LK_MUST_USE lk_err lk_semaphore_snapshot(lk_semaphore *semaphore, uint64_t hold_fence,
                                                lk_hold *hold);

/* As lk_lock_state(), for the given hold; LK_STATE_NONE if this handle has no such hold. */
LK_API lk_state lk_semaphore_state(lk_semaphore *semaphore, uint64_t hold_fence);

typedef struct lk_semaphore_status {
	int64_t capacity;
	int64_t available;   /* capacity minus permits held; may be below 0 after a resize */
	int64_t holders;     /* number of holds, of all clients */
	int64_t queue_len;   /* number of waits, of all clients */
	int64_t my_rank;     /* waits before this client's first one, -1 = it does not wait */
	int64_t ttl_ms;      /* until the store forgets the semaphore, unless it is used */
	int64_t grace_ms;    /* as in lk_lock_status */
	int64_t reserved[7]; /* zero */
} lk_semaphore_status;

/* Query the semaphore.  LK_EABSENT if it does not exist (any more); other errors as
 * lk_lock_query(). */
LK_API LK_MUST_USE lk_err lk_semaphore_query(lk_semaphore *semaphore, lk_semaphore_status *status);

/* A hold or a wait.  In a wait, fence, held_ms and lease_left_ms are 0. */
typedef struct lk_ticket {
	lk_party party;
	int64_t permits;
	uint64_t fence;
	int64_t held_ms;       /* since the grant, by the store's clock; -1 = unknown (etcd) */
	int64_t lease_left_ms; /* until the lease ends, unless it is renewed */
	int64_t reserved[8];   /* zero */
} lk_ticket;

/* Query the first holds in the order in which their leases end, or the first waits in the order of
 * the queue; at most max and at most 1,000.  *count receives their number.  If max is 0, the array
 * may be NULL.  A failed call may also write to the array.  Other errors as lk_semaphore_query().
 * Any thread. */
LK_API LK_MUST_USE lk_err lk_semaphore_holders(lk_semaphore *semaphore, size_t max,
                                               lk_ticket *holders, size_t *count);
LK_API LK_MUST_USE lk_err lk_semaphore_waiters(lk_semaphore *semaphore, size_t max,
                                               lk_ticket *waiters, size_t *count);

/* Change the capacity.  If it grows, waits that now fit are granted at once.  If it shrinks, all
 * holds remain, nothing is granted until the permits held fit into the new capacity, and a wait for
 * more than the capacity ends with LK_ELIMIT.  This handle keeps the new capacity.  Other handles
 * use the capacity in the store; if the store loses it, they use that of their own opening.
 *
 * LK_OK
 * LK_EABSENT    the semaphore does not exist (any more)
 * LK_EINVALID   capacity is not 1..LK_PERMITS_MAX, or on etcd above 10,000
 * LK_ECONN      not changed
 * LK_EUNKNOWN   perhaps changed.  Repeating the call is safe
 * LK_ESERVER    also if the counter of fences is damaged
 * Other errors as lk_lock_query().  Any thread. */
LK_API LK_MUST_USE lk_err lk_semaphore_resize(lk_semaphore *semaphore, int64_t capacity);

/* Take a hold from its holder and grant its permits to waiters.  The holder is notified.
 *
 *   if_holder  the id of the hold (lk_party.id); NULL = the only hold
 *
 * LK_OK         broken
 * LK_EABSENT    there is no hold at all, or no such semaphore
 * LK_EMISMATCH  no hold has the id if_holder, or if_holder is NULL and there are several holds;
 *               nothing changed
 * Other errors as lk_lock_break().  Any thread. */
LK_API LK_MUST_USE lk_err lk_semaphore_break(lk_semaphore *semaphore, const char *if_holder);

/* ---- Latch -------------------------------------------------------------------------------- */

/* A handle on one named count-down latch.  A latch is absent until its count is set.  Steps count
 * it down, and at zero it is open.  It stays open for open_ttl_ms, for processes that come late;
 * then it is absent again.  Setting an absent or open latch, or resetting any latch, begins a new
 * generation.  A step that was sent for one generation never counts in a later one. */
typedef struct lk_latch lk_latch;

typedef enum lk_latch_state {
	LK_LATCH_ABSENT = 0,   /* never set, removed, or its TTL has passed */
	LK_LATCH_COUNTING = 1, /* the count is above zero */
	LK_LATCH_OPEN = 2,
} lk_latch_state;

/* "absent", "counting", "open".  Never NULL.  Any thread. */
LK_API const char *lk_latch_state_name(lk_latch_state state);

typedef struct lk_latch_options {
	int64_t open_ttl_ms;     /* an open latch stays open for this time, 0 = a day */
	int64_t counting_ttl_ms; /* a latch that counts is forgotten after this time; 0 = never */
	bool absent_is_open;     /* lk_latch_await() returns LK_OK if the latch is absent */
	const char *label;       /* shown to people instead of the client's label */
	int64_t reserved[8];     /* zero */
} lk_latch_options;

/* Open a handle on a latch.  Sends no request.  The TTLs apply to latches that this handle sets.
 *
 * LK_OK, LK_EINVALID (lk_errmsg() names the option), LK_EUNSUPPORTED (a quorum, whose votes cannot
 * count steps: use one server), LK_ENOMEM, LK_ECLOSED, LK_EFORKED.  Any thread. */
LK_API LK_MUST_USE lk_err lk_latch_open(lk_client *client, const char *name, size_t name_len,
                                        const lk_latch_options *options, lk_latch **latch);

/* As lk_lock_close().  Steps that are not confirmed yet continue in the background. */
LK_API lk_err lk_latch_close(lk_latch *latch);

/* Set an absent or open latch: it counts down from count, 0..LK_COUNT_MAX (0: it is open at once).
 *
 *   was  receives the previous state: LK_LATCH_ABSENT or LK_LATCH_OPEN; may be NULL
 *
 * LK_OK         set: a new generation has begun
 * LK_EMISMATCH  the latch is counting already (lk_errmsg() has its count); nothing changed
 * LK_EINVALID   count is out of range
 * LK_EFOREIGN   the name is a lock's or a semaphore's
 * LK_ESERVER    also if the counter that numbers generations is damaged or used up; nothing changed
 * LK_ECONN      not set
 * LK_EUNKNOWN   perhaps set.  A repeated call returns LK_EMISMATCH if the first call took effect
 *               and the latch still counts.  If the latch has opened since, the repeated call sets
 *               it again; so query it first
 * Other errors as lk_lock_query().  Any thread. */
LK_API LK_MUST_USE lk_err lk_latch_set(lk_latch *latch, int64_t count, lk_latch_state *was);

/* Set a latch in any state, as lk_latch_set(): it begins a new generation.  Waiters keep waiting,
 * for the new generation.  If the call is repeated after LK_EUNKNOWN, steps that were counted
 * between the two calls are lost. */
LK_API LK_MUST_USE lk_err lk_latch_reset(lk_latch *latch, int64_t count, lk_latch_state *was);

/* Make the latch absent.  Waiters keep waiting until it is set and opens; with absent_is_open their
 * waits end.  LK_EABSENT if it was absent already; other errors as lk_latch_set().  If the call is
 * repeated after LK_EUNKNOWN, it also removes a latch that was set in between. */
LK_API LK_MUST_USE lk_err lk_latch_remove(lk_latch *latch);

typedef struct lk_latch_step {
	int64_t remaining;   /* the count after the step; 0 = open */
	bool counted;        /* false: its name was counted before, or the latch was open */
	int64_t reserved[8]; /* zero */
} lk_latch_step;

/* Count one step, which lowers the count by n.  It counts exactly once, even if a response is lost
 * and the library repeats the request.
 *
 *   n          1..LK_COUNT_MAX; the latch opens if n is the remaining count or more
 *   step_name  of 1..LK_STEP_MAX bytes, NULL = none.  A generation counts each name only once,
 *              whichever client sends it.  So a job that counted, crashed and was restarted counts
 *              once
 *   step       receives the result; may be NULL
 *
 * LK_OK        counted now or before, or the latch was open already
 * LK_EABSENT   not counted: the latch is absent
 * LK_ECONN     not counted: the store was not reached
 * LK_EUNKNOWN  not confirmed in time: the step may have been counted.  The library repeats it in
 *              the background until the store responds, unless the latch is removed or set again,
 *              or the client is closed, before that.  It does not repeat a step whose response was
 *              unreadable.  Repeating the call is safe for a named step, as long as the latch is
 *              not set again; a step without a name may be counted twice
 * LK_EFOREIGN  not counted: the name is a lock's or a semaphore's, or an eviction removed the
 *              record of counted steps; then reset the latch
 * LK_EAGAIN, LK_EINVALID, LK_EAUTH, LK_ESERVER, LK_ENOMEM, LK_EFORKED, LK_ECLOSED   not counted
 *
 * A client sends its steps on one latch one after the other, so a call waits for those before it.
 * Any thread. */
LK_API LK_MUST_USE lk_err lk_latch_down(lk_latch *latch, int64_t n, const char *step_name,
                                        size_t step_name_len, lk_latch_step *step);

/* Wait until the latch is open.  If it is absent, wait until it is set and opens (but see
 * absent_is_open).  A wait that began on one generation ends when that generation opens, even if
 * the latch was set again since.
 *
 * LK_OK         open now, or at some time since the call began
 * LK_EBUSY      not open, and wait_ms is 0
 * LK_ETIMEDOUT  not open within wait_ms
 * LK_ECANCELED  lk_latch_cancel() or lk_latch_close()
 * LK_ECLOSED    lk_client_close()
 * LK_ECONN      unknown whether it is open: the store was not reached, or did not respond
 * LK_EAGAIN     unknown whether it is open: the store temporarily refused every request
 * LK_EAUTH, LK_ESERVER, LK_EFOREIGN, LK_EINVALID, LK_ENOMEM, LK_EFORKED
 *
 * Leaves nothing in the store.  Returns within wait_ms plus one command timeout.  Any thread. */
LK_API LK_MUST_USE lk_err lk_latch_await(lk_latch *latch, int64_t wait_ms);

/* End every wait that is in progress on this handle with LK_ECANCELED.
 *
 * LK_OK (also if there was no wait), LK_EFORKED, LK_ECLOSED.  Any thread. */
LK_API lk_err lk_latch_cancel(lk_latch *latch);

typedef struct lk_latch_status {
	lk_latch_state state;
	int64_t count;       /* remaining */
	int64_t initial;     /* the count that was set */
	uint64_t generation; /* grows with every set and reset; 0 = absent */
	int64_t ttl_ms;      /* until the store forgets the latch, -1 = never */
	int64_t reserved[8]; /* zero */
} lk_latch_status;

/* Query the latch.  An absent latch is a state, not an error.  Other errors as lk_lock_query(). */
LK_API LK_MUST_USE lk_err lk_latch_query(lk_latch *latch, lk_latch_status *status);

/* ---- Names ------------------------------------------------------------------------------- */

/* The kind of a name in the store.  A name has one kind at a time: a lock's name cannot also be a
 * semaphore's.  Calls for another kind return LK_EFOREIGN. */
typedef enum lk_kind {
	LK_KIND_NONE = 0, /* none: a lock that is free, or an unused name */
	LK_KIND_LOCK = 1,
	LK_KIND_SEMAPHORE = 2,
	LK_KIND_LATCH = 3,
} lk_kind;

/* "nothing", "lock", "semaphore", "latch".  Never NULL.  Any thread. */
LK_API const char *lk_kind_name(lk_kind kind);

/* Query the kind of a name.  LK_EFOREIGN if its key is not Latchkey's; other errors as
 * lk_lock_query().  Any thread. */
LK_API LK_MUST_USE lk_err lk_client_name_kind(lk_client *client, const char *name, size_t name_len,
                                              lk_kind *kind);

/* Receive one name, with the bytes that it was opened with.  Return false to stop. */
typedef bool lk_name_fn(void *arg, const char *name, size_t name_len);

/* Call fn for the name of each lock that is held or waited for, each semaphore and each latch, in
 * the calling thread.  Needs the right to SCAN.  Names may appear and disappear meanwhile; no name
 * is passed twice.  The store has one command timeout for each of its responses, which have a part
 * of the names each.  In a Cluster each master is asked, and an error of one is the error; a name
 * that moves to another master meanwhile may be left out.  LK_EAUTH: lk_errmsg() names the missing
 * right.  Other errors as lk_lock_query().  Any thread. */
LK_API LK_MUST_USE lk_err lk_client_names(lk_client *client, lk_name_fn *fn, void *arg);

/* ---- The server's memory ------------------------------------------------------------------ */

/* What the server remembers without a gap.  A crash, a restart or FLUSHALL makes it another one:
 * then nothing new is granted until the grace (lk_client_options.grace_ms) has passed, while
 * clients take back the holds that they still have by their own clocks. */
typedef struct lk_memory {
	char id[96];         /* of the memory; "-" if this user may not run INFO */
	int64_t since_us;    /* its first moment, microseconds since 1970 by the server's clock; 0 =
	                      * its grace was ended by lk_client_end_grace(), or it needs none (a
	                      * server of local: that began when nothing could be held) */
	int64_t age_ms;      /* since then; 0 if since_us is 0 */
	int64_t grace_ms;    /* left of this client's grace, 0 = over, or the client has none */
	bool is_partial;     /* this user may not run INFO: the server shows only that it has lost
	                      * everything, not that it has lost a part */
	int64_t reserved[8]; /* zero */
} lk_memory;

/* Ask for the server's memory.  If the server has lost it, the client notices.  In a Cluster each
 * master has a memory of its own: all are asked, and *memory is the one whose grace is the longest.
 * LK_EUNSUPPORTED: the servers of a quorum have no grace, but do not vote after a loss; etcd has
 * none, since it forgets no hold.  Other errors as lk_lock_query().  Any thread. */
LK_API LK_MUST_USE lk_err lk_client_memory(lk_client *client, lk_memory *memory);

/* End the grace of that memory now, for all clients.  Calls that wait already notice it at their
 * next request, 11.2 s later at most.  memory: as returned by lk_client_memory();
 * NULL = whichever the server has.  A hold that its client has not taken back yet is refused, and
 * its client reports a loss: call it only if there is no such hold, or nothing that it protects.
 * In a Cluster the graces of all masters end, unless one of them began 1 s or more after that of
 * this memory (LK_EMISMATCH); after an error some may have ended.
 *
 * LK_OK, LK_EABSENT (no grace, or it is over), LK_EMISMATCH (the server has another memory),
 * LK_EUNSUPPORTED (a quorum, etcd); other
 * errors as lk_lock_query(); after LK_EUNKNOWN the grace may have ended.  Any thread. */
LK_API LK_MUST_USE lk_err lk_client_end_grace(lk_client *client, const lk_memory *memory);

/* ---- The server's address ----------------------------------------------------------------- */

typedef struct lk_server {
	char service[256];   /* whose master it is, escaped; "" without Sentinel */
	char address[256];   /* "host:port", a socket, or "local:"; escaped, and cut if longer */
	bool in_cluster;     /* it is a node of a Cluster */
	bool in_quorum;      /* a quorum: address has all its servers, as the URL names them */
	int64_t reserved[8]; /* zero */
} lk_server;

/* Return the server to which the client is connected; asks nothing.  With Sentinel it is the master
 * that was followed last.  A Cluster has no single server: LK_EINVALID.  Of a quorum, the address
 * has all servers of the URL, whether or not they vote now.  On etcd it is the member in use.
 *
 * LK_ECONN if there is no connection now, or no majority votes; LK_EINVALID, LK_EFORKED.  Any
 * thread. */
LK_API LK_MUST_USE lk_err lk_client_server(lk_client *client, lk_server *server);

/* Return the server that has the name, held or not: in a Cluster the master of its slot as far as
 * the client knows, which a call on the name brings up to date; else as lk_client_server().  Asks
 * nothing.
 *
 * LK_ECONN if there is no connection to it now; LK_EINVALID, LK_EFORKED.  Any thread. */
LK_API LK_MUST_USE lk_err lk_client_name_server(lk_client *client, const char *name,
                                                size_t name_len, lk_server *server);

/* ---- The private server of local: --------------------------------------------------------- */

typedef struct lk_local_info {
	bool running;
	int64_t pid;           /* of the server, 0 if it does not run */
	char socket_path[108]; /* of the server's socket, even if it does not run */
	char server_path[256]; /* the binary that a start uses, "" if none is installed */
	int64_t reserved[8];   /* zero */
} lk_local_info;

/* Start the server unless it runs; two simultaneous calls start one.
 *
 * LK_OK, LK_ENOSERVER, LK_ESYSTEM (the directory belongs to another user or has another mode than
 * 0700, or the server does not start: lk_errmsg()), LK_ECONN (perhaps started, but it did not
 * respond in time; repeating the call is safe).  Any thread. */
LK_API LK_MUST_USE lk_err lk_local_start(lk_local_info *info);

/* Stop the server, even while locks are held: the clients that hold them start it again and take
 * them back (see grace_ms).  If nothing was held, the next server has no grace.
 *
 * LK_OK, LK_EABSENT (it did not run), LK_ESYSTEM.  Any thread. */
LK_API LK_MUST_USE lk_err lk_local_stop(void);

/* Query the server without starting it.  LK_OK, LK_ESYSTEM.  Any thread. */
LK_API LK_MUST_USE lk_err lk_local_status(lk_local_info *info);

/* ---- Is a server fit for locks? ----------------------------------------------------------- */

/* LK_FIT_WARN: there is a risk, or the topic could not be examined.  LK_UNFIT: locks fail with this
 * server, or break a promise. */
typedef enum lk_fitness { LK_FIT = 0, LK_FIT_WARN = 1, LK_UNFIT = 2 } lk_fitness;

typedef struct lk_finding {
	lk_fitness fitness;
	const char *topic;   /* "reachable", "version", "latency", "eviction", "persistence",
	                        "memory" (not of a quorum), "replicas", "rights", "clock",
	                        "patterns" (not of a Cluster); "tls" with rediss:;
	                        "sentinels" with Sentinel; "topology", "failover" with
	                        Sentinel and of a Cluster; "quorum" of a quorum and its
	                        members; of etcd "reachable", "version", "leader", "members",
	                        "latency", "space", "rights", "tickets"; "tls" with etcds: */
	const char *text;    /* the finding, escaped */
	const char *cure;    /* what to do, "" if nothing */
	int64_t reserved[8]; /* zero */
} lk_finding;

/* Receive one finding; it is valid until this function returns. */
typedef void lk_finding_fn(void *arg, const lk_finding *finding);

/* Examine the server at url with these credentials.  Leaves nothing in the store.  Reports each
 * topic at least once, and writes the worst fitness to *worst.  fn and worst may be NULL.  Of a
 * Cluster all nodes are examined, also if url is a plain one of a node; of a quorum all servers.
 *
 * LK_OK if the server was examined, however unfit it is (an unreachable server is a finding);
 * LK_EINVALID, LK_EUNSUPPORTED (as lk_client_open()), LK_ENOMEM, LK_ESYSTEM.  The callback runs in
 * the calling thread.  Any thread. */
LK_API LK_MUST_USE lk_err lk_doctor(const char *url, const lk_client_options *options,
                                    lk_finding_fn *fn, void *arg, lk_fitness *worst);

#ifdef __cplusplus
}
#endif

#endif
