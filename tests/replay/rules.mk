# SPDX-License-Identifier: MIT
# The library's scripts in the Redis in memory and on a real server.
#
## replay  CALLS=1000000 of them (default 50000) with the same answers, keys and messages: SEED=

REPLAY := $(BUILD)/replay

$(REPLAY): $(BUILD)/tests/replay/main.o $(HARNESS) $(STATIC)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $< $(HARNESS) $(STATIC) $(HIREDIS_LIBS) \
		$(CHECK_LIBS) $(LUA_LIBS) -ldl
-include $(BUILD)/tests/replay/main.d

tests: $(REPLAY)

.PHONY: replay
replay: $(REPLAY) $(PRELOADS)
	$(Q)LK_COMMIT="$(COMMIT)" $(REPLAY) $(or $(CALLS),50000) $(SEED)
