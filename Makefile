# SPDX-License-Identifier: MIT
# Latchkey.  `make` builds, `make test` tests, `make demo` shows; `make help` lists the rest.
#
#   V=1                          show the commands
#   CC=clang                     another compiler                      -> build/clang/
#   SANITIZE=address,undefined   or thread                             -> build/<sanitizers>/
#   HIREDIS=DIR                  a hiredis of one's own: DIR/include/hiredis, DIR/lib/libhiredis.a
#   WERROR=                      do not make warnings errors
#   DEPS=                        do not look for missing packages
#   MUTANT=NAME                  plant that bug first (tests/mutants)  -> build/mutant-NAME/

# The same in a tree of its own, in which one bug was planted.
ifneq ($(MUTANT),)
GOALS := $(or $(MAKECMDGOALS),all)
.PHONY: $(GOALS)
$(firstword $(GOALS)):
	+@MAKE="$(MAKE)" tests/mutants/run --make $(MUTANT) $(GOALS)
$(wordlist 2,$(words $(GOALS)),$(GOALS)): ;
else

VERSION := 0.1.0
SOVERSION := 0
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man

ifeq ($(origin CC),default)
CC := gcc
endif
SANITIZE ?=
HIREDIS ?=
WERROR ?= -Werror
DEPS ?= yes
LOCK ?= on

# One folder a variant: objects of different flags never meet.
comma := ,
empty :=
space := $(empty) $(empty)
VARIANT := $(subst $(space),-,$(strip $(filter-out gcc,$(notdir $(firstword $(CC)))) \
	$(subst $(comma),-,$(SANITIZE)) $(notdir $(HIREDIS))))
BUILD := build$(if $(VARIANT),/$(VARIANT))

CFLAGS ?= $(if $(SANITIZE),-O1,-O2) -g
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
	-Wcast-qual -Wwrite-strings -Wformat=2 -Wvla $(WERROR)
# What gcc believes of a number's range, and so this warning, changes with the instrumentation.
SANITIZE_FLAGS := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer \
	$(if $(findstring clang,$(CC)),,-Wno-format-truncation) \
	$(if $(findstring undefined,$(SANITIZE)),-fno-sanitize-recover=undefined))
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE $(WARNINGS) -pthread $(SANITIZE_FLAGS) $(CFLAGS)
# A library does not abort its program: asserts are for the sanitized builds, that is for tests.
NDEBUG := $(if $(SANITIZE),,-DNDEBUG)
LIB_CFLAGS := $(NDEBUG) -fPIC -fvisibility=hidden -Iinclude -Isrc -I$(BUILD)/gen
# -z defs: the sanitizers of clang keep their run-time in the program, a library cannot resolve it.
# -z nodelete: the library's threads, and the ends of the program's, run its code as long as a client
# is open, so dlclose() does not unload it.
SO_LDFLAGS := $(if $(SANITIZE),,-Wl,-z,defs) -Wl,-z,nodelete

# Expanded when a recipe runs, that is after tools/deps, and once.
ifeq ($(HIREDIS),)
HIREDIS_CFLAGS = $(eval HIREDIS_CFLAGS := $$(shell pkg-config --cflags hiredis))$(HIREDIS_CFLAGS)
HIREDIS_LIBS = $(eval HIREDIS_LIBS := $$(shell pkg-config --libs hiredis))$(HIREDIS_LIBS)
else
HIREDIS_CFLAGS := -I$(HIREDIS)/include -I$(HIREDIS)/include/hiredis
HIREDIS_LIBS := $(HIREDIS)/lib/libhiredis.a
endif
CHECK_CFLAGS = $(eval CHECK_CFLAGS := $$(shell pkg-config --cflags check))$(CHECK_CFLAGS)
CHECK_LIBS = $(eval CHECK_LIBS := $$(shell pkg-config --libs check))$(CHECK_LIBS)
# Lua 5.1, as in the server; its name is not the same everywhere.
LUA = $(eval LUA := $$(shell pkg-config --exists lua5.1 && echo lua5.1 || echo lua-5.1))$(LUA)
LUA_CFLAGS = $(eval LUA_CFLAGS := $$(shell pkg-config --cflags $(LUA)))$(LUA_CFLAGS)
LUA_LIBS = $(eval LUA_LIBS := $$(shell pkg-config --libs $(LUA)))$(LUA_LIBS)

# What there is, is built: nothing is listed by hand.
SCRIPTS := $(sort $(wildcard src/redis/scripts/*.lua))
CLI_SOURCES := $(sort $(wildcard src/cli/*.c))
LIB_SOURCES := $(filter-out $(CLI_SOURCES),$(sort $(wildcard src/*.c src/*/*.c)))
# What attacks the promises: a folder and a program each.  All but their main.c is of the harness, so
# that unit tests can try the checkers themselves.
PROOFS := $(patsubst tests/%/main.c,%,$(sort $(wildcard tests/sim/main.c tests/model/main.c \
	tests/chaos/main.c)))
HARNESS_SOURCES := $(sort $(wildcard tests/harness/*.c) \
	$(filter-out %/main.c,$(wildcard tests/sim/*.c tests/model/*.c tests/chaos/*.c)))
TEST_SOURCES := $(sort $(wildcard tests/*.c))
PRELOAD_SOURCES := $(sort $(wildcard tests/preload/*.c))
DEMO_SOURCES := $(sort $(wildcard examples/demo/*.c))
EXAMPLE_SOURCES := $(sort $(wildcard examples/*.c))
RATE_LIMIT_SOURCES := $(sort $(wildcard examples/rate_limit/*.c))

LIB_OBJECTS := $(LIB_SOURCES:%.c=$(BUILD)/%.o) $(BUILD)/gen/scripts.o
CLI_OBJECTS := $(CLI_SOURCES:%.c=$(BUILD)/%.o)
HARNESS_OBJECTS := $(HARNESS_SOURCES:%.c=$(BUILD)/%.o)
DEMO_OBJECTS := $(DEMO_SOURCES:%.c=$(BUILD)/%.o)
TESTS := $(TEST_SOURCES:tests/%.c=$(BUILD)/tests/%)
HARNESS := $(BUILD)/tests/harness.a
PROOF_PROGRAMS := $(PROOFS:%=$(BUILD)/%)
PRELOADS := $(PRELOAD_SOURCES:tests/preload/%.c=$(BUILD)/tests/%.so)
EXAMPLES := $(EXAMPLE_SOURCES:%.c=$(BUILD)/%)
STATIC := $(BUILD)/liblatchkey.a
SHARED := $(BUILD)/liblatchkey.so.$(VERSION)
COMMAND := $(if $(CLI_SOURCES),$(BUILD)/latchkey)
DEMO := $(if $(DEMO_SOURCES),$(BUILD)/demo)
RATE_LIMIT := $(BUILD)/rate_limit

ifeq ($(V),1)
Q :=
say :=
else
Q := @
say = @printf '  %-7s %s\n' $(1) $(2);
endif

.PHONY: all lib command tests examples demo test test-hiredis12 tidy lint format install \
	uninstall clean deps deps-examples deps-test deps-ci skip-rate-limit help
.DELETE_ON_ERROR:
.SECONDARY:

all: lib command examples
lib: $(STATIC) $(SHARED)
command: $(COMMAND)
# One example needs libraries of its own.  Who wants Latchkey only does not have to install them; the
# tests do, and build it in any case.
examples: $(EXAMPLES) $(shell pkg-config --exists libmicrohttpd libcurl 2>/dev/null && \
	echo $(RATE_LIMIT) || echo skip-rate-limit)
tests: $(TESTS) $(PROOF_PROGRAMS) $(PRELOADS) lib command $(EXAMPLES) $(RATE_LIMIT) $(DEMO)

deps:
	$(if $(DEPS),@CC="$(CC)" tools/deps build)

deps-examples: deps
	$(if $(DEPS),@tools/deps examples)

deps-test: deps-examples
	$(if $(DEPS),@tools/deps test)

# ---- the library -------------------------------------------------------------------------------

# Both files come from one run; the header stands for both.
$(BUILD)/gen/scripts.h: $(SCRIPTS) $(wildcard src/redis/scripts/*/*.lua) tools/embed
	$(call say,EMBED,$@)
	$(Q)tools/embed $(BUILD)/gen $(SCRIPTS)
$(BUILD)/gen/scripts.c: $(BUILD)/gen/scripts.h ;
$(BUILD)/gen/scripts.o: $(BUILD)/gen/scripts.c | deps
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CFLAGS) $(LIB_CFLAGS) -MMD -MP -c -o $@ $<

$(BUILD)/src/%.o: src/%.c | deps $(BUILD)/gen/scripts.h
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(LIB_CFLAGS) $(EXTRA_CFLAGS) -MMD -MP -c -o $@ $<
# No other file of the library can see hiredis.
$(BUILD)/src/redis/resp.o: EXTRA_CFLAGS = $(HIREDIS_CFLAGS)

$(STATIC): $(LIB_OBJECTS)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $(LIB_OBJECTS)

$(SHARED): $(LIB_OBJECTS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,liblatchkey.so.$(SOVERSION) $(SO_LDFLAGS) \
		$(LDFLAGS) -o $@ $(LIB_OBJECTS) $(HIREDIS_LIBS)
	$(Q)ln -sf $(@F) $(BUILD)/liblatchkey.so.$(SOVERSION)
	$(Q)ln -sf $(@F) $(BUILD)/liblatchkey.so

$(COMMAND): $(CLI_OBJECTS) $(STATIC)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(CLI_OBJECTS) $(STATIC) $(HIREDIS_LIBS)

# ---- programs beside it ------------------------------------------------------------------------

# Unit tests see the library's own headers; hidden symbols are visible in the static library.
$(BUILD)/tests/%.o: tests/%.c | deps-test $(BUILD)/gen/scripts.h
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CHECK_CFLAGS) $(HIREDIS_CFLAGS) $(LUA_CFLAGS) -Iinclude -Isrc -Itests \
		-Itests/harness -I$(BUILD)/gen -MMD -MP -c -o $@ $<

$(HARNESS): $(HARNESS_OBJECTS)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $(HARNESS_OBJECTS)

# A line " * LDFLAGS: ..." in a test's head is for its link, as for --wrap.
$(TESTS): $(BUILD)/tests/%: $(BUILD)/tests/%.o $(HARNESS) $(STATIC)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $$(sed -n 's/^ \* LDFLAGS: //p' tests/$*.c) -o $@ $< \
		$(HARNESS) $(STATIC) $(HIREDIS_LIBS) $(CHECK_LIBS) $(LUA_LIBS) -ldl

$(PROOF_PROGRAMS): $(BUILD)/%: $(BUILD)/tests/%/main.o $(HARNESS) $(STATIC)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $$(sed -n 's/^ \* LDFLAGS: //p' tests/$*/main.c) -o $@ $< \
		$(HARNESS) $(STATIC) $(HIREDIS_LIBS) $(CHECK_LIBS) $(LUA_LIBS) -ldl

# Loaded into servers, which know no sanitizer.
$(PRELOADS): $(BUILD)/tests/%.so: tests/preload/%.c | deps-test
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE $(WARNINGS) $(CFLAGS) -fPIC -shared -o $@ $< -ldl

$(BUILD)/examples/%.o: examples/%.c | deps
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -Iinclude -MMD -MP -c -o $@ $<
$(EXAMPLES): $(BUILD)/%: $(BUILD)/%.o $(STATIC)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $< $(STATIC) $(HIREDIS_LIBS)
$(DEMO): $(DEMO_OBJECTS) $(STATIC)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(DEMO_OBJECTS) $(STATIC) $(HIREDIS_LIBS)

# In one step: its libraries are looked for when they may be there at last.
$(RATE_LIMIT): $(RATE_LIMIT_SOURCES) $(wildcard examples/rate_limit/*.h) include/latchkey.h $(STATIC) \
		| deps-examples
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -Iinclude $$(pkg-config --cflags libmicrohttpd libcurl) $(LDFLAGS) -o $@ \
		$(RATE_LIMIT_SOURCES) $(STATIC) $(HIREDIS_LIBS) $$(pkg-config --libs libmicrohttpd libcurl)
skip-rate-limit:
	@printf '  %-7s %s\n' SKIP "$(RATE_LIMIT): needs libmicrohttpd and libcurl (make deps-examples)"

# ---- what to do with it ------------------------------------------------------------------------

demo: $(DEMO)
	@$(DEMO) LOCK=$(LOCK)

# T="unit_text live_conn" builds and runs these alone.
T ?=
test: $(if $(T),$(EXAMPLES) $(addprefix $(BUILD)/tests/,$(filter-out tests/%,$(T))) $(PRELOADS) \
		$(if $(filter-out unit_% live_%,$(T)),tests),tests)
	@LK_BUILD=$(abspath $(BUILD)) CC="$(CC)" SANITIZE="$(SANITIZE)" tests/run $(T)

# Debian 12 has hiredis 0.14, newer systems 1.2: what depends on it, again with that one.
HIREDIS12 := build/deps/hiredis-1.2
HIREDIS12_TESTS ?= unit_resp live_conn live_dial live_contract live_fence live_requests
test-hiredis12: deps-test
	$(Q)tools/hiredis trixie $(HIREDIS12)
	$(Q)$(MAKE) --no-print-directory HIREDIS=$(HIREDIS12) test T="$(HIREDIS12_TESTS)"

tidy: lib
	@LK_BUILD=$(abspath $(BUILD)) CC="$(CC)" tests/tidy

deps-ci: deps-test
	$(if $(DEPS),@tools/deps ci)

LINT_SOURCES := $(LIB_SOURCES) $(CLI_SOURCES) $(DEMO_SOURCES) $(EXAMPLE_SOURCES) \
	$(RATE_LIMIT_SOURCES)
lint: $(BUILD)/gen/scripts.h | deps-ci
	$(call say,TIDY,src examples)
	$(Q)printf '%s\n' $(LINT_SOURCES) | xargs -P 2 -n 2 sh -c \
		'clang-tidy --quiet "$$@" -- -std=c11 -D_GNU_SOURCE $(LIB_CFLAGS) $(HIREDIS_CFLAGS) 2>/dev/null' lint

format:
	$(Q)find src tests examples bench -name '*.[ch]' | xargs clang-format -i

DESTDIR ?=
install: lib command
	$(call say,INSTALL,$(DESTDIR)$(PREFIX))
	$(Q)mkdir -p $(DESTDIR)$(INCLUDEDIR) $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(BINDIR) \
		$(DESTDIR)$(MANDIR)/man1
	$(Q)install -m 644 include/latchkey.h include/latchkey.hpp $(DESTDIR)$(INCLUDEDIR)/
	$(Q)install -m 644 $(STATIC) $(DESTDIR)$(LIBDIR)/
	$(Q)install -m 755 $(SHARED) $(DESTDIR)$(LIBDIR)/
	$(Q)ln -sf liblatchkey.so.$(VERSION) $(DESTDIR)$(LIBDIR)/liblatchkey.so.$(SOVERSION)
	$(Q)ln -sf liblatchkey.so.$(SOVERSION) $(DESTDIR)$(LIBDIR)/liblatchkey.so
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
		-e 's|@VERSION@|$(VERSION)|' latchkey.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/latchkey.pc
	$(Q)chmod 644 $(DESTDIR)$(LIBDIR)/pkgconfig/latchkey.pc
	$(if $(COMMAND),$(Q)install -m 755 $(COMMAND) $(DESTDIR)$(BINDIR)/)
	$(if $(wildcard docs/latchkey.1),$(Q)install -m 644 docs/latchkey.1 $(DESTDIR)$(MANDIR)/man1/)
	$(if $(DESTDIR),,$(Q)tools/loader $(LIBDIR) $(SOVERSION))

uninstall:
	$(call say,REMOVE,$(DESTDIR)$(PREFIX))
	$(Q)rm -f $(addprefix $(DESTDIR)$(INCLUDEDIR)/,latchkey.h latchkey.hpp) \
		$(addprefix $(DESTDIR)$(LIBDIR)/,liblatchkey.a liblatchkey.so liblatchkey.so.$(SOVERSION) \
		liblatchkey.so.$(VERSION) pkgconfig/latchkey.pc) \
		$(DESTDIR)$(BINDIR)/latchkey $(DESTDIR)$(MANDIR)/man1/latchkey.1
	$(if $(DESTDIR),,$(Q)tools/loader $(LIBDIR) $(SOVERSION))

clean:
	$(Q)rm -rf build

help:
	@sed -n '2,10s/^# \{0,1\}//p' Makefile
	@echo "targets: all lib command examples demo test test-hiredis12 tidy lint format"
	@echo "         install uninstall clean (PREFIX=$(PREFIX), DESTDIR=)"
	@echo "proof and speed:"
	@sed -n 's/^## \{0,1\}/  /p' $(RULES)

# How each proof and each measurement is run: tests/sim/rules.mk and so on.  A figure says of which
# commit it is.
COMMIT = $(or $(LK_COMMIT),$(shell git rev-parse --short HEAD 2>/dev/null || echo unknown; \
	git diff --quiet HEAD 2>/dev/null || ! git rev-parse HEAD >/dev/null 2>&1 || echo +changes))
RULES := $(sort $(wildcard tests/*/rules.mk bench/rules.mk bench/*/rules.mk))
include $(RULES)

OBJECTS := $(LIB_OBJECTS) $(CLI_OBJECTS) $(HARNESS_OBJECTS) $(DEMO_OBJECTS) \
	$(TESTS:=.o) $(PROOFS:%=$(BUILD)/tests/%/main.o) $(EXAMPLES:=.o)
-include $(OBJECTS:.o=.d)
endif
