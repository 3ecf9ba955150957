#!/usr/bin/env bash
# An application that links librelive.a beside a libcrypto of its own, as a shared library or an archive:
# it opens a store by TLS 1.3, and its settings (openssl.cnf) are its own before and after.
set -euo pipefail

build=$RLV_BIN_DIR/..
skip() { echo "skipped: $*"; exit 77; }
[ -f "$build/lib/librelive.a" ] || skip "no librelive.a: this build is instrumented"
command -v cc >/dev/null || skip "no cc"
work=$(mktemp -d)
export RELIVE_RUNTIME_DIR=$work/r
mkdir -m 700 "$RELIVE_RUNTIME_DIR"
trap '"$RLV_BIN_DIR/relive" down --store app --force >/dev/null 2>&1 || :; rm -rf "$work"' EXIT

cat >"$work/app.c" <<'END'
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <relive/relive.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s: %s\n", what, rlv_last_error());
	exit(1);
}

/* openssl.cnf says so. */
static void expect_settings(void)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_method());

	must(ctx != NULL, "context");
	must(SSL_CTX_get_max_proto_version(ctx) == TLS1_2_VERSION, "MaxProtocol of openssl.cnf");
	SSL_CTX_free(ctx);
}

int main(int argc, char **argv)
{
	unsigned char hash[EVP_MAX_MD_SIZE];
	struct rlv_store *store = NULL;

	if (strcmp(argv[argc - 1], "first") == 0)
		expect_settings();
	must(rlv_store_open(argv[1], NULL, &store) == 0, "open");
	expect_settings();
	must(rlv_store_close(&store) == 0, "close");
	must(EVP_Digest("x", 1, hash, NULL, EVP_sha256(), NULL) == 1, "digest");
	expect_settings();
	return 0;
}
END
cat >"$work/openssl.cnf" <<'END'
openssl_conf = all
[all]
ssl_conf = ssl
[ssl]
system_default = ours
[ours]
MaxProtocol = TLSv1.2
END

# Two applications: one with the system's libcrypto, one with an archive in it.
link() { # name libraries...
	cc -I"$RLV_SOURCE_DIR/include" "$work/app.c" -o "$work/$1" "$build/lib/librelive.a" "${@:2}" \
		-lprotobuf-c -lm -ldl -lpthread
}
apps=(shared)
link shared -lssl -lcrypto
if link archive -l:libssl.a -l:libcrypto.a 2>"$work/log"; then
	apps+=(archive)
else
	echo "no libssl.a and libcrypto.a here: the shared ones only"
fi

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$RLV_BIN_DIR/relive" up --store app --size 16M --listen "127.0.0.1:$port" >/dev/null
RELIVE_TOKEN=$(cat "$RELIVE_RUNTIME_DIR/app/token")
export RELIVE_TOKEN
failed=0
for app in "${apps[@]}"; do
	for when in first later; do
		OPENSSL_CONF=$work/openssl.cnf "$work/$app" "relive://127.0.0.1:$port" $when ||
			{ echo "$app $when: failed" && failed=1; }
	done
done
unset RELIVE_TOKEN
exit $failed
