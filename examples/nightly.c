/* SPDX-License-Identifier: MIT
 * Append the free disk space to a shared journal: nightly JOURNAL.  cron starts this program on
 * every machine in the same minute; one of them writes, and the others exit. */
#include <latchkey.h>
#include <stdio.h>
#include <sys/statvfs.h>

/* Append a line to the journal; called under the lock. */
static int write_line(void *path, uint64_t fence)
{
	struct statvfs disk;
	FILE *journal;

	if (statvfs("/", &disk) || !(journal = fopen(path, "a")))
		return 1;
	fprintf(journal, "%llu: %llu MB free\n", (unsigned long long)fence,
	        (unsigned long long)disk.f_bavail * disk.f_frsize >> 20);
	return fclose(journal) != 0;
}

int main(int argc, char **argv)
{
	lk_client *client = NULL;
	lk_lock *lock;
	lk_run run = {.result = 1};
	lk_err err;

	if (argc != 2)
		return 64;
	err = lk_client_open(NULL, NULL, &client);
	if (err == LK_OK)
		err = lk_lock_open(client, "nightly", 0, NULL, &lock);
	if (err == LK_OK)
		err = lk_lock_run(lock, 0, write_line, argv[1], &run);
	if (err != LK_OK)
		fprintf(stderr, "nightly: %s\n", lk_errmsg());
	lk_client_close(client);
	return err != LK_OK || run.result != 0;
}
