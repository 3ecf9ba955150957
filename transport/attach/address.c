/*
 * address.c - takes an address apart, and puts one together.
 */
#include "transport/attach/address.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int address_bad(const char *text, const char *why)
{
	return error_set(-EINVAL, "node address \"%s\": %s; it is HOST:PORT[;SOCKET-PATH]", text,
			 why);
}

int node_address_parse(const char *text, struct node_address *address_out)
{
	const char *end = text + strcspn(text, ";"), *digits;
	bool brackets = *text == '[';
	/* before the port: in brackets there are other colons */
	const char *colon = text + strcspn(text, brackets ? "];" : ":;");
	unsigned long port;

	if (strlen(text) >= TRANSPORT_URI_BYTES)
		return address_bad(text, "too long");
	colon += *colon == ']';
	if (*colon != ':' || (!brackets && memchr(colon + 1, ':', (size_t)(end - colon) - 1)))
		return address_bad(text, brackets || strchr(text, ':')
						 ? "an IPv6 address stands in brackets"
						 : "the port is missing");
	if (brackets && colon - text == 2)
		return address_bad(text, "the brackets are empty");
	digits = colon + 1;
	port = strtoul(digits, NULL, 10);
	if (digits == end || digits + strspn(digits, "0123456789") != end || port > UINT16_MAX)
		return address_bad(text, "the port is a number up to 65535");
	if (*end && !end[1])
		return address_bad(text, "the socket's path is missing");
	*address_out = (struct node_address){ 0 };
	(void)snprintf(address_out->host, sizeof(address_out->host), "%.*s",
		       (int)(colon - text) - 2 * brackets, text + brackets);
	(void)snprintf(address_out->port, sizeof(address_out->port), "%u", (uint16_t)port);
	(void)snprintf(address_out->path, sizeof(address_out->path), "%s", *end ? end + 1 : "");
	return 0;
}

int node_address_format(const struct node_address *address, char *text_out, size_t room)
{
	bool brackets = strchr(address->host, ':') != NULL;
	char text[2 * TRANSPORT_URI_BYTES + 16];
	int n = snprintf(text, sizeof(text), "%s%s%s:%s%s%s", brackets ? "[" : "", address->host,
			 brackets ? "]" : "", address->port, address->path[0] ? ";" : "",
			 address->path);

	if (n < 0 || (size_t)n >= room)
		return error_set(-ENAMETOOLONG, "node address %s: longer than %zu bytes", text,
				 room - 1);
	memcpy(text_out, text, (size_t)n + 1);
	return 0;
}
