/* SPDX-License-Identifier: MIT
 * The text of --help and of the verb help. */
#include "help.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
/* There is one text; the help of a verb is selected from it:
 *
 *   "latchkey VERB..."       usage, kept for this verb
 *   "VERB, VERB and VERB:"   heading of options, left out
 *   "  --option..."          kept if the heading names the verb, and the verb has the option
 *   "Exit status..."         kept
 *
 * Any other line continues the one above it. */
/* clang-format on */
static const char help_text[] =
	"latchkey lock [OPTION...] NAME [--] COMMAND [ARG...]   run a command under a lock\n"
	"latchkey lock [OPTION...] NAME -c 'SHELL'\n"
	"latchkey sem --permits N [-k UNITS] [OPTION...] NAME [--] COMMAND [ARG...]\n"
	"                                      run it under permits of a semaphore\n"
	"latchkey rate --limit N --per SECS [-k UNITS] [OPTION...] NAME [COMMAND...]\n"
	"                                      run it at a rate of at most N in SECS\n"
	"latchkey latch set|reset [--ttl SECS] [--open-ttl SECS] NAME N\n"
	"latchkey latch down [--id ID] NAME [N]\n"
	"latchkey latch wait [-n | -w SECS] [-E CODE] [--absent-is-open] NAME\n"
	"latchkey latch show [--json] NAME\n"
	"latchkey latch rm NAME\n"
	"latchkey show [--json] [NAME]          its holders and waiters\n"
	"latchkey break [--if-holder ID] NAME   take a lock or permits from the holder\n"
	"latchkey local start|stop|status       the private server of local:\n"
	"latchkey grace [--json]                how long nothing is granted, and why\n"
	"latchkey grace end [--yes]             grant at once, after a loss of memory\n"
	"latchkey quorum init [--longest-lease SECS] [URL]   make a quorum of new servers\n"
	"latchkey doctor                        is this server fit for locks?\n"
	"latchkey help [VERB]                   this help, or that of one verb\n"
	"\n"
	"  --url URL         the store, without a password; else LATCHKEY_URL, else\n"
	"                    /etc/latchkey/url, else local: unless LATCHKEY_NO_LOCAL=1\n"
	"  -q, -v            print less, more\n"
	"  -h, -V            this help, the version\n"
	"\n"
	"lock, sem, rate and latch wait:\n"
	"  -n                do not wait\n"
	"  -w SECS           wait at most this long, for the store, too (default: no\n"
	"                    limit, but one attempt to connect)\n"
	"  -E CODE           exit status when not acquired, not open (default: 75)\n"
	"\n"
	"lock, sem and rate:\n"
	"  --label TEXT      shown to waiters, instead of the program's name\n"
	"  --report FILE     write the outcome as JSON\n"
	"\n"
	"lock and sem:\n"
	"  --lease SECS      expire this long after the last renewal (default: 10)\n"
	"  --fixed           do not renew: the command must end within the lease\n"
	"  --min-hold SECS   hold at least this long, even if the command ends\n"
	"  --max-hold SECS   end the command and the hold after this time\n"
	"  --on-lost=term    end the command after a loss: by TERM, then KILL\n"
	"           =kill    by KILL alone\n"
	"           =warn    do not end it\n"
	"\n"
	"sem and rate:\n"
	"  --permits N, --limit N   the same in every command with this name\n"
	"  -k UNITS          permits that this command takes (default: 1)\n"
	"  --resize          change its N if it has another one\n"
	"  --per SECS        rate: the length of the window\n"
	"  --slack SECS      rate: the limit also holds for the commands' starts, if\n"
	"                    each follows its grant within this time (default: 0)\n"
	"  --ttl SECS        keep N this long after the last use (default: 86400)\n"
	"\n"
	"latch:\n"
	"  --ttl SECS        remove it if it is not open by then (default: never)\n"
	"  --open-ttl SECS   stay open this long (default: 86400)\n"
	"  --id ID           name of this step: a latch counts each name once\n"
	"  --absent-is-open  do not wait for a latch that does not exist\n"
	"\n"
	"grace:\n"
	"  -y, --yes         end it without a question\n"
	"\n"
	"quorum init:\n"
	"  --longest-lease SECS   no lease may be longer (0.1 to 60, default: 60)\n"
	"\n"
	"Exit status: the command's own, 128+n when signal n ended it; 64 usage,\n"
	"69 store unreachable, 75 not acquired in time, not open, or already set,\n"
	"79 lost while running, 126 and 127 the command cannot be run; 1 not held,\n"
	"no such latch, already in a quorum.  doctor: 0 fit, 1 warnings, 2 unfit.\n";

/* Does the text contain the word? */
static bool has_word(const char *text, size_t len, const char *word)
{
	size_t word_len = strlen(word);

	for (size_t i = 0; i + word_len <= len; i++)
		if (!memcmp(text + i, word, word_len) &&
		    (i == 0 || !isalpha((unsigned char)text[i - 1])) &&
		    (i + word_len == len || !isalpha((unsigned char)text[i + word_len])))
			return true;
	return false;
}

/* "latchkey latch set|reset [--ttl SECS]..." */
static bool is_usage_of(const struct help_topic *topic, const char *line)
{
	const char *word = line + strcspn(line, " ") + 1;
	size_t len = strcspn(word, " \n");
	const char *second = word + len + 1;

	return has_word(word, len, topic->word) &&
	       (!topic->second || has_word(second, strcspn(second, " \n"), topic->second));
}

/* "  --permits N, --limit N   the same in..." */
static bool takes_option(const struct help_topic *topic, const char *line)
{
	const char *end = strstr(line + 2, "  ");

	for (const char *at = line; end && at < end; at++)
		if (*at == '-' && at[-1] == ' ' && topic->takes(topic, at, strcspn(at, " ,=\n")))
			return true;
	return false;
}

void help_print(const struct help_topic *topic)
{
	bool keeps = false, in_section = true, gap = false;
	size_t len;

	if (!topic) {
		fputs(help_text, stdout);
		return;
	}
	for (const char *line = help_text; *line; line += len) {
		len = strcspn(line, "\n") + 1;
		if (len == 1) {
			gap = in_section = true;
			continue;
		}
		if (!strncmp(line, "latchkey ", 9)) {
			keeps = is_usage_of(topic, line);
		} else if (!strncmp(line, "  -", 3)) {
			keeps = in_section && takes_option(topic, line);
		} else if (*line != ' ' && line[len - 2] == ':') {
			in_section = has_word(line, len, topic->word);
			keeps = false;
		} else if (!strncmp(line, "Exit status", 11)) {
			keeps = true;
		}
		if (!keeps)
			continue;
		if (gap)
			putchar('\n');
		gap = false;
		fwrite(line, 1, len, stdout);
	}
}
