/* SPDX-License-Identifier: MIT
 * Split a Lua 5.1 text into its statements, by recursive descent.  It distinguishes only as much as
 * that needs: expressions are operands with operators between them. */
#include "split.h"

#include <ctype.h>
#include <string.h>

struct splitter {
	const char *text, *at; /* start of the next token */
	size_t len;            /* of that token, 0 = the end */
	const char *last;      /* end of the previous token */
	int line;
	bool wrong;
	struct statement *statements;
	int count, max;
};

static void block(struct splitter *splitter);
static void expression(struct splitter *splitter);

/* ---- Tokens ------------------------------------------------------------------------------- */

static void skip_space(struct splitter *splitter)
{
	for (;; splitter->at++) {
		if (!strncmp(splitter->at, "--", 2))
			splitter->at += strcspn(splitter->at, "\n");
		if (*splitter->at == '\n')
			splitter->line++;
		else if (!isspace((unsigned char)*splitter->at))
			return;
	}
}

static size_t token_length(const char *at)
{
	static const char *const longer[] = {"...", "..", "==", "~=", "<=", ">="};
	size_t len = 1;

	if (!*at)
		return 0;
	if (*at == '\'' || *at == '"') {
		while (at[len] && at[len] != *at)
			len += at[len] == '\\' ? 2 : 1;
		return len + 1;
	}
	if (isalnum((unsigned char)*at) || *at == '_') {
		while (isalnum((unsigned char)at[len]) || at[len] == '_' ||
		       (isdigit((unsigned char)*at) && at[len] == '.'))
			len++;
		return len;
	}
	for (size_t i = 0; i < sizeof(longer) / sizeof(*longer); i++)
		if (!strncmp(at, longer[i], strlen(longer[i])))
			return strlen(longer[i]);
	return 1;
}

static void next(struct splitter *splitter)
{
	splitter->last = splitter->at += splitter->len;
	skip_space(splitter);
	splitter->len = token_length(splitter->at);
}

static bool is(const struct splitter *splitter, const char *token)
{
	return splitter->len == strlen(token) && !memcmp(splitter->at, token, splitter->len);
}

static bool take(struct splitter *splitter, const char *token)
{
	bool there = is(splitter, token);

	if (there)
		next(splitter);
	return there;
}

static void need(struct splitter *splitter, const char *token)
{
	if (!take(splitter, token))
		splitter->wrong = true;
}

static bool is_one_of(const struct splitter *splitter, const char *const *tokens)
{
	while (*tokens && !is(splitter, *tokens))
		tokens++;
	return *tokens != NULL;
}

static void name(struct splitter *splitter)
{
	if (!isalpha((unsigned char)*splitter->at) && *splitter->at != '_')
		splitter->wrong = true;
	next(splitter);
}

/* ---- Expressions -------------------------------------------------------------------------- */

static void list(struct splitter *splitter)
{
	do
		expression(splitter);
	while (!splitter->wrong && take(splitter, ","));
}

static void table(struct splitter *splitter)
{
	need(splitter, "{");
	while (!splitter->wrong && !is(splitter, "}")) {
		if (take(splitter, "[")) {
			expression(splitter);
			need(splitter, "]");
			need(splitter, "=");
		}
		expression(splitter);
		if (take(splitter, "="))
			expression(splitter);
		if (!take(splitter, ",") && !take(splitter, ";"))
			break;
	}
	need(splitter, "}");
}

static void function_body(struct splitter *splitter)
{
	need(splitter, "(");
	while (!splitter->wrong && !is(splitter, ")"))
		next(splitter);
	need(splitter, ")");
	block(splitter);
	need(splitter, "end");
}

static bool is_string(const struct splitter *splitter)
{
	return *splitter->at == '\'' || *splitter->at == '"';
}

/* The suffixes of a name or an expression in brackets. */
static void suffixes(struct splitter *splitter)
{
	while (!splitter->wrong) {
		if (take(splitter, ".") || take(splitter, ":")) {
			name(splitter);
		} else if (take(splitter, "[")) {
			expression(splitter);
			need(splitter, "]");
		} else if (take(splitter, "(")) {
			if (!is(splitter, ")"))
				list(splitter);
			need(splitter, ")");
		} else if (is(splitter, "{")) {
			table(splitter);
		} else if (is_string(splitter)) {
			next(splitter);
		} else {
			return;
		}
	}
}

static void operand(struct splitter *splitter)
{
	static const char *const values[] = {"nil", "true", "false", "...", NULL};

	while (take(splitter, "not") || take(splitter, "-") || take(splitter, "#"))
		continue;
	if (is_string(splitter) || isdigit((unsigned char)*splitter->at) ||
	    is_one_of(splitter, values)) {
		next(splitter);
	} else if (take(splitter, "function")) {
		function_body(splitter);
	} else if (is(splitter, "{")) {
		table(splitter);
	} else if (take(splitter, "(")) {
		expression(splitter);
		need(splitter, ")");
		suffixes(splitter);
	} else {
		name(splitter);
		suffixes(splitter);
	}
}

static void expression(struct splitter *splitter)
{
	static const char *const operators[] = {"+",  "-",  "*",  "/", "%", "^",   "..", "==",
	                                        "~=", "<=", ">=", "<", ">", "and", "or", NULL};

	operand(splitter);
	while (!splitter->wrong && is_one_of(splitter, operators)) {
		next(splitter);
		operand(splitter);
	}
}

/* ---- Statements --------------------------------------------------------------------------- */

static const char *const ends[] = {"end", "else", "elseif", "until", NULL};

static void if_statement(struct splitter *splitter)
{
	do {
		expression(splitter);
		need(splitter, "then");
		block(splitter);
	} while (!splitter->wrong && take(splitter, "elseif"));
	if (take(splitter, "else"))
		block(splitter);
	need(splitter, "end");
}

static void for_statement(struct splitter *splitter)
{
	while (!splitter->wrong && splitter->len && !is(splitter, "=") && !is(splitter, "in"))
		next(splitter);
	next(splitter);
	list(splitter);
	need(splitter, "do");
	block(splitter);
	need(splitter, "end");
}

static void local_statement(struct splitter *splitter)
{
	if (take(splitter, "function")) {
		name(splitter);
		function_body(splitter);
		return;
	}
	do
		name(splitter);
	while (take(splitter, ","));
	if (take(splitter, "="))
		list(splitter);
}

/* A call, or an assignment. */
static void plain_statement(struct splitter *splitter)
{
	do
		operand(splitter);
	while (!splitter->wrong && take(splitter, ","));
	if (take(splitter, "="))
		list(splitter);
}

static void statement(struct splitter *splitter)
{
	if (take(splitter, "if")) {
		if_statement(splitter);
	} else if (take(splitter, "for")) {
		for_statement(splitter);
	} else if (take(splitter, "while")) {
		expression(splitter);
		need(splitter, "do");
		block(splitter);
		need(splitter, "end");
	} else if (take(splitter, "repeat")) {
		block(splitter);
		need(splitter, "until");
		expression(splitter);
	} else if (take(splitter, "do")) {
		block(splitter);
		need(splitter, "end");
	} else if (take(splitter, "local")) {
		local_statement(splitter);
	} else if (take(splitter, "return")) {
		if (splitter->len && !is_one_of(splitter, ends) && !is(splitter, ";"))
			list(splitter);
	} else if (!take(splitter, "break")) {
		plain_statement(splitter);
	}
}

static void block(struct splitter *splitter)
{
	while (!splitter->wrong && splitter->len && !is_one_of(splitter, ends)) {
		int index = splitter->count++;
		if (index >= splitter->max) {
			splitter->wrong = true;
			return;
		}
		splitter->statements[index].start = (size_t)(splitter->at - splitter->text);
		splitter->statements[index].line = splitter->line;
		statement(splitter);
		splitter->statements[index].end = (size_t)(splitter->last - splitter->text);
		take(splitter, ";");
	}
}

int split(const char *text, struct statement *statements, int max, int *line)
{
	struct splitter splitter = {.text = text, .at = text, .line = 1};

	splitter.statements = statements;
	splitter.max = max;
	next(&splitter);
	block(&splitter);
	*line = splitter.line;
	return splitter.wrong || splitter.len ? -1 : splitter.count;
}
