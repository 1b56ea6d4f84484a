/* SPDX-License-Identifier: MIT
 * Changes of keys in a replay that no script of ours makes: evictions, foreign and damaged values,
 * an operator's commands.  Damage stays for a while, so that scripts meet it, and is then
 * removed. */
#include "replay.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static const char *const texts[] = {
	"",
	"x",
	"2:foo",
	"3:next",
	"17:later 5",
	"2:stranger:n:5000:r 1700000000000007 5000 -",
	"2:stranger:n:5000:r 1700000000000007 5000 s",
	"2:stranger:n:5000:f 5 900 z",
	"2:stranger:n:x:r 5 900 -",
	"2:stranger:n:5000:r 1700000000000007 5000 - a+0b 1700000000000000",
	"2:stranger:n:5000:r 1700000000000007 5000 s - 7 8",
	"1 a+0b 1700000000000000",
	"1 - 1700000000500000 [a part]",
	"1 g 1700000000000000",
	"q1:stranger:n:5000:r:5:0 1700000000000007 5000 -",
	"q1:stranger:n:5000:r:1700000000000000:1 5 900 - ",
	"q2:stranger:n:5000:r:5:0 7 5000 -",
	"1 a 5 [s 1/3 60000]",
	"1 a 1700000000000000 more",
};
static const char *const numbers[] = {
	"0",
	"1",
	"-1",
	"",
	"x",
	"5.5",
	" 7",
	"0x10",
	"1e3",
	"inf",
	"-inf",
	"9007199254740990",
	"9007199254740991",
	"9007199254740993",
	"9999999999999999",
	"12345678901234567890",
	"1700000000500000",
	"007",
};
static const char *const members[] = {
	"foreign",
	"3:next",
	"2:stranger:n:5000:r",
	"2:stranger:n:0:f",
	"2:stranger:n:5000:r:2",
	"2:stranger:n:50:f:40",
	"2:stranger:n:50:n:1",
	"2:stranger:n:50:n",
	"2:stranger:n:99999999999999:r:1",
	"2:aclient-AAAA_AAAAAAAAA:n:60000:r",
	"2:bclient-AAAA_AAAAAAAAA:n:60000:r:1",
	"2:st ranger:n:5000:r",
	"q1:stranger:n:5000:r:1700000000000000:0",
	"q1:bclient-AAAA_AAAAAAAAA:n:60000:f:5:65535",
	"q1:stranger:n:1:r:5:0",
	"q3:next",
	"",
};
static const char *const scores[] = {
	"0",
	"5",
	"-5",
	"0.5",
	"1e300",
	"inf",
	"-inf",
	"9007199254740993",
	"1700000000000000",
	"1700000000500000.25",
};
static const char *const fields[] = {
	"kind",     "capacity",
	"used",     "ttl",
	"head",     "head_us",
	"told_us",  "gen",
	"count",    "initial",
	"open_ttl", "opened",
	"removed",  "c:aclient-AAAA_AAAAAAAAA",
	"n:x",      "2:stranger:n:5000:r:2",
	"7",
};
static const char *const kinds[] = {"1:latch",     "2:semaphore", "2:lock",
                                    "1:semaphore", "2:latch",     "x"};
static const char *const holds[] = {"2 1700000000000005 5000", "1 2", "", "9 9 9", "0 0 0",
                                    "99999999999999999999 1 1"};

static const char *any(struct replay *replay, size_t count, const char *const *words)
{
	return words[replay_draw(replay, count)];
}

static void say(struct replay *replay, int argc, const char *a, const char *b, const char *c,
                const char *d)
{
	const char *argv[] = {a, b, c, d};

	replay_command(replay, argc, argv);
}

static const char *any_key(struct replay *replay)
{
	struct replay_name *name = &replay->name[replay_draw(replay, REPLAY_NAMES)];

	if (!replay_draw(replay, 20))
		return "lk:epoch";
	switch (replay_draw(replay, 9)) {
	case 0:
		return name->kind == REPLAY_LEG ? "lk:fences" : "lk:fence";
	case 1:
	case 2:
		return name->queue;
	case 3:
	case 4:
		return name->holds;
	case 5:
		return name->memory;
	default:
		return name->main;
	}
}

/* Set a field of a hash to a valid or invalid value. */
static void damage_hash(struct replay *replay, const char *key)
{
	const char *field = any(replay, COUNT(fields), fields);
	const char *value = any(replay, COUNT(numbers), numbers);

	if (!strcmp(field, "kind"))
		value = any(replay, COUNT(kinds), kinds);
	else if (!strcmp(field, "head") || !strncmp(field, "2:", 2))
		value = any(replay, COUNT(holds), holds);
	if (!replay_draw(replay, 4))
		say(replay, 3, "HDEL", key, field, NULL);
	else
		say(replay, 4, "HSET", key, field, value);
}

static void damage_key(struct replay *replay, const char *key)
{
	bool again = replay_draw(replay, 2);

	switch (replay_draw(replay, 8)) {
	case 0:
		say(replay, 3, "SET", key, any(replay, COUNT(texts), texts), NULL);
		break;
	case 1:
		say(replay, 3, "SET", key, any(replay, COUNT(numbers), numbers), NULL);
		break;
	case 2:
	case 3:
		if (again)
			say(replay, 2, "DEL", key, NULL, NULL);
		damage_hash(replay, key);
		break;
	case 4:
	case 5:
		if (again)
			say(replay, 2, "DEL", key, NULL, NULL);
		say(replay, 4, "ZADD", key, any(replay, COUNT(scores), scores),
		    any(replay, COUNT(members), members));
		break;
	case 6:
		say(replay, 3, "PEXPIRE", key, any(replay, COUNT(numbers), numbers), NULL);
		break;
	default:
		say(replay, 2, "PERSIST", key, NULL, NULL);
	}
}

void replay_damage(struct replay *replay)
{
	const char *key = any_key(replay);

	replay->sums.damages++;
	/* Keep older damage for a while, so that scripts meet it; a used-up counter would stay
	 * forever. */
	if (replay->damaged[0]) {
		say(replay, 2, "DEL", replay->damaged, NULL, NULL);
		replay->damaged[0] = '\0';
		return;
	}
	switch (replay_draw(replay, 40)) {
	case 0:
		say(replay, 2, "SCRIPT", "FLUSH", NULL, NULL);
		return;
	case 1:
		say(replay, 1, "FLUSHALL", NULL, NULL, NULL);
		return;
	case 2:
	case 3:
	case 4:
	case 5:
	case 6:
	case 7:
	case 8:
	case 9:
	case 10:
	case 11:
		say(replay, 2, "DEL", key, NULL, NULL);
		return;
	default:
		damage_key(replay, key);
		snprintf(replay->damaged, sizeof(replay->damaged), "%s", key);
	}
}
