# SPDX-License-Identifier: MIT
# Latchkey.  `make` builds, `make test` tests, `make demo` shows; `make help` lists all goals.
#
# Variables that only make's command line sets:
#   V=1                          show the commands
#   SANITIZE=address,undefined   or thread                             -> build/<sanitizers>/
#   NIGHTLY=1                    all tests, also the long ones that a sanitizer leaves out
#   HIREDIS=DIR                  this hiredis: DIR/include/hiredis, DIR/lib/libhiredis.a
#   TLS=no                       without rediss:; also where OpenSSL is not  -> build/notls/
#   ETCD=no                      without etcd:; also where nghttp2 is not  -> build/noetcd/
#   WERROR=                      do not turn warnings into errors
#   DEPS=                        do not look for missing packages
#   MUTANT=NAME                  plant that bug first (tests/mutants)  -> build/mutant-NAME/
# Variables that the environment may set, too:
#   CC=clang                     another compiler                      -> build/clang/
#   CPPFLAGS CFLAGS LDFLAGS AR PREFIX LIBDIR INCLUDEDIR BINDIR MANDIR DESTDIR
#
# Examples, tests, proofs and measurements have their rules in their own folders: */rules.mk,
# tests/*/rules.mk.

# settings NAMES: variables of the command line.  The environment may have such a name for a reason
# of its own, so its value neither comes in nor is passed on.
settings = $(foreach name,$(1),$(eval $(name) :=)$(eval unexport $(name)))
$(call settings,V SANITIZE NIGHTLY HIREDIS TLS ETCD WERROR DEPS MUTANT LOCK STORE T SEED J)
WERROR := -Werror
DEPS := yes
LOCK := on
STORE := local

GOALS := $(or $(MAKECMDGOALS),all)
ifneq ($(MUTANT),)
# Make the same goals in a tree of its own, in which one bug was planted.
.PHONY: $(GOALS)
$(firstword $(GOALS)):
	+@MAKE="$(MAKE)" tests/mutants/run --make $(MUTANT) $(GOALS)
$(wordlist 2,$(words $(GOALS)),$(GOALS)): ;
else

# ---- version and places --------------------------------------------------------------------------

VERSION := 0.2.0
# While MAJOR is 0 a new MINOR may break programs.
SOVERSION := $(basename $(VERSION))
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
BINDIR ?= $(PREFIX)/bin
MANDIR ?= $(PREFIX)/share/man

# ---- compiler and flags --------------------------------------------------------------------------

ifeq ($(origin CC),default)
CC := gcc
endif

# One folder a variant: objects of different flags never meet.
comma := ,
empty :=
space := $(empty) $(empty)
VARIANT := $(subst $(space),-,$(strip $(filter-out gcc,$(notdir $(firstword $(CC)))) \
	$(subst $(comma),-,$(SANITIZE)) $(notdir $(HIREDIS)) $(if $(filter no,$(TLS)),notls) \
	$(if $(filter no,$(ETCD)),noetcd)))
BUILD := build$(if $(VARIANT),/$(VARIANT))

CFLAGS ?= $(if $(SANITIZE),-O1,-O2) -g
WARNINGS := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
	-Wcast-qual -Wwrite-strings -Wformat=2 -Wvla $(WERROR)
# The ranges of numbers that gcc infers, and so this warning, change with the instrumentation.
SANITIZE_FLAGS := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer \
	$(if $(findstring clang,$(CC)),,-Wno-format-truncation) \
	$(if $(findstring undefined,$(SANITIZE)),-fno-sanitize-recover=undefined))
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE $(WARNINGS) -pthread $(SANITIZE_FLAGS) $(CPPFLAGS) $(CFLAGS)
# A library does not abort its program: only the sanitized builds, which are for tests, have asserts.
NDEBUG := $(if $(SANITIZE),,-DNDEBUG)
LIB_CFLAGS := $(NDEBUG) -fPIC -fvisibility=hidden -Iinclude -Isrc -I$(BUILD)/gen
# -z defs: clang's sanitizers keep their run-time in the program, so a library cannot resolve it.
# -z nodelete: while a client is open, threads run the library's code, so dlclose() must not unload it.
SO_LDFLAGS := $(if $(SANITIZE),,-Wl,-z,defs) -Wl,-z,nodelete

# The shell of a recipe asks pkg-config, that is after missing packages were installed.
ifeq ($(HIREDIS),)
HIREDIS_CFLAGS := $$(pkg-config --cflags hiredis)
HIREDIS_LIBS := $$(pkg-config --libs hiredis)
else
HIREDIS_CFLAGS := -I$(HIREDIS)/include -I$(HIREDIS)/include/hiredis
HIREDIS_LIBS := $(HIREDIS)/lib/libhiredis.a
endif

# With TLS if OpenSSL is there.
HAS_TLS := { [ "$(TLS)" != no ] && pkg-config --exists 'libssl >= 1.1.1' 2>/dev/null; }
TLS_CFLAGS := $$(if $(HAS_TLS); then pkg-config --cflags libssl; fi)
TLS_LIBS := $$(if $(HAS_TLS); then pkg-config --libs libssl libcrypto; fi)

# With etcd: if nghttp2 is there.
HAS_ETCD := { [ "$(ETCD)" != no ] && pkg-config --exists 'libnghttp2 >= 1.52' 2>/dev/null; }
NGHTTP2_CFLAGS := $$(if $(HAS_ETCD); then pkg-config --cflags libnghttp2; fi)
NGHTTP2_LIBS := $$(if $(HAS_ETCD); then pkg-config --libs libnghttp2; fi)
LIBS := $(HIREDIS_LIBS) $(TLS_LIBS) $(NGHTTP2_LIBS)

ifeq ($(V),1)
Q :=
say :=
else
Q := @
say = @printf '  %-7s %s\n' $(1) $(2);
endif

# ---- files: every source that is there is built --------------------------------------------------

SCRIPTS := $(sort $(wildcard src/redis/scripts/*.lua))
CLI_SOURCES := $(sort $(wildcard src/cli/*.c))
ETCD_SOURCES := $(sort $(wildcard src/etcd/*.c))
LIB_SOURCES := $(filter-out $(CLI_SOURCES) $(ETCD_SOURCES),$(sort $(wildcard src/*.c src/*/*.c)))

LIB_OBJECTS := $(LIB_SOURCES:%.c=$(BUILD)/%.o) $(BUILD)/gen/scripts.o
CLI_OBJECTS := $(CLI_SOURCES:%.c=$(BUILD)/%.o)
ETCD_OBJECTS := $(ETCD_SOURCES:%.c=$(BUILD)/%.o)
ETCD_LIB := $(BUILD)/etcd.a
STATIC := $(BUILD)/liblatchkey.a
SHARED := $(BUILD)/liblatchkey.so.$(VERSION)
COMMAND := $(if $(CLI_SOURCES),$(BUILD)/latchkey)

## all        what a plain `make` does: lib, command, examples
## lib        build/liblatchkey.a and .so
## command    build/latchkey
.PHONY: all lib command install uninstall clean help
.DELETE_ON_ERROR:
.SECONDARY:
all: lib command examples
lib: $(STATIC) $(SHARED)
command: $(COMMAND)

# ---- packages ------------------------------------------------------------------------------------

# Before it compiles anything, make looks for what the goals need.  Only demo, test, test-* and
# deps* install it; the other goals end and name the goal that does.
BUILD_GOALS := all lib command examples install uninstall tidy format clean help \
	$(BUILD)/liblatchkey% $(BUILD)/latchkey $(BUILD)/src/% $(BUILD)/examples/%
DEMO_NEEDS := demo$(if $(filter etcd,$(STORE)),-etcd)
NEEDS := build $(patsubst demo,$(DEMO_NEEDS),$(filter demo,$(GOALS))) $(if $(filter lint fuzz,$(GOALS)),ci) \
	$(if $(filter-out $(BUILD_GOALS) demo deps deps-% lint fuzz,$(GOALS)),test)
LOOK := $(if $(filter demo test test-%,$(GOALS)),,--check)

## deps       install what `make` and `make demo` need; deps-examples, deps-test and
##            deps-ci more: what each of these needs
.PHONY: needs deps
needs: | $(filter deps deps-%,$(GOALS))
	$(if $(DEPS),@CC="$(CC)" HIREDIS="$(HIREDIS)" tools/deps $(LOOK) $(NEEDS))
deps:
	@CC="$(CC)" tools/deps demo
deps-%:
	@CC="$(CC)" tools/deps $*

# ---- the library and the command -----------------------------------------------------------------

# Both files come from one run; the header stands for both.
$(BUILD)/gen/scripts.h: $(SCRIPTS) $(wildcard src/redis/scripts/*/*.lua) tools/embed | needs
	$(call say,EMBED,$@)
	$(Q)tools/embed $(BUILD)/gen $(SCRIPTS)
$(BUILD)/gen/scripts.c: $(BUILD)/gen/scripts.h ;
$(BUILD)/gen/scripts.o: $(BUILD)/gen/scripts.c
	$(call say,CC,$<)
	$(Q)$(CC) $(ALL_CFLAGS) $(LIB_CFLAGS) -MMD -MP -c -o $@ $<

# What the library is built with.  Written again only if it changed, that is if a package came or went.
$(BUILD)/gen/built_with.h: always | needs
	$(Q)mkdir -p $(@D); { if $(HAS_TLS); then echo '#define LK__TLS 1'; else echo '#define LK__TLS 0'; fi; \
		if $(HAS_ETCD); then echo '#define LK__ETCD 1'; else echo '#define LK__ETCD 0'; fi; } \
		>$@.$$$$; if cmp -s $@.$$$$ $@; then rm $@.$$$$; else mv $@.$$$$ $@; \
		if $(HAS_TLS); then printf '  %-7s %s\n' TLS "OpenSSL $$(pkg-config --modversion libssl)"; \
		else printf '  %-7s %s\n' TLS 'none: rediss: needs OpenSSL 1.1.1 (libssl-dev)'; fi; \
		if $(HAS_ETCD); then printf '  %-7s %s\n' ETCD "nghttp2 $$(pkg-config --modversion libnghttp2)"; \
		else printf '  %-7s %s\n' ETCD 'none: etcd: needs nghttp2 1.52 (libnghttp2-dev)'; fi; fi
.PHONY: always
always:

$(BUILD)/src/%.o: src/%.c | needs $(BUILD)/gen/scripts.h $(BUILD)/gen/built_with.h
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) $(LIB_CFLAGS) $(EXTRA_CFLAGS) -MMD -MP -c -o $@ $<
# No other file of the library can see hiredis, OpenSSL or nghttp2.
EXTRA_CFLAGS :=
$(BUILD)/src/redis/resp.o: EXTRA_CFLAGS = $(HIREDIS_CFLAGS)
$(BUILD)/src/net/tls.o: EXTRA_CFLAGS = $(TLS_CFLAGS)
$(BUILD)/src/etcd/h2.o: EXTRA_CFLAGS = $(NGHTTP2_CFLAGS)

$(STATIC): $(LIB_OBJECTS) $(ETCD_OBJECTS)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $(LIB_OBJECTS) $(ETCD_OBJECTS)

# An archive: without nghttp2 nothing names the store in etcd, so nothing of it is linked.
$(ETCD_LIB): $(ETCD_OBJECTS)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $(ETCD_OBJECTS)

$(SHARED): $(LIB_OBJECTS) $(ETCD_LIB) src/latchkey.map
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,liblatchkey.so.$(SOVERSION) $(SO_LDFLAGS) \
		-Wl,--version-script=src/latchkey.map $(LDFLAGS) -o $@ $(LIB_OBJECTS) $(ETCD_LIB) $(LIBS)
	$(Q)ln -sf $(@F) $(BUILD)/liblatchkey.so.$(SOVERSION)
	$(Q)ln -sf $(@F) $(BUILD)/liblatchkey.so

$(COMMAND): $(CLI_OBJECTS) $(STATIC)
	$(call say,LINK,$@)
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(CLI_OBJECTS) $(STATIC) $(LIBS)

# ---- install -------------------------------------------------------------------------------------

## install    to PREFIX=/usr/local; DESTDIR= for a package; uninstall removes it
install: lib command
	$(call say,INSTALL,$(DESTDIR)$(PREFIX))
	$(Q)mkdir -p $(DESTDIR)$(INCLUDEDIR) $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(BINDIR) \
		$(DESTDIR)$(MANDIR)/man1
	$(Q)install -m 644 include/latchkey.h include/latchkey.hpp $(DESTDIR)$(INCLUDEDIR)/
	$(Q)install -m 644 $(STATIC) $(DESTDIR)$(LIBDIR)/
	$(Q)install -m 755 $(SHARED) $(DESTDIR)$(LIBDIR)/
	$(Q)ln -sf liblatchkey.so.$(VERSION) $(DESTDIR)$(LIBDIR)/liblatchkey.so.$(SOVERSION)
	$(Q)ln -sf liblatchkey.so.$(SOVERSION) $(DESTDIR)$(LIBDIR)/liblatchkey.so
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
		-e 's|@VERSION@|$(VERSION)|' -e "s|@TLS@|$$(if $(HAS_TLS); then echo ', libssl, libcrypto'; fi)|" \
		-e "s|@ETCD@|$$(if $(HAS_ETCD); then echo ', libnghttp2'; fi)|" \
		latchkey.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/latchkey.pc
	$(Q)chmod 644 $(DESTDIR)$(LIBDIR)/pkgconfig/latchkey.pc
	$(if $(COMMAND),$(Q)install -m 755 $(COMMAND) $(DESTDIR)$(BINDIR)/)
	$(if $(wildcard docs/latchkey.1),$(Q)install -m 644 docs/latchkey.1 $(DESTDIR)$(MANDIR)/man1/)
	$(if $(DESTDIR),,$(Q)tools/loader $(LIBDIR) $(SOVERSION))

uninstall:
	$(call say,REMOVE,$(DESTDIR)$(PREFIX))
	$(Q)rm -f $(addprefix $(DESTDIR)$(INCLUDEDIR)/,latchkey.h latchkey.hpp) \
		$(addprefix $(DESTDIR)$(LIBDIR)/,liblatchkey.a liblatchkey.so liblatchkey.so.$(SOVERSION) \
		liblatchkey.so.$(VERSION) pkgconfig/latchkey.pc) \
		$(DESTDIR)$(BINDIR)/latchkey $(DESTDIR)$(MANDIR)/man1/latchkey.1
	$(if $(DESTDIR),,$(Q)tools/loader $(LIBDIR) $(SOVERSION))

## clean      remove build/
clean:
	$(Q)rm -rf build

help:
	@sed -n '2,/^$$/s/^# \{0,1\}//p' Makefile
	@echo "Goals:"
	@sed -n 's/^## \{0,1\}/  /p' Makefile $(RULES)

# The first two define names that the others use.
RULES := $(wildcard examples/rules.mk tests/rules.mk) \
	$(sort $(wildcard tests/*/rules.mk bench/rules.mk bench/*/rules.mk))
include $(RULES)

-include $(patsubst %.o,%.d,$(LIB_OBJECTS) $(CLI_OBJECTS) $(ETCD_OBJECTS))
endif
