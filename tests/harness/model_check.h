/* SPDX-License-Identifier: MIT
 * Checks of the model: a wrong variant is found, and what ships is clean. */
#ifndef MODEL_CHECK_H
#define MODEL_CHECK_H

#include "model/plants.h"
#include "test.h"

#include <string.h>

/* By the promise that it breaks; without the variant the same bounds find nothing. */
static inline void finds(const char *name, enum promise promise, const char *harm)
{
	const struct model_plant *plant = model_plant(name);
	struct explore_plan plan;
	struct explore_result result;
	const char *id = promise_table[promise].id;

	ck_assert_ptr_nonnull(plant);
	model_plant_explore(plant, &plan, &result);
	ck_assert_msg(result.wrong, "nothing was found");
	explore_tell(&plan, &result);
	ck_assert_msg(!strncmp(result.wrong, id, strlen(id)) && strstr(result.wrong, harm),
	              "it breaks: %s", result.wrong);
	explore_fini(&result);
}

static inline void is_clean(const struct model_bounds *bounds)
{
	struct explore_plan plan = {.bounds = bounds};
	struct explore_result result;

	explore(&plan, &result);
	if (result.wrong)
		explore_tell(&plan, &result);
	ck_assert_msg(!result.wrong, "%s", result.wrong);
	ck_assert(!result.cut);
	ck_assert_uint_gt(result.ends, 10);
	explore_fini(&result);
}

#endif
