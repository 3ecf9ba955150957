/*
 * wrap_open.h - for a program that is linked with --wrap=transport_open (cmake/tests.cmake): it sees each transport that
 * is opened.
 */
#ifndef RLV_TESTS_WRAP_OPEN_H
#define RLV_TESTS_WRAP_OPEN_H

#include "transport/transport.h"

int __real_transport_open(const char *uri, const struct transport_opts *opts,
			  struct transport **tr_out);
int __wrap_transport_open(const char *uri, const struct transport_opts *opts,
			  struct transport **tr_out);

/* see(struct transport **tr) may replace what was opened, and returns 0 or what the open is to return. */
#define WRAP_TRANSPORT_OPEN(see) \
	int __wrap_transport_open(const char *uri, const struct transport_opts *opts, \
				  struct transport **tr_out) \
	{ \
		int ret = __real_transport_open(uri, opts, tr_out); \
\
		return ret ? ret : see(tr_out); \
	}

#endif
