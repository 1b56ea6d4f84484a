/* SPDX-License-Identifier: MIT
 * The entry points for libFuzzer.  One program has all targets; the name of the program selects
 * one. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libFuzzer requires these names. */
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
