/*
 * registry.c - the table of transports, and opening by name. A new transport is a line of the
 * table.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/bits.h"

#include "transport/attach/target.h"
#include "transport/shm/shm.h"
#include "transport/transport.h"
#if RLV_HAVE_OFI
#include "transport/ofi/ofi.h"
#endif
#if RLV_HAVE_VERBS
#include "transport/verbs/verbs.h"
#endif

static const struct kind {
	const char *name;  /* of the target; a URI begins with it and a colon */
	const char *rest;  /* of a URI, for messages */
	const char *lacks; /* for messages: what a build without it did not find */
	/* opts are complete; rest follows the colon. NULL = not in this build. */
	int (*open)(const char *rest, const struct transport_opts *opts, struct transport **tr_out);
	/* opts are complete. NULL = none of its own. */
	int (*target_open)(const struct target_opts *opts, struct transport_target **tg_out);
	int (*target_check)(void); /* transport_target_check; NULL: always 0 */
} kinds[] = {
	{ "embed", "", NULL, shm_open_embed, NULL, NULL },
	{ "shm", "PATH", NULL, shm_open_socket, target_open, NULL },
#if RLV_HAVE_VERBS
	{ "verbs", "HOST:PORT", NULL, verbs_open, verbs_target_open, verbs_target_check },
#else
	{ "verbs", "HOST:PORT", "libibverbs-dev and librdmacm-dev", NULL, NULL, NULL },
#endif
#if RLV_HAVE_OFI
	{ "ofi", "HOST:PORT", NULL, ofi_open, ofi_target_open, ofi_target_check },
#else
	{ "ofi", "HOST:PORT", "libfabric-dev", NULL, NULL, NULL },
#endif
};

/* The kind whose name is the first n bytes of text, or NULL. */
static const struct kind *find_kind(const char *text, size_t n)
{
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		if (strlen(kinds[i].name) == n && memcmp(kinds[i].name, text, n) == 0)
			return &kinds[i];
	}
	return NULL;
}

/*
 * Returns -ENOTSUP if the kind is not in this build, or -EINVAL if it is unknown: the message then
 * lists the known URIs, or kinds of targets (target).
 */
static int refuse(const struct kind *kind, const char *name, bool target)
{
	char known[128] = "";
	size_t n = 0;

	if (kind && !kind->open)
		return error_set(-ENOTSUP,
				 "transport \"%s\": built without it: install %s, and build again",
				 name, kind->lacks);
	for (size_t i = 0; i < ARRAY_LEN(kinds) && n < sizeof(known); i++) {
		kind = &kinds[i];
		if (!target || kind->target_open)
			n += (size_t)snprintf(known + n, sizeof(known) - n, " %s%s%s", kind->name,
					      target ? "" : ":", target ? "" : kind->rest);
	}
	if (target)
		return error_set(-EINVAL, "target kind \"%s\": the kinds are%s", name, known);
	return error_set(-EINVAL, "transport uri \"%s\": the schemes are%s", name, known);
}

int transport_open(const char *uri, const struct transport_opts *opts, struct transport **tr_out)
{
	struct transport_opts full = opts ? *opts : (struct transport_opts){ 0 };
	const struct kind *kind;
	size_t scheme;

	if (!uri)
		return error_set(-EINVAL, "transport uri: NULL");
	if (strnlen(uri, TRANSPORT_URI_BYTES) == TRANSPORT_URI_BYTES)
		return error_set(-EINVAL, "transport uri: longer than %d bytes",
				 TRANSPORT_URI_BYTES - 1);
	if (!full.clock)
		full.clock = clock_monotonic();
	if (!full.timeout_ns)
		full.timeout_ns = 5 * (uint64_t)CLOCK_NS_PER_S;
	if (!full.open_ns)
		full.open_ns = full.timeout_ns;
	scheme = strcspn(uri, ":");
	kind = uri[scheme] ? find_kind(uri, scheme) : NULL;
	return kind && kind->open ? kind->open(uri + scheme + 1, &full, tr_out)
				  : refuse(kind, uri, false);
}

int transport_target_open(const char *name, const struct target_opts *opts,
			  struct transport_target **tg_out)
{
	const struct kind *kind = name ? find_kind(name, strlen(name)) : NULL;
	struct target_opts full;

	if (!kind || !kind->target_open)
		return refuse(kind, name ? name : "NULL", true);
	if (!opts)
		return error_set(-EINVAL, "target opts: NULL");
	full = *opts;
	if (!full.clock)
		full.clock = clock_monotonic();
	return kind->target_open(&full, tg_out);
}

int transport_target_check(const char *name)
{
	const struct kind *kind = find_kind(name, strlen(name));

	if (!kind || !kind->target_open)
		return refuse(kind, name, true);
	return kind->target_check ? kind->target_check() : 0;
}
