/* SPDX-License-Identifier: MIT
 * Histories, written by workers and read by the judge.  A record is one write(2) on a descriptor
 * with O_APPEND: threads cannot tear each other's records, and written records survive a kill.
 * There is no buffer that could delay a record. */
#include "chaos/history.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PATH_SIZE 4096

struct history {
	int fd;
	uint32_t pid;
	_Atomic uint64_t calls;
};

static _Atomic uint32_t threads;
static _Thread_local uint32_t thread_serial;

int64_t history_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

struct history *history_open(const char *folder)
{
	struct history *history = calloc(1, sizeof(*history));
	char path[PATH_SIZE];

	if (!history)
		return NULL;
	history->pid = (uint32_t)getpid();
	atomic_init(&history->calls, 0);
	snprintf(path, sizeof(path), "%s/%u.history", folder, history->pid);
	history->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (history->fd < 0) {
		free(history);
		return NULL;
	}
	return history;
}

void history_close(struct history *history)
{
	if (!history)
		return;
	close(history->fd);
	free(history);
}

/* A history with a gap would lead to wrong verdicts, so the process stops. */
static void put(struct history *history, const struct history_record *record)
{
	ssize_t put;

	do
		put = write(history->fd, record, sizeof(*record));
	while (put < 0 && errno == EINTR);
	if (put == (ssize_t)sizeof(*record))
		return;
	fprintf(stderr, "history: cannot write a record: %s\n", put < 0 ? strerror(errno) : "torn");
	_exit(HISTORY_EXIT);
}

static struct history_record stamped(struct history *history, const struct history_record *record,
                                     enum history_phase phase)
{
	struct history_record whole = *record;

	if (!thread_serial)
		thread_serial = atomic_fetch_add(&threads, 1) + 1;
	whole.pid = history->pid;
	whole.thread = thread_serial;
	whole.phase = (uint8_t)phase;
	return whole;
}

uint64_t history_begin(struct history *history, const struct history_record *record)
{
	struct history_record whole = stamped(history, record, HISTORY_BEGIN);

	whole.call = atomic_fetch_add(&history->calls, 1) + 1;
	whole.at_ns = history_now_ns();
	put(history, &whole);
	return whole.call;
}

void history_done(struct history *history, const struct history_record *record)
{
	int64_t at_ns = history_now_ns();
	struct history_record whole = stamped(history, record, HISTORY_DONE);

	whole.at_ns = at_ns;
	put(history, &whole);
}

void history_event(struct history *history, const struct history_record *record)
{
	int64_t at_ns = history_now_ns();
	struct history_record whole = stamped(history, record, HISTORY_EVENT);

	whole.at_ns = at_ns;
	put(history, &whole);
}

/* ---- reading -----------------------------------------------------------------------------------
 */

static bool read_file(struct history_list *list, int folder, const char *path)
{
	int fd = openat(folder, path, O_RDONLY | O_CLOEXEC);
	struct stat about;
	struct history_record *grown;
	size_t wanted, have = 0;
	ssize_t got = 1;

	if (fd < 0)
		return false;
	if (fstat(fd, &about) < 0)
		goto failed;
	wanted = (size_t)about.st_size / sizeof(*grown) * sizeof(*grown);
	grown = realloc(list->records, list->count * sizeof(*grown) + wanted + sizeof(*grown));
	if (!grown)
		goto failed;
	list->records = grown;
	while (have < wanted && got > 0) {
		got = read(fd, (char *)(grown + list->count) + have, wanted - have);
		if (got < 0 && errno == EINTR)
			got = 1;
		else if (got > 0)
			have += (size_t)got;
	}
	if (got < 0)
		goto failed;
	list->files++;
	list->torn += have % sizeof(*grown) || (size_t)about.st_size != wanted;
	list->count += have / sizeof(*grown);
	close(fd);
	return true;
failed:
	close(fd);
	return false;
}

static bool read_folder(struct history_list *list, DIR *folder)
{
	static const char end[] = ".history";

	for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
		size_t len = strlen(entry->d_name);
		if (len < sizeof(end) || strcmp(entry->d_name + len - (sizeof(end) - 1), end) != 0)
			continue;
		if (!read_file(list, dirfd(folder), entry->d_name))
			return false;
	}
	return true;
}

struct place {
	int64_t at_ns;
	size_t index;
};

static int by_time(const void *left, const void *right)
{
	const struct place *one = left, *two = right;

	if (one->at_ns != two->at_ns)
		return one->at_ns < two->at_ns ? -1 : 1;
	return one->index < two->index ? -1 : one->index > two->index;
}

bool history_sort(struct history_list *list)
{
	struct place *places = malloc((list->count + 1) * sizeof(*places));
	struct history_record *sorted = malloc((list->count + 1) * sizeof(*sorted));

	if (!places || !sorted) {
		free(places);
		free(sorted);
		return false;
	}
	for (size_t i = 0; i < list->count; i++)
		places[i] = (struct place){.at_ns = list->records[i].at_ns, .index = i};
	qsort(places, list->count, sizeof(*places), by_time);
	for (size_t i = 0; i < list->count; i++)
		sorted[i] = list->records[places[i].index];
	free(places);
	free(list->records);
	list->records = sorted;
	return true;
}

bool history_read(struct history_list *list, const char *path)
{
	DIR *folder;
	bool ok;

	*list = (struct history_list){0};
	folder = opendir(path);
	if (folder) {
		ok = read_folder(list, folder);
		closedir(folder);
	} else {
		ok = errno == ENOTDIR && read_file(list, AT_FDCWD, path);
	}
	ok = ok && history_sort(list);
	if (!ok)
		history_free(list);
	return ok;
}

void history_free(struct history_list *list)
{
	free(list->records);
	*list = (struct history_list){0};
}
