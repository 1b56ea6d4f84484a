/* SPDX-License-Identifier: MIT
 * The file "began" in the folder of local:, see local_memory.h.  Only the holder of the folder's
 * lock changes it.  A file that was not written completely vouches for nothing. */
#include "local_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define FILE_NAME "began"

void lk__boot_id(char boot[LK__BOOT_SIZE])
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (!file || !fgets(boot, LK__BOOT_SIZE, file) || strlen(boot) != LK__BOOT_SIZE - 1)
		memcpy(boot, "-", sizeof("-"));
	if (file)
		fclose(file);
}

static int open_file(int folder, int flags)
{
	return openat(folder, FILE_NAME, flags | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static size_t read_text(int fd, char text[LK__BEGAN_SIZE])
{
	ssize_t len;

	do
		len = read(fd, text, LK__BEGAN_SIZE - 1);
	while (len < 0 && errno == EINTR);
	text[len > 0 ? len : 0] = '\0';
	return len > 0 ? (size_t)len : 0;
}

/* Does the text name a boot, and another one? */
static bool is_of_another_boot(const char *text, const char *boot)
{
	const size_t len = LK__BOOT_SIZE - 1;

	return strlen(boot) == len && strlen(text) > len && text[len] == ' ' &&
	       memcmp(text, boot, len) != 0;
}

/* "<boot> <pid> <1: nothing could be held>", without functions that are not async-signal-safe. */
static size_t put_text(char text[LK__BEGAN_SIZE], const char *boot, pid_t pid, bool unheld)
{
	char digits[24];
	size_t len = 0, count = 0;

	for (; boot[len]; len++)
		text[len] = boot[len];
	text[len++] = ' ';
	for (; pid; pid /= 10)
		digits[count++] = (char)('0' + pid % 10);
	while (count)
		text[len++] = digits[--count];
	text[len++] = ' ';
	text[len++] = unheld ? '1' : '0';
	text[len++] = '\n';
	return len;
}

bool lk__memory_begin(int folder, const char *boot, bool *unheld)
{
	char text[LK__BEGAN_SIZE];
	int fd = open_file(folder, O_RDWR);
	size_t len;
	ssize_t done;

	if (fd >= 0) {
		read_text(fd, text);
		*unheld = is_of_another_boot(text, boot);
	} else if (errno == ENOENT) {
		*unheld = true;
		fd = open_file(folder, O_RDWR | O_CREAT | O_EXCL);
	}
	if (fd < 0)
		return false;
	len = put_text(text, boot, getpid(), *unheld);
	if (ftruncate(fd, 0) != 0)
		return false;
	/* On a full disk the file stays empty, which vouches for nothing. */
	done = pwrite(fd, text, len, 0);
	(void)done;
	close(fd);
	return true;
}

void lk__memory_unbegin(int folder)
{
	unlinkat(folder, FILE_NAME, 0);
}

void lk__memory_read(int folder, char text[LK__BEGAN_SIZE])
{
	int fd = open_file(folder, O_RDONLY);

	text[0] = '\0';
	if (fd < 0)
		return;
	read_text(fd, text);
	close(fd);
}

int64_t lk__memory_unheld(const char *text)
{
	char boot[LK__BOOT_SIZE], of[LK__BOOT_SIZE];
	long long pid;
	int flag;

	lk__boot_id(boot);
	if (sscanf(text, "%36s %lld %d", of, &pid, &flag) != 3 || strcmp(of, boot) || flag != 1)
		return 0;
	return pid;
}

void lk__memory_forget(int folder, const char *text)
{
	char now[LK__BEGAN_SIZE];

	if (flock(folder, LOCK_EX | LOCK_NB) != 0)
		return;
	lk__memory_read(folder, now);
	if (!strcmp(now, text))
		lk__memory_unbegin(folder);
	flock(folder, LOCK_UN);
}
