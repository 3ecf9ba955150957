/*
 * Token: the credential of a role at a store, as users pass it.
 *
 *   64 hexadecimal digits       the store's own: may do everything, is never rotated
 *   relive-ROLE-EPOCH-DIGITS    of a role: HKDF-SHA256 of the store's own, for the role and the
 *                               epoch; tokens of another epoch than the store's are refused
 *
 * The server derives the token that a peer names by its identity, "relive:1:ROLE:EPOCH", and has it
 * proved: as the key of TLS (wire/control/tls.h), and by HELLO and AUTH (wire/control/auth.h). The identity of the
 * store's own is "relive:1:admin:0".
 *
 * Tokens are symmetric: a holder of a role's token can impersonate the server to other holders of
 * it.
 */
#ifndef RLV_WIRE_TOKEN_H
#define RLV_WIRE_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define TOKEN_TEXT_BYTES 256 /* longest that is accepted, the final 0 included */
#define TOKEN_IDENTITY_BYTES 32

/* Bits, so that they form sets; of two client roles the larger one has more rights. */
enum token_role {
	TOKEN_NODE = 1,  /* registers memory nodes */
	TOKEN_READ = 2,  /* samples of views that do not count samples */
	TOKEN_LEARN = 4, /* samples of all views, updates priorities */
	TOKEN_WRITE = 8, /* appends */
	TOKEN_ADMIN = 16,
};

struct token_id {
	enum token_role role;
	uint32_t epoch; /* 0: the store's own token */
};

/* Looks up a role by name. -EINVAL: unknown; the message lists the roles. */
RLV_MUST_CHECK int token_role_find(const char *name, enum token_role *role_out);
const char *token_role_name(enum token_role role);

/*
 * Parses a token into role and epoch; a store's own gives TOKEN_ADMIN and 0. -EINVAL: malformed, or
 * it cannot hold 128 bits of randomness. name: of the option or file, for the message.
 */
RLV_MUST_CHECK int token_parse(const char *name, const char *token, struct token_id *id_out);

/*
 * token_identity writes "relive:1:ROLE:EPOCH", token_identity_parse reads it; false: the text is
 * none.
 */
void token_identity(const struct token_id *id, char text_out[TOKEN_IDENTITY_BYTES]);
bool token_identity_parse(const void *text, size_t len, struct token_id *id_out);

/*
 * Derives the token of a role and epoch from the store's own, which epoch 0 gives unchanged. -EIO:
 * OpenSSL failed. Thread: any.
 */
RLV_MUST_CHECK int token_derive(const char *store_token, const struct token_id *id,
				char token_out[TOKEN_TEXT_BYTES]);

/*
 * 0 if the token is the store's own (epoch 0) or of that epoch, which is the store's; else -EACCES.
 */
RLV_MUST_CHECK int token_check_epoch(const struct token_id *id, uint32_t epoch);

#endif
