# SPDX-License-Identifier: MIT
# Fuzzing: targets that take any bytes, driven by libFuzzer, which only clang has.
#
## fuzz         T=seconds a target (5), F=target (all): searches new inputs that break an invariant
## fuzz-replay  the inputs kept in tests/fuzz/corpus, with any compiler; part of `make test`

FUZZ_SOURCES := $(sort $(filter-out tests/fuzz/entry.c,$(wildcard tests/fuzz/*.c)))
FUZZ_OBJECTS := $(FUZZ_SOURCES:%.c=$(BUILD)/%.o)
# The command line's parser, and the store in memory: the only other parts outside the library.
FUZZ_PARTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard src/cli/options.c src/cli/value.c src/cli/say.c \
	src/cli/help.c tests/harness/lua_store*.c tests/harness/store_view.c \
	tests/promises/*.c))
FUZZ_LINK := $(FUZZ_OBJECTS) $(FUZZ_PARTS) -Wl,--wrap=say
FUZZ_FLAGS := fuzzer-no-link,address,undefined
T_FUZZ := $(if $(filter fuzz,$(MAKECMDGOALS)),$(or $(T),5),5)
$(call settings,F)

.PHONY: fuzz fuzz-replay fuzz-program
fuzz: | needs
	$(Q)$(MAKE) --no-print-directory -j2 CC=clang SANITIZE=$(FUZZ_FLAGS) BUILD=build/fuzz DEPS= \
		fuzz-program
	@LK_COMMIT="$(COMMIT)" tests/fuzz/run $(T_FUZZ) $(F)

# Only the call above uses these: the flags are not for other targets.
fuzz-program: $(BUILD)/program
$(BUILD)/program: $(BUILD)/tests/fuzz/entry.o $(FUZZ_OBJECTS) $(FUZZ_PARTS) $(STATIC)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -fsanitize=fuzzer $(LDFLAGS) -o $@ $< $(FUZZ_LINK) $(STATIC) \
		$(ALL_LIBS) $(LUA_LIBS)

fuzz-replay: $(BUILD)/tests/unit_fuzz
	@$<

$(BUILD)/tests/unit_fuzz: $(FUZZ_OBJECTS) $(FUZZ_PARTS)
$(BUILD)/tests/unit_fuzz: override LDFLAGS += $(FUZZ_LINK)

-include $(FUZZ_OBJECTS:.o=.d) $(BUILD)/tests/fuzz/entry.d
