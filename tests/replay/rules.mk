# SPDX-License-Identifier: MIT
# The library's scripts in the Redis in memory and on a real server.
#
## replay  CALLS=1000000 of them (default 50000) with the same answers, keys and messages: SEED=

REPLAY := $(BUILD)/replay

$(REPLAY): $(BUILD)/tests/replay/main.o $(HARNESS) $(STATIC)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $< $(TEST_LIBS)
-include $(BUILD)/tests/replay/main.d

tests: $(REPLAY)

$(call settings,CALLS)
.PHONY: replay
replay: $(REPLAY) $(PRELOADS)
	$(Q)LK_COMMIT="$(COMMIT)" $(REPLAY) $(or $(CALLS),50000) $(SEED)
