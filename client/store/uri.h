/*
 * Store URIs: "embed:", "embed:FILE", "shm:NAME", "relive://HOST:PORT",
 * "relive://@FILE" (wire/control/announce.h).
 */
#ifndef RLV_CLIENT_STORE_URI_H
#define RLV_CLIENT_STORE_URI_H

#include "base/error.h"

#include <stdint.h>

#define URI_TEXT_BYTES 256

enum uri_kind { URI_EMBED, URI_SHM, URI_TCP };

struct uri {
	enum uri_kind kind;
	char whole[URI_TEXT_BYTES]; /* as given */
	char text[URI_TEXT_BYTES];  /* embed: path or ""; shm: name; tcp: host, or @FILE */
	uint16_t port;              /* tcp; 0 with @FILE */
};

/* Parses a store URI into *uri_out. -EINVAL: the message says what is wrong and lists the forms;
   *uri_out is untouched then. */
RLV_MUST_CHECK int uri_parse(const char *text, struct uri *uri_out);

#endif
