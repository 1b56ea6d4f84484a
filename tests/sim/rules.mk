# SPDX-License-Identifier: MIT
## sim     clients, scripts and faults in virtual time: SEEDS=24 (0: until SECONDS_MAX), SEED=first,
##         MINUTES=3 each, JOBS=2; PLAN= as a failure prints it, FAILURES= to end after, SHRINK=0, TRACE=1
.PHONY: sim
sim: $(BUILD)/sim
	@LK_COMMIT="$(COMMIT)" \
		SEEDS="$(SEEDS)" SEED="$(SEED)" MINUTES="$(MINUTES)" JOBS="$(JOBS)" PLAN="$(PLAN)" \
		SECONDS_MAX="$(SECONDS_MAX)" FAILURES="$(FAILURES)" TRACE="$(TRACE)" SHRINK="$(SHRINK)" \
		$(BUILD)/sim
