# SPDX-License-Identifier: MIT
## sim     clients, scripts and faults in virtual time: SEEDS=24 (0: until SECONDS_MAX), SEED=first,
##         MINUTES=3 each, JOBS=2; PLAN= as a failure prints it, FAILURES= to end after, SHRINK=0, TRACE=1,
##         STORE=sentinel, STORE=cluster: all with failovers; STORE=quorum; STORE=etcd
SIM_SETTINGS := SEEDS SEED MINUTES JOBS PLAN SECONDS_MAX FAILURES TRACE SHRINK
$(call settings,$(SIM_SETTINGS))
.PHONY: sim
sim: $(BUILD)/sim
	@LK_COMMIT="$(COMMIT)" $(call pass,$(SIM_SETTINGS)) \
		$(if $(filter-out local,$(STORE)),STORE="$(STORE)") $(BUILD)/sim
