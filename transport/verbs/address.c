/*
 * address.c - takes an address apart, and puts one together.
 */
#include "transport/verbs/address.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int address_bad(const char *text, const char *why)
{
	return error_set(-EINVAL, "verbs address \"%s\": %s; it is HOST:PORT[;SOCKET-PATH]", text,
			 why);
}

/* The colon before the port: in brackets there are others. */
static const char *find_colon(const char *host, const char *end)
{
	const char *colon = NULL;

	if (*host == '[') {
		const char *close = memchr(host, ']', (size_t)(end - host));

		return close && close + 1 < end && close[1] == ':' ? close + 1 : NULL;
	}
	for (const char *at = host; at < end; at++) {
		if (*at == ':' && colon)
			return NULL;
		if (*at == ':')
			colon = at;
	}
	return colon;
}

static bool take_port(const char *digits, const char *end, struct verbs_address *out)
{
	unsigned long port = 0;

	if (digits == end || end - digits > 5)
		return false;
	for (; digits < end; digits++) {
		if (*digits < '0' || *digits > '9')
			return false;
		port = 10 * port + (unsigned long)(*digits - '0');
	}
	(void)snprintf(out->port, sizeof(out->port), "%lu", port & 0x1ffff);
	return port <= UINT16_MAX;
}

int verbs_address_parse(const char *text, struct verbs_address *address_out)
{
	struct verbs_address address = { 0 };
	const char *end = text + strcspn(text, ";");
	const char *colon = find_colon(text, end);
	int brackets = *text == '[';

	if (strlen(text) >= TRANSPORT_URI_BYTES)
		return address_bad(text, "too long");
	if (!colon)
		return address_bad(text, *text == '[' || strchr(text, ':')
						 ? "an IPv6 address stands in brackets"
						 : "the port is missing");
	if (brackets && colon - text == 2)
		return address_bad(text, "the brackets are empty");
	if (!take_port(colon + 1, end, &address))
		return address_bad(text, "the port is a number up to 65535");
	if (*end && !end[1])
		return address_bad(text, "the socket's path is missing");
	(void)snprintf(address.host, sizeof(address.host), "%.*s",
		       (int)(colon - text) - 2 * brackets, text + brackets);
	(void)snprintf(address.path, sizeof(address.path), "%s", *end ? end + 1 : "");
	*address_out = address;
	return 0;
}

int verbs_address_format(const struct verbs_address *address, char *text_out, size_t room)
{
	bool brackets = strchr(address->host, ':') != NULL;
	char text[2 * TRANSPORT_URI_BYTES + 16];
	int n = snprintf(text, sizeof(text), "%s%s%s:%s%s%s", brackets ? "[" : "", address->host,
			 brackets ? "]" : "", address->port, address->path[0] ? ";" : "",
			 address->path);

	if (n < 0 || (size_t)n >= room)
		return error_set(-ENAMETOOLONG, "verbs address %s: longer than %zu bytes", text,
				 room - 1);
	memcpy(text_out, text, (size_t)n + 1);
	return 0;
}
