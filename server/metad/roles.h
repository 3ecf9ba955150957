/*
 * Roles: permissions of a connection's token (wire/control/token.h). The table in rpc.c has the roles of
 * each request type; this file has checks that depend on more than the type.
 */
#ifndef RLV_SERVER_METAD_ROLES_H
#define RLV_SERVER_METAD_ROLES_H

#include <stdint.h>

#include "wire/control.pb-c.h"
#include "wire/control/token.h"

#include "base/error.h"

/* Sets of roles that may send a request. */
#define ROLES_ADMIN TOKEN_ADMIN
#define ROLES_WRITE (ROLES_ADMIN | TOKEN_WRITE)
#define ROLES_LEARN (ROLES_WRITE | TOKEN_LEARN)
#define ROLES_READ (ROLES_LEARN | TOKEN_READ)
#define ROLES_NODE (ROLES_ADMIN | TOKEN_NODE)
#define ROLES_ANY (ROLES_READ | ROLES_NODE)

/* -EACCES: the role is not in the bit set `allowed`. what: name of the request, for the message. */
RLV_MUST_CHECK int roles_check(enum token_role role, uint32_t allowed, const char *what);

/*
 * Sets *access_out to the access for opening a table: the requested one, else the most that the
 * role has, below WRITE if read_only. -EACCES: the role does not allow it; -EINVAL: unknown access.
 */
RLV_MUST_CHECK int roles_access(enum token_role role, const Relive__TableOpenRequest *request,
				Relive__TableAccess *access_out);

#endif
