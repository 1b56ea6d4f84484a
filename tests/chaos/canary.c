/* SPDX-License-Identifier: MIT
 * The canary: shared memory that each holder enters and leaves, so that two holders inside at the
 * same time are detected, even for a nanosecond.  Meeting another thread inside is no proof: it may
 * be dead, or stopped past its lease.  So each thread records until when its hold is certain; only
 * a meeting of two certain holds is a violation. valid_until is never later than the truth, and is
 * checked after the exchange, so each reported violation is a real one. */
#include "chaos/chaos.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

const struct chaos_name chaos_names[CHAOS_NAMES_ALL] = {
	{"alpha", CHAOS_LOCK, 1, 0},     {"beta", CHAOS_LOCK, 1, 0},
	{"gamma", CHAOS_LOCK, 1, 0},     {"pool", CHAOS_SEMAPHORE, 3, 0},
	{"desk", CHAOS_SEMAPHORE, 5, 0}, {"tap", CHAOS_RATE, 40, 250},
	{"gate", CHAOS_LATCH, 0, 0},     {"flag", CHAOS_LATCH, 0, 0},
	{"delta", CHAOS_LOCK, 1, 0},     {"epsilon", CHAOS_LOCK, 1, 0},
	{"zeta", CHAOS_LOCK, 1, 0},
};

const char *chaos_sort_name(enum chaos_sort sort)
{
	static const char *const names[] = {"lock", "semaphore", "rate", "latch"};

	return names[sort];
}

uint64_t chaos_next(struct chaos_dice *dice)
{
	uint64_t word = dice->state += 0x9e3779b97f4a7c15u;

	word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
	word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
	return word ^ (word >> 31);
}

int64_t chaos_between(struct chaos_dice *dice, int64_t low, int64_t high)
{
	return low + (int64_t)(chaos_next(dice) % (uint64_t)(high - low + 1));
}

bool chaos_once_in(struct chaos_dice *dice, int64_t times)
{
	return chaos_between(dice, 1, times) == 1;
}

struct chaos_page *chaos_page_map(const char *folder, bool create)
{
	char path[300];
	struct chaos_page *page;
	int fd;

	snprintf(path, sizeof(path), "%s/page", folder);
	fd = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0600);
	if (fd < 0)
		return NULL;
	if (create && ftruncate(fd, sizeof(*page))) {
		close(fd);
		return NULL;
	}
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return page == MAP_FAILED ? NULL : page;
}

void chaos_page_unmap(struct chaos_page *page)
{
	munmap(page, sizeof(*page));
}

/* ---- a lock ------------------------------------------------------------------------------- */

/* The stay of a token, NULL if its slot has been reused too often to know. */
static struct chaos_stay *stay_of(struct chaos_page *page, uint64_t token)
{
	uint64_t serial = token >> 8;
	struct chaos_stay *stay;

	if (!token)
		return NULL;
	stay = &page->slots[(token & 0xff) - 1].ring[serial % CHAOS_RING];
	return stay->serial == serial ? stay : NULL;
}

int canary_enter(struct canary *canary, int64_t valid_until_ns)
{
	struct chaos_place *place = &canary->page->places[canary->name];
	struct chaos_slot *slot = &canary->page->slots[canary->slot];
	uint64_t serial = ++slot->serial, before;
	struct chaos_stay *stay = &slot->ring[serial % CHAOS_RING], *other;
	bool met;
	int64_t now_ns;

	stay->serial = 0;
	stay->sure = stay->wrote = false;
	stay->pid = (uint32_t)getpid();
	stay->valid_until_ns = valid_until_ns;
	stay->serial = serial;
	canary->stay = stay;
	canary->token = serial << 8 | (uint64_t)(canary->slot + 1);
	canary->other = 0;
	before = atomic_exchange(&place->owner, canary->token);
	now_ns = history_now_ns();
	other = stay_of(canary->page, before);
	met = other && other->sure && other->valid_until_ns > now_ns;
	if (met)
		canary->other = other->pid;
	canary->writer = place->writer;
	canary->read = place->value;
	/* If this thread was stopped before the exchange, its hold is no longer certain, and the
	 * other one is not to blame. */
	stay->sure = canary->valid(canary->arg) > 0;
	return met && stay->sure;
}

void canary_refresh(struct canary *canary, int64_t valid_until_ns)
{
	if (valid_until_ns)
		canary->stay->valid_until_ns = valid_until_ns;
}

void canary_lost(struct canary *canary)
{
	canary->stay->valid_until_ns = 0;
}

int canary_store(struct canary *canary, uint64_t fence)
{
	struct chaos_place *place = &canary->page->places[canary->name];
	uint64_t highest = place->fence;

	while (fence >= highest)
		if (atomic_compare_exchange_weak(&place->fence, &highest, fence))
			return 0;
	canary->page->refused++;
	return canary->valid(canary->arg) > 0 ? 2 : 0;
}

int canary_leave(struct canary *canary)
{
	struct chaos_place *place = &canary->page->places[canary->name];
	uint64_t mine = canary->token, writer;
	struct chaos_stay *other;
	int err = 0;

	writer = place->writer;
	other = stay_of(canary->page, writer);
	if (writer != canary->writer && other && other->wrote && canary->stay->sure &&
	    canary->valid(canary->arg) > 0) {
		canary->other = other->pid;
		err = 2;
	}
	place->value = canary->read + 1;
	place->writer = mine;
	canary->stay->wrote = canary->valid(canary->arg) > 0;
	if (!canary->stay->wrote)
		canary->page->lost_writes++;
	if (atomic_compare_exchange_strong(&place->owner, &mine, 0))
		return err;
	other = stay_of(canary->page, mine);
	if (mine && other && other->sure && canary->valid(canary->arg) > 0) {
		canary->other = other->pid;
		err = 1;
	}
	return err;
}

/* ---- permits ------------------------------------------------------------------------------ */

/* All stays that are certainly inside; seen gets the stays that were counted. */
static int64_t permits_inside(struct chaos_place *place, uint64_t seen[CHAOS_SLOTS],
                              int64_t until[CHAOS_SLOTS])
{
	int64_t sum = 0;

	for (int i = 0; i < CHAOS_SLOTS; i++) {
		struct chaos_permits *at = &place->permits[i];
		int64_t permits;
		seen[i] = at->serial;
		until[i] = at->valid_until_ns;
		permits = at->permits;
		if (at->serial != seen[i] || until[i] <= history_now_ns())
			seen[i] = 0;
		sum += seen[i] ? permits : 0;
	}
	return sum;
}

int canary_take(struct canary *canary, int64_t permits, int64_t capacity, int64_t valid_until_ns)
{
	struct chaos_place *place = &canary->page->places[canary->name];
	struct chaos_permits *mine = &place->permits[canary->slot];
	uint64_t first[CHAOS_SLOTS], second[CHAOS_SLOTS];
	int64_t until[CHAOS_SLOTS], sum = 0, now_ns;

	canary_keep(canary, permits, valid_until_ns);
	if (permits_inside(place, first, until) <= capacity)
		return 0;
	/* A thread that was inside before and after a moment was inside then, with its permits at
	 * the end. */
	now_ns = history_now_ns();
	permits_inside(place, second, until);
	for (int i = 0; i < CHAOS_SLOTS; i++)
		if (first[i] && first[i] == second[i] && until[i] > now_ns)
			sum += place->permits[i].permits;
	for (int i = 0; i < CHAOS_SLOTS; i++)
		if (second[i] && place->permits[i].serial != second[i])
			return 0;
	return sum > capacity && mine->permits && canary->valid(canary->arg) > 0;
}

void canary_keep(struct canary *canary, int64_t permits, int64_t valid_until_ns)
{
	struct chaos_permits *mine = &canary->page->places[canary->name].permits[canary->slot];

	/* A changed hold is a new one to a thread that counts: the serial is written first and
	 * last. */
	mine->valid_until_ns = 0;
	mine->serial++;
	mine->permits = permits;
	mine->valid_until_ns = valid_until_ns;
}

void canary_give(struct canary *canary)
{
	canary_keep(canary, 0, 0);
}
