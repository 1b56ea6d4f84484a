/* SPDX-License-Identifier: MIT
 * What the files of etcd_script.h share. */
#ifndef ETCD_SCRIPT_PARTS_H
#define ETCD_SCRIPT_PARTS_H

#include "etcd_script.h"

#include <stdio.h>

struct script_op {
	struct lk__etcd_op op;
	struct lk__etcd_range range;
	struct lk__etcd_put put;
	struct lk__etcd_delete del;
};

struct script_run {
	const struct etcd_peer *peer;
	FILE *out;
	int64_t base;        /* the revision at the beginning */
	int64_t first_lease; /* L1 is the next one */
	const char *line;
	char *rest; /* of it */
	struct lk__pb_writer writer;
	unsigned char bytes[20000];
};

/* Show an answer: a line. */
void script_show_range(struct script_run *run, struct lk__bytes answer);
void script_show_put(struct script_run *run, struct lk__bytes answer);
void script_show_delete(struct script_run *run, struct lk__bytes answer);
void script_show_txn(struct script_run *run, struct lk__bytes answer);
void script_show_header(struct script_run *run, struct lk__bytes answer);
void script_show_grant(struct script_run *run, struct lk__bytes answer);
void script_show_keep_alive(struct script_run *run, struct lk__bytes answer);
void script_show_time_to_live(struct script_run *run, struct lk__bytes answer);
void script_show_alarms(struct script_run *run, struct lk__bytes answer);
void script_show_watch(struct script_run *run, struct lk__bytes answer);

#endif
