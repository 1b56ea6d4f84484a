/* SPDX-License-Identifier: MIT
 * For tests of the command with a server of their own. */
#ifndef COMMAND_SERVER_H
#define COMMAND_SERVER_H

#include "command.h"
#include "server.h"

#include <stddef.h>

static struct test_server server;

/* Start the server, and let the command find it. */
static void begin(void)
{
	server_start(&server, NULL);
	command_setup(server.url);
}

#endif
