/* SPDX-License-Identifier: MIT
 * The transactions of a latch in etcd, and what their answers mean.
 *
 *   lk/D<name>              the latch: "1 c <initial> <open ttl, ms> <opened>" while it counts, its
 *                           generation being the revision that put it; "1 o <initial> <generation>"
 *                           when it is open, where a generation of 0 means the same.  opened is
 *                           the last generation that was opened before
 *   lk/D/<name>/1<client>   the number of the client's first step, if it counted one
 *   lk/D/<name>/c<client>   "<number> <sum>": of its last other step, and of all others
 *   lk/D/<name>/n<step>     that name has counted
 *
 * A step is put if the latch still has its generation, and if the client's own keys are as the
 * client knows them.  So it counts once, however often it is sent and however late it arrives, and
 * the keys of all clients, not of all steps, are the count.  They are under the latch's lease, and
 * are deleted with each change of the latch.
 *
 * A client that reads a complete count opens the latch before anything else; so a count that was
 * complete for some client cannot be reset without having opened. */
#ifndef LK__ETCD_LATCH_H
#define LK__ETCD_LATCH_H

#include "lock.h"

#define LK__ETCD_LATCH_TEXT (14 * LK__ETCD_KEY_MAX + LK__ETCD_STEP_KEY_MAX)

/* What a client has counted of the present generation. */
struct lk__etcd_own_steps {
	uint64_t first;       /* the number of the first step, if it counted one; 0 = none */
	uint64_t number, sum; /* of the others; 0 = none */
};

/* Which parts of the store a transaction reads. */
enum {
	LK__ETCD_READ_NAME = 1,  /* the name of a step */
	LK__ETCD_READ_KINDS = 2, /* what the other kinds have of the latch's name */
	LK__ETCD_CHANGES = 4,    /* if it succeeds, it reads nothing */
};

/* A transaction, with the memory that it points into: not to be copied. */
struct lk__etcd_latch_recipe {
	unsigned reads;
	struct lk__etcd_txn txn;
	struct lk__etcd_compare compares[5];
	struct lk__etcd_op success[12], failure[12];
	struct lk__etcd_range ranges[12];
	struct lk__etcd_put puts[2];
	struct lk__etcd_delete dels[2];
	unsigned range_count, put_count, del_count;
	size_t used;
	char text[LK__ETCD_LATCH_TEXT];
};

/* Read the latch, with the count and the client's own steps. */
void lk__etcd_latch_read(struct lk__etcd_latch_recipe *recipe, const struct lk__etcd_queue *queue);
/* The client's own steps, or the count, as they were at that revision. */
void lk__etcd_latch_past(struct lk__etcd_latch_recipe *recipe, const struct lk__etcd_queue *queue,
                         int64_t revision);

struct lk__etcd_step {
	uint64_t generation, number;
	uint32_t n;
	const char *name; /* len bytes, 0 = none */
	size_t len;
};

/* Count the step.  own: what the client has counted before, as far as it knows; lease: the latch's.
 * Returns what it has counted afterwards. */
struct lk__etcd_own_steps lk__etcd_latch_step(struct lk__etcd_latch_recipe *recipe,
                                              const struct lk__etcd_queue *queue,
                                              const struct lk__etcd_step *step,
                                              const struct lk__etcd_own_steps *own, int64_t lease);

/* What the latch's key says. */
struct lk__etcd_latch_value {
	bool is_open;
	uint64_t generation;
	int64_t initial, open_ttl_ms;
	uint64_t opened; /* the last generation that was opened */
};

/* Put the value, if the latch's key is still of revision mod (0 = there is none), and, of a latch
 * that counts, if no step was counted since that read; its steps are deleted.  A latch that is new
 * must be the only thing of its name.  An open latch with a generation of 0 gets its revision. */
void lk__etcd_latch_put(struct lk__etcd_latch_recipe *recipe, const struct lk__etcd_queue *queue,
                        const struct lk__etcd_latch_value *value, int64_t lease, int64_t mod,
                        int64_t read);
/* Delete it, on the same conditions. */
void lk__etcd_latch_remove(struct lk__etcd_latch_recipe *recipe, const struct lk__etcd_queue *queue,
                           int64_t mod, int64_t read);

/* What a read, or a transaction that failed, shows. */
struct lk__etcd_latch_seen {
	bool succeeded;
	int64_t revision; /* of the store */
	bool is_there;
	bool is_foreign;    /* the latch's key is not a latch's */
	char other_kind;    /* the letter of another kind that has the name, 0 = none */
	bool has_name;      /* the step's name has counted */
	int64_t mod, lease; /* of the latch's key */
	struct lk__etcd_latch_value value;
	int64_t total; /* of all steps */
	struct lk__etcd_own_steps own;
	int64_t first_mod, number_mod; /* the revisions of those keys */
};

/* False if it is no answer to that transaction, of which reads are known. */
bool lk__etcd_latch_see(unsigned reads, const void *answer, size_t len,
                        struct lk__etcd_latch_seen *seen);

/* Read the value of a latch's key with that revision.  False if it is none. */
bool lk__etcd_latch_value_read(struct lk__etcd_latch_value *value, struct lk__bytes text,
                               int64_t mod);

/* Of a latch that counts. */
static inline int64_t lk__etcd_latch_left(const struct lk__etcd_latch_seen *seen)
{
	int64_t left = seen->value.initial - seen->total;

	return seen->value.is_open || left < 0 ? 0 : left;
}

/* All has counted, and no client has written that it is open. */
static inline bool lk__etcd_latch_is_complete(const struct lk__etcd_latch_seen *seen)
{
	return seen->is_there && !seen->value.is_open && lk__etcd_latch_left(seen) == 0;
}

#endif
