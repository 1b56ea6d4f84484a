# SPDX-License-Identifier: MIT
# Every statement of every script is deleted in turn; a program that runs the scripts in memory must
# notice.  Exceptions are in tests/statements/survivors, with their reasons.
#
## statements  SHARE=1/10 of them (SEED= selects which), FILES="lock_ask.lua ...", J=2, TRACE=1

STATEMENTS := $(BUILD)/statements
STATEMENTS_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/statements/*.c))
STATEMENTS_KILLERS := $(addprefix $(BUILD)/tests/,unit_lock_contract unit_latch_contract \
	unit_semaphore_contract unit_semaphore_contract_store unit_semaphore_waits \
	unit_semaphore_holds unit_semaphore_rate)

$(STATEMENTS): $(STATEMENTS_OBJECTS)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LUA_LIBS)
-include $(STATEMENTS_OBJECTS:.o=.d)

tests: $(STATEMENTS)

$(call settings,SHARE FILES TRACE)
.PHONY: statements mutants-scripts
mutants-scripts: statements
statements: $(STATEMENTS) $(STATEMENTS_KILLERS)
	$(Q)LK_COMMIT="$(COMMIT)" LK_BUILD="$(BUILD)" \
		$(call pass,SHARE SEED FILES J TRACE) $(STATEMENTS)
