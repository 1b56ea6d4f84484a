# SPDX-License-Identifier: MIT
# The examples, and the demo.

DEMO_SOURCES := $(sort $(wildcard examples/demo/*.c))
EXAMPLE_SOURCES := $(sort $(wildcard examples/*.c))
RATE_LIMIT_SOURCES := $(sort $(wildcard examples/rate_limit/*.c))
DEMO_OBJECTS := $(DEMO_SOURCES:%.c=$(BUILD)/%.o)
DEMO := $(BUILD)/demo
EXAMPLES := $(EXAMPLE_SOURCES:%.c=$(BUILD)/%)
RATE_LIMIT := $(BUILD)/rate_limit

## examples   build/examples, build/rate_limit
.PHONY: examples demo skip-rate-limit
# One example needs libraries of its own, which a user of Latchkey does not have to install.
examples: $(EXAMPLES) $(shell pkg-config --exists libmicrohttpd libcurl 2>/dev/null && \
	echo $(RATE_LIMIT) || echo skip-rate-limit)

$(BUILD)/examples/%.o: examples/%.c | needs
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -Iinclude -MMD -MP -c -o $@ $<
$(EXAMPLES): $(BUILD)/%: $(BUILD)/%.o $(STATIC)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $< $(STATIC) $(ALL_LIBS)
$(DEMO): $(DEMO_OBJECTS) $(STATIC)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(DEMO_OBJECTS) $(STATIC) $(ALL_LIBS)
$(RATE_LIMIT): $(RATE_LIMIT_SOURCES) $(wildcard examples/rate_limit/*.h) include/latchkey.h \
		$(STATIC) | needs
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -Iinclude $$(pkg-config --cflags libmicrohttpd libcurl) $(LDFLAGS) -o $@ \
		$(RATE_LIMIT_SOURCES) $(STATIC) $(ALL_LIBS) $$(pkg-config --libs libmicrohttpd libcurl)
skip-rate-limit:
	@printf '  %-7s %s\n' SKIP "$(RATE_LIMIT): needs libmicrohttpd and libcurl (make deps-examples)"

## demo       eight workers, two of which die, under one lock; LOCK=off: without the lock;
##            STORE=sentinel, STORE=cluster: with a master that is killed;
##            STORE=quorum: one of five servers is killed, another one restarts empty;
##            STORE=etcd: of three members, the leader is killed
demo: $(DEMO)
	@$(DEMO) LOCK=$(LOCK) STORE=$(STORE)

-include $(patsubst %.o,%.d,$(DEMO_OBJECTS) $(EXAMPLES:=.o))
