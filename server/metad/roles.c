#include "server/metad/roles.h"

#include <errno.h>

/* Role named in the error: node for node requests, else the least sufficient role. */
static const char *wanted(uint32_t allowed)
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
			 what, wanted(allowed), token_role_name(role), wanted(allowed));
}

static Relive__TableAccess most_of(enum token_role role)
{
	if (role & ROLES_WRITE)
		return RELIVE__TABLE_ACCESS__TABLE_ACCESS_WRITE;
	return role & ROLES_LEARN ? RELIVE__TABLE_ACCESS__TABLE_ACCESS_LEARN
				  : RELIVE__TABLE_ACCESS__TABLE_ACCESS_READ;
}

static uint32_t roles_of(uint32_t access)
{
	if (access >= RELIVE__TABLE_ACCESS__TABLE_ACCESS_WRITE)
		return ROLES_WRITE;
	return access == RELIVE__TABLE_ACCESS__TABLE_ACCESS_LEARN ? ROLES_LEARN : ROLES_READ;
}

int roles_access(enum token_role role, const Relive__TableOpenRequest *request,
		 Relive__TableAccess *access_out)
{
	Relive__TableAccess most = most_of(role);
	int ret;

	if (request->access > RELIVE__TABLE_ACCESS__TABLE_ACCESS_WRITE)
		return error_set(-EINVAL, "table open: unknown access %u", request->access);
	ret = roles_check(role, roles_of(request->access), "table open");
	if (ret)
		return ret;
	if (request->access)
		most = (Relive__TableAccess)request->access;
	else if (request->read_only && most == RELIVE__TABLE_ACCESS__TABLE_ACCESS_WRITE)
		most = RELIVE__TABLE_ACCESS__TABLE_ACCESS_LEARN;
	*access_out = most;
	return 0;
}
