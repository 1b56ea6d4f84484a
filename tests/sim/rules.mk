# SPDX-License-Identifier: MIT
## sim     clients, scripts and faults in virtual time: SEEDS= MINUTES= JOBS= SECONDS_MAX= SEED= PLAN=
.PHONY: sim
sim: $(BUILD)/sim
	@LK_COMMIT="$(COMMIT)" \
		SEEDS="$(SEEDS)" SEED="$(SEED)" MINUTES="$(MINUTES)" JOBS="$(JOBS)" PLAN="$(PLAN)" \
		SECONDS_MAX="$(SECONDS_MAX)" FAILURES="$(FAILURES)" TRACE="$(TRACE)" SHRINK="$(SHRINK)" \
		$(BUILD)/sim
