# SPDX-License-Identifier: MIT
# The bench: Latchkey compared with what a user would use instead.

BENCH := $(BUILD)/bench/run
BENCH_SOURCES := $(sort $(wildcard bench/*.c))
ifeq ($(ETCD),no)
BENCH_SOURCES := $(filter-out bench/case_etcd.c,$(BENCH_SOURCES))
endif
BENCH_OBJECTS := $(BENCH_SOURCES:%.c=$(BUILD)/%.o)
JANSSON_CFLAGS := $$(pkg-config --cflags jansson)
JANSSON_LIBS := $$(pkg-config --libs jansson)
$(call settings,ROUNDS TURN JSON)

## bench   speed, compared with controls: T="pair threads" (all cases), ROUNDS=17, TURN=100 ms each;
##         JSON=FILE; T=etcd: data in TMPDIR, LATCHKEY_ETCD=DIR another etcd
## bench-picture  draw docs/performance.svg from the figures in docs/figures
.PHONY: bench bench-program bench-picture
bench: $(BENCH) $(COMMAND)
	@case " $(T) " in *" etcd "*) tools/mutex build/deps/mutex || true ;; esac
	@LK_COMMIT="$(COMMIT)" LK_BUILD="$(abspath $(BUILD))" $(BENCH) T="$(T)" ROUNDS="$(ROUNDS)" \
		TURN="$(TURN)" JSON="$(JSON)"
bench-program: $(BENCH)
# A test runs each case once; figures of a sanitized build would be none.
tests: $(if $(SANITIZE),,$(BENCH))

bench-picture:
	$(Q)bench/picture docs/figures/bench.txt docs/figures/peers.txt >docs/performance.svg

# As unit tests, these see the library's own headers: the baselines send the same scripts.
$(BENCH_OBJECTS): $(BUILD)/%.o: %.c | needs $(BUILD)/gen/scripts.h $(BUILD)/gen/built_with.h
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(CHECK_CFLAGS) $(HIREDIS_CFLAGS) $(JANSSON_CFLAGS) -Iinclude -Isrc \
		-Itests -Itests/harness -I$(BUILD)/gen -MMD -MP -c -o $@ $<

$(BENCH): $(BENCH_OBJECTS) $(HARNESS) $(STATIC)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(BENCH_OBJECTS) $(TEST_LIBS) $(JANSSON_LIBS) -lm

-include $(BENCH_OBJECTS:.o=.d)
