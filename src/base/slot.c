/* SPDX-License-Identifier: MIT
 * The slots of a Redis Cluster.  A slot is the CRC16 (XMODEM) of what is between the first '{' of a
 * key and the next '}', modulo 16384.  Our prefixes and encoded names contain neither. */
#include "slot.h"

#include "text.h"

#include <assert.h>
#include <stdbool.h>

#define POLYNOMIAL 0x1021
#define CHUNK 64 /* bytes of a name that are encoded at once */

static uint16_t crc16(uint16_t crc, const char *bytes, size_t len)
{
	/* Of four bits at the top. */
	static const uint16_t table[16] = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5,
	                                   0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b,
	                                   0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};

	for (size_t i = 0; i < len; i++) {
		unsigned byte = (unsigned char)bytes[i];

		crc = (uint16_t)(crc << 4 ^ table[crc >> 12 ^ byte >> 4]);
		crc = (uint16_t)(crc << 4 ^ table[crc >> 12 ^ (byte & 15)]);
	}
	return crc;
}

unsigned lk__slot_of(const char *name, size_t len)
{
	char encoded[3 * CHUNK + 1];
	uint16_t crc = 0;

	for (size_t at = 0; at < len; at += CHUNK) {
		size_t part = len - at < CHUNK ? len - at : CHUNK;

		crc = crc16(crc, encoded, lk__name_encode(encoded, name + at, part));
	}
	return crc % LK__SLOTS;
}

/* The two bytes, as one number, of which this is the CRC. */
static unsigned two_bytes_of(unsigned crc)
{
	for (int bit = 0; bit < 16; bit++)
		crc = crc & 1 ? (crc ^ POLYNOMIAL) >> 1 | 0x8000 : crc >> 1;
	return crc;
}

static bool is_letter(unsigned byte)
{
	return byte >= 'a' && byte <= 'z';
}

/* Find the last two letters behind the first two; false if there are none.  The CRC of the whole is
 * that of the last two bytes XOR the CRC of the first two.  At most one of ends leads to letters:
 * they differ in bits that all letters share. */
static bool end_tag(const unsigned *ends, size_t count, char tag[LK__TAG_SIZE])
{
	unsigned begun = crc16(0, tag, 2);

	for (size_t i = 0; i < count; i++) {
		unsigned two = ends[i] ^ begun;

		tag[2] = (char)(two >> 8);
		tag[3] = (char)(two & 255);
		if (is_letter(two >> 8) && is_letter(two & 255))
			return true;
	}
	return false;
}

void lk__slot_tag(unsigned slot, char tag[LK__TAG_SIZE])
{
	unsigned ends[1 + UINT16_MAX / LK__SLOTS]; /* the last two letters behind a CRC of 0 */

	assert(slot < LK__SLOTS);
	for (unsigned i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		ends[i] = two_bytes_of(slot + i * LK__SLOTS);
	tag[4] = '\0';
	for (tag[0] = 'a'; tag[0] <= 'z'; tag[0]++)
		for (tag[1] = 'a'; tag[1] <= 'z'; tag[1]++)
			if (end_tag(ends, sizeof(ends) / sizeof(ends[0]), tag))
				return;
}

/* ---- The order of a node's slots ------------------------------------------------------------- */

/* FNV-1a, 64 bits. */
static uint64_t hash_of(const char *text)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (; *text; text++)
		hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
	return hash;
}

/* The last step of splitmix64: numbers that are close become ones that are not. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

int lk__slots_first(const uint8_t owner[LK__SLOTS], uint8_t index, const char *node,
                    unsigned *slots, int max)
{
	const uint64_t hash = hash_of(node);
	int count = 0;

	for (unsigned slot = 0; slot < LK__SLOTS; slot++) {
		const uint64_t rank = mix(hash + slot);
		int at = count;
		if (owner[slot] != index)
			continue;
		while (at > 0 && mix(hash + slots[at - 1]) > rank)
			at--;
		if (at == max)
			continue;
		if (count < max)
			count++;
		for (int i = count - 1; i > at; i--)
			slots[i] = slots[i - 1];
		slots[at] = slot;
	}
	return count;
}
