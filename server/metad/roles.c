#include "server/metad/roles.h"

#include <errno.h>

#include "base/bits.h"

/* Name of the role with the lowest bit of `allowed`, for the error: node for node requests, else
   the least sufficient role. */
static const char *role_wanted(uint32_t allowed)
{
	return token_role_name((enum token_role)(allowed & -allowed));
}

int roles_check(enum token_role role, uint32_t allowed, const char *what)
{
	if (role & allowed)
		return 0;
	return error_set(-EACCES,
			 "%s: wants a token of role %s, this one is of role %s: ask the store's "
			 "owner (relive token %s)",
			 what, role_wanted(allowed), token_role_name(role), role_wanted(allowed));
}

int roles_access(enum token_role role, const Relive__TableOpenRequest *request,
		 Relive__TableAccess *access_out)
{
	/* roles that suffice, by access; the access of 0 is the most that the role has */
	static const uint32_t roles[] = { ROLES_READ, ROLES_READ, ROLES_LEARN, ROLES_WRITE };
	uint32_t most = RELIVE__TABLE_ACCESS__TABLE_ACCESS_WRITE;
	int ret;

	_Static_assert(ARRAY_LEN(roles) == RELIVE__TABLE_ACCESS__TABLE_ACCESS_WRITE + 1, "roles");
	while (most > RELIVE__TABLE_ACCESS__TABLE_ACCESS_READ && !(role & roles[most]))
		most--;
	if (request->access > RELIVE__TABLE_ACCESS__TABLE_ACCESS_WRITE)
		return error_set(-EINVAL, "table open: unknown access %u", request->access);
	ret = roles_check(role, roles[request->access], "table open");
	if (ret)
		return ret;
	if (request->access)
		most = request->access;
	else if (request->read_only && most == RELIVE__TABLE_ACCESS__TABLE_ACCESS_WRITE)
		most = RELIVE__TABLE_ACCESS__TABLE_ACCESS_LEARN;
	*access_out = (Relive__TableAccess)most;
	return 0;
}
