/*
 * module.h - a shared library of ours that links a library of others, opened where it is used.
 *
 *   a wire ---- table of functions ----> librelive-NAME.so ----> the library
 *
 * So librelive loads where that library is not installed. Used only within transport/.
 */
#ifndef RLV_TRANSPORT_MODULE_H
#define RLV_TRANSPORT_MODULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/os/lock.h"

extern const struct lock_role module_role;

struct module {
	struct lock lock;
	const char *name;    /* of the transport, for messages */
	const char *file;    /* librelive-NAME.so */
	const char *env;     /* the variable that names another file */
	const char *symbol;  /* a function without arguments that returns the table */
	const char *library; /* for messages: what the module links, ... */
	const char *install; /* ... and what to install */
	bool forks;          /* the library works in a child of a process that used it, too */
	/* Prepares a table that was found. NULL: done; else why it cannot be used. */
	const char *(*begin)(const void *table);

	/* private */
	bool tried;
	const void *table; /* NULL: see reason */
	uint32_t forked;   /* fork_watch() then */
	char reason[ERROR_TEXT_BYTES];
};

/*
 * The module's table; the first call opens it (the file that env names, or the module beside this
 * library), and it stays open. -ENOTSUP: no module, or it cannot be used; the message says what to
 * install. -ECHILD: in a child of a process that has opened it, unless it forks. Thread: any.
 */
RLV_MUST_CHECK int module_load(struct module *module, const void **table_out);

#endif
