# SPDX-License-Identifier: MIT
# The tests, and the checks of the source.

CHECK_CFLAGS := $$(pkg-config --cflags check)
CHECK_LIBS := $$(pkg-config --libs check)
# Lua 5.1, as in the server; the name of its package is not the same everywhere.
LUA := $$(pkg-config --exists lua5.1 && echo lua5.1 || echo lua-5.1)
LUA_CFLAGS := $$(pkg-config --cflags $(LUA))
LUA_LIBS := $$(pkg-config --libs $(LUA))

# The programs that attack the promises: a folder each.  All but their main.c belongs to the harness,
# so that unit tests can test the checkers themselves.
PROOFS := $(patsubst tests/%/main.c,%,$(sort $(wildcard tests/sim/main.c tests/model/main.c \
	tests/chaos/main.c)))
HARNESS_SOURCES := $(sort $(wildcard tests/harness/*.c tests/promises/*.c) \
	$(filter-out %/main.c,$(wildcard tests/sim/*.c tests/model/*.c tests/chaos/*.c)))
TEST_SOURCES := $(sort $(wildcard tests/*.c))
ifeq ($(TLS),no)
HARNESS_SOURCES := $(filter-out %/certificate.c tests/harness/tls_%,$(HARNESS_SOURCES))
TEST_SOURCES := $(filter-out tests/unit_tls% tests/live_tls%,$(TEST_SOURCES))
endif
ifeq ($(ETCD),no)
# The model of etcd needs no nghttp2.
ETCD_MODEL := $(filter tests/harness/etcd_model% tests/harness/etcd_script%,$(HARNESS_SOURCES))
HARNESS_SOURCES := $(filter-out tests/harness/h2_% tests/harness/etcd_%,$(HARNESS_SOURCES)) $(ETCD_MODEL)
TEST_SOURCES := $(filter-out tests/unit_etcd_h2% tests/live_etcd% tests/live_cost_etcd% tests/live_tls_etcd% tests/fault_etcd% \
	tests/cli_etcd%,$(TEST_SOURCES))
endif
# What only tools/deps ci brings is not needed for the others.
ETCD_TESTS := pkg_demo_etcd $(patsubst tests/%.c,%,$(filter tests/live_etcd% tests/live_cost_etcd% tests/live_tls_etcd% tests/fault_etcd% \
	tests/cli_etcd%,$(TEST_SOURCES)))
LEFT_OUT_TESTS := $(strip $(if $(shell command -v protoc-c),,unit_etcd_protobuf unit_etcd_protobuf_answers) \
	$(if $(filter no,$(ETCD)),pkg_demo_etcd) \
	$(if $(LATCHKEY_ETCD)$(wildcard build/deps/etcd/etcd)$(shell command -v etcd),,$(ETCD_TESTS)))
TEST_SOURCES := $(filter-out $(LEFT_OUT_TESTS:%=tests/%.c),$(TEST_SOURCES))
LEAVE_OUT := $(if $(LEFT_OUT_TESTS),LK_LEFT_OUT="$(LEFT_OUT_TESTS)")
PRELOAD_SOURCES := $(sort $(wildcard tests/preload/*.c))

HARNESS := $(BUILD)/tests/harness.a
HARNESS_OBJECTS := $(HARNESS_SOURCES:%.c=$(BUILD)/%.o)
TESTS := $(TEST_SOURCES:tests/%.c=$(BUILD)/tests/%)
PROOF_PROGRAMS := $(PROOFS:%=$(BUILD)/%)
PRELOADS := $(PRELOAD_SOURCES:tests/preload/%.c=$(BUILD)/tests/%.so)
TEST_LIBS := $(HARNESS) $(STATIC) $(ALL_LIBS) $(CHECK_LIBS) $(LUA_LIBS) -ldl

# A figure names the commit that it was measured at.
COMMIT = $(or $(LK_COMMIT),$(shell git rev-parse --short HEAD 2>/dev/null || echo unknown; \
	git diff --quiet HEAD 2>/dev/null || ! git rev-parse HEAD >/dev/null 2>&1 || echo +changes))
# pass NAMES: hand these settings to a program in its environment.
pass = $(foreach name,$(1),$(if $($(name)),$(name)="$($(name))"))

# ---- what is built -------------------------------------------------------------------------------

## tests      build all test programs
.PHONY: tests $(LEFT_OUT_TESTS:%=skip-%)
tests: $(LEFT_OUT_TESTS:%=skip-%) $(TESTS) $(PROOF_PROGRAMS) $(PRELOADS) lib command $(EXAMPLES) $(RATE_LIMIT) $(DEMO)

$(LEFT_OUT_TESTS:%=skip-%): skip-%:
	@printf '  %-7s %s\n' SKIP "$*: what it needs is missing (make deps-ci)"

# Unit tests see the library's own headers; hidden symbols are visible in the static library.
$(BUILD)/tests/%.o: tests/%.c | needs $(BUILD)/gen/scripts.h $(BUILD)/gen/built_with.h
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CHECK_CFLAGS) $(HIREDIS_CFLAGS) $(LUA_CFLAGS) \
		$(NGHTTP2_CFLAGS) -Iinclude -Isrc -Itests \
		-Itests/harness -I$(BUILD)/gen -MMD -MP -c -o $@ $<

$(HARNESS): $(HARNESS_OBJECTS)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $(HARNESS_OBJECTS)

# A line " * LDFLAGS: ..." in a test's head is for its link, as for --wrap.
$(TESTS): $(BUILD)/tests/%: $(BUILD)/tests/%.o $(HARNESS) $(STATIC)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $$(sed -n 's/^ \* LDFLAGS: //p' tests/$*.c) -o $@ $< $(TEST_LIBS)

$(PROOF_PROGRAMS): $(BUILD)/%: $(BUILD)/tests/%/main.o $(HARNESS) $(STATIC)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) $$(sed -n 's/^ \* LDFLAGS: //p' tests/$*/main.c) -o $@ $< \
		$(TEST_LIBS)

# Loaded into servers, which know no sanitizer.
$(PRELOADS): $(BUILD)/tests/%.so: tests/preload/%.c | needs
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -D_GNU_SOURCE $(WARNINGS) $(CPPFLAGS) $(CFLAGS) -fPIC -shared -o $@ $< -ldl

-include $(patsubst %.o,%.d,$(HARNESS_OBJECTS) $(TESTS:=.o) $(PROOFS:%=$(BUILD)/tests/%/main.o))

# ---- what is run ---------------------------------------------------------------------------------

## test       build and run all tests; T="unit_text live_conn" these alone, V=1 names each test, J=4 at once
.PHONY: test test-hiredis12 test-valkey test-redis8 test-etcd tidy lint format
test: $(if $(T),$(EXAMPLES) $(addprefix $(BUILD)/tests/,$(filter-out tests/%,$(T))) $(PRELOADS) \
		$(if $(filter-out unit_% live_%,$(T)),tests),tests)
	@LK_BUILD=$(abspath $(BUILD)) CC="$(CC)" $(call pass,SANITIZE NIGHTLY V J) $(LEAVE_OUT) tests/run $(T)

## test-hiredis12  the tests that depend on hiredis, with 1.2, which newer systems have (Debian 12: 0.14)
HIREDIS12 := build/deps/hiredis-1.2
HIREDIS12_TESTS := unit_resp live_conn live_dial live_fence live_requests live_tls
test-hiredis12: | needs
	$(Q)tools/hiredis trixie $(HIREDIS12)
	$(Q)$(MAKE) --no-print-directory HIREDIS=$(HIREDIS12) test T="$(HIREDIS12_TESTS)"

## test-valkey, test-redis8  the tests that use a server, with Valkey 8.1 or Redis 8.0 from Debian 13; T=
SERVER_TESTS := $(patsubst tests/%.c,%,$(filter tests/live_% tests/fault_% tests/cli_%,$(TEST_SOURCES)))
# Its nodes spin after several takeovers (valkey #651), as that test of a set-up makes them.
test-valkey: LEFT_OUT := live_cluster_setup
test-valkey: SERVER := valkey-server
test-redis8: SERVER := redis-server
test-valkey test-redis8: | needs
	$(Q)tools/server trixie $(SERVER) build/deps/$(@:test-%=%)
	$(Q)LATCHKEY_SERVER=$(CURDIR)/build/deps/$(@:test-%=%)/$(SERVER) \
		$(MAKE) --no-print-directory test T="$(or $(T),$(filter-out $(LEFT_OUT),$(SERVER_TESTS)))"

## test-etcd  the tests that use an etcd, with newer ones, which Go 1.26 builds; T=
ETCD_VERSIONS := 3.5.35 3.6.16
test-etcd: | needs
	$(Q)for version in $(ETCD_VERSIONS); do tools/etcd $$version build/deps/etcd-$$version || exit; done
	$(Q)tools/mutex build/deps/mutex
	$(Q)before=$(patsubst %/etcd,$(CURDIR)/%,$(wildcard build/deps/etcd/etcd)); for version in $(ETCD_VERSIONS); do \
		LATCHKEY_ETCD=$(CURDIR)/build/deps/etcd-$$version LATCHKEY_MUTEX=$(CURDIR)/build/deps/mutex/mutex \
			LATCHKEY_ETCD_BEFORE=$$before \
			$(MAKE) --no-print-directory test T="$(or $(T),$(filter-out pkg_%,$(ETCD_TESTS)))" || failed=1; \
		before=$(CURDIR)/build/deps/etcd-$$version; \
	done; [ ! "$$failed" ]

## nightly    .ci/run, with what is too long for every change
.PHONY: nightly
nightly:
	$(Q).ci/run nightly

## tidy       layers, exports, house style: tests/tidy
tidy: lib
	@LK_BUILD=$(abspath $(BUILD)) CC="$(CC)" tests/tidy

## lint       clang-tidy
LINT_SOURCES := $(LIB_SOURCES) $(ETCD_SOURCES) $(PLUGIN_SOURCES) $(CLI_SOURCES) $(DEMO_SOURCES) $(EXAMPLE_SOURCES) \
	$(RATE_LIMIT_SOURCES)
lint: $(BUILD)/gen/scripts.h $(BUILD)/gen/built_with.h
	$(call say,TIDY,src examples)
	$(Q)printf '%s\n' $(LINT_SOURCES) | xargs -P 2 -n 2 sh -c \
		'clang-tidy --quiet "$$@" -- -std=c11 -D_GNU_SOURCE $(LIB_CFLAGS) $(HIREDIS_CFLAGS) 2>/dev/null' lint

## format     clang-format
format:
	$(Q)find src tests examples bench -name '*.[ch]' | xargs clang-format -i
