/* SPDX-License-Identifier: MIT
 * Every regular *.h file under the root, as `find ROOT -type f -name '*.h'` sees them. */
#include "demo.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>

#define OPEN_FOLDERS 32

/* nftw() has no argument for its callback. */
static struct demo *found;
static size_t capacity;

static int take(const char *path, const struct stat *status, int type, struct FTW *place)
{
	size_t len = strlen(path);

	(void)place;
	if (type != FTW_F || !S_ISREG(status->st_mode) || len < 2 ||
	    strcmp(path + len - 2, ".h") != 0)
		return 0;
	if (found->path_count == capacity) {
		size_t more = capacity ? 2 * capacity : 1024;
		char **paths = realloc(found->paths, more * sizeof(*paths));

		if (!paths)
			return -1;
		found->paths = paths;
		capacity = more;
	}
	found->paths[found->path_count] = strdup(path);
	if (!found->paths[found->path_count])
		return -1;
	found->path_count++;
	return 0;
}

bool files_find(struct demo *demo)
{
	found = demo;
	capacity = 0;
	if (nftw(ROOT, take, OPEN_FOLDERS, FTW_PHYS) != 0)
		return complain("cannot list " ROOT, strerror(errno));
	if (demo->path_count == 0)
		return complain("no headers", "nothing to count under " ROOT);
	demo->batch_count = demo->path_count < BATCHES_MAX ? (int)demo->path_count : BATCHES_MAX;
	return true;
}

void files_free(struct demo *demo)
{
	for (size_t i = 0; i < demo->path_count; i++)
		free(demo->paths[i]);
	free(demo->paths);
}
