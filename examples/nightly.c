/* SPDX-License-Identifier: MIT
 * Append the free disk space to a shared journal: nightly JOURNAL.  cron starts this program on
 * every machine in the same minute; one of them writes, and the others exit. */
#include <latchkey.h>
#include <stdio.h>
#include <sys/statvfs.h>

int main(int argc, char **argv)
{
	lk_client *client = NULL;
	lk_lock *lock;
	struct statvfs disk;
	FILE *journal = NULL;
	uint64_t fence;
	lk_err err = lk_client_open(NULL, NULL, &client);

	if (err == LK_OK)
		err = lk_lock_open(client, "nightly", 0, NULL, &lock);
	if (err == LK_OK)
		err = lk_lock_acquire(lock, 0, &fence);
	if (err == LK_OK && argc == 2 && !statvfs("/", &disk))
		journal = fopen(argv[1], "a");
	if (journal) {
		fprintf(journal, "%llu: %llu MB free\n", (unsigned long long)fence,
		        (unsigned long long)disk.f_bavail * disk.f_frsize >> 20);
		fclose(journal);
		err = lk_lock_release(lock);
	}
	if (err != LK_OK)
		fprintf(stderr, "nightly: %s\n", lk_errmsg());
	lk_client_close(client);
	return err != LK_OK || !journal;
}
