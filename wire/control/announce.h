/*
 * Announcement: a file that says where a metadata server listens, for hosts that share a file
 * system. Clients and memory nodes name it as relive://@FILE.
 *
 *   relive://HOST:PORT      a line
 *   TOKEN                   a line: the store's own
 *
 * The file has mode 0600: who can read it can use the store. It appears whole, by rename(2), when
 * the server listens, and goes when the server ends. After a kill it stays, so a reader goes on
 * reading it until it names a server that answers (wire/control/dial.h).
 */
#ifndef RLV_WIRE_ANNOUNCE_H
#define RLV_WIRE_ANNOUNCE_H

#include <stddef.h>
#include <stdint.h>

#include "wire/control/token.h"

#include "base/error.h"

#define ANNOUNCE_HOST_BYTES 256

struct announcement {
	char host[ANNOUNCE_HOST_BYTES]; /* name or address; no brackets */
	uint16_t port;
	char token[TOKEN_TEXT_BYTES];
};

/* Path of the file if host is @FILE, else NULL. */
static inline const char *announce_path(const char *host)
{
	return host && host[0] == '@' ? host + 1 : NULL;
}

/* Replaces the file. -EACCES: its file system has no modes; errors of its system calls. */
RLV_MUST_CHECK int announce_write(const char *path, const struct announcement *news);

/*
 * Reads the file. -ENOENT: there is none; -EACCES: it is not our own, or others have access;
 * -EPROTO: it holds something else. Thread: any.
 */
RLV_MUST_CHECK int announce_read(const char *path, struct announcement *news_out);

/* Removes the file if it still says what announce_write wrote: no other server has replaced it. */
void announce_remove(const char *path, const struct announcement *news);

#endif
