/* SPDX-License-Identifier: MIT
 * Use a fence in a file: fenced_file URL PATH replaces PATH with a line from standard input, under
 * a lock, unless a later holder has written it. */
#include <latchkey.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Replace the file unless a later holder has written it: 1 done, 0 refused, -1 errno.  Its first
 * line is the fence of its writer.  The guard makes check and rename one step. */
static int fenced_write(const char *path, uint64_t fence, const char *text)
{
	char guard_path[4096], new_path[4096], line[32];
	int guard, result = -1;
	FILE *file;

	snprintf(guard_path, sizeof(guard_path), "%s.guard", path);
	snprintf(new_path, sizeof(new_path), "%s.new", path);
	guard = open(guard_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (guard < 0 || flock(guard, LOCK_EX))
		goto out;
	file = fopen(path, "r");
	if (file && fgets(line, sizeof(line), file) && strtoull(line, NULL, 10) > fence)
		result = 0;
	if (file)
		fclose(file);
	if (result == 0 || !(file = fopen(new_path, "w")))
		goto out;
	if (fprintf(file, "%" PRIu64 "\n%s\n", fence, text) > 0 && !fflush(file) &&
	    !fsync(fileno(file)) && !rename(new_path, path))
		result = 1;
	fclose(file);
out:
	if (guard >= 0)
		close(guard);
	return result;
}

int main(int argc, char **argv)
{
	lk_lock_options options = {.lease_ms = 500};
	lk_client *client;
	lk_lock *lock;
	char text[256] = "";
	uint64_t fence;
	int result;

	if (argc != 3) {
		fprintf(stderr, "usage: fenced_file URL PATH\n");
		return 64;
	}
	if (lk_client_open(argv[1], NULL, &client) ||
	    lk_lock_open(client, argv[2], 0, &options, &lock) ||
	    lk_lock_acquire(lock, LK_FOREVER, &fence)) {
		fprintf(stderr, "fenced_file: %s\n", lk_errmsg());
		return 1;
	}
	printf("fence %" PRIu64 "\n", fence);
	fflush(stdout);
	if (!fgets(text, sizeof(text), stdin))
		text[0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	result = fenced_write(argv[2], fence, text);
	if (result < 0)
		perror(argv[2]);
	printf("%s\n", result > 0 ? "written" : result == 0 ? "refused" : "failed");
	if (lk_lock_release(lock) == LK_ELOST)
		printf("the lock was lost: %s\n", lk_errmsg());
	lk_client_close(client);
	return result > 0 ? 0 : 1;
}
