# SPDX-License-Identifier: MIT
# The judge of a round of chaos: a program of its own, which reads only the records of the run.

## build/judge DIR  judges the records of a round that `make chaos` kept
tests: $(BUILD)/judge
$(BUILD)/judge: $(BUILD)/tests/judge/main.o $(HARNESS) $(STATIC)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $< $(TEST_LIBS)

-include $(BUILD)/tests/judge/main.d
