/* SPDX-License-Identifier: MIT
 * SHA-1: a server identifies scripts by it. */
#include "lua_store_parts.h"

#include <stdio.h>
#include <string.h>

static uint32_t turn(uint32_t value, int bits)
{
	return value << bits | value >> (32 - bits);
}

static void add_block(uint32_t state[5], const unsigned char block[64])
{
	uint32_t words[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];

	for (int i = 0; i < 16; i++)
		words[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
		           (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
	for (int i = 16; i < 80; i++)
		words[i] = turn(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
	for (int i = 0; i < 80; i++) {
		uint32_t mix, next;
		if (i < 20)
			mix = ((b & c) | (~b & d)) + 0x5a827999;
		else if (i < 40)
			mix = (b ^ c ^ d) + 0x6ed9eba1;
		else if (i < 60)
			mix = ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
		else
			mix = (b ^ c ^ d) + 0xca62c1d6;
		next = turn(a, 5) + mix + e + words[i];
		e = d;
		d = c;
		c = turn(b, 30);
		b = a;
		a = next;
	}
	state[0] += a;
	state[1] += b;
	state[2] += c;
	state[3] += d;
	state[4] += e;
}

void lua_sha1(struct lua_word text, char hex[41])
{
	uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
	const unsigned char *bytes = (const unsigned char *)text.bytes;
	uint64_t bits = (uint64_t)text.len * 8;
	unsigned char last[128] = {0};
	size_t left = text.len % 64, size = left < 56 ? 64 : 128;

	for (size_t i = 0; i + 64 <= text.len; i += 64)
		add_block(state, bytes + i);
	memcpy(last, bytes + text.len - left, left);
	last[left] = 0x80;
	for (size_t i = 0; i < 8; i++)
		last[size - 1 - i] = (unsigned char)(bits >> (8 * i));
	for (size_t i = 0; i < size; i += 64)
		add_block(state, last + i);
	for (int i = 0; i < 5; i++)
		snprintf(hex + 8 * i, 9, "%08x", state[i]);
}
