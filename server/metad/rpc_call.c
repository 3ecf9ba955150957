#include "server/metad/rpc_call.h"

#include <errno.h>

void rpc_set_status(Relive__Status *status, int code)
{
	relive__status__init(status);
	status->code = code;
	status->message = code ? (char *)error_last() : (char *)"";
}

int rpc_check_client(const struct call *call)
{
	if (call->client && !call->client->fenced)
		return 0;
	return error_set(
		-EOWNERDEAD,
		"this client was fenced: it was silent for its lease, or an operator cut it off");
}
