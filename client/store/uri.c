#include "client/store/uri.h"

#include "base/os/runtime_dir.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define URI_FORMS "want embed:, embed:FILE, shm:NAME, relive://HOST:PORT or relive://@FILE"

static int uri_refuse(const char *text, const char *why)
{
	return error_set(-EINVAL, "uri \"%.128s\": %s; " URI_FORMS, text, why);
}

/* Parses rest: HOST, HOST:PORT, [V6] or [V6]:PORT (default 7117), or @FILE. text is the whole URI,
   for messages. -EINVAL. */
static int parse_tcp(const char *text, const char *rest, struct uri *uri)
{
	bool bracket = rest[0] == '[';
	const char *host = rest + bracket;
	const char *end = bracket ? strchr(host, ']') : strchr(host, ':');
	const char *after = end ? end + bracket : "";
	size_t len = end ? (size_t)(end - host) : strlen(host);
	unsigned long port = 7117;

	if (strcmp(rest, "@") == 0)
		return uri_refuse(text, "bad file");
	if (rest[0] == '@') { /* it is read when connecting */
		memcpy(uri->text, rest, strlen(rest) + 1);
		return 0;
	}
	if (bracket && !end)
		return uri_refuse(text, "no ] after the address");
	if (len == 0 || len >= sizeof(uri->text) || memchr(host, '/', len))
		return uri_refuse(text, "bad host");
	if (*after) { /* digits only: strtoul would also take a sign and blanks */
		if (*after != ':' || after[1 + strspn(after + 1, "0123456789")])
			return uri_refuse(text, "bad port");
		port = strtoul(after + 1, NULL, 10);
	}
	if (port == 0 || port > UINT16_MAX)
		return uri_refuse(text, "bad port");
	uri->port = (uint16_t)port;
	memcpy(uri->text, host, len);
	uri->text[len] = '\0';
	return 0;
}

static bool skip_prefix(const char *text, const char *prefix, const char **rest_out)
{
	size_t len = strlen(prefix);

	if (strncmp(text, prefix, len) != 0)
		return false;
	*rest_out = text + len;
	return true;
}

int uri_parse(const char *text, struct uri *uri_out)
{
	struct uri uri = { 0 };
	const char *rest;
	int ret = 0;

	if (!text)
		return error_set(-EINVAL, "uri is NULL; " URI_FORMS);
	if (strnlen(text, URI_TEXT_BYTES) >= URI_TEXT_BYTES)
		return uri_refuse(text, "too long");
	memcpy(uri.whole, text, strlen(text) + 1);
	if (skip_prefix(text, "embed:", &rest)) {
		uri.kind = URI_EMBED;
		if (*rest == '?')
			return uri_refuse(text,
					  "it has no options: give them where the store is opened");
		memcpy(uri.text, rest, strlen(rest) + 1);
	} else if (skip_prefix(text, "shm:", &rest)) {
		uri.kind = URI_SHM;
		if (!runtime_name_is_valid(rest))
			return uri_refuse(text,
					  "a store's name is letters, digits, _ - . (48 at most)");
		memcpy(uri.text, rest, strlen(rest) + 1);
	} else if (skip_prefix(text, "relive://", &rest)) {
		uri.kind = URI_TCP;
		ret = parse_tcp(text, rest, &uri);
	} else {
		return uri_refuse(text, "unknown scheme");
	}
	if (ret == 0)
		*uri_out = uri;
	return ret;
}
