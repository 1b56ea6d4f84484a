/* SPDX-License-Identifier: MIT
 * The demo: eight processes count the identifiers of all C headers of this machine and merge their
 * counts, batch by batch, into one file under a lock.  A latch starts them together, and a
 * semaphore lets at most three of them read files at once.  A store may lack either: then a pipe
 * starts them, or all may read.
 *
 *   main        the run from start to end, with a folder and a store of its own
 *   files       the list of files, cut into batches
 *   words       counting the identifiers of one batch
 *   shared      the shared file: read, merge, replace unless the fence is old
 *   meter       counts the workers that read at this moment
 *   worker      a process: start, read a batch, lock, merge
 *   supervisor  hands batches out; kills one worker, stops another
 *   node        the processes of a store of more than one
 *   sentinel    with STORE=sentinel: the servers, whose master is killed as well
 *   cluster     with STORE=cluster: the nodes; the lock's slot moves, and its new master is killed
 *   quorum      with STORE=quorum: five servers; one is killed, another one restarts empty
 *   etcd        with STORE=etcd: three members, whose leader is killed
 *   report      the result of find, grep, sort and uniq; the table; the verdict */
#ifndef DEMO_H
#define DEMO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WORKERS 8
#define READERS 3 /* workers that read files at once */
#define BATCHES_MAX 240
#define LEASE_MS 2000
#define SERVICE_LEASE_MS 10000 /* with such a store: longer than a failover */
#define SERVICE_GRACE_MS 13000 /* the default with Sentinel */
#define CLUSTER_GRACE_MS 10000 /* and of a Cluster */
#define LONGEST_LEASE_MS 4000  /* of the quorum, and the lock's lease there */
#define DOWN_AFTER_MS 1000     /* then the sentinels take a silent master for dead */
#define SERVERS 3
#define SENTINELS 3
#define MASTERS 3
#define NODES 6            /* of a Cluster: node n + 3 is a replica of node n */
#define VOTERS 5           /* servers of a quorum */
#define ETCD_LEASE_MS 6000 /* of three command timeouts */
#define MEMBERS 3          /* of etcd */
#define REPLY_SIZE 16384
#define SERVICE "demo" /* the sentinels' name of it */
#define ROOT "/usr/include"
#define PATH_SIZE 300
#define LOCK_NAME "demo/counts"

struct meter;

/* A process of the store, of all but STORE=local. */
struct node {
	pid_t pid; /* 0 = does not run */
	int port;
	int peer_port; /* of a member of etcd: for the other members */
};
struct service {
	struct node servers[SERVERS]; /* the first one is the master */
	struct node sentinels[SENTINELS];
	struct node nodes[NODES]; /* instead of both; of a quorum VOTERS, of etcd MEMBERS of them */
	char ids[NODES][41];
	int owner; /* of the lock's slot */
};

/* What befell the servers of a quorum, or the members of etcd; a time is 0 before its event. */
struct outage {
	int64_t killed_us;    /* a server, or etcd's leader, was killed */
	int64_t granted_us;   /* the first grant after that */
	int64_t restarted_us; /* of a quorum: another one was killed, to restart empty */
	int64_t whole_us;     /* it was seen to vote again, or another leader, and the holder of
	                       * that time continued */
	bool lost;            /* that holder had lost the lock */
};

enum store { LOCAL, SENTINEL, CLUSTER, QUORUM, ETCD, STORES };

enum grant { GRANT_LOCK, GRANT_PERMIT, GRANTS };

/* The death of the master; a time is 0 before its event. */
struct failover {
	int64_t killed_us;
	int64_t named_us;         /* another master was seen */
	int64_t last_us[GRANTS];  /* of the old master, as a worker received it */
	int64_t first_us[GRANTS]; /* of the new master */
};

struct demo {
	bool locked;      /* LOCK=on: with the store */
	enum store store; /* STORE= */
	bool has_latch;   /* that store */
	bool has_permits;
	int lease_ms;           /* of the lock */
	char url[120];          /* of the store */
	char folder[200];       /* for all files of this run */
	char shared[PATH_SIZE]; /* the file that all workers change */
	char expected[PATH_SIZE];
	char **paths;
	size_t path_count;
	int batch_count;
	int64_t start_us;
	int64_t last_ready_us;                 /* when the last worker was ready */
	int64_t first_begin_us, last_begin_us; /* when the first and the last one began */
	struct meter *meter;
	int barrier[2]; /* a pipe in place of the latch: it ends when every worker has closed it */
	struct service service;
	struct failover failover;
	struct outage outage;
	pid_t checker; /* find | grep | sort | uniq, 0 once it was waited for */
};

/* ---- main.c */
int64_t now_us(void);
/* Since the start of the run. */
double seconds_of(const struct demo *demo);
/* Print an error with errno's or the library's reason; returns false. */
bool complain(const char *what, const char *reason);

/* ---- node.c */
/* Start a server in a folder of this name and print its port; a sentinel if the name begins so. */
bool node_start(struct demo *demo, struct node *node, const char *name, volatile const int *stop);
/* A port that is free now; 0 if none is. */
int node_pick_port(void);
/* In a child process that becomes a server: out of the demo's process group, and silent. */
void node_become_server(void);
/* Send one command, and read until the server closes; false if nothing came. */
bool node_ask(const struct node *node, const char *command, char reply[REPLY_SIZE]);
/* The same for a request of HTTP 1.0, after which the server closes by itself. */
bool node_get(const struct node *node, const char *request, char reply[REPLY_SIZE]);
bool node_await(bool (*reached)(struct service *), struct service *service, const char *what,
                volatile const int *stop);
void node_kill(struct node *node);
/* Kill it, and start it on the same port again.  It has saved nothing. */
bool node_restart(struct demo *demo, struct node *node, const char *name, volatile const int *stop);

/* ---- quorum.c: as sentinel.c */
bool quorum_start(struct demo *demo, volatile const int *stop);
void quorum_kill_server(struct service *service);
/* Kill another server than that one, and start it again, empty. */
bool quorum_restart_server(struct demo *demo, volatile const int *stop);
/* Whether that server has granted anything since. */
bool quorum_votes_again(const struct service *service);

/* ---- etcd.c: as sentinel.c */
bool etcd_start(struct demo *demo, volatile const int *stop);
/* False if none of them leads. */
bool etcd_kill_leader(struct service *service);
/* Whether another member leads now. */
bool etcd_has_leader(const struct service *service);

/* ---- cluster.c: as sentinel.c */
bool cluster_start(struct demo *demo, volatile const int *stop);
/* Move the slot of the lock to another master. */
bool cluster_move_slot(struct service *service);
void cluster_kill_master(struct service *service);
/* The port of the killed master's replica, once that is a master. */
int cluster_new_master(const struct service *service);

/* ---- sentinel.c */
/* Print, start, and wait until the sentinels agree.  After an error, service_end() is still
 * needed. */
bool service_start(struct demo *demo, volatile const int *stop);
void service_kill_master(struct service *service);
/* The port of another master than the first one, if a sentinel names it; else 0. */
int service_new_master(const struct service *service);
void service_end(struct service *service);
/* In a child process: end when its parent ends. */
void end_with_parent(pid_t parent);

/* ---- files.c: file i belongs to batch i % batch_count. */
bool files_find(struct demo *demo);
void files_free(struct demo *demo);

/* ---- words.c */
struct word {
	const char *text;
	size_t len;
	uint64_t count;
};
struct words; /* a table; reused from batch to batch */
struct words *words_new(void);
void words_free(struct words *words);
void words_clear(struct words *words);
/* Add all identifiers of a file; false if it cannot be read. */
bool words_count_file(struct words *words, const char *path);
/* All words in the order of their bytes; valid until the table is used again. */
const struct word *words_sorted(struct words *words, size_t *count);
int words_compare(const char *a, size_t a_len, const char *b, size_t b_len);

/* ---- shared.c */
enum outcome { MERGED, REFUSED, ALREADY_IN, FAILED };

struct shared_head {
	uint64_t fence; /* of the hold under which it was written */
	bool merged[BATCHES_MAX];
};
/* Create an empty file, before any worker opens it. */
bool shared_create(const char *path);
bool shared_read_head(const char *path, struct shared_head *head);
/* Read the whole file; the caller frees it.  *body is where the counts begin. */
char *shared_read(const char *path, size_t *len, struct shared_head *head, char **body);
/* Read the file, add the counts, write the sum to new_path. */
enum outcome shared_prepare(const char *path, const char *new_path, uint64_t fence, int batch,
                            const struct word *words, size_t word_count);
/* Rename new_path to path, unless the file at path has a greater fence. */
enum outcome shared_commit(const char *path, const char *new_path, uint64_t fence);

/* One line of counts, as uniq -c writes it.  Returns the next line, NULL on a broken one. */
const char *line_parse(const char *line, const char *end, struct word *word);

/* ---- meter.c: in shared memory, independent of the library. */
struct meter *meter_new(void);
void meter_enter(struct meter *meter, int worker);
void meter_leave(struct meter *meter, int worker);
/* The largest number that were inside at once. */
int meter_most(const struct meter *meter);

/* ---- worker.c */
enum order_kind { DO_BATCH, GO_ON, QUIT };
struct order {
	enum order_kind kind;
	int batch;
	bool pause;   /* once the lock is held, report this and wait for GO_ON */
	bool reclaim; /* then wait until the hold is taken back from a new master */
};
enum note_kind { READY, HOLDING, RECLAIMED, DONE };
struct note {
	enum note_kind kind;
	int batch;
	uint64_t fence;
	int64_t wait_us;            /* for this acquisition */
	int64_t grants_us[GRANTS];  /* when the lock and the permit before it were granted */
	int reclaimed;              /* holds that this worker has taken back so far */
	int64_t ready_us, begin_us; /* READY: at the latch, and past it */
	bool lost;                  /* the release found that the lock was lost */
	enum outcome outcome;
};
bool channel_send(int fd, const void *message, size_t size);
bool channel_receive(int fd, void *message, size_t size);
/* Run one worker in its own process; returns its exit status. */
int worker_run(const struct demo *demo, int number, int channel);

/* ---- supervisor.c */
struct worker {
	pid_t pid;
	int channel; /* -1 once it has ended */
	int batch;   /* in progress, -1 = none */
	bool pause;  /* its order has the flag */
	bool killed, stopped;
	bool moves;    /* holds the lock while its slot moves */
	bool outlives; /* holds the lock while the master, or a server of the quorum, is killed */
	bool outlasts; /* holds the lock while a server of the quorum has no vote, or etcd no leader
	                */
	bool failed;   /* ended by itself with an error */
	int merges, losses, refused, reclaimed;
	int wait_count;
	int64_t waits_us[2 * BATCHES_MAX];
};
bool supervisor_run(struct demo *demo, struct worker workers[WORKERS], volatile const int *stop);

/* ---- report.c */
bool report_start_check(struct demo *demo);
/* Also false if *stop becomes true. */
bool report_wait_for_check(struct demo *demo, volatile const int *stop);
void report_table(struct demo *demo, struct worker workers[WORKERS]);
/* Report the start and the readers; false if they broke the rules. */
bool report_limits(const struct demo *demo);
/* Report what the death of the master did; false if the rules were broken. */
bool report_failover(const struct demo *demo, const struct worker workers[WORKERS]);
/* Report what became of the quorum's servers; false if the rules were broken. */
bool report_outage(const struct demo *demo);
/* Report what the death of etcd's leader did; false if nothing was granted after it. */
bool report_leader(const struct demo *demo);
/* Print the verdict as the last line.  Returns the exit status. */
int report_verdict(struct demo *demo);

#endif
