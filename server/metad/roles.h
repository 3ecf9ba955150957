/*
 * Roles: what the token of a connection lets its peer ask (wire/token.h). Which request takes which role
 * stands in the table of rpc.c; here is what depends on more than its type.
 */
#ifndef RLV_SERVER_METAD_ROLES_H
#define RLV_SERVER_METAD_ROLES_H

#include <stdint.h>

#include "wire/control.pb-c.h"
#include "wire/token.h"

#include "base/error.h"

/* Sets of roles that may ask for something. */
#define ROLES_ADMIN TOKEN_ADMIN
#define ROLES_WRITE (ROLES_ADMIN | TOKEN_WRITE)
#define ROLES_LEARN (ROLES_WRITE | TOKEN_LEARN)
#define ROLES_READ (ROLES_LEARN | TOKEN_READ)
#define ROLES_NODE (ROLES_ADMIN | TOKEN_NODE)
#define ROLES_ANY (ROLES_READ | ROLES_NODE)

/* -EACCES: the role is none of them. what: of the request, for the message. */
RLV_MUST_CHECK int roles_check(enum token_role role, uint32_t allowed, const char *what);

/* The access that a table is opened with. -EACCES: the role does not allow what was asked for. */
RLV_MUST_CHECK int roles_access(enum token_role role, const Relive__TableOpenRequest *request,
				Relive__TableAccess *access_out);

#endif
