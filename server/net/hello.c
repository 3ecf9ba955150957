#include "server/net/hello.h"

#include <errno.h>
#include <string.h>

#include "wire/region.h"

int hello_take(const Relive__HelloRequest *hello, const struct stream *stream, uint32_t epoch,
	       struct conn_peer *peer)
{
	/* The kernel gives the peer of a unix socket, even where /proc hides other users' processes. */
	struct process_id self;
	struct token_id used;
	int ret = peer->local ? process_read(peer->process.pid, &peer->process) : -EACCES;

	peer->has_process = ret == 0;
	/* Else a process of this host, as claimed: its boot id can only be read on this host. */
	if ((!peer->local || (ret == -EACCES && hello->pid == peer->process.pid)) &&
	    process_self(&self) == 0 && hello->boot_id.len == sizeof(self.boot_id) &&
	    memcmp(self.boot_id, hello->boot_id.data, sizeof(self.boot_id)) == 0 &&
	    hello->pid <= UINT32_MAX) {
		peer->process = self;
		peer->process.pid = (uint32_t)hello->pid;
		peer->process.start_time = hello->start_time;
		peer->has_process = true;
	}
	if (hello->format_major != REGION_FORMAT_MAJOR)
		return error_set(-EPROTO, "format %u: this server speaks %d", hello->format_major,
				 REGION_FORMAT_MAJOR);
	if (hello->nonce.len != AUTH_NONCE_BYTES)
		return error_set(-EPROTO, "hello: nonce of %zu bytes", hello->nonce.len);
	if (strcmp(hello->role, "client") == 0)
		peer->role = CONN_CLIENT;
	else if (strcmp(hello->role, "memnode") == 0)
		peer->role = CONN_MEMNODE;
	else
		return error_set(-EINVAL, "hello: role \"%.32s\"", hello->role);
	peer->wanted_id = hello->client_id;
	peer->token = (struct token_id){ .role = TOKEN_ADMIN };
	if (*hello->identity &&
	    !token_identity_parse(hello->identity, strlen(hello->identity), &peer->token))
		return error_set(-EACCES, "hello: unknown identity \"%.32s\"", hello->identity);
	/* Over TLS by token, it must be the token of the handshake. */
	if (stream_token(stream, &used) &&
	    (used.role != peer->token.role || used.epoch != peer->token.epoch))
		return error_set(-EACCES,
				 "hello: it names another token than the TLS connection used");
	return token_check_epoch(&peer->token, epoch);
}
