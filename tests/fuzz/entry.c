/* SPDX-License-Identifier: MIT
 * What libFuzzer calls.  One program has all targets; the name by which it was started says which.
 */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libFuzzer knows these by name. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct fuzz_target *target;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *slash = strrchr((*argv)[0], '/');
	const char *name = slash ? slash + 1 : (*argv)[0];

	(void)argc;
	target = fuzz_target_find(name);
	if (!target) {
		fprintf(stderr, "no target is called %s\n", name);
		exit(1);
	}
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	target->run(data, size);
	return 0;
}
