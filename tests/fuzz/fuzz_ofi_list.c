/*
 * Fuzzes what a client of kind ofi sends behind its ATTACH: lists, and what is none. Byte 0: rights of the
 * opening; byte 1: bytes of each piece in which the rest comes, 0 = all at once. No request reaches
 * memory beyond the opening, or changes any without the right to.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/ofi/carry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REGION 8192u
#define MARGIN 64u /* on either side of the opening */

/* Carries out what has come; false: the link must end. */
static bool serve(struct ofi_carry *carry, const struct ofi_openings *openings, int sock)
{
	union ofi_any message;
	bool drained;
	int ret = ofi_carry_receive(carry, sock, &drained);

	while (ret == 0 || ret == -ENOBUFS) {
		ret = ofi_carry_out(carry, openings, &message);
		if (ofi_carry_send(carry, sock))
			return false;
	}
	return ret == -EAGAIN;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct ofi_carry carry;
	static uint64_t region[(REGION + 2 * MARGIN) / 8];
	struct ofi_opening opening = { .map = { .base = (uint8_t *)region + MARGIN,
						.size = REGION } };
	struct ofi_opening *at[] = { NULL, &opening };
	const struct ofi_openings openings = { at, 2, 1 };
	uint8_t drop[65536];
	int socks[2];
	size_t piece;

	if (size < 3 || socketpair(AF_UNIX, SOCK_STREAM, 0, socks))
		return 0;
	opening.map.rights = data[0] & RIGHT_ALL;
	memset(&carry, 0, offsetof(struct ofi_carry, in));
	memset(region, 0x11, sizeof(region));
	piece = data[1] ? data[1] : size;
	for (size_t done = 2; done < size;) {
		size_t n = size - done < piece ? size - done : piece;

		if (send(socks[0], data + done, n, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)n ||
		    !serve(&carry, &openings, socks[1]))
			break;
		while (recv(socks[0], drop, sizeof(drop), MSG_DONTWAIT) > 0)
			continue;
		done += n;
	}
	for (size_t i = 0; i < sizeof(region) / 8; i++) {
		bool inside = i >= MARGIN / 8 && i < (MARGIN + REGION) / 8;

		if (region[i] != 0x1111111111111111 &&
		    (!inside || !(opening.map.rights & (RIGHT_WRITE | RIGHT_ATOMIC))))
			abort();
	}
	close(socks[0]);
	close(socks[1]);
	return 0;
}
