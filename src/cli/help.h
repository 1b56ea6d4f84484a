/* SPDX-License-Identifier: MIT
 * What --help prints. */
#ifndef HELP_H
#define HELP_H

extern const char help_text[];

#endif
