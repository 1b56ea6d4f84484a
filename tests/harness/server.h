/* SPDX-License-Identifier: MIT
 * Real Redis (or Valkey) servers for tests: one a test, on loopback TCP and on a Unix socket, in a
 * folder of its own, stopped with the test however the test ends. */
#ifndef SERVER_H
#define SERVER_H

#include <stdbool.h>
#include <sys/types.h>

#define SERVER_ARGS_MAX 32

struct test_server {
	pid_t pid;             /* 0 if it is not running */
	int port;              /* on 127.0.0.1, 0 = Unix socket only */
	int bus_port;          /* of a node of a Cluster, else 0 */
	int tls_port;          /* 0 = none */
	char dir[80];          /* its folder: redis.log, dump.rdb, ... */
	char socket_path[100]; /* in dir */
	char url[80];          /* redis://127.0.0.1:port?grace=0; the Unix one without TCP */
	char unix_url[130];    /* redis+unix:///...?grace=0 */
	const char *args[SERVER_ARGS_MAX]; /* borrowed from the options */
};

struct server_options {
	bool unix_only;          /* no TCP port */
	bool appendonly;         /* AOF, each write synced */
	bool grace;              /* the URLs are without ?grace=0 */
	bool cluster;            /* a node of a Cluster, as yet alone */
	bool tls;                /* a TLS port as well; args name the certificate */
	const char *const *args; /* more arguments, NULL-ended: {"--maxmemory", "1mb", NULL} */
};

/* Start a server and wait until it replies to PING; options may be NULL. Without extra arguments it
 * saves nothing, and its log level is warning.  Fails the test on an error. */
void server_start(struct test_server *server, const struct server_options *options);
/* SIGKILL; the port and the folder stay as they are, for server_restart(). */
void server_kill(struct test_server *server);
/* Restart it with the same port, folder and arguments; after server_kill() or while it runs. */
void server_restart(struct test_server *server);
/* Kill it if it runs, and remove its folder. */
void server_stop(struct test_server *server);
void server_pause(struct test_server *server);  /* SIGSTOP, returns when it is stopped */
void server_resume(struct test_server *server); /* SIGCONT */

/* Does it reply to PING, with an error if it wants a password? */
bool server_answers(const struct test_server *server);

/* The path of a server binary and its argv[0]: LATCHKEY_SERVER, as in the library, else an
 * installed one; false if there is none. */
bool server_find(char *path, unsigned size, const char **argv0);

/* A TCP port on 127.0.0.1 without a listener, outside the range of outgoing connections. */
int port_pick(void);

#endif
