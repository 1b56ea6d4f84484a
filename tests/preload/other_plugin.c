/* SPDX-License-Identifier: MIT
 * A plug-in of another version, for live_etcd_plugin.  The process learns that it was loaded. */
#include <stdlib.h>

extern const char lk__plugin[32];
__attribute__((visibility("default"))) const char lk__plugin[32] = "9.9.9";

__attribute__((constructor)) static void load(void)
{
	setenv("OTHER_PLUGIN", "loaded", 1);
}
