# SPDX-License-Identifier: MIT
# Latchkey.  `make` builds, `make test` tests, `make demo` shows; `make help` lists all goals.
#
# Variables that only make's command line sets:
#   V=1                          show the commands
#   SANITIZE=address,undefined   or thread                             -> build/<sanitizers>/
#   NIGHTLY=1                    all tests, also the long ones that a sanitizer leaves out
#   HIREDIS=DIR                  this hiredis: DIR/include/hiredis, DIR/lib/libhiredis.a
#   TLS=no                       without rediss:; also where OpenSSL is not  -> build/notls/
#   ETCD=auto|yes|no             with etcd: if nghttp2 is there; an error if it is not; without
#                                                                      -> build/noetcd/
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
ETCD := auto
LOCK := on
STORE := local
ifeq ($(filter auto yes no,$(ETCD)),)
$(error ETCD=$(ETCD): must be auto, yes or no)
endif

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

# With etcd: if nghttp2 is there.  Only the plug-in needs it, and programs with the archive.
HAS_ETCD := { [ "$(ETCD)" != no ] && pkg-config --exists 'libnghttp2 >= 1.52' 2>/dev/null; }
NGHTTP2_CFLAGS := $$(if $(HAS_ETCD); then pkg-config --cflags libnghttp2; fi)
NGHTTP2_LIBS := $$(if $(HAS_ETCD); then pkg-config --libs libnghttp2; fi)
LIBS := $(HIREDIS_LIBS) $(TLS_LIBS)
ALL_LIBS := $(LIBS) $(NGHTTP2_LIBS)

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
PLUGIN_SOURCES := $(sort $(wildcard src/plugin/*.c))
LIB_SOURCES := $(filter-out $(CLI_SOURCES) $(ETCD_SOURCES) $(PLUGIN_SOURCES), \
	$(sort $(wildcard src/*.c src/*/*.c)))

LIB_OBJECTS := $(LIB_SOURCES:%.c=$(BUILD)/%.o) $(BUILD)/gen/scripts.o
CLI_OBJECTS := $(CLI_SOURCES:%.c=$(BUILD)/%.o)
ETCD_OBJECTS := $(ETCD_SOURCES:%.c=$(BUILD)/%.o)
PLUGIN_OBJECTS := $(PLUGIN_SOURCES:%.c=$(BUILD)/%.o)
STATIC := $(BUILD)/liblatchkey.a
# In a folder of its own, as installed: the plug-in is beside it, and the command uses both.
SHARED := $(BUILD)/lib/liblatchkey.so.$(VERSION)
# The sanitized library has the store in etcd, too: one program, one sanitizer.
PLUGIN := $(if $(SANITIZE)$(filter no,$(ETCD)),,$(BUILD)/lib/latchkey/$(SOVERSION)/etcd.so)
COMMAND := $(if $(CLI_SOURCES),$(BUILD)/latchkey)

## all        what a plain `make` does: lib, command, examples
## lib        build/liblatchkey.a and .so, and the plug-in for etcd
## command    build/latchkey
.PHONY: all lib command install uninstall clean help
.DELETE_ON_ERROR:
.SECONDARY:
all: lib command examples
lib: $(STATIC) $(SHARED) $(PLUGIN)
command: $(COMMAND)

# ---- packages ------------------------------------------------------------------------------------

# Before it compiles anything, make looks for what the goals need.  Only demo, test, test-* and
# deps* install it; the other goals end and name the goal that does.
BUILD_GOALS := all lib command examples install uninstall tidy format clean help \
	$(BUILD)/liblatchkey% $(BUILD)/lib/% $(BUILD)/latchkey $(BUILD)/src/% $(BUILD)/examples/%
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
	$(if $(filter yes,$(ETCD)),$(Q)$(HAS_ETCD) || { \
		echo "ETCD=yes: nghttp2 1.52 or later is missing (libnghttp2-dev)" >&2; exit 1; })
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

# Without nghttp2 nothing names the store in etcd, so nothing of it is linked.
$(STATIC): $(LIB_OBJECTS) $(ETCD_OBJECTS) $(BUILD)/src/plugin/linked.o
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# Old C libraries have dlopen() in libdl.
$(SHARED): $(LIB_OBJECTS) $(BUILD)/src/plugin/load.o src/latchkey.map $(if $(SANITIZE),$(STATIC))
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -shared -Wl,-soname,liblatchkey.so.$(SOVERSION) $(SO_LDFLAGS) \
		-Wl,--version-script=src/latchkey.map $(LDFLAGS) -o $@ $(LIB_OBJECTS) \
		$(if $(SANITIZE),$(STATIC) $(ALL_LIBS),$(BUILD)/src/plugin/load.o $(LIBS) -ldl)
	$(Q)ln -sf $(@F) $(@D)/liblatchkey.so.$(SOVERSION)
	$(Q)ln -sf $(@F) $(@D)/liblatchkey.so
	$(Q)for name in so so.$(SOVERSION) so.$(VERSION); do \
		ln -sf lib/$(@F) $(BUILD)/liblatchkey.$$name || exit; done

# The copies have no state; all other functions come from the library that loads the plug-in, as
# src/plugin/plugin.h lists them.  -z defs finds one that is in neither.
PLUGIN_COPIES := $(addprefix $(BUILD)/src/,base/buf.o base/text.o base/why.o core/table.o)
$(BUILD)/lib/latchkey/$(SOVERSION)/etcd.so: $(ETCD_OBJECTS) $(BUILD)/src/plugin/etcd.o $(PLUGIN_COPIES)
	$(Q)rm -f $@; if $(HAS_ETCD); then $(if $(Q),printf '  %-7s %s\n' LINK $@;) \
		mkdir -p $(@D) && $(CC) $(ALL_CFLAGS) -shared -Wl,-z,defs $(LDFLAGS) -o $@ $^ $(NGHTTP2_LIBS); fi

# link_command FILE RUNPATH: the command uses the shared library, and so the plug-in; a sanitized
# one has all in it.
link_command = $(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $(1) $(CLI_OBJECTS) $(if $(SANITIZE),$(STATIC) $(ALL_LIBS), \
	$(if $(2),-Wl$(comma)--enable-new-dtags$(comma)-rpath$(comma)'$(2)') $(BUILD)/lib/liblatchkey.so)
$(COMMAND): $(CLI_OBJECTS) $(if $(SANITIZE),$(STATIC),$(SHARED) $(PLUGIN))
	$(call say,LINK,$@)
	$(Q)$(call link_command,$@,$$ORIGIN/lib)

# ---- install -------------------------------------------------------------------------------------

# Where the installed command finds its library: the loader knows its own folders; elsewhere both may
# be moved together, if they have one prefix.
RUNPATH := $(if $(filter /lib% /usr/lib%,$(LIBDIR)),,$(if $(and $(filter $(PREFIX)/bin,$(BINDIR)), \
	$(filter $(PREFIX)/%,$(LIBDIR))),$$ORIGIN/../$(LIBDIR:$(PREFIX)/%=%),$(LIBDIR)))
PLUGIN_DIR := $(LIBDIR)/latchkey/$(SOVERSION)

## install    to PREFIX=/usr/local; DESTDIR= for a package; uninstall removes it
# Several may run at once, as in the tests.
install: lib command
	$(call say,INSTALL,$(DESTDIR)$(PREFIX))
	$(Q)mkdir -p $(DESTDIR)$(INCLUDEDIR) $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(BINDIR) \
		$(DESTDIR)$(MANDIR)/man1
	$(Q)install -m 644 include/latchkey.h include/latchkey.hpp $(DESTDIR)$(INCLUDEDIR)/
	$(Q)install -m 644 $(STATIC) $(DESTDIR)$(LIBDIR)/
	$(Q)install -m 755 $(SHARED) $(DESTDIR)$(LIBDIR)/
	$(Q)ln -sf liblatchkey.so.$(VERSION) $(DESTDIR)$(LIBDIR)/liblatchkey.so.$(SOVERSION)
	$(Q)ln -sf liblatchkey.so.$(SOVERSION) $(DESTDIR)$(LIBDIR)/liblatchkey.so
	$(Q)rm -f $(DESTDIR)$(PLUGIN_DIR)/etcd.so
	$(if $(PLUGIN),$(Q)if [ -e $(PLUGIN) ]; then mkdir -p $(DESTDIR)$(PLUGIN_DIR) && \
		install -m 755 $(PLUGIN) $(DESTDIR)$(PLUGIN_DIR)/; fi)
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
		-e 's|@VERSION@|$(VERSION)|' -e "s|@TLS@|$$(if $(HAS_TLS); then echo ', libssl, libcrypto'; fi)|" \
		-e "s|@ETCD@|$$(if $(HAS_ETCD); then echo ', libnghttp2'; fi)|" \
		latchkey.pc.in >$(DESTDIR)$(LIBDIR)/pkgconfig/latchkey.pc
	$(Q)chmod 644 $(DESTDIR)$(LIBDIR)/pkgconfig/latchkey.pc
	$(if $(COMMAND),$(Q)file=$(BUILD)/latchkey.$$$$; $(call link_command,$$file,$(RUNPATH)) && \
		install -m 755 $$file $(DESTDIR)$(BINDIR)/latchkey && rm $$file)
	$(if $(wildcard docs/latchkey.1),$(Q)install -m 644 docs/latchkey.1 $(DESTDIR)$(MANDIR)/man1/)
	$(if $(DESTDIR),,$(Q)tools/loader $(LIBDIR) $(SOVERSION))

uninstall:
	$(call say,REMOVE,$(DESTDIR)$(PREFIX))
	$(Q)rm -f $(addprefix $(DESTDIR)$(INCLUDEDIR)/,latchkey.h latchkey.hpp) \
		$(addprefix $(DESTDIR)$(LIBDIR)/,liblatchkey.a liblatchkey.so liblatchkey.so.$(SOVERSION) \
		liblatchkey.so.$(VERSION) pkgconfig/latchkey.pc) \
		$(DESTDIR)$(PLUGIN_DIR)/etcd.so $(DESTDIR)$(BINDIR)/latchkey \
		$(DESTDIR)$(MANDIR)/man1/latchkey.1
	$(Q)rmdir $(DESTDIR)$(PLUGIN_DIR) $(DESTDIR)$(LIBDIR)/latchkey 2>/dev/null || :
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

-include $(patsubst %.o,%.d,$(LIB_OBJECTS) $(CLI_OBJECTS) $(ETCD_OBJECTS) $(PLUGIN_OBJECTS))
endif
