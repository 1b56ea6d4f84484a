/* SPDX-License-Identifier: MIT
 * The options of clients, locks, semaphores and latches, through the calls that take them: one that
 * is out of bounds is rejected by its name and leaves nothing behind, a valid one is used
 * unchanged.  The client was never connected: no call here asks a store. */
#include "runtime/client.h"
#include "core/latch.h"
#include "net/fork.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_MAX 600

static struct lk_client *client;

static void make_client(void)
{
	struct lk__why why = {0};

	client = calloc(1, sizeof(*client));
	if (!client || pthread_mutex_init(&client->mutex, NULL) ||
	    !lk__cond_init(&client->callbacks.work) || !lk__cond_init(&client->quiet_cond) ||
	    lk__target_parse("redis://127.0.0.1:1?command_timeout=1", NULL, &client->target,
	                     &why) ||
	    !lk__core_init(&client->core, 1) || !lk__wake_init(&client->loop.wake))
		abort();
	client->loop.timer_fd = -1;
	client->fork_generation = lk__fork_generation();
	memcpy(client->id, "abcdefghijklmnopqrstuv", sizeof(client->id));
	client->store = lk__store_of(&client->target, &why)->create(&client->target, client->id);
	if (!client->store || !lk__client_add_link(client))
		abort();
}

/* A copy of the input of the exact size, so that a sanitizer finds a read of one byte too many. */
static char *any_text(struct fuzz_input *input, size_t *len)
{
	static const size_t borders[] = {0,   1,   5,   32,  33,  64,  65, 128,
	                                 129, 200, 201, 511, 512, 513, 550};
	size_t want = borders[fuzz_below(input, sizeof(borders) / sizeof(*borders))];
	char *text = malloc(want + 1);

	if (!text)
		abort();
	for (size_t i = 0; i < want; i++)
		text[i] = input->left ? (char)(fuzz_byte(input) | 1) : 'x';
	text[want] = '\0';
	*len = want;
	return text;
}

static bool within(int64_t value, int64_t min, int64_t max)
{
	return value >= min && value <= max;
}

static bool good_lease(int64_t lease_ms)
{
	return !lease_ms || within(lease_ms, LK_LEASE_MIN_MS, LK_LEASE_MAX_MS);
}

static bool good_ttl(int64_t ttl_ms)
{
	return !ttl_ms || within(ttl_ms, LK_TTL_MIN_MS, LK_TTL_MAX_MS);
}

/* The defaults of all handles here. */
struct common {
	char *name, *label;
	size_t name_len; /* as given */
	int64_t reserved;
	bool good;
};

static void common_init(struct fuzz_input *input, struct common *common)
{
	size_t len, label_len = 0;

	common->name = any_text(input, &len);
	common->name_len = fuzz_below(input, 2) ? len : 0;
	common->label = fuzz_below(input, 2) ? any_text(input, &label_len) : NULL;
	common->reserved = fuzz_below(input, 8) == 7 ? fuzz_number(input) : 0;
	common->good = within((int64_t)len, 1, LK_NAME_MAX) && label_len <= LK_LABEL_MAX &&
	               !common->reserved;
}

static void common_fini(struct common *common)
{
	free(common->name);
	free(common->label);
}

static void check(bool good, lk_err err)
{
	FUZZ_MUST((err == LK_OK) == good, "%s instead of %s: %s", lk_err_name(err),
	          good ? "LK_OK" : "LK_EINVALID", lk_errmsg());
	if (!err)
		return;
	FUZZ_MUST(err == LK_EINVALID, "refused with %s", lk_err_name(err));
	FUZZ_MUST(strchr(lk_errmsg(), ':') && fuzz_is_plain(lk_errmsg()), "a reason: %s",
	          lk_errmsg());
}

static void open_lock(struct fuzz_input *input)
{
	lk_lock_options options = {0};
	struct common common;
	lk_lock *lock = NULL;
	bool good;

	common_init(input, &common);
	options.lease_ms = fuzz_number(input);
	options.max_hold_ms = fuzz_number(input);
	options.owner = (lk_owner)(int)fuzz_below(input, 4);
	options.fixed = fuzz_below(input, 2);
	options.label = common.label;
	options.reserved[fuzz_below(input, 8)] = common.reserved;
	good = common.good && good_lease(options.lease_ms) &&
	       within(options.max_hold_ms, 0, INT64_C(1000) * LK_LEASE_MAX_MS) &&
	       (options.owner == LK_OWNER_THREAD || options.owner == LK_OWNER_HANDLE);
	check(good, lk_lock_open(client, common.name, common.name_len, &options, &lock));
	FUZZ_MUST(good == (lock != NULL), "a lock");
	if (lock) {
		FUZZ_MUST(lock->handle.queue->lease_ms ==
		                  (options.lease_ms ? options.lease_ms : LK_LEASE_DEFAULT_MS),
		          "another lease");
		FUZZ_MUST(!lk_lock_close(lock), "close: %s", lk_errmsg());
	}
	common_fini(&common);
}

static void open_latch(struct fuzz_input *input)
{
	lk_latch_options options = {0};
	struct common common;
	lk_latch *latch = NULL;
	bool good;

	common_init(input, &common);
	options.open_ttl_ms = fuzz_number(input);
	options.counting_ttl_ms = fuzz_number(input);
	options.label = common.label;
	options.reserved[fuzz_below(input, 8)] = common.reserved;
	good = common.good && good_ttl(options.open_ttl_ms) && good_ttl(options.counting_ttl_ms);
	check(good, lk_latch_open(client, common.name, common.name_len, &options, &latch));
	FUZZ_MUST(good == (latch != NULL), "a latch");
	if (latch)
		FUZZ_MUST(!lk_latch_close(latch), "close: %s", lk_errmsg());
	common_fini(&common);
}

/* This would ask the store: only invalid options are tried. */
static void open_semaphore(struct fuzz_input *input)
{
	lk_semaphore_options options = {0};
	struct common common;
	lk_semaphore *semaphore = NULL;
	bool good;

	common_init(input, &common);
	options.capacity = fuzz_number(input);
	options.lease_ms = fuzz_number(input);
	options.max_hold_ms = fuzz_number(input);
	options.ttl_ms = fuzz_number(input);
	options.fixed = fuzz_below(input, 2);
	options.label = common.label;
	options.reserved[fuzz_below(input, 8)] = common.reserved;
	good = common.good && good_lease(options.lease_ms) && good_ttl(options.ttl_ms) &&
	       within(options.capacity, 0, LK_PERMITS_MAX) &&
	       within(options.max_hold_ms, 0, INT64_C(1000) * LK_LEASE_MAX_MS);
	if (!good) {
		check(false, lk_semaphore_open(client, common.name, common.name_len, &options,
		                               &semaphore));
		FUZZ_MUST(!semaphore, "a semaphore");
	}
	common_fini(&common);
}

static bool good_time(int64_t time_ms)
{
	return within(time_ms, 0, 3600000);
}

static bool only(const char *text, size_t min, size_t max, char first, char last)
{
	size_t len = strlen(text);

	for (size_t i = 0; i < len; i++)
		if (text[i] < first || text[i] > last)
			return false;
	return within((int64_t)len, (int64_t)min, (int64_t)max);
}

static bool good_prefix(const char *text)
{
	return only(text, 1, 32, '-', 'z') && !strpbrk(text, "/:;<=>?@[\\]^`");
}

static void open_target(struct fuzz_input *input)
{
	lk_client_options options = {0};
	const size_t room = sizeof(options.reserved) / sizeof(options.reserved[0]);
	struct lk__target target;
	struct lk__why why = {0};
	char *texts[5] = {NULL};
	unsigned given = fuzz_byte(input);
	size_t len;
	bool good;

	for (int i = 0; i < 5; i++)
		if (given & 1u << i)
			texts[i] = any_text(input, &len);
	options.prefix = texts[0];
	options.client_name = texts[1];
	options.user = texts[2];
	options.password = texts[3];
	options.label = texts[4];
	options.connect_timeout_ms = given & 32 ? fuzz_number(input) : 0;
	options.command_timeout_ms = given & 64 ? fuzz_number(input) : 0;
	options.keepalive_ms = given & 128 ? fuzz_number(input) : 0;
	options.log_level = (lk_log_level)(int)fuzz_below(input, 8);
	options.reserved[fuzz_below(input, 8) % room] =
		fuzz_below(input, 8) == 7 ? fuzz_number(input) : 0;
	good = good_time(options.connect_timeout_ms) && good_time(options.command_timeout_ms) &&
	       good_time(options.keepalive_ms) && (int)options.log_level <= LK_LOG_DEBUG &&
	       (!texts[0] || good_prefix(texts[0])) &&
	       (!texts[1] || only(texts[1], 1, 128, 0x21, 0x7e)) &&
	       (!texts[2] || (texts[2][0] && texts[3])) &&
	       (!texts[4] || strlen(texts[4]) <= LK_LABEL_MAX);
	for (size_t i = 0; i < room; i++)
		good = good && !options.reserved[i];
	check(good,
	      lk__target_parse("redis://h", &options, &target, &why) ? lk__fail(&why) : LK_OK);
	lk__target_fini(&target);
	for (int i = 0; i < 5; i++)
		free(texts[i]);
}

/* The call, its options; and so on. */
void fuzz_options(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};

	if (!client)
		make_client();
	for (int i = 0; i < 4 && input.left; i++) {
		switch (fuzz_below(&input, 4)) {
		case 0:
			open_lock(&input);
			break;
		case 1:
			open_latch(&input);
			break;
		case 2:
			open_semaphore(&input);
			break;
		default:
			open_target(&input);
		}
	}
	FUZZ_MUST(!client->handles && !client->core.names.count && !client->calls_inside,
	          "a handle is left");
}
