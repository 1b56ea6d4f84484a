/* SPDX-License-Identifier: MIT
 * Real etcd servers for tests: one node or three, on loopback ports below those of outgoing
 * connections, in a folder of their own, ended by their pids however the test ends. */
#ifndef ETCD_SERVER_H
#define ETCD_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

#define ETCD_NODES_MAX 3
#define ETCD_ARGS_MAX 40

struct etcd_node {
	pid_t pid; /* 0 if it does not run */
	int port;  /* for clients */
	int peer_port;
	int health_port;
	const char *folder; /* of its program, NULL = as etcd_program() */
};

struct etcd_servers {
	struct etcd_node nodes[ETCD_NODES_MAX];
	int count;
	char dir[80];
	const char *tls;                 /* the folder of certificates, NULL = plain */
	bool client_certificates;        /* are demanded */
	bool syncs;                      /* waits for the disk, as a real one does */
	const char *args[ETCD_ARGS_MAX]; /* more, NULL-ended */
	/* Called before the nodes start, in the folders n0, n1... of dir; NULL = nothing. */
	void (*prepare)(struct etcd_servers *servers);
	int first_group; /* of node n is this plus n, so that packets can be told apart; 0 = own */
};

/* Start the nodes, each of which then has a leader.  The members for TLS, syncs, args, prepare,
 * first_group and the nodes' folders are set; the others are filled in.  Certificates: "server" of
 * the CA "ca", as certificate_make_usual() makes them.  Fails the test on an error. */
void etcd_start(struct etcd_servers *servers, int count);
void etcd_stop(struct etcd_servers *servers);
void etcd_kill(struct etcd_servers *servers, int node);
void etcd_pause(struct etcd_servers *servers,
                int node); /* SIGSTOP, and waits until it is stopped */
/* Start the node's process. */
void etcd_begin(struct etcd_servers *servers, int node);
/* Start it again, and wait until it has a leader. */
void etcd_restart(struct etcd_servers *servers, int node);
/* Start all that do not run, and wait until each has a leader. */
void etcd_restart_dead(struct etcd_servers *servers);
/* The URL that names all nodes, with that userinfo ("user:password@" or "") and options ("?lazy=1"
 * or ""): static memory. */
const char *etcd_url(const struct etcd_servers *servers, const char *userinfo, const char *options);
/* Does the node answer, and has it a leader? */
bool etcd_is_healthy(const struct etcd_servers *servers, int node);
/* The sum of a node's metrics whose line begins with that name and contains that text. */
double etcd_metric(const struct etcd_servers *servers, int node, const char *name,
                   const char *contains);
/* etcd or etcdctl: in LATCHKEY_ETCD, or that of tools/etcd, or an installed one; static memory. */
const char *etcd_program(const char *name);
/* Run etcdctl at the first node; its output, static memory.  Fails the test if it fails. */
const char *etcd_ctl(const struct etcd_servers *servers, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
