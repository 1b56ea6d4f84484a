# SPDX-License-Identifier: MIT
# Latchkey compared with what a user would use instead; bench/peers/README.md.

PEERS_DRIVER := $(BUILD)/bench-peers
PEERS_OURS := $(BUILD)/peers/latchkey/contestants
PEERS_DRIVER_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard bench/peers/driver/*.c)))
PEERS_OURS_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(sort $(wildcard bench/peers/latchkey/*.c)))
PEERS_OBJECTS := $(PEERS_DRIVER_OBJECTS) $(PEERS_OURS_OBJECTS)

## bench-peers  other libraries at the same work: PEERS="go python" (all), CONTESTANTS=names,
##         T="pairs contend semaphore latch", SECONDS=1 a turn, ROUNDS=2, JSON=file; T=failover
##         (Sentinel; only if T names it: 3 rounds of 45 s for each of 3 kinds, 10 minutes);
##         T=cluster (also contended; only if T names it: 2 rounds of up to 40 s, 5 minutes);
##         T=quorum (a name on 3 and on 5 servers; only if T names it: turns of 3 s, half an hour);
##         WORKERS="2 8": of the works' numbers only these (pairs 1, latch 100, quorum 1 8 32,
##         else 2 8 32 64)
$(call settings,PEERS CONTESTANTS WORKERS SECONDS ROUNDS JSON)
.PHONY: bench-peers
bench-peers: $(PEERS_DRIVER) $(PEERS_OURS)
	@LK_COMMIT="$(COMMIT)" LK_BUILD="$(abspath $(BUILD))" $(PEERS_DRIVER) $(CURDIR)/bench/peers \
		"PEERS=$(PEERS)" "CONTESTANTS=$(CONTESTANTS)" "T=$(T)" "WORKERS=$(WORKERS)" \
		"SECONDS=$(SECONDS)" "ROUNDS=$(ROUNDS)" "JSON=$(JSON)"

# Built with the tests, so that they keep compiling.
tests: $(if $(SANITIZE),,$(PEERS_DRIVER) $(PEERS_OURS))

$(PEERS_OBJECTS): $(BUILD)/%.o: %.c | needs
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CHECK_CFLAGS) $(JANSSON_CFLAGS) -Iinclude -Itests \
		-MMD -MP -c -o $@ $<
-include $(PEERS_OBJECTS:.o=.d)

$(PEERS_DRIVER): $(PEERS_DRIVER_OBJECTS) $(HARNESS)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(ALL_LIBS) $(CHECK_LIBS) \
		$(JANSSON_LIBS)

$(PEERS_OURS): $(PEERS_OURS_OBJECTS) $(STATIC)
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(ALL_LIBS)
