/* SPDX-License-Identifier: MIT
 * Numbers for random walks, from a seed: SplitMix64 (Steele, Lea and Flood, 2014). */
#ifndef RANDOM_WALK_H
#define RANDOM_WALK_H

#include <stdint.h>

/* The next number from 0 to limit - 1. */
static inline uint32_t random_below(uint64_t *state, uint32_t limit)
{
	uint64_t bits = *state += UINT64_C(0x9e3779b97f4a7c15);

	bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
	return (uint32_t)((bits ^ bits >> 31) % limit);
}

#endif
