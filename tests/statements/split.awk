# SPDX-License-Identifier: MIT
# Split Lua 5.1 texts into their statements, by recursive descent, and print one per line:
#
#   FILE TAB OFFSET TAB LENGTH TAB KEY
#
# LENGTH bytes after OFFSET are the statement; one may contain others, which are listed, too.  KEY is
# its text on one line without comments; equal ones have a number.  Expressions are operands with
# operators between them: more is not needed to find the ends of statements.
#
#   LC_ALL=C awk -f tests/statements/split.awk FILE...

function fail(what) {
	printf "%s: %s, not \"%s\", at %d\n", file, what, token[at], from[at] >"/dev/stderr"
	bad = 1
	exit 1
}

# The tokens of a line, which begins at byte "offset" of the file.
function tokenize(line, offset,    gap, len) {
	while (match(line, /[^ \t]/)) {
		gap = RSTART - 1
		line = substr(line, RSTART)
		if (line ~ /^--/) return
		if (!match(line, /^'([^\\']|\\.)*'|^"([^\\"]|\\.)*"|^[0-9][0-9A-Za-z.]*|^[A-Za-z_][0-9A-Za-z_]*/) &&
			!match(line, /^\.\.\.|^\.\.|^[=~<>]=|^./)) return
		len = RLENGTH
		token[++count] = substr(line, 1, len)
		from[count] = offset + gap
		to[count] = from[count] + len
		offset = to[count]
		line = substr(line, len + 1)
	}
}

function take(word) {
	if (token[at] != word) return 0
	at++
	return 1
}

function need(word) {
	if (!take(word)) fail("expected " word)
}

# From a bracket to its partner; functions in between have statements.
function brackets() {
	for (at++; token[at] !~ /^[])}]$/; ) {
		if (at > count) fail("expected a closing bracket")
		if (token[at] ~ /^[[({]$/) brackets()
		else if (take("function")) function_body()
		else at++
	}
	at++
}

function function_body() {
	if (token[at] != "(") fail("expected (")
	brackets()
	block()
	need("end")
}

function operand() {
	while (token[at] ~ /^(not|-|#)$/) at++
	if (take("function")) function_body()
	else if (token[at] ~ /^[({]$/) brackets()
	else if (token[at] ~ /^['"A-Za-z0-9_.]/) at++
	else fail("expected an operand")
	for (;;) {
		if (token[at] ~ /^[.:]$/) at += 2
		else if (token[at] ~ /^[[({]$/) brackets()
		else if (token[at] ~ /^['"]/) at++
		else return
	}
}

function expression() {
	do operand()
	while (token[at] ~ /^(\+|-|\*|\/|%|\^|\.\.|==|~=|<=|>=|<|>|and|or)$/ && at++)
}

function list() {
	do expression()
	while (take(","))
}

function statement() {
	if (take("if")) {
		do {
			expression()
			need("then")
			block()
		} while (take("elseif"))
		if (take("else")) block()
		need("end")
	} else if (take("for")) {
		while (token[at] !~ /^(=|in)$/ && at <= count) at++
		at++
		list()
		need("do")
		block()
		need("end")
	} else if (take("while")) {
		expression()
		need("do")
		block()
		need("end")
	} else if (take("repeat")) {
		block()
		need("until")
		expression()
	} else if (take("do")) {
		block()
		need("end")
	} else if (take("return")) {
		if (token[at] !~ /^(end|else|elseif|until|;|)$/) list()
	} else if (!take("break")) {
		if (take("local") && take("function")) {
			at++
			function_body()
			return
		}
		# A call, an assignment, or names.
		list()
		if (take("=")) list()
	}
}

function block(    first, number) {
	while (at <= count && token[at] !~ /^(end|else|elseif|until)$/) {
		first = at
		number = ++statements
		statement()
		add(number, first, at - 1)
		take(";")
	}
}

function add(number, first, last,    key, i) {
	key = token[first]
	for (i = first + 1; i <= last; i++) key = key (from[i] > to[i - 1] ? " " : "") token[i]
	keys[number] = file ": " key
	places[number] = from[first] "\t" to[last] - from[first]
}

function split_file(    i) {
	at = 1
	statements = 0
	token[count + 1] = ""
	block()
	if (at <= count) fail("expected a statement")
	for (i = 1; i <= statements; i++) {
		seen[keys[i]]++
		print path "\t" places[i] "\t" keys[i] (seen[keys[i]] > 1 ? " #" seen[keys[i]] : "")
	}
}

FNR == 1 {
	if (NR > 1) split_file()
	path = file = FILENAME
	sub(/.*\/scripts\//, "", file)
	count = offset = 0
}
{
	tokenize($0, offset)
	offset += length($0) + 1
}
END {
	if (!bad) split_file()
	exit bad
}
